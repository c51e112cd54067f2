"""Who serves a request: the host with the least left to do, and one host for all that it can do."""

from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.placement import Load, Placement, Route, Stage, choose_route, read_placement

EPD = read_placement("2e+2p+2d", range(4))
TOKENS = st.fixed_dictionaries({stage: st.integers(0, 1000) for stage in Stage})


def test_with_one_host_a_stage_there_is_no_choice() -> None:
    assert choose_route(read_placement("shared", ()), []) == Route(
        "vision", "encode-prefill", "encode-prefill", "decode"
    )


def test_the_least_pending_tokens_of_each_stage_decide() -> None:
    first = Route("vision", "encode-1", "prefill-1", "decode-1")
    assert choose_route(EPD, []) == first
    image = Load(first, {Stage.ENCODE: 500, Stage.PREFILL: 600, Stage.DECODE: 1})
    assert choose_route(EPD, [image]) == Route("vision", "encode-2", "prefill-2", "decode-2")
    decoding = Load(first, {Stage.DECODE: 1})
    text = Load(Route("vision", "encode-2", "prefill-2", "decode-2"), {Stage.PREFILL: 50, Stage.DECODE: 1})
    assert choose_route(EPD, [decoding, text]) == first


def test_texts_and_images_are_spread_over_hosts_of_several_stages() -> None:
    placement = read_placement("2ep+d", range(2))
    texts = [Load(Route("vision", "encode-prefill-1", "encode-prefill-1", "decode"), {Stage.PREFILL: 50})]
    assert choose_route(placement, texts).encode == "encode-prefill-2"


@given(
    st.sampled_from(["2ep+d", "3epd", "e+2pd", "ed+2p", "2e+2p+2d"]).map(lambda text: read_placement(text, range(4))),
    st.lists(TOKENS, max_size=12),
)
def test_who_serves_a_stage_does_all_that_it_hosts(placement: Placement, work: list[dict[Stage, int]]) -> None:
    loads: list[Load] = []
    for left in work:
        route = choose_route(placement, loads)
        loads.append(Load(route, left))
        for place, stage in enumerate(Stage):
            hosts = placement.hosts(stage)
            assert route.host(stage) in hosts
            if own := {route.host(before) for before in list(Stage)[:place]}.intersection(hosts):
                assert route.host(stage) in own
