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


def test_prefill_is_near_the_encoders_and_decode_near_prefill() -> None:
    placement = read_placement("2v+2e@mem0+2e@mem1+p@mem1+p@mem2+d@mem1+d@mem2", ())
    first = choose_route(placement, [])
    assert first == Route("vision-1", ("encode-1", "encode-2"), "prefill-1", "decode-1")
    loads = [Load(first, {Stage.VISION: 90, Stage.ENCODE: 90, Stage.PREFILL: 120, Stage.DECODE: 1})]
    near = Route("vision-2", ("encode-3", "encode-4"), "prefill-1", "decode-1")
    assert choose_route(placement, loads) == near
    assert choose_route(placement, loads, media=False) == Route(prefill="prefill-2", decode="decode-2")
    assert choose_route(replace(placement, irp=False), loads) == replace(near, encode=("encode-3",))


def test_where_a_memory_has_no_host_another_one_has() -> None:
    placement = read_placement("e@mem0+p@mem1+d@mem2", ())
    assert choose_route(placement, []) == Route("vision", ("encode",), "prefill", "decode")
    assert choose_route(placement, [], media=False) == Route(prefill="prefill", decode="decode")


PLACES = ["mem0", "mem1", "mem2"]


@given(
    st.lists(
        st.tuples(st.sampled_from(["v", "e", "p", "d", "ep", "epd", "vepd"]), st.sampled_from(PLACES)), max_size=6
    ),
    st.lists(TOKENS, max_size=8),
    st.booleans(),
    st.booleans(),
)
def test_nothing_travels_that_need_not(
    parts: list[tuple[str, str]], work: list[dict[Stage, int]], irp: bool, media: bool
) -> None:
    text = "+".join(f"{letters}@{memory}" for letters, memory in [*parts, ("vepd", "mem1")])
    placement = replace(read_placement(text, ()), irp=irp)
    near = {
        memory: {stage for each in placement.instances if each.memory == memory for stage in each.stages}
        for memory in placement.memories
    }
    loads: list[Load] = []
    for left in work:
        route = choose_route(placement, loads, media=media)
        loads.append(Load(route, left))
        places = {stage: {placement.memory_of(name) for name in route.hosts(stage)} for stage in Stage}
        assert len(places[Stage.ENCODE]) == media
        if media:
            (encoders,) = places[Stage.ENCODE]
            assert Stage.PREFILL not in near[encoders] or places[Stage.PREFILL] == {encoders}
            if irp:
                assert route.encode == tuple(
                    name for name in placement.hosts(Stage.ENCODE) if placement.memory_of(name) == encoders
                )
        (prefill,) = places[Stage.PREFILL]
        assert Stage.DECODE not in near[prefill] or places[Stage.DECODE] == {prefill}


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
