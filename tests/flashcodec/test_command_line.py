"""The `flashcodec` command: what it tells, in tables and JSON, and how it refuses."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flashcodec_clips import ClipMaker, run_ffmpeg

from flashcodec import Bitstream, VideoDecoder

pytest.importorskip("rich", reason="the command line needs rich")
pytest.importorskip("typer", reason="the command line needs typer")
Image = pytest.importorskip("PIL.Image", reason="the command line needs Pillow")

from flashcodec.cli import peers  # noqa: E402
from flashcodec.cli.app import run  # noqa: E402
from flashcodec.cli.console import clock  # noqa: E402

COMMANDS = ("probe", "plan", "sample", "bench", "doctor")
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """call("probe", path, …) is (exit code, stdout, stderr)."""
    monkeypatch.setenv("COLUMNS", "100")

    def in_process(*arguments: object) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        return code, *capfd.readouterr()

    return in_process


def parsed(answer: tuple[int, str, str]) -> Any:
    code, out, err = answer
    assert (code, err) == (0, "")
    return json.loads(out)


def words(text: str) -> str:
    return " ".join(text.split())


def command(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "flashcodec.cli", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, env={**os.environ, **(env or {})})


def test_help_lists_the_commands() -> None:
    result = command()
    assert (result.returncode, result.stderr) == (0, "")
    assert all(f"\n  {name} " in result.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_with_examples(name: str, call: Call) -> None:
    code, out, _ = call(name, "--help")
    assert code == 0
    examples = [line for line in out.splitlines() if line.startswith(f"    flashcodec {name}")]
    assert len(examples) >= 2


class TestProbe:
    def test_json_tells_what_the_decoder_knows(self, call: Call, clip: ClipMaker) -> None:
        path = clip("h264_opengop.mp4")
        report = parsed(call("probe", path, "--json"))
        video = Bitstream(path)
        assert report["metadata"] == {**vars(video.metadata), "pixel_aspect_ratio": "1/1"}
        assert report["bytes"] == path.stat().st_size
        assert report["gops"]["lengths"] == [gop.last_packet - gop.first_packet for gop in video.gops]
        assert report["gops"]["open"] > 0
        assert [warning["code"] for warning in report["warnings"]] == ["open-gop"]

    @pytest.mark.parametrize(
        ("name", "codes"),
        [
            ("h264_bframes.mp4", set()),
            ("h264_vfr.mp4", {"variable-rate"}),
            ("h264_bframes.mkv", {"no-index"}),
            ("h264_opengop.ts", {"no-index", "open-gop", "start-time"}),
        ],
    )
    def test_warnings(self, call: Call, clip: ClipMaker, name: str, codes: set[str]) -> None:
        report = parsed(call("probe", clip(name), "--json"))
        assert {warning["code"] for warning in report["warnings"]} == codes

    def test_warnings_of_rare_videos(self, call: Call, clip: ClipMaker, tmp_path: Path) -> None:
        long_gop = tmp_path / "long_gop.mp4"
        source = ("-f", "lavfi", "-i", "testsrc2=s=64x48:r=5:d=20")
        run_ffmpeg(*source, "-c:v", "libx264", "-g", "999", "-vf", "setsar=2", str(long_gop))
        gap = tmp_path / "gap.mp4"
        run_ffmpeg(*source, "-c:v", "libx264", "-g", "10", "-vf", "select='lt(t,5)+gt(t,9)'", "-vsync", "vfr", str(gap))
        cut = tmp_path / "cut.mp4"
        run_ffmpeg("-ss", "0.5", "-i", str(clip("h264_faststart.mp4")), "-c", "copy", str(cut))
        turned = rotated(clip, tmp_path)
        expected = {
            long_gop: {"long-gop", "pixel-aspect-ratio"},
            gap: {"gap"},
            cut: {"hidden-packets"},
            turned: {"rotation"},
        }
        for path, codes in expected.items():
            assert {warning["code"] for warning in parsed(call("probe", path, "--json"))["warnings"]} == codes

    def test_table(self, call: Call, clip: ClipMaker) -> None:
        code, out, err = call("probe", clip("h264_opengop.mp4"))
        assert (code, err) == (0, "")
        for fact in (
            "h264, 192×128, yuv420p, 25 fps",
            "100 frames, 0:04.000",
            "median 20 (0.80 s), 4 open",
            "! open GOPs",
        ):
            assert fact in words(out)

    @pytest.mark.parametrize("name", ["vp9.webm", "mpeg2.mpg", "mjpeg.mov", "odd_size.mp4", "h264_fragmented.mp4"])
    def test_any_video(self, call: Call, clip: ClipMaker, name: str) -> None:
        code, out, err = call("probe", clip(name))
        assert (code, err) == (0, "")
        assert f"{Bitstream(clip(name)).num_frames} frames" in out


class TestPlan:
    def test_json_adds_up(self, call: Call, clip: ClipMaker) -> None:
        path = clip("h264_bframes.mp4")
        report = parsed(call("plan", path, "--indices", "31,-1,0", "--threads", "2", "--json"))
        planned = Bitstream(path).plan([31, 149, 0], engines=2)
        packets = report["packets"]
        assert report["frames"] == [31, 149, 0]
        assert (packets["needed"], packets["skipped"]) == (planned.packets_needed, planned.packets_skipped)
        assert packets["needed"] + packets["skipped"] + packets["never_read"] == packets["total"] == 150
        assert report["gops"] == {"total": 5, "touched": 3}
        assert report["estimated_cpu_seconds"] == pytest.approx(planned.estimated_seconds)
        (cores,) = report["decoded_on"]
        assert (cores["name"], cores["engines"], cores["chosen"]) == ("cores", 2, True)
        assert cores["seconds"] == pytest.approx(planned.estimated_seconds / 2, rel=0.2)
        assert sum(segment["frames"] for segment in report["segments"]) == 3
        assert report["engines"] == 2

    @pytest.mark.parametrize(
        ("options", "frames"),
        [
            (["--frames", "4"], [0, 50, 99, 149]),
            (["--frames", "1000"], list(range(150))),
            (["--fps", "1"], [0, 25, 50, 75, 100, 125]),
            (["--fps", "0.1"], [0]),
            (["--indices", "7,-3,7"], [7, 147, 7]),
            (["--indices", "31,-1", "--snap"], [30, 120]),
        ],
    )
    def test_choice_of_frames(self, call: Call, clip: ClipMaker, options: list[str], frames: list[int]) -> None:
        assert parsed(call("plan", clip("h264_bframes.mp4"), *options, "--json"))["frames"] == frames

    def test_one_frame_a_second_goes_by_time(self, call: Call, clip: ClipMaker) -> None:
        path = clip("h264_vfr.mp4")
        times = Bitstream(path).pts_seconds
        for second, index in enumerate(parsed(call("plan", path, "--fps", "1", "--json"))["frames"]):
            assert times[index] <= second < [*times, np.inf][index + 1]

    def test_picture(self, call: Call, clip: ClipMaker) -> None:
        """A frame is a character here: 25 frames, key frames 0 and 12, of which 14 is wanted."""
        code, out, _ = call("plan", clip("h264_10bit_444.mp4"), "--indices", "14")
        assert code == 0
        lines = [line.rstrip() for line in out.splitlines()]
        (ruler,) = [number for number, line in enumerate(lines) if line.lstrip().startswith("0:00.000")]
        assert lines[ruler].split()[1] == "┬" + "─" * 11 + "┬" + "─" * 11 + "┬"
        bar = lines[ruler + 1].strip()
        assert len(bar) == 25
        assert bar[:12] == "·" * 12
        assert set(bar[12:14]) == {"▒"}
        assert bar[14] == "█"
        assert bar[24] == "·"

    def test_table(self, call: Call, clip: ClipMaker) -> None:
        code, out, err = call("plan", clip("h264_bframes.mp4"), "--indices", "0,60", "--threads", "3")
        assert (code, err) == (0, "")
        for fact in ("2 of 150 frames", "packets needed 2 of 150", "never read 148 of 150", "2 of 5", "for 3 engines"):
            assert fact in words(out)

    def test_ranks(self, call: Call, clip: ClipMaker) -> None:
        path, options = clip("h264_bframes.mp4"), ["--frames", "25", "--ranks", "2", "--temporal-patch", "2"]
        report = parsed(call("plan", path, *options, "--json"))
        parts = Bitstream(path).rank_parts(report["frames"], 2, 2)
        assert report["ranks"] == [part._asdict() for part in parts]
        code, out, _ = call("plan", path, *options)
        assert code == 0
        first = parts[0]
        assert f"2 ranks rank frames decoded 0 {first.last - first.first} {first.frames_decoded}" in words(out)


class TestSample:
    def test_sheet(self, call: Call, clip: ClipMaker, tmp_path: Path) -> None:
        """Cells hold the frames; their lower left corners hold the times."""
        path, sheet = clip("h264_bframes.mp4"), tmp_path / "sheet.png"
        code, out, err = call("sample", path, "--indices", "3,70,-1", "--size", "160x90", "--columns", "2", "-o", sheet)
        assert (code, err) == (0, "")
        assert words(out) == f"{sheet}: 3 frames, 2×2 cells of 160×90"
        picture = np.asarray(Image.open(sheet))
        assert picture.shape == (2 * 94 + 4, 2 * 164 + 4, 3)
        decoder = VideoDecoder(path, dimension_order="NHWC")
        for index, (y, x) in zip((3, 70, 149), ((4, 4), (4, 168), (98, 4)), strict=True):
            expected = Image.fromarray(decoder[index]).resize((160, 90), Image.Resampling.BICUBIC)
            cell, expected = picture[y : y + 90, x : x + 160].astype(int), np.asarray(expected)
            assert np.abs(cell[:70] - expected[:70]).mean() < 1
            assert np.abs(cell[70:, :60] - expected[70:, :60]).mean() > 5

    def test_single_pictures(self, call: Call, clip: ClipMaker, tmp_path: Path) -> None:
        path = clip("h264_bframes.mp4")
        code, out, err = call("sample", path, "--indices", "0,149", "-o", f"{tmp_path}/frames/")
        assert (code, err) == (0, "")
        assert "2 pictures of 320×180" in out
        written = sorted((tmp_path / "frames").iterdir())
        assert [file.name for file in written] == ["h264_bframes-000000.png", "h264_bframes-000149.png"]
        expected = VideoDecoder(path, dimension_order="NHWC").get_frames_at([0, 149]).data
        np.testing.assert_array_equal([np.asarray(Image.open(file)) for file in written], expected)

    @pytest.mark.parametrize(
        ("options", "shape"),
        [([], (320, 180)), (["--size", "90"], (160, 90)), (["--size", "64x200"], (64, 200))],
    )
    def test_size(
        self, call: Call, clip: ClipMaker, tmp_path: Path, options: list[str], shape: tuple[int, int]
    ) -> None:
        code, _, _ = call("sample", clip("h264_bframes.mp4"), "--frames", "1", *options, "-o", tmp_path / "one.png")
        assert code == 0
        assert Image.open(tmp_path / "one.png").size == (shape[0] + 8, shape[1] + 8)

    def test_upright_with_square_pixels(self, call: Call, clip: ClipMaker, tmp_path: Path) -> None:
        wide = tmp_path / "wide.mp4"
        run_ffmpeg("-i", str(clip("h264_faststart.mp4")), "-t", "1", "-c:v", "libx264", "-vf", "setsar=2", str(wide))
        for path, shape in ((rotated(clip, tmp_path), (90, 160)), (wide, (320, 90))):
            assert call("sample", path, "--frames", "1", "--size", "90", "-o", tmp_path / "one.png")[0] == 0
            assert Image.open(tmp_path / "one.png").size == (shape[0] + 8, shape[1] + 8)

    def test_damaged_frames_are_left_out(self, call: Call, clip: ClipMaker, tmp_path: Path) -> None:
        """The second of five GOPs is overwritten: its cell is red, the others are there, and the exit code is 1."""
        video = bytearray(clip("h264_faststart.mp4").read_bytes())
        rows = run_ffprobe_packets(clip("h264_faststart.mp4"))
        begin, end = rows[30][0], rows[59][0] + rows[59][1]
        video[begin + 4 : end] = b"\xff" * (end - begin - 4)
        path = tmp_path / "damaged.mp4"
        path.write_bytes(video)
        sheet = tmp_path / "sheet.png"
        code, out, err = call("sample", path, "--indices", "0,45,90", "--size", "60", "--columns", "3", "-o", sheet)
        assert code == 1
        assert "3 frames" in out
        (line,) = err.splitlines()
        assert line.startswith("flashcodec: 1 of 3 frames are missing: ")
        assert "damaged.mp4" in line
        cells = np.asarray(Image.open(sheet))[4:34]
        means = [cells[:, 4 + n * 111 : 4 + n * 111 + 107].mean(axis=(0, 1)) for n in range(3)]
        maroon = np.array([128, 0, 0])
        assert [bool(np.abs(mean - maroon).max() < 2) for mean in means] == [False, True, False]


def rotated(clip: ClipMaker, folder: Path) -> Path:
    """A clip that is to be shown turned by a quarter."""
    path = folder / "rotated.mp4"
    if not path.exists():
        run_ffmpeg("-i", str(clip("h264_faststart.mp4")), "-c", "copy", "-metadata:s:v", "rotate=90", str(path))
    if not Bitstream(path).metadata.rotation:
        pytest.skip("this ffmpeg writes no rotation")
    return path


def run_ffprobe_packets(path: Path) -> list[tuple[int, int]]:
    """(position, size) of each packet, in decoding order."""
    command = ["ffprobe", "-v", "error", "-select_streams", "v", "-show_entries", "packet=pos,size", "-of", "json"]
    packets = json.loads(subprocess.run([*command, path], check=True, capture_output=True).stdout)["packets"]
    return [(int(packet["pos"]), int(packet["size"])) for packet in packets]


class TestBench:
    def test_json(self, call: Call, clip: ClipMaker) -> None:
        pytest.importorskip("torchcodec.decoders")
        report = parsed(call("bench", clip("h264_bframes.mp4"), "--frames", "5", "--rounds", "1", "--json"))
        assert (report["frames"], report["rounds"]) == ([0, 37, 74, 112, 149], 1)
        results = {result["name"]: result for result in report["results"]}
        assert list(results)[:3] == ["FlashCodec", "TorchCodec", "TorchCodec, split"]
        for result in list(results.values())[:3]:
            assert (result["frames"], result["right"], result["error"]) == ("equal", True, None)
            assert len(result["wall"]) == len(result["cpu"]) == 1
            assert result["speedup"] > 0
        assert results["FlashCodec"]["speedup"] == 1

    def test_table(self, call: Call, clip: ClipMaker, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of decoders that return wrong frames, raise or crash."""
        strange = [peers.Peer(read.__name__, "os", read) for read in (other_frames, raises, crashes)]
        monkeypatch.setattr(peers, "present", lambda: strange)
        code, out, err = call("bench", clip("h264_bframes.mp4"), "--frames", "3", "--rounds", "1")
        assert (code, err) == (0, "")
        lines = {line.split()[0]: words(line) for line in out.splitlines()}
        assert "equal" in lines["FlashCodec"]
        assert "3 of 3 differ" in lines["other_frames"]
        assert "RuntimeError: no such codec" in lines["raises"]
        assert "crashed" in lines["crashes"]


