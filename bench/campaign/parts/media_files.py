"""Real images and videos, damaged, and files that are neither, in data: URLs and uploads."""

import base64
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench.campaign.asking import CHAT, EMBEDDINGS, Request, asks, chat, kind, send
from bench.campaign.cases import Act, Kind, Seen, Target, ViolationError
from unifiedserve import samples

LARGEST = 8 << 20  # bytes of a file that is taken from a folder
MEDIA_STATUSES = (200, 400, 413, 429, 503, 504)
_BOUNDARY = "campaign"
_FRAMES = {"media_io_kwargs": {"video": {"num_frames": 4}}}


class Medium(NamedTuple):
    """A file's bytes, and what they are said to be."""

    data: bytes
    kind: str  # image or video
    name: str = ""


def real_files(folder: Path | None) -> list[Medium]:
    """Return the samples of the package, and what else is in a folder."""
    own = [path for path in Path(samples.__file__).parent.iterdir() if path.suffix in (".mp4", ".jpg")]
    more = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".md"] if folder else []
    small = sorted(path for path in (*own, *more) if 0 < path.stat().st_size <= LARGEST)
    return [Medium(_read(path), "image" if path.suffix == ".jpg" else "video", path.name) for path in small]


@cache
def _read(path: Path) -> bytes:
    return path.read_bytes()


def mutated(data: bytes, random: Random) -> bytes:
    """Return bytes damaged in one of the ways that disks, networks and attackers damage files."""
    changed = bytearray(data)
    how = random.randrange(6)
    if how == 0:
        for _ in range(random.choice((1, 10, 1000))):
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    elif how == 1:
        del changed[random.randrange(len(changed)) :]
    elif how == 2:
        begin, end = sorted(random.randrange(len(changed)) for _ in range(2))
        changed[random.randrange(len(changed)) : 0] = changed[begin:end]
    elif how == 3:
        for _ in range(random.randint(1, 8)):
            at = random.randrange(min(len(changed), random.choice((64, 2048))))
            changed[at : at + 4] = random.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\x80\0\0\0"))
    elif how == 4:
        begin = random.randrange(len(changed))
        changed[begin : begin + random.choice((1, 16, 5000))] = b""
    else:
        begin = random.randrange(len(changed))
        changed[begin : begin + 4096] = random.randbytes(4096)
    return bytes(changed) or b"\0"


def question(medium: Medium, **fields: Any) -> dict[str, Any]:
    """Return a chat's body that asks about a medium in a data: URL."""
    url = f"data:{medium.kind}/x;base64,{base64.b64encode(medium.data).decode()}"
    return question_at(url, medium.kind, **fields)


def question_at(url: str, medium: str, **fields: Any) -> dict[str, Any]:
    """Return a chat's body that asks about what is at a URL."""
    part = {"type": f"{medium}_url", f"{medium}_url": {"url": url}}
    asked = {**_FRAMES, **fields} if medium == "video" else fields
    return chat([part, {"type": "text", "text": "What is this?"}], **asked)


def upload(medium: Medium) -> Request:
    """Return the form that uploads a medium."""
    part = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n'
    form = (part % ("purpose", "") + "vision\r\n" + part % ("file", '; filename="a"')).encode() + medium.data
    headers = {"Content-Type": f"multipart/form-data; boundary={_BOUNDARY}"}
    return Request("/v1/files", form + f"\r\n--{_BOUNDARY}--\r\n".encode(), headers=headers)


def kinds(folder: Path | None) -> list[Kind]:
    """Return the kinds of cases with the files of a folder among them."""
    files = real_files(folder)
    return [
        kind("damaged files", 60, lambda random: _damaged(files, random)),
        Kind("damaged uploads", 15, _uploading(files)),
        kind("files of no kind", 12, _nothing),
        kind("one kind as the other", 5, lambda random: _swapped(files, random)),
        kind("absurd sizes and counts", 12, lambda random: _absurd(files, random)),
        kind("many media", 1, lambda random: _many(files, random)),
    ]


