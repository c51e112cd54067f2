"""Call the `ffmpeg` command: whether it is there and can encode, and calls of it that leave no half file behind."""

import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from unifiedserve.errors import ConfigError


def require(encoders: Iterable[str]) -> None:
    """Raise ConfigError, which says what to install, unless there is an `ffmpeg` with these encoders."""
    missing = sorted(set(encoders) - _encoders())
    if missing:
        path = shutil.which("ffmpeg")
        raise ConfigError(f"{path} has no encoder {', '.join(missing)}: install a build of FFmpeg that has")


@functools.cache
def _encoders() -> frozenset[str]:
    if shutil.which("ffmpeg") is None:
        raise ConfigError("no ffmpeg command, which renders videos: apt install ffmpeg (or dnf, brew)")
    listed = subprocess.run(["ffmpeg", "-v", "error", "-encoders"], capture_output=True, text=True, check=False).stdout
    rows = (line.split() for line in listed.splitlines())
    return frozenset(row[1] for row in rows if len(row) > 1)


def run(arguments: Sequence[str], path: Path) -> None:
    """Write a file with these arguments; it appears under its name once complete. Raises ConfigError if that fails."""
    pipe(arguments, path, ())


def pipe(
    arguments: Sequence[str], path: Path, frames: Iterable[bytes], shown: Callable[[], object] = lambda: None
) -> None:
    """Write a file likewise, of raw frames on the standard input, calling `shown` after each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{os.getpid()}.partial.{path.name}")
    command = ["ffmpeg", "-v", "error", "-y", *arguments, str(partial)]
    quiet = {"SVT_LOG": "1", **os.environ}
    try:
        with tempfile.TemporaryFile() as words:
            process = _feed(subprocess.Popen(command, stdin=subprocess.PIPE, stderr=words, env=quiet), frames, shown)
            words.seek(0)
            message = words.read().decode(errors="replace").strip().rpartition("\n")[2]
        if process.returncode != 0:
            raise ConfigError(f"{path}: ffmpeg cannot write it: {message or f'exit code {process.returncode}'}")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _feed(
    process: subprocess.Popen[bytes], frames: Iterable[bytes], shown: Callable[[], object]
) -> subprocess.Popen[bytes]:
    """Give it the frames and wait for its end; it ends with an exception here, too."""
    assert process.stdin is not None
    try:
        for frame in frames:
            process.stdin.write(frame)
            shown()
    except BrokenPipeError:
        pass  # it has ended, and its message says why
    except BaseException:
        process.kill()
        raise
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
    return process
