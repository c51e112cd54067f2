"""Attacks that once froze streams, filled the memory or kept others out. Each is tried alone, and measured."""

import asyncio
import base64
import contextlib
import json
import struct
from functools import cache
from random import Random

import httpx
from PIL import Image

from bench.campaign.asking import CHAT, DETOKENIZE, Request, asks, chat
from bench.campaign.cases import Kind, Part, Seen, Target
from bench.campaign.parts.beside import MOST_SECONDS, beside, soon
from bench.campaign.parts.bystanders import among_bystanders
from bench.campaign.parts.endless_video import endless_video
from bench.campaign.parts.full_disk import full_disk
from bench.campaign.parts.large_urls import large_urls
from bench.campaign.parts.media_files import Medium, question, upload
from bench.campaign.parts.ordinary import encoded, image, text
from bench.campaign.wire import connected, head

_MB = 1_000_000


async def _log_probabilities(target: Target, random: Random) -> Seen:
    body = chat(n=64, max_tokens=200, logprobs=True, top_logprobs=20, ignore_eos=True)
    return await beside(target, [asks(CHAT, body)] * 8, Request("/v1/models", method="GET", expect=(200,)))


def _of_scans(side: int, scans: int) -> Medium:
    """Return a progressive JPEG whose last scan comes again and again."""
    data = encoded(Image.new("RGB", (side, side)), "JPEG", progressive=True).data
    scan = data.rindex(b"\xff\xda")
    return Medium(data[:scan] + data[scan:-2] * scans + data[-2:], "image")


async def _scans(target: Target, random: Random) -> Seen:
    """Have JPEGs of as many scans as a megabyte holds, and of as many as may be, decoded on every core."""
    many, allowed = asks(CHAT, question(_of_scans(64, 20_000)), 400), asks(CHAT, question(_of_scans(8000, 80)))
    return await beside(target, [many] * 4 + [allowed] * 4, image(random), text())


async def _pixels(target: Target, random: Random) -> Seen:
    """Have images of as many pixels as may be decoded at once, each of some kilobytes."""
    bits = encoded(Image.new("1", (11_300, 11_300)), "PNG")
    return await beside(target, [asks(CHAT, question(bits))] * 4, image(random), text())