def _damaged(files: Sequence[Medium], random: Random) -> Request:
    medium = random.choice(files)
    return asks(CHAT, question(medium._replace(data=mutated(medium.data, random))), *MEDIA_STATUSES)


def _uploading(files: Sequence[Medium]) -> Act:
    async def act(target: Target, random: Random) -> Seen:
        medium = random.choice(files)
        medium = medium._replace(data=mutated(medium.data, random))
        form = upload(medium)
        response = await target.http.post(
            form.path, content=form.body, headers={"Content-Type": str(form.headers["Content-Type"])}
        )
        if response.status_code != 200:
            raise ViolationError(f"an upload got {response.status_code}: {response.text[:200]}")
        id = response.json()["id"]
        seen = await send(target, asks(CHAT, question_at(id, medium.kind), *MEDIA_STATUSES, 404))
        await target.http.delete(f"/v1/files/{id}")
        return seen

    return act


def _nothing(random: Random) -> Request:
    data = random.choice(_NOTHING)
    return asks(CHAT, question(Medium(data, random.choice(("image", "video")))), 400)


_NOTHING = [
    b"\0",
    b"hello\n" * 1000,
    b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
    b"%PDF-1.7\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF",
    b"PK\x03\x04" + b"\0" * 60,
    b"PK\x05\x06" + b"\0" * 18,
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) run\n",
    b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
    b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:1/a.ts\n",
    b"ffconcat version 1.0\nfile '/etc/passwd'\n",
    b"v=0\no=- 0 0 IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
    b"<?xml version='1.0'?><MPD xmlns='urn:mpeg:dash:schema:mpd:2011'><Period/></MPD>",
    b"<html><img src=x></html>",
    b"\x7fELF" + b"\0" * 500,
    b"\x1f\x8b\x08" + b"\0" * 500,
    b"GIF89a",
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff\xd9",
    b"RIFF\xff\xff\xff\xffWEBPVP8 ",
    b"RIFF\0\0\0\0AVI LIST",
    b"BM" + b"\xff" * 60,
    b"II*\0\xff\xff\xff\xff",
    b"\0\0\0\x18ftypavif" + b"\0" * 12,
    b"\0\0\0\x18ftypmp42" + b"\0" * 12,
    b"\x1aE\xdf\xa3\xff\xff\xff\xff\xff\xff\xff\xff",
    b"OggS" + b"\xff" * 100,
    b"\0" * (1 << 20),
]


def _swapped(files: Sequence[Medium], random: Random) -> Request:
    """Return a question about an image as a video, or the other way."""
    medium = random.choice(files)
    other = medium._replace(kind="video" if medium.kind == "image" else "image")
    return asks(CHAT, question(other), 200, 400)


def _absurd(files: Sequence[Medium], random: Random) -> Request:
    """Return a question about a good medium with sizes and counts that are none."""
    number = random.choice((-1, 0, 1, 2, 2**31 - 1, 2**31, 2**63, 1e308, 1e-300))
    name = random.choice(("min_pixels", "max_pixels", "num_frames", "fps", "max_frames", "size"))
    value: Any = {"shortest_edge": number, "longest_edge": number} if name == "size" else number
    if random.random() < 0.5 or "pixels" in name or name == "size":
        fields: dict[str, Any] = {"mm_processor_kwargs": {name: value}, "media_io_kwargs": {}}
    else:
        fields = {"media_io_kwargs": {"video": {name: value}}}
    return asks(CHAT, question(random.choice(files), **fields), *MEDIA_STATUSES)


def _many(files: Sequence[Medium], random: Random) -> Request:
    medium = min(files, key=lambda file: len(file.data))
    url = f"data:{medium.kind}/x;base64,{base64.b64encode(medium.data).decode()}"
    part = {"type": f"{medium.kind}_url", f"{medium.kind}_url": {"url": url}}
    body = json.dumps(chat([part] * random.choice((2, 8, 65, 300)), **_FRAMES)).encode()
    return Request(random.choice((CHAT, EMBEDDINGS)), body, expect=MEDIA_STATUSES)
