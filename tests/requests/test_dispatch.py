"""In which order the parts of a request go out."""

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from flashcodec import PatchLayout
from unifiedserve.config import EngineConfig
from unifiedserve.engine.caches import Known
from unifiedserve.engine.requests.dispatch import Dispatch
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.engine.roles import Roles
from unifiedserve.messages.media import MediaPlan
from unifiedserve.messages.pages import Pages
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.wire import Abort, MediaSource, Message, PrefillRequest, Reuse, VisionRequest
from unifiedserve.placement import Stage
from unifiedserve.scheduling import Targets

IMAGE = MediaPlan(
    kind="image",
    layout=PatchLayout(height=28, width=28, patch_size=14, temporal_patch_size=2, merge_size=2),
    units=1,
    patches_per_unit=4,
    tokens_per_unit=1,
)


VIDEO = replace(IMAGE, kind="video", units=3)


@pytest.mark.parametrize(
    ("placement", "looked_in", "by_vision"), [("e@mem0+pd@mem1", "prefill-decode", []), ("ep+d", "encode-prefill", [1])]
)
def test_what_is_cached_is_recalled_where_it_is(placement: str, looked_in: str, by_vision: list[int]) -> None:
    """By prefill, if that is in another memory than the encoders; vision decodes the other units in either case."""
    known = Known([], [], [], Reuse(covered=1, units={1: Pages((5,), (1,))}))
    caches = Mock(look_up=Mock(return_value=known))
    sent: dict[str, Message] = {}
    workers = Mock(send=sent.__setitem__, caches=caches)
    roles, table = Roles(EngineConfig.of(placement=placement)), RequestTable(4, lambda: None)
    dispatch = Dispatch(roles, table, workers, Targets(EngineConfig()), Mock(), Mock())
    request = SimpleNamespace(embed=False, slo_ttft=None, priority=0, viewer=None, id="a")
    prompt = SimpleNamespace(token_ids=[1, 2, 3, 4, 5], media=[VIDEO])
    planned = SimpleNamespace(prompt=prompt, request=request, sampling=SamplingParams(), window=None)
    active = ActiveRequest(cast(Any, planned), 0.0, [cast(Any, SimpleNamespace(token_ids=[], last_token=None))])
    active.sources = [MediaSource(plan=VIDEO, name="video 1")]
    active.contents = cast(Any, SimpleNamespace(page_tokens=16))
    dispatch.submit(active, [0])
    assert caches.look_up.call_args.args[0] == looked_in
    prefill, vision = sent[looked_in], sent["vision"]
    assert isinstance(prefill, PrefillRequest)
    assert isinstance(vision, VisionRequest)
    assert list(prefill.reuse.units) == [1]
    assert list(vision.cached) == by_vision
    assert [source.units for source in vision.media] == [[2]]


def test_who_receives_is_told_before_who_sends() -> None:
    """Vision sends what is cached at once: prefill would not know whose it is. A text goes to prefill alone."""
    sent: list[tuple[str, Message]] = []
    workers = Mock(send=lambda instance, message: sent.append((instance, message)))
    table = RequestTable(4, lambda: None)
    roles = Roles(EngineConfig.of(placement="2e+2p+d"))
    dispatch = Dispatch(roles, table, workers, Targets(EngineConfig()), Mock(), Mock())
    request = SimpleNamespace(embed=False, slo_ttft=None, priority=0, viewer=None, id="a")
    prompt = SimpleNamespace(token_ids=[1, 2, 3], media=[IMAGE])
    planned = SimpleNamespace(prompt=prompt, request=request, sampling=SamplingParams(), window=None)
    active = ActiveRequest(cast(Any, planned), 0.0, [cast(Any, SimpleNamespace(token_ids=[], last_token=None))])
    active.sources = [MediaSource(plan=IMAGE, name="image 1")]
    for number in (1, 2):
        dispatch.submit(active, [0])
        assert [instance for instance, _ in sent] == [f"prefill-{number}", "encode-1", "encode-2", "vision"]
        sent.clear()
    dispatch.abort(2)
    ((vision, message),) = sent
    assert isinstance(message, Abort)
    assert (vision, message.route.encode, message.route.prefill) == ("vision", ("encode-1", "encode-2"), "prefill-2")
    sent.clear()
    prompt.media, active.sources = [], []
    dispatch.submit(active, [0])
    assert [instance for instance, _ in sent] == ["prefill-1"]
    sent.clear()
    dispatch.abort(3)
    ((prefill, message),) = sent
    assert isinstance(message, Abort)
    assert (prefill, message.stage, message.route.encode) == ("prefill-1", Stage.PREFILL, ())
    assert {each for each in ("vision", "encode-1", "prefill-1", "decode") if table.serves(each)} == {
        "vision", "encode-1", "prefill-1", "decode",
    }  # fmt: skip
    table.end_attempt(1)
    table.end_attempt(2)
    assert not any(map(table.serves, ["vision", "encode-1", "prefill-2"]))
    assert all(map(table.serves, ["prefill-1", "decode"]))