@cache
def _slow_heads() -> list[Medium]:
    """Return images of which the head alone is work: texts, markers, chunks and comments by the million."""
    jpeg = encoded(Image.new("RGB", (8, 8)), "JPEG").data
    gif = b"GIF89a" + struct.pack("<HHBBB", 8, 8, 0x80, 0, 0) + bytes(6)
    png = encoded(Image.new("RGB", (8, 8)), "PNG").data
    return [
        Medium(jpeg[:2] + b"\xff\xfe\0\2" * (4 * _MB) + jpeg[2:], "image"),
        Medium(gif + b"!\xfe" + (b"\xff" + b"a" * 255) * (16 * _MB // 256) + b"\0;", "image"),
        Medium(gif + b"!\xfe\1a\0" * (3 * _MB) + b";", "image"),
        Medium(png[:33] + (bytes(4) + b"aaAa" + bytes(4)) * _MB + png[33:], "image"),
        Medium(b"P3\n8 8\n255\n" + b"#\n" * (8 * _MB), "image"),
    ]


async def _heads(target: Target, random: Random) -> Seen:
    return await beside(target, [asks(CHAT, question(medium)) for medium in _slow_heads()], image(random), text())


async def _left_heads(target: Target, random: Random) -> Seen:
    """Leave requests whose heads are being read: nobody reads on."""
    body = question(_slow_heads()[1])
    for _ in range(4):
        with contextlib.suppress(httpx.TimeoutException):
            await asyncio.gather(*(target.http.post(CHAT, json=body, timeout=1.0) for _ in range(4)))
    await soon(target, image(random))
    return Seen("left")


async def _long_videos(target: Target, random: Random) -> Seen:
    """Ask about two frames for which a server would decode for an hour."""
    two = {"media_io_kwargs": {"video": {"num_frames": 2}}}
    try:
        medium = Medium(await asyncio.to_thread(endless_video), "video")
    except RuntimeError as error:
        return Seen("left out", str(error))
    request = asks(CHAT, question(medium, **two), 400)
    return await beside(target, [request] * 3, image(random), text())


async def _one_file(target: Target, random: Random) -> Seen:
    """Name one uploaded file of 100 MB thirty times."""
    form = upload(Medium(bytes(100 * _MB), "video"))
    headers = {"Content-Type": str(form.headers["Content-Type"])}
    id = (await target.http.post(form.path, content=form.body, headers=headers)).json()["id"]
    part = {"type": "video_url", "video_url": {"url": id}}
    seen = await beside(target, [asks(CHAT, chat([part] * 30))] * 2, text(), image(random))
    await target.http.delete(f"/v1/files/{id}")
    return seen


async def _held_budget(target: Target, random: Random) -> Seen:
    """Stop four bodies of 67 MB short of their end: smaller ones are taken meanwhile."""
    size = 67 * _MB
    async with contextlib.AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(connected(target)) for _ in range(4)]
        await asyncio.gather(
            *(wire.send(head(CHAT, f"Content-Length: {size}") + bytes(size - 10_000)) for wire in wires)
        )
        spaces = Request(CHAT, json.dumps(chat()).encode() + b" " * (5 * _MB), expect=(200, 429))
        for request in (text(), image(random), spaces):
            await soon(target, request)
        seen = await asyncio.gather(*(wire.answer(MOST_SECONDS) for wire in wires))
    return Seen(", ".join(sorted(each.status for each in seen)))


def _names(count: int) -> bytes:
    return b"{" + b",".join(b'"%x":0' % number for number in range(count)) + b"}"


async def _many_names(target: Target, random: Random) -> Seen:
    body = b'{"messages":[{"role":"user","content":"a"}],"metadata":' + _names(190_000) + b"}"
    return await beside(target, [Request(CHAT, body, expect=(400, 413))] * 10, text())


async def _many_ids(target: Target, random: Random) -> Seen:
    body = b'{"tokens":[' + b"1," * 1_900_000 + b"1]}"
    return await beside(target, [Request(DETOKENIZE, body, expect=(200, 400, 413))] * 4, text())


async def _arguments(target: Target, random: Random) -> Seen:
    """Send back a call whose arguments have 180,000 names."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": _names(180_000).decode()}}
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "x", "tool_call_id": "1"},
    ]
    return await beside(target, [asks(CHAT, {"messages": turns, "max_tokens": 2})] * 4, text())


async def _tiny_images(target: Target, random: Random) -> Seen:
    """Ask about as many images of one pixel as a body holds, and about as many as may be."""
    url = f"data:image/png;base64,{base64.b64encode(encoded(Image.new('RGB', (1, 1)), 'PNG').data).decode()}"
    part = {"type": "image_url", "image_url": {"url": url}}
    requests = [asks(CHAT, chat([part] * count)) for count in (20_000, 1000)]
    return await beside(target, requests * 2, text(), image(random))


PART = Part(
    "attacks",
    [
        Kind("eight times 64 answers with log-probabilities", 1, _log_probabilities),
        Kind("JPEGs of very many scans", 1, _scans),
        Kind("images of 128 megapixels in kilobytes", 1, _pixels),
        Kind("images whose heads are work", 1, _heads),
        Kind("the same, left at once", 1, _left_heads),
        Kind("videos that take an hour to decode", 1, _long_videos),
        Kind("a file of 100 MB, thirty times", 1, _one_file),
        Kind("bodies of 67 MB that stop", 1, _held_budget),
        Kind("190,000 names, ten times", 1, _many_names),
        Kind("1.9 million ids", 1, _many_ids),
        Kind("a call with 180,000 arguments", 1, _arguments),
        Kind("thousands of images of one pixel", 1, _tiny_images),
        Kind("a disk that is full", 1, full_disk),
        Kind("URLs of 256 MB", 1, large_urls),
        Kind("JPEGs of very many scans among bystanders", 1, among_bystanders(_scans)),
        Kind("images whose heads are work among bystanders", 1, among_bystanders(_heads)),
        Kind("answers with log-probabilities among bystanders", 1, among_bystanders(_log_probabilities)),
    ],
    at_once=1,
    options=("--allow-private-media",),
)
