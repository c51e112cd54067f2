"""Words for things, events, times and numbers, and the wordings of questions."""

from training.world.scene import Event, EventKind, Heading, Scene, Shape, Thing

NUMBERS = ("no", "one", "two", "three", "four")
UNKNOWN = "I can't tell."
LONG = 60.0  # seconds of video from which on times are said in minutes

MOVES: dict[Heading, str] = {"left": "to the left", "right": "to the right", "up": "up", "down": "down"}
#: what a thing does, in the present tense and after "does"
VERBS: dict[EventKind, tuple[str, str]] = {
    "appear": ("appears", "appear"),
    "disappear": ("disappears", "disappear"),
    "enter": ("comes in", "come in"),
    "leave": ("leaves", "leave"),
    "turn": ("turns", "turn"),
    "collide": ("hits", "hit"),
    "speed up": ("speeds up", "speed up"),
}

WORDINGS: dict[str, tuple[str, ...]] = {
    "colour": (
        "What colour is {x}?",
        "What color is {x}?",
        "Which color is {x}?",
        "What is the colour of {x}?",
        "What is the color of {x}?",
        "Tell me the color of {x}.",
    ),
    "shape": ("What shape is {x}?", "Which shape does {x} have?", "What is the shape of {x}?"),
    "size": ("Is {x} big or small?", "How big is {x}?", "What size is {x}?"),
    "count": (
        "How many objects are there?",
        "How many objects do you see?",
        "Count the objects.",
        "How many things are there?",
    ),
    "count of": ("How many {x} are there?", "How many {x} do you see?", "Count the {x}."),
    "quadrant": (
        "Where is {x}?",
        "In which corner is {x}?",
        "Where do you see {x}?",
        "In which part of the picture is {x}?",
    ),
    "beside": ("Is {x} to the {side} of {y}?", "Is {x} further {side} than {y}?"),
    "direction": (
        "Which way does {x} move?",
        "In which direction does {x} move?",
        "Where does {x} go?",
        "Where is {x} moving?",
    ),
    "speed": ("How fast is {x}?", "Does {x} move slowly or quickly?", "How fast does {x} move?"),
    "first": (
        "What happens first?",
        "What is the first thing that happens?",
        "What happened first?",
        "What comes first?",
    ),
    "last": ("What happens last?", "What is the last thing that happens?", "What happened last?", "What comes last?"),
    "order": ("Which comes first: {a} or {b}?", "What happens first, {a} or {b}?"),
    "time": ("When {does}?", "At which second {does}?", "At what second {does}?", "At what time {does}?"),
    "minute": ("When {does}?", "At which minute {does}?", "At what minute {does}?", "At what time {does}?"),
    "ever": ("Does {x} ever {verb}?", "Did {x} ever {verb}?", "Does {x} {verb}?"),
    "presence": ("Is there {x}?", "Do you see {x}?", "Is {x} there at any time?"),
    "new colour": ("What colour does {x} turn?", "Which color does {x} become?"),
    "happening": ("What happens to {x}?", "What does {x} do?"),
    "description": (
        "Describe the {medium}.",
        "Describe this {medium}.",
        "Describe the {medium} in a sentence.",
        "What do you see?",
        "What can you see?",
        "What is in the {medium}?",
        "What is in this {medium}?",
        "What does the {medium} show?",
        "What is this?",
    ),
}


def name(thing: Thing) -> str:
    return f"{thing.colour} {thing.shape}"


def a(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def sentence(words: str) -> str:
    return words[0].upper() + words[1:] + "."


def plural(shape: Shape) -> str:
    return shape + ("es" if shape == "cross" else "s")


def counted(number: int, one: str, many: str) -> str:
    """Return the answer to "how many"."""
    return f"There is one {one}." if number == 1 else f"There are {NUMBERS[number]} {many}."


def clause(scene: Scene, event: Event, subject: str) -> str:
    """Say what an event is, in the present tense, of `subject`."""
    return f"{subject} {VERBS[event.kind][0]}{_object(scene, event)}"


def asked(scene: Scene, event: Event, subject: str) -> str:
    """Say an event as the rest of a question, after "when"."""
    return f"does {subject} {VERBS[event.kind][1]}{_object(scene, event)}"


def _object(scene: Scene, event: Event) -> str:
    """Return the colour that a thing turns, or the thing that it hits; nothing for other events."""
    if event.kind == "turn":
        turns = scene.things[event.subject].turns
        assert turns is not None
        return f" {turns[1]}"
    if event.kind == "collide":
        assert event.other is not None
        return f" the {name(scene.things[event.other])}"
    return ""


def moment(seconds: float, length: float) -> str:
    """Say a time in a video of this length, as an answer does."""
    if length < LONG:
        return f"at second {round(seconds)}"
    tens = round(seconds / 10)
    return f"at minute {tens // 6}:{tens % 6}0"


def quadrant(scene: Scene, x: float, y: float) -> str:
    return f"in the {'top' if y < scene.height / 2 else 'bottom'} {'left' if x < scene.width / 2 else 'right'}"


def size(thing: Thing) -> str:
    return "big" if thing.big else "small"