def other_frames(path: str, indices: Sequence[int]) -> peers.Frames:
    return peers.flashcodec(path, [abs(index - 20) for index in indices])


def raises(path: str, indices: Sequence[int]) -> peers.Frames:
    raise RuntimeError("no such codec")


def crashes(path: str, indices: Sequence[int]) -> peers.Frames:
    os.abort()


@pytest.mark.parametrize("peer", peers.PEERS, ids=lambda peer: peer.name)
@pytest.mark.parametrize("name", ["h264_bframes.mp4", "h264_vfr.mp4"])
def test_peers_read_the_right_frames(clip: ClipMaker, name: str, peer: peers.Peer) -> None:
    pytest.importorskip(peer.module)
    path = str(clip(name))
    ours, theirs = peers.flashcodec(path, [40, 3, 59, 3]), peer.read(path, [40, 3, 59, 3])
    assert np.abs(ours.astype(int) - theirs).mean() < 1


class TestDoctor:
    def test_json(self, call: Call) -> None:
        report = parsed(call("doctor", "--json"))
        checks = {check["name"]: check for check in report["checks"]}
        assert report["ok"] is True
        assert checks["self-test"]["value"] == "20 frames of h264 decoded right"
        assert "h264" in checks["decoders"]["value"]
        assert "scalar" in checks["SIMD"]["value"]
        assert f"of {os.cpu_count()} usable" in checks["cores"]["value"]
        banner = run_ffmpeg("-version").decode().split()[2]
        assert checks["FFmpeg"]["value"].startswith(banner)

    def test_table(self, call: Call) -> None:
        code, out, err = call("doctor")
        assert (code, err) == (0, "")
        assert out.count("✓") >= 5

    @pytest.mark.parametrize("content", [b"", b"no video"])
    def test_broken_installation(self, call: Call, tmp_path: Path, content: bytes, monkeypatch: Any) -> None:
        broken = tmp_path / "selftest.mp4"
        broken.write_bytes(content)
        monkeypatch.setattr("flashcodec.cli.doctor._CLIP", broken)
        code, out, _ = call("doctor")
        assert code == 1
        assert "✗  self-test" in out


