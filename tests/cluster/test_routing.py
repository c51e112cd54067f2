"""Which node takes a request: the pure policies."""

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.cluster.router.asked import read_asked
from unifiedserve.cluster.routing import Encoders, Fleet, Policy, Request
from unifiedserve.messages.costs import Costs
from unifiedserve.messages.load import EngineLoad
from unifiedserve.scheduling import Work

COSTS = Costs(decode=0.01, prompt_token=1e-3, visual_token=2e-3, image_pixel=1e-8, video_second=1.0)
VIDEO = Work(prompt_tokens=600, visual_tokens=500, video_seconds=1.5)


def _fleet(policy: Policy, *loads: EngineLoad) -> Fleet:
    fleet = Fleet(policy)
    for number, load in enumerate(loads):
        fleet.update(f"n{number}", load)
    return fleet


def test_the_node_with_the_earliest_first_token_takes_it() -> None:
    slow = Costs(decode=0.01, prompt_token=1e-3, visual_token=2e-2, image_pixel=1e-8, video_second=1.0)
    fleet = _fleet(Policy.COST, EngineLoad(wait=5.0, costs=COSTS), EngineLoad(wait=0.5, costs=slow))
    assert fleet.choose(Request(Work(prompt_tokens=100))) == "n1"
    assert fleet.choose(Request(VIDEO)) == "n0"


def test_media_cost_a_node_their_prompt_only_where_others_encode() -> None:
    """It knows no costs of the encoder, and must not be charged with those of others."""
    fleet, language = Fleet(Policy.COST), Costs(decode=0.01, prompt_token=1e-3)
    fleet.update("whole", EngineLoad(costs=COSTS))
    fleet.update("text", EngineLoad(wait=1.0, costs=language), encodes=False)
    assert fleet.choose(Request(VIDEO)) == "text"  # 0.6 s behind 1 s, in place of 3.1 s
    assert fleet.choose(Request(Work(prompt_tokens=600))) == "whole"


def test_what_was_sent_counts_before_a_node_tells_of_it() -> None:
    fleet = _fleet(Policy.COST, *[EngineLoad(costs=COSTS)] * 4)
    assert Counter(fleet.choose(Request(VIDEO)) for _ in range(40)) == {f"n{number}": 10 for number in range(4)}


def test_what_a_node_has_seen_is_worth_a_wait_but_not_any() -> None:
    request = Request(VIDEO, "key", cached=VIDEO, known=["n0"])
    for wait, chosen in ((1.0, "n0"), (30.0, "n1")):
        fleet = _fleet(Policy.COST, EngineLoad(wait=wait, costs=COSTS), EngineLoad(costs=COSTS))
        assert fleet.choose(request) == chosen


def test_all_routers_find_the_same_node_for_a_key() -> None:
    routers = [_fleet(Policy.COST, *[EngineLoad(costs=COSTS)] * 5) for _ in range(2)]
    own = [[router.choose(Request(Work(prompt_tokens=1), key)) for key in map(str, range(20))] for router in routers]
    assert own[0] == own[1]
    assert len(set(own[0])) > 2


def test_a_key_stays_with_its_node_when_others_leave() -> None:
    fleet, keys = _fleet(Policy.COST, *[EngineLoad(costs=COSTS)] * 7), [f"key {number}" for number in range(2000)]
    homes = {key: _home(fleet, key) for key in keys}
    shares = Counter(homes.values())
    assert all(200 < shares[name] < 380 for name in fleet), shares  # of 286, five deviations
    fleet.leave("n3")
    assert all(_home(fleet, key) == home for key, home in homes.items() if home != "n3")


def _home(fleet: Fleet, key: str) -> str | None:
    """Return who takes a request of nothing, among nodes that have nothing to do."""
    for name in fleet:
        fleet.update(name, EngineLoad(costs=COSTS))
    return fleet.choose(Request(Work(prompt_tokens=0), key))


def test_who_knows_no_costs_counts_as_the_others() -> None:
    fleet = _fleet(Policy.COST, EngineLoad(wait=1.0, costs=COSTS), EngineLoad())
    assert fleet.choose(Request(VIDEO)) == "n1"
    assert fleet.choose(Request(VIDEO)) == "n0"


