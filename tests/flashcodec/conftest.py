"""Clips that FFmpeg's command line makes."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import fake_cuda
import pytest
from faulty_files.case import Case, Workshop
from flashcodec_clips import CLIPS, FFMPEG, FORMATS, HIDDEN, SAME_TIMES, ClipMaker, run_ffmpeg
from once import once, run_folder

FaultyFile = Callable[[str], Path]  # the `faulty` fixture


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> ClipMaker:
    """clip(name) is the path of a generated clip, made when first asked for."""
    if FFMPEG is None:
        pytest.skip("the ffmpeg command line makes the test clips; it is not installed")
    folder = run_folder(tmp_path_factory) / "clips"
    return lambda name: once(folder / name, encode_clip)


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Return the maker of faulty files, which encodes each clip when it is first needed."""
    if FFMPEG is None:
        pytest.skip("the ffmpeg command line makes the test clips; it is not installed")
    return Workshop(run_folder(tmp_path_factory) / "faulty-files")


@pytest.fixture
def faulty(workshop: Workshop, tmp_path: Path) -> FaultyFile:
    """faulty("CLIP CONTAINER FAULT=NUMBERS") is the path of such a file; see faulty_files.case."""
    return lambda case: workshop.write(Case.parse(case), tmp_path / case.replace(" ", "_").replace(",", "-"))


def encode_clip(path: Path) -> None:
    """Encode the clip of that name."""
    source, arguments = (CLIPS | FORMATS | HIDDEN | SAME_TIMES)[path.name]
    command = ["-f", "lavfi", "-i", source, "-threads", "1", *arguments]
    # libvpx makes alternate references only of what it has seen before.
    passes = [[]] if "-auto-alt-ref" not in arguments else [["-pass", n, "-passlogfile", str(path)] for n in "12"]
    try:
        for options in passes:
            run_ffmpeg(*command, *options, "-y", str(path))
    except subprocess.CalledProcessError as error:
        if b"Unknown encoder" in error.stderr:
            pytest.skip(f"this ffmpeg cannot encode {path.name}")
        raise


@pytest.fixture
def stand_in(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have processes that are started from now on see a GPU that is none, tests/fakes."""
    folder = run_folder(tmp_path_factory) / "fake-gpu"
    fake_cuda.use(once(folder, build_gpu), tmp_path, monkeypatch)


def build_gpu(folder: Path) -> None:
    folder.mkdir()
    fake_cuda.build_jpeg(fake_cuda.build_decoders(fake_cuda.build(folder)))
