"""Rendered videos and images: of the length and size asked for, each unlike the others, whole or not there."""

import hashlib
import io
import itertools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Picture
from rich.console import Console

from flashcodec import analyse_bitstream
from unifiedserve.bench.workloads.media import assembly, ffmpeg, folder, footage, photographs
from unifiedserve.bench.workloads.media.recipes import ENCODERS, Codec, Format, Image, Recipe, Video
from unifiedserve.errors import ConfigError

CODECS: tuple[Codec, ...] = ("h264", "hevc", "vp9")
QUIET = Console(file=io.StringIO())
SMALL = {codec: Format(codec, 64, 48) for codec in CODECS}
SHOTS, SHOT = 3, 12  # shots, and frames of each


def make(recipe: Recipe, where: Path) -> Path:
    folder.make([recipe], where, QUIET)
    return where / recipe.name


def gray(path: Path) -> npt.NDArray[np.uint8]:
    """Decode a video of 64x48 by FFmpeg."""
    command = ["ffmpeg", "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "gray", "-"]
    return np.frombuffer(subprocess.run(command, capture_output=True, check=True).stdout, np.uint8).reshape(-1, 48, 64)


@pytest.fixture(autouse=True, scope="module")
def _few_short_shots() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(footage, "SHOTS", SHOTS)
        patch.setattr(footage, "lengths", lambda rate: [SHOT] * SHOTS)
        patch.setattr(footage, "_SOUND", 1)
        patch.setattr(photographs, "_PICTURES", 2)
        patch.setattr(photographs, "_SIZE", (96, 128))
        photographs._drawn.cache_clear()
        yield
    photographs._drawn.cache_clear()


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the footage of each codec and two videos of each, 0 and 1."""
    where = tmp_path_factory.mktemp("media")
    folder.make([Video(2, number, 0, SMALL[codec]) for codec in CODECS for number in (0, 1)], where, QUIET)
    return where


@pytest.mark.parametrize("codec", CODECS)
def test_a_video_has_its_length_size_and_a_gop_for_each_shot(codec: Codec, rendered: Path) -> None:
    path = make(Video(3, 2, 0, SMALL[codec]), rendered)
    assert len(analyse_bitstream(path).gops) == 7  # of 12 frames, the last cut short
    assert 75 <= len(gray(path)) <= 80


def test_a_folder_may_have_an_apostrophe_in_its_name(rendered: Path, tmp_path: Path) -> None:
    where = tmp_path / "it's here"
    shutil.copytree(rendered / "footage", where / "footage")
    assert len(gray(make(Video(1, 5, 0, SMALL["h264"]), where))) >= 25


def test_two_may_make_the_same_video_at_the_same_time(rendered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    video, lists = Video(1, 6, 0, SMALL["h264"]), list[Path]()

    def run(arguments: list[str], path: Path) -> None:
        lists.append(Path(arguments[arguments.index("-i") + 1]))
        if len(lists) == 1:
            with monkeypatch.context() as other:
                other.setattr("os.getpid", lambda: 1)
                assembly.assemble(video, rendered)
        assert lists[0].exists()

    monkeypatch.setattr(ffmpeg, "run", run)
    assembly.assemble(video, rendered)
    assert len(lists) == 2
    assert not any(path.exists() for path in lists)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Not a directory: give another folder with --media-dir"):
        make(Image(32, 32, 0), tmp_path / "file" / "media")


@pytest.mark.parametrize("codec", CODECS[1:])
def test_codecs_show_the_same_and_numbers_do_not(codec: Codec, rendered: Path) -> None:
    def difference(number: int) -> float:
        first, second = (
            gray(rendered / Video(2, n, 0, SMALL[c]).name)[:50].astype(float) for c, n in (("h264", 0), (codec, number))
        )
        return float(np.abs(first - second).mean())

    assert difference(0) < difference(1) / 2


def test_a_second_call_makes_nothing_again(rendered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffmpeg, "run", lambda *_: pytest.fail("rendered again"))
    folder.make([Video(2, 0, 0, SMALL["h264"])], rendered, QUIET)


def test_every_file_has_bytes_of_its_own(rendered: Path) -> None:
    paths = [make(Video(0.4, number, 0, SMALL["h264"]), rendered) for number in range(12)]
    paths += [make(Image(64, 48, number), rendered) for number in range(12)]
    assert len({hashlib.sha256(path.read_bytes()).digest() for path in paths}) == 24


def test_an_image_is_reproducible_to_the_byte_and_of_its_size(tmp_path: Path) -> None:
    image = Image(200, 120, 3)
    first, second = (make(image, tmp_path / name) for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    assert Picture.open(first).size == (200, 120)
    assert np.asarray(Picture.open(first).convert("L")).std() > 10


def start_of(number: int, length: int) -> list[int]:
    return list(itertools.islice(assembly.order(Video(1, number)), length))


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(0, 100))
def test_a_shot_never_follows_itself_and_each_lap_has_all(number: int, seed: int) -> None:
    shots = list(itertools.islice(assembly.order(Video(1, number, seed)), 12 * SHOTS))
    assert all(a != b for a, b in itertools.pairwise(shots))
    assert all(len(set(lap)) == SHOTS for lap in zip(*[iter(shots)] * SHOTS, strict=True))


def test_consecutive_videos_begin_with_other_shots() -> None:
    distinct = SHOTS * (SHOTS - 1)
    assert len({tuple(start_of(number, 2)) for number in range(30, 30 + distinct)}) == distinct


def test_an_interruption_leaves_no_half_file(rendered: Path, tmp_path: Path) -> None:
    def frames() -> Iterator[bytes]:
        while not any(tmp_path.iterdir()):  # until FFmpeg has begun its file
            yield bytes(64 * 48 * 3 // 2)
        raise KeyboardInterrupt

    raw = ["-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", "64x48", "-i", "-"]
    with pytest.raises(KeyboardInterrupt):
        ffmpeg.pipe([*raw, *ENCODERS["h264"]], tmp_path / "a.mp4", frames())
    assert list(tmp_path.iterdir()) == []


def test_what_ffmpeg_cannot_write_is_said_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a\.mp4: ffmpeg cannot write it: .*nowhere\.mp4: No such file") as caught:
        ffmpeg.run(["-i", "nowhere.mp4"], tmp_path / "a.mp4")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_frames_for_an_ffmpeg_that_has_ended_are_no_broken_pipe(tmp_path: Path) -> None:
    endless = itertools.repeat(bytes(1 << 16))
    with pytest.raises(ConfigError, match="Unknown encoder 'none_such'"):
        ffmpeg.pipe(["-f", "rawvideo", "-s", "64x48", "-i", "-", "-c:v", "none_such"], tmp_path / "a.mp4", endless)


@pytest.fixture
def _fresh_encoders() -> Iterator[None]:
    ffmpeg._encoders.cache_clear()
    yield
    ffmpeg._encoders.cache_clear()


@pytest.mark.usefixtures("_fresh_encoders")
def test_without_ffmpeg_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="apt install ffmpeg"):
        make(Video(1, 0), tmp_path)


@pytest.mark.usefixtures("_fresh_encoders")
def test_an_ffmpeg_without_the_encoder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poor = tmp_path / "ffmpeg"
    poor.write_text("#!/bin/sh\necho ' V....D mpeg4 MPEG-4'\n")
    poor.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(ConfigError, match=f"{poor} has no encoder libopus, libvpx-vp9"):
        make(Video(1, 0, 0, SMALL["vp9"]), tmp_path)


def test_videos_that_do_not_fit_are_not_begun(rendered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = shutil.disk_usage(rendered)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    video = Video(3600, 9, 0, SMALL["h264"])
    with pytest.raises(ConfigError, match=r"1 videos take 0\.\d GB, and 0\.0 GB are free"):
        make(video, rendered)
    assert not (rendered / video.name).exists()