def test_baselines() -> None:
    loads = [EngineLoad(in_flight=number, wait=9.0 - number, costs=COSTS) for number in range(3)]
    least = _fleet(Policy.LEAST_REQUESTS, *loads)
    assert [least.choose(Request(VIDEO)) for _ in range(3)] == ["n0", "n0", "n1"]
    turns = _fleet(Policy.ROUND_ROBIN, *loads)
    assert [turns.choose(Request(VIDEO)) for _ in range(4)] == ["n0", "n1", "n2", "n0"]
    assert len({_fleet(Policy.RANDOM, *loads).choose(Request(VIDEO)) for _ in range(1)}) == 1


@given(
    st.sampled_from(Policy),
    st.lists(st.tuples(st.sampled_from(["come", "leave", "ask"]), st.integers(0, 4), st.floats(0, 9)), max_size=30),
)
def test_only_those_that_are_there_take_requests(policy: Policy, steps: list[tuple[str, int, float]]) -> None:
    fleet, there = Fleet(policy), set[str]()
    for step, number, wait in steps:
        name = f"n{number}"
        if step == "come":
            fleet.update(name, EngineLoad(wait=wait, costs=COSTS))
            there.add(name)
        elif step == "leave":
            fleet.leave(name)
            there.discard(name)
        else:
            chosen = fleet.choose(Request(VIDEO, str(wait)))
            assert chosen in there if there else chosen is None
        assert set(fleet) == there
        assert fleet.choose(Request(VIDEO, only=name)) == (name if name in there else None)


def test_what_is_read_of_a_body() -> None:
    video = b'{"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}'
    text = b'{"type": "text", "text": "' + b"word" * 100 + b'"}'
    body = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": [' + video + b"," + text + b"]}]}"
    asked = read_asked(body)
    assert (asked.model, asked.stream, asked.tokens, asked.media) == ("m", True, 100, 1)
    assert asked.key == read_asked(body.replace(b"word" * 100, b"other")).key
    assert asked.key != read_asked(body.replace(b"AAAA", b"AAAB")).key
    assert read_asked(b'{"prompt": [[1, 2, 3], [4]]}').tokens == 4
    assert read_asked(b"no JSON") == read_asked(b"[]")


def test_a_later_turn_begins_as_the_one_before() -> None:
    first = read_asked(b'{"messages": [{"role": "user", "content": "One"}]}')
    said = (("user", "One"), ("assistant", "1"), ("user", "?"))
    later = msgspec.json.encode([{"role": role, "content": text} for role, text in said])
    assert read_asked(b'{"messages": ' + later + b"}").prefixes[0] == first.prefixes[-1]


def _encoders(*pending: int) -> Encoders:
    encoders = Encoders()
    for number, tokens in enumerate(pending):
        encoders.update(f"n{number}", EngineLoad(visual_tokens=tokens))
    return encoders


def test_who_encodes_has_the_least_before_it_and_what_was_given_out_counts() -> None:
    encoders = _encoders(5000, 0, 900)
    assert [name for name, _ in encoders.choose(100)] == ["n1", "n2", "n0"]
    assert encoders.choose(100) == [("n1", 100), ("n2", 900), ("n0", 5000)]
    encoders.choose(700)
    assert {encoders.choose(100)[0], encoders.choose(100)[0]} == {("n1", 900), ("n2", 900)}
    encoders.leave("n2")
    encoders.update("n0", EngineLoad(visual_tokens=10))
    assert [name for name, _ in encoders.choose(100)] == ["n0", "n1"]
    assert _encoders().choose(100) == []


def test_media_that_are_shared_out_count_at_all_nodes_that_get_a_part() -> None:
    """Ten requests between two reports, each shared out by eight nodes: none has much more than another."""
    encoders, tokens = _encoders(*[0] * 16), 8 * 4096
    for number in range(10):
        encoders.choose(tokens, str(number))
    last = dict(encoders.choose(1, "x") + encoders.choose(1, "y"))
    assert sum(last.values()) > 0
    assert max(last.values()) <= 7 * 4096


def test_the_same_media_find_the_same_encoder_among_those_that_are_as_good() -> None:
    routers = [_encoders(5, 100, *[0] * 18) for _ in range(2)]
    own = [[router.choose(500, key)[0][0] for key in map(str, range(3))] for router in routers]
    assert own[0] == own[1]
    firsts = {_encoders(*[0] * 20).choose(500, str(number))[0][0] for number in range(100)}
    assert len(firsts) > 15
    assert len(_encoders(*[0] * 20).choose(500)) == 8
