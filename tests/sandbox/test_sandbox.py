"""What a process that has given up all it does not need can still do, and what it cannot."""

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from unifiedserve.sandbox import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"the kernel cannot confine {missing()}")

TRIES = {
    "a socket of the network": "socket.socket()",
    "a datagram": "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
    "the kernel's own sockets": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "a socket of this machine": "socket.socket(socket.AF_UNIX)",
    "another program": "os.execv('/bin/true', ['true'])",
    "a process that runs one": "subprocess.run(['/bin/true'], check=True)",
    "a process": "os.fork()",
    "a signal to its parent": "os.kill(os.getppid(), 0)",
    "its parent's descriptors": "os.pidfd_open(os.getppid())",
    "its parent's memory": "open(f'/proc/{os.getppid()}/mem', 'rb')",
    "its parent's environment": "open(f'/proc/{os.getppid()}/environ', 'rb').read()",
    "a file of somebody else": "open(other).read()",
    "a folder": "os.listdir(os.path.dirname(other))",
    "passwords": "open('/etc/passwd').read()",
    "a file to write": "open(other, 'w')",
    "a new file": "open(other + '.new', 'w')",
    "a file to write where it may read": "open(readable + '/new', 'w')",
    "a way out by a link": "open(readable + '/link').read()",
    "the right to do it after all": "os.setgid(0)",
    "another root": "os.chroot('/')",
    "namespaces of its own": "os.unshare(os.CLONE_NEWUSER) if hasattr(os, 'unshare') else libc('unshare', 0x10000000)",
    "a trace of its parent": "libc('ptrace', 16, os.getppid(), 0, 0)",
    "what its terminal is typed": "fcntl.ioctl(1, 0x5412, b'x')",
    "its parent's limits": "resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
}
DOES = {
    "threads": "t = threading.Thread(target=print); t.start(); t.join()",
    "what it may read": "assert open(readable + '/file').read() == 'mine'",
    "files that it may write": "open(writable + '/new', 'w').write('x'); os.unlink(writable + '/new')",
    "libraries": "import sqlite3, lzma, unittest",
    "memory": "bytearray(1 << 26)",
    "itself": "open('/proc/self/maps').read(); resource.getrlimit(resource.RLIMIT_DATA)",
    "the end": "signal.signal(signal.SIGABRT, lambda *a: None); signal.raise_signal(signal.SIGABRT)",
    "randomness": "os.urandom(8); open('/dev/urandom', 'rb').read(1); open('/dev/null', 'w').write('x')",
}
PROGRAM = """
import ctypes, fcntl, os, resource, signal, socket, subprocess, threading
from unifiedserve.sandbox import code_paths, give_up

def libc(name, *given):
    if ctypes.CDLL(None, use_errno=True)[name](*given) < 0:
        raise OSError(ctypes.get_errno(), name)

readable, writable, other = {paths!r}
give_up(readable=[*code_paths(), readable], writable=[writable], unix_sockets={unix_sockets!r})
try:
    {tried}
except OSError as error:
    print("refused", type(error).__name__, error)
else:
    print("done")
"""


@pytest.fixture
def paths(tmp_path: Path) -> tuple[str, str, str]:
    """A folder to read, one to write, and a file elsewhere."""
    for name in ("readable", "writable", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "readable" / "file").write_text("mine")
    other = tmp_path / "elsewhere" / "file"
    other.write_text("another's")
    (tmp_path / "readable" / "link").symlink_to(other)
    return str(tmp_path / "readable"), str(tmp_path / "writable"), str(other)


def outcome(tried: str, paths: tuple[str, str, str], *, unix_sockets: bool = False) -> str:
    program = textwrap.dedent(PROGRAM).format(tried=tried, paths=paths, unix_sockets=unix_sockets)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("tried", TRIES.values(), ids=TRIES)
def test_it_cannot_have(tried: str, paths: tuple[str, str, str]) -> None:
    assert outcome(tried, paths).startswith("refused")


@pytest.mark.parametrize("tried", DOES.values(), ids=DOES)
def test_it_has(tried: str, paths: tuple[str, str, str]) -> None:
    assert outcome(tried, paths).endswith("done")


LISTENS = (
    "listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); listener.bind({address}); listener.listen(); "
    "socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect({address}); listener.accept()"
)


@pytest.mark.parametrize(
    ("tried", "outcomes"),
    [
        ("socket.socket(socket.AF_UNIX)", "done"),
        (LISTENS.format(address="f'\\0test-{os.getpid()}'"), "done"),
        (LISTENS.format(address="writable + '/socket'"), "refused"),
        ("socket.socket(socket.AF_INET)", "refused"),
        ("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", "refused"),
    ],
)
def test_sockets_of_this_machine_where_they_are_needed(tried: str, outcomes: str, paths: tuple[str, str, str]) -> None:
    assert outcome(tried, paths, unix_sockets=True).split()[0] == outcomes


def test_paths_that_there_are_not_are_passed_over(paths: tuple[str, str, str]) -> None:
    readable, _, other = paths
    assert outcome("pass", (readable, "/nowhere/at/all", other)) == "done"


#: a confined process, whose kernel forgets what it knows of /proc, as it may when memory is short
WHERE_PROC_IS_FORGOTTEN = """
import os, subprocess
from unifiedserve.sandbox import code_paths, give_up
confined, told = os.pipe(), os.pipe()
if os.fork():
    os.read(confined[0], 1)
    subprocess.run(["mount", "-o", "remount", "/proc"], check=True)
    os.write(told[1], b"x")
    raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
give_up(readable=code_paths())
os.write(confined[1], b"x")
os.read(told[0], 1)
for path in ("/proc/self/status", "/proc/self/maps", "/proc/meminfo", "/proc/sys/vm/mmap_min_addr", "/proc/stat"):
    open(path).read()
"""


def test_what_it_may_read_stays_when_the_kernel_needs_memory() -> None:
    alone = ["unshare", "--mount", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("no mounts of one's own here: they are root's")
    done = subprocess.run([*alone, sys.executable, "-c", WHERE_PROC_IS_FORGOTTEN], capture_output=True, text=True)
    assert not done.returncode, done.stderr
