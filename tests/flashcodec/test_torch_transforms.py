"""Transforms of flashcodec.torch: TorchCodec's crops to the pixel, torch's resize, and both in any order."""

import importlib.util
import pickle
from typing import Any

import pytest
from flashcodec_clips import ClipMaker
from hf_processors import import_torchvision
from hypothesis import given, settings
from hypothesis import strategies as st

import flashcodec
from flashcodec import Bitstream

torch = pytest.importorskip("torch", reason="frames are its tensors")

from flashcodec.torch import VideoDecoder, transforms  # noqa: E402

NAMES = ["h264_bframes.mp4", "rotated.mp4", "odd_size.mp4"]


@pytest.fixture(scope="module")
def stream(clip: ClipMaker) -> Bitstream:
    return flashcodec.analyse_bitstream(clip("rotated.mp4"))


@pytest.fixture(scope="module")
def torchcodec() -> Any:
    """TorchCodec, which imports torchvision for its transforms where there is one."""
    reference = pytest.importorskip("torchcodec", reason="TorchCodec is the reference")
    pytest.importorskip("torchcodec.transforms")
    if importlib.util.find_spec("torchvision"):
        import_torchvision()
    return reference


def resized(frames: Any, size: tuple[int, int]) -> Any:
    return torch.nn.functional.interpolate(frames, size, mode="bilinear", antialias=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["CenterCrop", "RandomCrop"])
@pytest.mark.parametrize("order", ["NCHW", "NHWC"])
def test_crops_are_torchcodecs(torchcodec: Any, clip: ClipMaker, name: str, kind: str, order: Any) -> None:
    """Of odd sizes too, with half a pixel to either side, and from the place that torch's generator gives."""
    for seed, size in enumerate([(67, 48), (68, 51), (1, 96)]):
        torch.manual_seed(seed)
        theirs = torchcodec.decoders.VideoDecoder(
            clip(name), dimension_order=order, transforms=[getattr(torchcodec.transforms, kind)(size)]
        )
        torch.manual_seed(seed)
        ours = VideoDecoder(clip(name), dimension_order=order, transforms=[getattr(transforms, kind)(size)])
        assert torch.equal(ours[7], theirs[7])
        assert torch.equal(ours.get_frames_at([20, 3]).data, theirs.get_frames_at([20, 3]).data)


@settings(max_examples=50)
@given(data=st.data())
def test_transforms_in_a_row_are_those_of_tensors(stream: Bitstream, data: st.DataObject) -> None:
    expected = VideoDecoder(stream).get_frames_at([9, 2]).data
    steps: list[transforms.DecoderTransform] = []
    for kind in data.draw(st.lists(st.sampled_from(["resize", "crop"]), max_size=5)):
        height, width = expected.shape[2:]
        if kind == "resize":
            size = data.draw(st.tuples(st.integers(2, 130), st.integers(2, 130)))
            steps.append(transforms.Resize(size))
            expected = resized(expected, size)
        else:
            size = data.draw(st.tuples(st.integers(1, height), st.integers(1, width)))
            steps.append(transforms.CenterCrop(size))
            top, left = round((height - size[0]) / 2), round((width - size[1]) / 2)
            expected = expected[:, :, top : top + size[0], left : left + size[1]]
            if min(size) < 2:
                break  # torch refuses to resize some of these
    assert torch.equal(VideoDecoder(stream, transforms=steps).get_frames_at([9, 2]).data, expected)


def test_each_decoder_draws_a_place_and_keeps_it(stream: Bitstream, clip: ClipMaker) -> None:
    torch.manual_seed(0)
    crop = transforms.RandomCrop((20, 20))
    first, second = (VideoDecoder(clip("rotated.mp4"), transforms=[crop]) for _ in range(2))
    assert not torch.equal(first[0], second[0])
    assert torch.equal(pickle.loads(pickle.dumps(first))[0], first[0])
    whole = VideoDecoder(stream)[0].unfold(1, 20, 1).unfold(2, 20, 1)
    assert (whole == first[0][:, None, None]).all(dim=(0, 3, 4)).any()


@pytest.mark.parametrize("kind", ["Resize", "CenterCrop", "RandomCrop"])
def test_torchvisions_transforms_are_taken(stream: Bitstream, kind: str) -> None:
    import_torchvision()
    v2 = pytest.importorskip("torchvision.transforms.v2")
    torch.manual_seed(3)
    ours = VideoDecoder(stream, transforms=[getattr(v2, kind)((51, 40))])[4]
    torch.manual_seed(3)
    assert torch.equal(ours, getattr(v2, kind)((51, 40))(VideoDecoder(stream)[4]))


BAD_OF_TORCHVISION: list[tuple[str, dict[str, Any], str]] = [
    ("Resize", {"size": (9, 9), "interpolation": "bicubic"}, "bilinear"),
    ("Resize", {"size": (9, 9), "antialias": False}, "antialias"),
    ("Resize", {"size": 9}, "pair"),
    ("Resize", {"size": None, "max_size": 9}, "size"),
    ("RandomCrop", {"size": (9, 9), "padding": 1}, "padding"),
    ("RandomCrop", {"size": (9, 9), "pad_if_needed": True}, "pad_if_needed"),
    ("RandomCrop", {"size": (9, 9), "fill": 1}, "fill"),
    ("RandomCrop", {"size": (9, 9), "padding_mode": "edge"}, "padding_mode"),
    ("RandomHorizontalFlip", {}, "Unsupported transform"),
]


@pytest.mark.parametrize(("kind", "arguments", "message"), BAD_OF_TORCHVISION, ids=str)
def test_what_torchvision_alone_does_is_refused(
    stream: Bitstream, kind: str, arguments: dict[str, Any], message: str
) -> None:
    import_torchvision()
    v2 = pytest.importorskip("torchvision.transforms.v2")
    if "interpolation" in arguments:
        arguments = arguments | {"interpolation": v2.InterpolationMode(arguments["interpolation"])}
    with pytest.raises(ValueError, match=message):
        VideoDecoder(stream, transforms=[getattr(v2, kind)(**arguments)])


@pytest.mark.parametrize("kind", ["Resize", "CenterCrop", "RandomCrop"])
@pytest.mark.parametrize("size", [(9,), (9, 9, 9), (0, 9), (-3, 9), (300, 9), (9, 300)], ids=str)
def test_sizes_that_do_not_fit_raise_what_torchcodec_raises(
    torchcodec: Any, clip: ClipMaker, kind: str, size: tuple[int, ...]
) -> None:
    if kind == "Resize" and 300 in size:
        pytest.skip("frames may be enlarged")
    path = clip("rotated.mp4")
    with pytest.raises(Exception) as reference:  # noqa: PT011
        torchcodec.decoders.VideoDecoder(path, transforms=[getattr(torchcodec.transforms, kind)(size)])[0]
    with pytest.raises(reference.type):
        VideoDecoder(path, transforms=[getattr(transforms, kind)(size)])[0]


def test_transforms_and_size_contradict_each_other(stream: Bitstream) -> None:
    with pytest.raises(ValueError, match="not both"):
        VideoDecoder(stream, size=9, transforms=[transforms.Resize((9, 9))])
