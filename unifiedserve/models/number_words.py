"""Spell numbers in English words, as prompts of some families do."""

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety"
ONES, TENS = _ONES.split(), _TENS.split()
SCALES = ((10**6, "million"), (1000, "thousand"), (100, "hundred"))


def in_words(number: int) -> str:
    """Spell 0 to 999,999,999 in British style: "one thousand, two hundred and thirty-four"."""
    if number < 20:
        return ONES[number]
    if number < 100:
        tens, rest = divmod(number, 10)
        return f"{TENS[tens]}-{ONES[rest]}" if rest else TENS[tens]
    size, name = next(scale for scale in SCALES if number >= scale[0])
    many, rest = divmod(number, size)
    joint = " and " if rest < 100 else ", "
    return f"{in_words(many)} {name}" + (f"{joint}{in_words(rest)}" if rest else "")
