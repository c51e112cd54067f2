"""FlashCodec as vLLM's video loader, against vLLM's own OpenCV loader. Not in `make test`: vLLM pins its own torch.

In an environment of its own that has vLLM (its CPU build will do) and pytest:

    PYTHONPATH=flashcodec/python:. python -m pytest tests/plugins/vllm_check.py
"""

import base64
import importlib.metadata
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

pytest.importorskip("vllm", reason="vLLM is not installed here; see the docstring")

from vllm import plugins  # noqa: E402
from vllm.multimodal.media import ImageMediaIO, MediaConnector, VideoMediaIO  # noqa: E402
from vllm.multimodal.video import VIDEO_LOADER_REGISTRY  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def plugin_loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """vLLM has found the plug-in by its entry point; where the package is not installed, by that of pyproject.toml."""
    names = {entry.name for entry in importlib.metadata.entry_points(group=plugins.DEFAULT_PLUGINS_GROUP)}
    with pytest.MonkeyPatch.context() as patch:
        if "flashcodec" not in names:
            patch.syspath_prepend(str(_distribution(tmp_path_factory.mktemp("site"))))
        plugins.plugins_loaded = False
        plugins.load_general_plugins()
    assert "flashcodec" in VIDEO_LOADER_REGISTRY.name2class


def _distribution(site: Path) -> Path:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    ((name, target),) = project["entry-points"][plugins.DEFAULT_PLUGINS_GROUP].items()
    info = site / "flashcodec_check-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flashcodec-check\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[{plugins.DEFAULT_PLUGINS_GROUP}]\n{name} = {target}\n")
    return site


def load(data: bytes, **options: Any) -> tuple[Any, dict[str, Any]]:
    return VideoMediaIO(ImageMediaIO(), **options).load_bytes(data).media


def check_same(ours: tuple[Any, dict[str, Any]], theirs: tuple[Any, dict[str, Any]]) -> None:
    (frames, metadata), (expected_frames, expected) = ours, theirs
    np.testing.assert_array_equal(frames, expected_frames)
    for name in ("total_num_frames", "frames_indices", "do_sample_frames"):
        assert metadata[name] == expected[name], name
    assert metadata["fps"] == pytest.approx(expected["fps"], rel=1e-3)
    assert metadata["duration"] == pytest.approx(expected["duration"], rel=1e-3)
    assert set(metadata) == set(expected)


@pytest.mark.parametrize("options", [{"num_frames": 8}, {"num_frames": -1}, {"num_frames": 32, "fps": 1}])
def test_loader(sample_clip: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    """Chosen by the environment variable."""
    data = sample_clip.read_bytes()
    theirs = load(data, **options)
    monkeypatch.setenv("VLLM_VIDEO_LOADER_BACKEND", "flashcodec")
    ours = load(data, **options)
    assert (ours[1]["video_backend"], theirs[1]["video_backend"]) == ("flashcodec", "opencv")
    check_same(ours, theirs)


@pytest.mark.parametrize("loader", ["opencv", "qwen2_vl", "qwen3_vl", "opencv_dynamic"])
def test_backend_of_the_loaders_of_models(sample_clip: Path, loader: str) -> None:
    data = sample_clip.read_bytes()
    ours, theirs = (
        load(data, video_backend=loader, backend=backend, num_frames=16, fps=2) for backend in ("flashcodec", "opencv")
    )
    check_same(ours, theirs)


def test_through_the_media_connector(sample_clip: Path) -> None:
    """From a data URL and a file URL, as a server gets them."""
    url = "data:video/mp4;base64," + base64.b64encode(sample_clip.read_bytes()).decode()
    options = {"video": {"video_backend": "flashcodec", "num_frames": 4}}
    connector = MediaConnector(options, allowed_local_media_path=str(sample_clip.parent))
    expected = load(sample_clip.read_bytes(), num_frames=4)
    for given in (url, f"file://{sample_clip}"):
        check_same(connector.fetch_video(given).media, expected)


@pytest.mark.parametrize("data", [b"", b"<html>not found</html>", b"\0" * 5000])
def test_what_is_no_video_is_the_fault_of_the_request(data: bytes) -> None:
    for options in ({"video_backend": "flashcodec"}, {"video_backend": "qwen2_vl", "backend": "flashcodec"}):
        with pytest.raises(ValueError, match=rf"<{len(data)} bytes>"):
            load(data, **options)


@pytest.mark.parametrize(
    "options", [{"video_backend": "flashcodec"}, {"video_backend": "opencv", "backend": "flashcodec"}]
)
def test_damaged_videos(sample_clip: Path, options: dict[str, Any]) -> None:
    """Refused, or with the nearest frames that are there, or without those that are not."""
    data = bytearray(sample_clip.read_bytes())
    gap = slice(len(data) // 2, len(data) // 2 + 4000)
    data[gap] = bytes(4000)
    intact, _ = load(sample_clip.read_bytes(), num_frames=30)
    options = {**options, "num_frames": 30}
    nearest, metadata = load(bytes(data), **options, on_error="nearest")
    assert len(nearest) == len(metadata["frames_indices"]) == 30
    rest, metadata = load(bytes(data), **options, on_error="skip")
    assert 0 < len(rest) == len(metadata["frames_indices"]) < 30
    wanted = np.linspace(0, 299, 30, dtype=int).tolist()
    np.testing.assert_array_equal(rest, [intact[wanted.index(index)] for index in metadata["frames_indices"]])
    assert set(wanted) > set(metadata["frames_indices"])


def test_frame_recovery(sample_clip: Path) -> None:
    data = bytearray(sample_clip.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4000] = bytes(4000)
    frames, _ = load(bytes(data), video_backend="flashcodec", num_frames=30, frame_recovery=True)
    assert len(frames) == 30


def test_key_frames_only(sample_clip: Path) -> None:
    exact, _ = load(sample_clip.read_bytes(), video_backend="flashcodec", num_frames=-1)
    snapped, metadata = load(sample_clip.read_bytes(), video_backend="flashcodec", num_frames=6, snap="keyframe")
    np.testing.assert_array_equal(snapped, exact[metadata["frames_indices"]])


def test_pixel_limit(sample_clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_MAX_IMAGE_PIXELS", "1000")
    with pytest.raises(ValueError, match="VLLM_MAX_IMAGE_PIXELS"):
        load(sample_clip.read_bytes(), video_backend="flashcodec")


def test_options_that_are_not_ours(sample_clip: Path) -> None:
    data = sample_clip.read_bytes()
    with pytest.raises(ValueError, match="seek_mode"):
        load(data, video_backend="opencv", backend="flashcodec", seek_mode="exact")
    with pytest.raises(ValueError, match="no backend"):
        load(data, video_backend="flashcodec", backend="torchcodec")
    with pytest.raises(ValueError, match="num_threads"):
        load(data, video_backend="flashcodec", num_threads=-1)
