"""Who serves a request: the host with the least left to do, and one host for all that it can do."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from unifiedserve.placement import Load, Placement, Route, Stage, choose_route, read_placement

EPD = replace(read_placement("2e+2p+2d", range(4)), irp=False)
TOKENS = st.fixed_dictionaries({stage: st.integers(0, 1000) for stage in Stage})


def test_with_one_host_a_stage_there_is_no_choice() -> None:
    assert choose_route(read_placement("shared", ()), []) == Route(
        "vision", ("encode-prefill",), "encode-prefill", "decode"
    )


def test_the_least_pending_tokens_of_each_stage_decide() -> None:
    first = Route("vision", ("encode-1",), "prefill-1", "decode-1")
    assert choose_route(EPD, []) == first
    image = Load(first, {Stage.ENCODE: 500, Stage.PREFILL: 600, Stage.DECODE: 1})
    assert choose_route(EPD, [image]) == Route("vision", ("encode-2",), "prefill-2", "decode-2")
    decoding = Load(first, {Stage.DECODE: 1})
    text = Load(Route("vision", ("encode-2",), "prefill-2", "decode-2"), {Stage.PREFILL: 50, Stage.DECODE: 1})
    assert choose_route(EPD, [decoding, text]) == first


def test_texts_and_images_are_spread_over_hosts_of_several_stages() -> None:
    placement = replace(read_placement("2ep+d", range(2)), irp=False)
    texts = [Load(Route("vision", ("encode-prefill-1",), "encode-prefill-1", "decode"), {Stage.PREFILL: 50})]
    assert choose_route(placement, texts).encode == ("encode-prefill-2",)


def test_all_encoders_serve_a_request_whose_units_they_share() -> None:
    placement = read_placement("2v+3e+2p+d", ())
    encoders = ("encode-1", "encode-2", "encode-3")
    first = choose_route(placement, [])
    assert first == Route("vision-1", encoders, "prefill-1", "decode")
    loads = [Load(first, {Stage.VISION: 90, Stage.ENCODE: 90, Stage.PREFILL: 120})]
    assert choose_route(placement, loads) == Route("vision-2", encoders, "prefill-2", "decode")


@given(
    st.sampled_from(["2ep+d", "3epd", "e+2pd", "ed+2p", "2e+2p+2d"]).map(lambda text: read_placement(text, range(4))),
    st.lists(TOKENS, max_size=12),
    st.booleans(),
)
def test_who_serves_a_stage_does_all_that_it_hosts(
    placement: Placement, work: list[dict[Stage, int]], irp: bool
) -> None:
    loads: list[Load] = []
    placement = replace(placement, irp=irp)
    for left in work:
        route = choose_route(placement, loads)
        loads.append(Load(route, left))
        for place, stage in enumerate(Stage):
            hosts = placement.hosts(stage)
            serving = route.hosts(stage)
            assert set(serving) <= set(hosts)
            assert len(serving) == (len(hosts) if stage is Stage.ENCODE and irp else 1)
            if own := {host for before in list(Stage)[:place] for host in route.hosts(before)}.intersection(hosts):
                assert own & set(serving)