MISTAKES = {
    "no such command": (["prob", "CLIP"], ["prob"]),
    "probe without a file": (["probe"], ["FILE"]),
    "probe with an unknown option": (["probe", "CLIP", "--frames", "3"], ["--frames"]),
    "probe of a stream that is no video": (["probe", "CLIP", "--stream", "7"], ["--stream", "7"]),
    "plan for no device": (["plan", "CLIP", "--device", "gpu"], ["--device", "'gpu'"]),
    "plan for cores without a GPU": (["plan", "CLIP", "--decode-on", "gpu"], ["--decode-on gpu", "for cpu"]),
    "plan of a stream of a huge number": (["plan", "CLIP", "--stream", "9" * 30], ["--stream"]),
    "plan of two choices": (["plan", "CLIP", "--fps", "1", "--frames", "3"], ["--frames", "--fps"]),
    "plan of no numbers": (["plan", "CLIP", "--indices", "1;2"], ["--indices", "1;2"]),
    "plan of a frame that is not there": (["plan", "CLIP", "--indices", "3,150"], ["--indices", "150"]),
    "plan of a huge number": (["plan", "CLIP", "--indices", "9" * 30], ["--indices"]),
    "plan of no frames a second": (["plan", "CLIP", "--fps", "0"], ["--fps"]),
    "plan of not-a-number frames a second": (["plan", "CLIP", "--fps", "nan"], ["--fps"]),
    "plan of too many frames a second": (["plan", "CLIP", "--fps", "1e12"], ["--fps"]),
    "plan of no frames": (["plan", "CLIP", "--frames", "0"], ["--frames"]),
    "sample to nowhere": (["sample", "CLIP"], ["--output"]),
    "sample to an empty name": (["sample", "CLIP", "-o", ""], ["--output", ".png"]),
    "sample to an unknown format": (["sample", "CLIP", "-o", "sheet.mp3"], ["--output", ".png"]),
    "sample of a strange size": (["sample", "CLIP", "-o", "a.png", "--size", "320*180"], ["--size", "320*180"]),
    "sample of no size": (["sample", "CLIP", "-o", "a.png", "--size", "0x9"], ["--size"]),
    "sample of a huge size": (["sample", "CLIP", "-o", "a/", "--size", "99999x99999"], ["--size"]),
    "sample of a huge sheet": (["sample", "CLIP", "-o", "a.png", "--size", "9000"], ["-o DIR/"]),
    "sample of a sheet too wide for WebP": (["sample", "CLIP", "-o", "a.webp", "--columns", "60"], ["16383", ".png"]),
    "sample with columns of files": (["sample", "CLIP", "-o", "a/", "--columns", "3"], ["--columns"]),
    "bench of no rounds": (["bench", "CLIP", "--rounds", "0"], ["--rounds"]),
    "bench of text": (["bench", "CLIP", "--frames", "many"], ["--frames", "integer"]),
    "bench of a frame that is not there": (["bench", "CLIP", "--indices", "-151"], ["--indices", "-151"]),
    "doctor of a file": (["doctor", "CLIP"], []),
    "doctor with an unknown option": (["doctor", "--fix"], ["--fix"]),
    "doctor with a value": (["doctor", "--json=yes"], ["--json"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_usage(call: Call, clip: ClipMaker, tmp_path: Path, monkeypatch: Any, mistake: str) -> None:
    """One line on stderr, exit code 2, nothing written."""
    monkeypatch.chdir(tmp_path)
    arguments, expected = MISTAKES[mistake]
    path = clip("h264_bframes.mp4")
    code, out, err = call(*(path if argument == "CLIP" else argument for argument in arguments))
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("flashcodec: ")
    assert all(word in line for word in expected)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, b"", b"<html>not found</html>", bytes(5000), "audio only"])
@pytest.mark.parametrize("name", ["probe", "plan", "sample", "bench"])
def test_what_cannot_be_decoded(call: Call, tmp_path: Path, name: str, content: bytes | str | None) -> None:
    """One line on stderr that names the file, exit code 1, no sheet."""
    path = tmp_path / "input.mp4"
    if content == "audio only":
        run_ffmpeg("-f", "lavfi", "-i", "sine=d=1", "-c:a", "aac", str(path))
    elif isinstance(content, bytes):
        path.write_bytes(content)
    sheet = tmp_path / "sheet.png"
    code, out, err = call(name, path, *(["-o", sheet] if name == "sample" else []))
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith(f"flashcodec: {path}: ")
    assert not sheet.exists()


def test_brackets_in_the_name_of_a_sheet(call: Call, clip: ClipMaker, tmp_path: Path) -> None:
    sheet = tmp_path / "[" / "red]a.png"
    sheet.parent.mkdir()
    for name in (sheet, tmp_path / "[bold]a.png", f"{tmp_path}/[/b].png"):
        code, out, err = call("sample", clip("h264_bframes.mp4"), "--frames", "1", "-o", name)
        assert (code, err) == (0, "")
        assert out.startswith(f"{name}: 1 frames")


def test_a_folder_that_cannot_be_written(call: Call, clip: ClipMaker, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    code, _, err = call("sample", clip("h264_bframes.mp4"), "--frames", "1", "-o", tmp_path / "file" / "sheet.png")
    assert code == 1
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("name", ["probe", "plan"])
def test_plain_text_when_piped(clip: ClipMaker, name: str) -> None:
    result = command(name, clip("h264_opengop.mp4"))
    assert (result.returncode, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout


def test_colours_on_a_terminal(clip: ClipMaker) -> None:
    assert "\x1b[" in command("plan", clip("h264_opengop.mp4"), env={"FORCE_COLOR": "1", "TERM": "xterm"}).stdout


def test_a_reader_that_has_seen_enough(clip: ClipMaker) -> None:
    line = [sys.executable, "-m", "flashcodec.cli", "plan", str(clip("h264_bframes.mp4")), "--json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_without_rich(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise ModuleNotFoundError(\"No module named 'rich'\", name='rich')\n")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    result = command("doctor", env={"PYTHONPATH": paths})
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "flashcodec: this needs rich: pip install pillow rich typer\n"


def test_help_needs_no_heavy_imports() -> None:
    code = "import sys, flashcodec.cli.app; print({'torch', 'PIL', 'transformers', 'av', 'cv2'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00.000"),
        (83.25, "1:23.250"),
        (59.9996, "1:00.000"),
        (3723.25, "1:02:03.250"),
        (-4.318, "-0:04.318"),
    ],
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text
