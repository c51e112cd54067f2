"""Convert requests for the simulator, by what a model makes of their media."""

from collections.abc import Sequence

import msgspec

from unifiedserve.bench.workloads.replay import TOKEN_PIXELS
from unifiedserve.config.memory import MemoryOptions
from unifiedserve.errors import ConfigError
from unifiedserve.messages.ticket import Ticket
from unifiedserve.planning.workload import RequestSize, Workload
from unifiedserve.profiles import HardwareProfile
from unifiedserve.scheduling.simulation import Arrival, StageCosts

FPS, MOST_FRAMES = 2.0, 768  # of a video, as Qwen2.5-VL samples it
_PATCH_PAGE_ROWS = MemoryOptions().patch_page_rows
_FRAMES_A_UNIT = 2
_UNIT_TOKENS, _UNIT_SECONDS = 256, 0.01  # to which small units are put together: fewer to simulate


class _Unit(msgspec.Struct, frozen=True):
    """Describe a piece of media that is encoded by itself.

    It has visual tokens, and seconds that it takes to decode.
    """

    tokens: int
    decode: float


def arrivals_of(workload: Workload, profile: HardwareProfile, frames: int | None = None) -> list[Arrival]:
    """Return the requests, one a second on average.

    Of a video `frames` are looked at, by default two a second up to 768. Raises ConfigError if the profile does not say
    how many tokens media have.
    """
    each = zip(workload.requests, workload.times, strict=True)
    return [_arrival(Ticket(uid, at), size, workload.exact, profile, frames) for uid, (size, at) in enumerate(each)]


def at_rate(arrivals: Sequence[Arrival], rate: float) -> list[Arrival]:
    """Return the same requests at so many a second."""
    tickets = (msgspec.structs.replace(each.ticket, arrival=each.ticket.arrival / rate) for each in arrivals)
    return [each._replace(ticket=ticket) for each, ticket in zip(arrivals, tickets, strict=True)]


def _arrival(ticket: Ticket, size: RequestSize, exact: bool, profile: HardwareProfile, frames: int | None) -> Arrival:
    units = [_image(pixels, exact, profile) for pixels in size.pixels]
    for seconds in size.seconds:
        units += _video(seconds, frames, profile)
    if not units:
        return Arrival(ticket, [size.text_tokens], [], size.output_tokens)
    before = size.text_tokens // 2
    patches = max(unit.tokens for unit in units) * profile.model_sizes.patches_a_token
    return Arrival(
        ticket,
        [before, *[0] * (len(units) - 1), size.text_tokens - before],
        [unit.tokens for unit in units],
        size.output_tokens,
        sum(unit.decode for unit in units) / len(units),
        gop=_gop(len(units), sum(size.seconds), profile.costs.gop_seconds),
        patch_pages=-(-patches // _PATCH_PAGE_ROWS),
        media=len(size.pixels) + len(size.seconds),
    )


def _image(pixels: int, exact: bool, profile: HardwareProfile) -> _Unit:
    tokens = 0 if exact else profile.model_sizes.image_tokens
    return _Unit(tokens or max(1, round(pixels / TOKEN_PIXELS)), profile.costs.image)


def _video(seconds: float, frames: int | None, profile: HardwareProfile) -> list[_Unit]:
    if not profile.model_sizes.frame_tokens:
        raise ConfigError("the profile has no model_sizes.frame_tokens, and there are videos: say how many a frame has")
    pairs = max(1, round((frames or min(MOST_FRAMES, seconds * FPS)) / _FRAMES_A_UNIT))
    tokens = max(1, round(_FRAMES_A_UNIT * profile.model_sizes.frame_tokens))
    count = -(-pairs // max(1, _most_tokens(profile.costs) // tokens))
    decode = profile.costs.video(seconds, _FRAMES_A_UNIT * pairs)
    return [_Unit(round(tokens * pairs / count), decode / count)] * count


def _most_tokens(costs: StageCosts) -> int:
    """Return to how many visual tokens small units are put together: no step becomes longer by more than a moment."""
    return min(_UNIT_TOKENS, int(_UNIT_SECONDS / costs.visual_token) if costs.visual_token else _UNIT_TOKENS)


def _gop(units: int, seconds: float, gop_seconds: float) -> int:
    """Return how many units of a video lie in a GOP; 0: there is none."""
    return max(1, round(units * gop_seconds / seconds)) if seconds else 0
