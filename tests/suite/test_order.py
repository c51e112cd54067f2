"""The order in which tests of several configurations start few engines."""

from order import fewest_starts


def starts(order: list[tuple[str, ...]], kept: int) -> int:
    alive: list[str] = []
    started = 0
    for names in order:
        started += len(set(names) - set(alive[-kept:]))
        alive = [name for name in alive if name not in names] + list(names)
    return started


def test_pairs_come_while_one_of_them_is_alive() -> None:
    wanted = [("a",), ("b",), ("c",), ("a", "b"), ("d",), ("c", "d"), ("b",)]
    order = fewest_starts(wanted, kept=2)
    assert sorted(order) == sorted(set(wanted))
    assert starts(order, kept=2) == 4
    assert starts(wanted, kept=2) > 4


def test_without_pairs_the_order_stays() -> None:
    wanted = [("b",), ("a",), ("c",)]
    assert fewest_starts(wanted, kept=2) == wanted
