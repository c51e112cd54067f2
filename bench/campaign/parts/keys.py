"""A server with API keys: who shows none of them gets a 401 or, after too many, a 429 where something is to be had."""

from random import Random

from bench.campaign.asking import CHAT, asks, chat
from bench.campaign.cases import Kind, Part, Seen, Target, ViolationError
from bench.campaign.verdict import judge
from bench.campaign.wire import connected, head

KEY = "campaign-key-0123456789"
_OPEN = ("/health", "/ready", "/")
_BAD = (
    "", "x", "Bearer", "Bearer ", "Bearer x", f"Basic {KEY}", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", "bearer \u00e9",
    f"Bearer {KEY}, Bearer x", "Bearer " + "x" * 9999, f"{KEY}", f"Bearer{KEY}", "Bearer null", f"Bearer {KEY.upper()}",
)  # fmt: skip


async def _without(target: Target, random: Random) -> Seen:
    """Ask without a key, or with one that is none; the refusal comes before anything is read."""
    paths = [CHAT, "/v1/completions", "/v1/files", "/v1/models", "/metrics", "/debug/trace", "/v1/events", "/tokenize"]
    path = random.choice(
        [*paths, "/openapi.json", "/docs", "/playground/settings", "/nothing", "//", "/health/", "/%68ealth/x"]
    )
    header, value = random.choice(
        (("Authorization", random.choice(_BAD)), ("Cookie", f"unifiedserve-key={KEY[:-1]}"), ("X-API-Key", KEY[:-1]))
    )
    async with connected(target) as wire:
        request = head(path, f"{header}: {value}", "Content-Length: 2", method=random.choice(("GET", "POST", "DELETE")))
        await wire.send(request + b"{}")
        seen = await wire.answer(30)
    if seen.status not in ("401", "429"):
        raise ViolationError(f"{path} got {seen.status} without a key")
    return seen


async def _open(target: Target, random: Random) -> Seen:
    """Ask for what needs no key."""
    async with connected(target) as wire:
        await wire.send(head(random.choice(_OPEN), method="GET"))
        return await wire.answer(30)


async def _with_key(target: Target, random: Random) -> Seen:
    """Ask with the key, in one of the ways to show it."""
    ways = (
        {"Authorization": f"bearer  {KEY}"},
        {"Cookie": f"a=b; unifiedserve-key={KEY}"},
        {"X-API-Key": KEY},
    )
    request = asks(CHAT, chat())
    headers = {"Content-Type": "application/json", **random.choice(ways)}
    target.http.headers.pop("authorization", None)
    response = await target.http.post(CHAT, content=request.body, headers=headers)
    return judge(response.status_code, response.headers, response.content, (200,))


PART = Part(
    "keys",
    [
        Kind("no key", 60, _without),
        Kind("what is open", 10, _open),
        Kind("the key", 10, _with_key),
    ],
    at_once=4,
    always=True,
)
