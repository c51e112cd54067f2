"""URLs of media that must not be followed. A listener on loopback tells if one was."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random

from bench.campaign.asking import CHAT, asks, send
from bench.campaign.cases import Kind, Seen, Target, ViolationError
from bench.campaign.parts.media_files import question_at

# {port} is that of the listener
_URLS = [
    "http://127.0.0.1:{port}/a", "http://127.1:{port}/", "http://127.0.0.1.:{port}/", "http://2130706433:{port}/",
    "http://0x7f000001:{port}/", "http://0x7f.1:{port}/", "http://017700000001:{port}/", "http://0177.0.0.1:{port}/",
    "http://0:{port}/", "http://0.0.0.0:{port}/", "http://[::1]:{port}/", "http://[::]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/", "http://[::ffff:7f00:1]:{port}/", "http://[::127.0.0.1]:{port}/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]:{port}/", "http://[64:ff9b::7f00:1]:{port}/", "http://[2002:7f00:1::]:{port}/",
    "http://[fe80::1%25lo]:{port}/", "http://[fe80::1%lo]:{port}/", "http://[::1%25lo]:{port}/",
    "http://localhost:{port}/", "http://LOCALHOST:{port}/", "http://localhost.:{port}/", "http://ip6-localhost:{port}/",
    "http://①②⑦.⓪.⓪.①:{port}/", "http://127。0。0。1:{port}/", "http://127.0.0.1%2e:{port}/", "http://%31%32%37.0.0.1:{port}/",
    "http://a@127.0.0.1:{port}/", "http://example.com@127.0.0.1:{port}/", "http://127.0.0.1:{port}#@example.com/",
    "http://127.0.0.1:{port}?@example.com/", "http://127.0.0.1\\@example.com:{port}/", "http:\\\\127.0.0.1:{port}\\",
    "http:127.0.0.1:{port}", "http:///127.0.0.1:{port}/", "http:////127.0.0.1:{port}/", " http://127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/\r\nX: y", "http://127.0.0.1:99999/", "http://127.0.0.1:-1/", "http://127.0.0.1:/",
    "HTTP://127.0.0.1:{port}/", "https://127.0.0.1:{port}/", "http://169.254.169.254/latest/", "http://10.0.0.1/",
    "http://192.168.0.1/", "http://172.16.0.1/", "http://100.64.0.1/", "http://192.0.0.1/", "http://198.18.0.1/",
    "http://224.0.0.1/", "http://255.255.255.255/", "http://240.0.0.1/", "http://[fc00::1]/", "http://[ff02::1]/",
    "http://[fd00:ec2::254]/", "http://[", "http://]", "http://", "http://:80/", "http://.", "http://..", "http://-",
    "http://\x00/", "http://a\tb/", "http://xn--/", "http://xn--a.b/", "http://{long}/", "http://{port}.{long}/",
    "file:///etc/passwd", "file:/etc/passwd", "file://localhost/etc/passwd", "FILE:///etc/passwd", "file:////etc/passwd",
    "file://127.0.0.1/etc/passwd", "file:///proc/self/environ", "file:///dev/zero", "file:", "file://%00",
    "gopher://127.0.0.1:{port}/_x", "ftp://127.0.0.1:{port}/a", "dict://127.0.0.1:{port}/", "ldap://127.0.0.1:{port}/",
    "jar:http://127.0.0.1:{port}/!/", "concat:/etc/passwd", "subfile:,,start,0,end,9,,:/etc/passwd", "pipe:0",
    "rtsp://127.0.0.1:{port}/", "tcp://127.0.0.1:{port}", "unix:/tmp/x", "/etc/passwd", "../../etc/passwd", "",
    " ", "javascript:alert(1)", "blob:x", "about:blank", "file-", "file-{long}", "file-../../etc/passwd",
    "data:", "data:,", "data:image/png,abc", "data:image/png;base64", "data:image/png;base64,", "data:;base64,====",
    "data:image/png;base64,A", "data:image/png;base64,AA=A", "data:image/png;base64,%41%41==",
    "data:image/png;base64,\u00e9",
    "data:text/html;base64,AAAA", "data:image/png;base64;base64,AAAA", "DATA:image/png;BASE64,AAAA",
    "data:{long};base64,AAAA",
]  # fmt: skip
_PATHS_LENGTH = 5000


@contextlib.asynccontextmanager
async def kind() -> AsyncIterator[Kind]:
    """Have the kind of cases, and the listener that they point at."""
    reached = asyncio.Event()

    def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    async with await asyncio.start_server(on_connection, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]

        async def act(target: Target, random: Random) -> Seen:
            url = random.choice(_URLS).format(port=port, long="l" * _PATHS_LENGTH)
            medium = random.choice(("image", "video"))
            seen = await send(target, asks(CHAT, question_at(url, medium), 400, 404))
            if reached.is_set():
                reached.clear()
                raise ViolationError(f"followed {url!r}")
            return seen

        yield Kind("forbidden URLs", 25, act)
