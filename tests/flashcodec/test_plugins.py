"""FlashCodec as a video backend of transformers gives what transformers' own backends give.

The plug-in for vLLM, which wants an environment of its own: tests/plugins/vllm_check.py.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flashcodec_clips import ClipMaker

from flashcodec import DecodeError

# First: with torchvision here, transformers needs it made to import.
pytest.importorskip("reference", reason="transformers is the host", exc_type=ImportError)
video_utils = pytest.importorskip("transformers.video_utils")

from flashcodec.plugins import transformers as plugin  # noqa: E402

CLIPS = ["h264_bframes.mp4", "h264_vfr.mp4", "h264_edit_list.mp4", "hevc_opengop.mp4", "vp9.webm", "rotated.mp4"]


def load(path: Path, backend: str = "flashcodec", **options: Any) -> tuple[Any, Any]:
    frames, metadata = video_utils.load_video(str(path), backend=backend, **options)
    return frames, metadata


def last_first_and_twice_the_middle(metadata: Any, **_: Any) -> list[int]:
    middle = metadata.total_num_frames // 2
    return [metadata.total_num_frames - 1, 0, middle, middle]


@pytest.mark.parametrize("name", CLIPS)
@pytest.mark.parametrize(
    "options",
    [{"num_frames": 8}, {"fps": 3}, {}, {"sample_indices_fn": last_first_and_twice_the_middle}],
    ids=["num_frames", "fps", "all frames", "own function"],
)
def test_same_as_torchcodec(clip: ClipMaker, name: str, options: dict[str, Any]) -> None:
    pytest.importorskip("torchcodec.decoders")
    path = clip(name)
    ours, found = load(path, **options)
    theirs, expected = load(path, "torchcodec", **options)
    assert (ours.dtype, ours.flags.c_contiguous) == (np.uint8, True)
    np.testing.assert_array_equal(ours, theirs.permute(0, 2, 3, 1).numpy())
    assert type(found) is type(expected)
    assert found.video_backend == "flashcodec"
    for field in ("total_num_frames", "width", "height"):
        assert found[field] == expected[field], field
    np.testing.assert_allclose([found.fps, found.duration], [expected.fps, expected.duration])
    np.testing.assert_array_equal(found.frames_indices, expected.frames_indices)
    np.testing.assert_allclose(found.timestamps, expected.timestamps)


@pytest.mark.parametrize("backend", ["opencv", "pyav", "decord"])
def test_same_as_the_other_backends(clip: ClipMaker, backend: str) -> None:
    """On a clip that all of them decode right; they convert colours by the same library, or within rounding."""
    module = {"opencv": "cv2", "pyav": "av"}.get(backend, backend)
    pytest.importorskip(module)
    path = clip("h264_bframes.mp4")
    ours, found = load(path, num_frames=12)
    theirs, expected = load(path, backend, num_frames=12)
    assert np.abs(ours.astype(int) - theirs).mean() < 1
    for field in ("total_num_frames", "width", "height"):
        assert found[field] == expected[field], field
    np.testing.assert_allclose([found.fps, found.duration], [float(expected.fps), float(expected.duration)])
    np.testing.assert_array_equal(found.frames_indices, expected.frames_indices)


def test_downloaded_videos(clip: ClipMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transformers downloads; the backend gets a file-like object."""
    path = clip("h264_faststart.mp4")
    answer = SimpleNamespace(content=path.read_bytes())
    monkeypatch.setattr(video_utils.httpx, "get", lambda url, **_: answer)
    frames, metadata = video_utils.load_video("https://example.org/a.mp4", num_frames=5, backend="flashcodec")
    np.testing.assert_array_equal(frames, load(path, num_frames=5)[0])
    assert metadata.total_num_frames == 150


def test_the_sampling_function_gets_what_load_video_got(clip: ClipMaker) -> None:
    seen: dict[str, Any] = {}

    def choose(metadata: Any, **options: Any) -> np.ndarray[Any, Any]:
        seen.update(options, fps=metadata.fps, frames=metadata.total_num_frames)
        return np.array([4])

    frames, metadata = load(clip("h264_bframes.mp4"), sample_indices_fn=choose, stride=3)
    assert seen == {"stride": 3, "fps": 25, "frames": 150}
    assert frames.shape == (1, 180, 320, 3)
    assert metadata.frames_indices == [4]


def test_registering_again_changes_nothing() -> None:
    others = {name: reader for name, reader in video_utils.VIDEO_DECODERS.items() if name != "flashcodec"}
    plugin.register()
    assert {**others, "flashcodec": plugin.read_video} == video_utils.VIDEO_DECODERS


def test_what_is_no_video(tmp_path: Path) -> None:
    path = tmp_path / "page.mp4"
    path.write_text("<html>not found</html>")
    with pytest.raises(DecodeError, match=r"page\.mp4"):
        load(path, num_frames=4)
    with pytest.raises(TypeError, match="local path"):
        load(tmp_path / "nothing.mp4")


def test_what_cannot_be_sampled(clip: ClipMaker) -> None:
    path = clip("h264_bframes.mp4")
    with pytest.raises(ValueError, match="num_frames=151"):
        load(path, num_frames=151)
    with pytest.raises(IndexError, match="150"):
        load(path, sample_indices_fn=lambda **_: [150])
    with pytest.raises(ValueError, match="cuda:N"):
        load(path, num_frames=1, sample_indices_fn=lambda **_: [0], device="xpu")
