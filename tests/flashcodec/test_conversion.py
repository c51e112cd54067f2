"""From a decoder's planes to RGB: libswscale's bytes, FFmpeg's and TorchCodec's colours, the same from every kernel."""

import subprocess
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from flashcodec_clips import FFMPEG, run_ffmpeg
from hypothesis import given, settings
from hypothesis import strategies as st

from flashcodec import Layout, PatchLayout, RGBLayout, TileLayout, VideoDecoder, _core

# name -> bits, chroma divided by
FORMATS = {
    "yuv420p": (8, 2, 2),
    "yuv422p": (8, 2, 1),
    "yuv444p": (8, 1, 1),
    "yuv420p10le": (10, 2, 2),
    "yuv422p10le": (10, 2, 1),
    "yuv444p10le": (10, 1, 1),
    "yuv420p12le": (12, 2, 2),
    "yuv440p": (8, 1, 2),
    "yuv411p": (8, 4, 1),
}
MATRICES = {"bt709": 1, "smpte170m": 6, "bt2020nc": 9}


def planes(pixel_format: str, height: int, width: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Noise in all of a picture's samples, invalid ones included."""
    bits, across, down = FORMATS[pixel_format]
    samples = height * width + 2 * (-(-height // down) * -(-width // across))
    values = np.random.default_rng(seed).integers(0, 1 << bits, samples)
    return values.astype("<u2" if bits > 8 else np.uint8).view(np.uint8)


def converted(
    pixels: npt.NDArray[np.uint8],
    pixel_format: str,
    size: tuple[int, int],
    layout: Layout,
    matrix: str = "bt709",
    full_range: bool = False,
    kernels: str | None = None,
    orientation: tuple[int, bool] = (0, False),
) -> npt.NDArray[np.uint8]:
    conversion = _core.Conversion(pixels, pixel_format, *size, MATRICES[matrix], full_range, kernels)
    return conversion.lay_out(layout.to_core(), *orientation).reshape(layout.group_shape(1))


def fast_kernels() -> list[str]:
    names = _core.kernels()
    assert names[-1] == "scalar"
    return names[:-1]


LAYOUTS = st.one_of(
    st.builds(
        RGBLayout,
        st.integers(1, 80),
        st.integers(1, 80),
        st.sampled_from(["NCHW", "NHWC"]),
        st.sampled_from(["bicubic", "bilinear", "area"]),
        square=st.sampled_from([None, (9, 8, 7)]),
    ),
    st.builds(
        RGBLayout,
        st.integers(1, 80),
        st.integers(1, 80),
        part=st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 70), st.integers(1, 70)),
    ),
    st.just(PatchLayout(56, 28)),
    st.just(TileLayout(2, 1, 24, "first", (40, 24))),
    st.just(TileLayout(1, 2, 24, "last")),
)


@pytest.mark.parametrize("kernels", fast_kernels())
@settings(max_examples=150)
@given(
    pixel_format=st.sampled_from(sorted(FORMATS)),
    size=st.tuples(st.integers(1, 150), st.integers(1, 150)),
    even=st.booleans(),
    matrix=st.sampled_from(sorted(MATRICES)),
    full_range=st.booleans(),
    orientation=st.tuples(st.integers(0, 3), st.booleans()),
    layout=st.one_of(st.none(), LAYOUTS),
)
def test_every_kernel_equals_libswscale_and_plain_loops(
    kernels: str,
    pixel_format: str,
    size: tuple[int, int],
    even: bool,
    matrix: str,
    full_range: bool,
    orientation: tuple[int, bool],
    layout: Layout | None,
) -> None:
    if even:
        size = size[0] + size[0] % 2, size[1] + size[1] % 2
    upright = size if orientation[0] % 2 == 0 else size[::-1]
    layout = RGBLayout(*upright) if layout is None else layout
    pixels = planes(pixel_format, *size)
    arguments = (pixels, pixel_format, size, layout, matrix, full_range)
    expected = converted(*arguments, "scalar", orientation)
    np.testing.assert_array_equal(converted(*arguments, kernels, orientation), expected)


# Chroma interleaved, as a GPU's decoder has it -> the same samples in planes, and the low bits that are empty
INTERLEAVED = {
    "nv12": ("yuv420p", 0),
    "nv16": ("yuv422p", 0),
    "nv24": ("yuv444p", 0),
    "p010le": ("yuv420p10le", 6),
    "p210le": ("yuv422p10le", 6),
    "p410le": ("yuv444p10le", 6),
}


def interleaved(pixels: npt.NDArray[np.uint8], height: int, width: int, empty_bits: int) -> npt.NDArray[np.uint8]:
    samples = pixels.view("<u2") << empty_bits if empty_bits else pixels
    luma, chroma = np.split(samples, [height * width])
    return np.concatenate([luma, chroma.reshape(2, -1).T.ravel()]).view(np.uint8)


@settings(max_examples=300)
@given(
    pixel_format=st.sampled_from([*sorted(INTERLEAVED), "yuv420p", "yuv422p", "yuv444p", "yuv420p12le"]),
    size=st.tuples(st.integers(8, 75), st.integers(1, 75)),
    matrix=st.sampled_from(sorted(MATRICES)),
    full_range=st.booleans(),
    orientation=st.tuples(st.integers(0, 3), st.booleans()),
    layout=st.one_of(st.none(), LAYOUTS),
)
def test_pixels_one_by_one_as_on_a_gpu_are_those_of_the_kernels(
    pixel_format: str,
    size: tuple[int, int],
    matrix: str,
    full_range: bool,
    orientation: tuple[int, bool],
    layout: Layout | None,
) -> None:
    size = 2 * size[0], 2 * size[1]
    upright = size if orientation[0] % 2 == 0 else size[::-1]
    layout = RGBLayout(*upright) if layout is None else layout
    planar, empty_bits = INTERLEAVED.get(pixel_format, (pixel_format, 0))
    pixels = planes(planar, *size)
    expected = converted(pixels, planar, size, layout, matrix, full_range, orientation=orientation)
    if planar != pixel_format:
        pixels = interleaved(pixels, *size, empty_bits)
    conversion = _core.Conversion(pixels, pixel_format, *size, MATRICES[matrix], full_range)
    found = conversion.lay_out_by_points(layout.to_core(), *orientation).reshape(layout.group_shape(1))
    np.testing.assert_array_equal(found, expected)


def test_odd_sizes_and_other_formats_are_not_for_a_gpu() -> None:
    for pixel_format, size in (("yuv420p", (33, 40)), ("yuv411p", (32, 40))):
        conversion = _core.Conversion(planes(pixel_format, *size), pixel_format, *size, 1, False)
        with pytest.raises(ValueError, match="no points for this"):
            conversion.lay_out_by_points(RGBLayout(16, 16).to_core())


@pytest.mark.parametrize("kernels", _core.kernels())
@pytest.mark.parametrize("size", [(50, 70), (33, 129), (130, 64)])
def test_orientation_mirrors_then_turns_clockwise(kernels: str, size: tuple[int, int]) -> None:
    pixels = planes("yuv420p", *size)
    native = converted(pixels, "yuv420p", size, RGBLayout(*size, "NHWC"), kernels=kernels)[0]
    for turns in range(4):
        for mirrored in (False, True):
            expected = np.rot90(native[:, ::-1] if mirrored else native, -turns)
            layout = RGBLayout(*expected.shape[:2], "NHWC")
            turned = converted(pixels, "yuv420p", size, layout, kernels=kernels, orientation=(turns, mirrored))[0]
            np.testing.assert_array_equal(turned, expected)


@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("pixel_format", ["yuv420p", "yuv422p", "yuv444p", "yuv420p10le", "yuv444p10le", "yuv411p"])
def test_colours_are_those_of_ffmpegs_command_line(pixel_format: str, matrix: str, full_range: bool) -> None:
    if FFMPEG is None:
        pytest.skip("the ffmpeg command line is the reference")
    size = (48, 64)
    pixels = planes(pixel_format, *size)
    names = {"bt709": "bt709", "smpte170m": "bt601", "bt2020nc": "bt2020"}
    scale = f"scale=in_color_matrix={names[matrix]}:in_range={'pc' if full_range else 'tv'}:flags=bicubic"
    command = [FFMPEG, "-v", "error", "-f", "rawvideo", "-pix_fmt", pixel_format, "-s", "64x48", "-i", "-"]
    command += ["-vf", scale, "-pix_fmt", "rgb24", "-f", "rawvideo", "-"]
    raw = subprocess.run(command, input=pixels.tobytes(), capture_output=True, check=True).stdout
    expected = np.frombuffer(raw, np.uint8).reshape(1, *size, 3)
    ours = converted(pixels, pixel_format, size, RGBLayout(*size, "NHWC"), matrix, full_range)
    np.testing.assert_array_equal(ours, expected)


@cache
def tagged_clip(folder: Path, pixel_format: str, matrix: str, color_range: str, transfer: str) -> Path:
    if FFMPEG is None:
        pytest.skip("the ffmpeg command line makes the clips")
    path = folder / f"{pixel_format}-{matrix}-{color_range}-{transfer}.mp4"
    tags = ["-colorspace", matrix, "-color_range", color_range, "-color_trc", transfer, "-color_primaries", "bt709"]
    source = ["-f", "lavfi", "-i", "testsrc2=s=192x128:r=25:d=0.2"]
    command = [FFMPEG, "-v", "error", *source, "-c:v", "libx264", "-pix_fmt", pixel_format, *tags, "-y", str(path)]
    result = subprocess.run(command, capture_output=True, check=False)
    if result.returncode != 0:
        pytest.skip(f"this ffmpeg cannot encode {pixel_format} with libx264")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("colours")


@pytest.mark.parametrize("color_range", ["tv", "pc"])
@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("pixel_format", ["yuv420p", "yuv420p10le"])
def test_tagged_streams_have_ffmpegs_colours(folder: Path, pixel_format: str, matrix: str, color_range: str) -> None:
    path = tagged_clip(folder, pixel_format, matrix, color_range, "bt709")
    raw = run_ffmpeg("-i", str(path), "-vf", "scale=flags=bicubic", "-pix_fmt", "rgb24", "-f", "rawvideo", "-")
    expected = np.frombuffer(raw, np.uint8).reshape(-1, 128, 192, 3)
    np.testing.assert_array_equal(VideoDecoder(path, dimension_order="NHWC")[:], expected)


# TorchCodec takes 10-bit video of full range for limited.
@pytest.mark.parametrize(("pixel_format", "color_range"), [("yuv420p", "tv"), ("yuv420p", "pc"), ("yuv420p10le", "tv")])
@pytest.mark.parametrize("matrix", MATRICES)
def test_tagged_streams_have_torchcodecs_colours(
    folder: Path, pixel_format: str, matrix: str, color_range: str
) -> None:
    torchcodec = pytest.importorskip("torchcodec.decoders", reason="TorchCodec is the reference")
    path = tagged_clip(folder, pixel_format, matrix, color_range, "bt709")
    np.testing.assert_array_equal(VideoDecoder(path)[:], torchcodec.VideoDecoder(path)[:].numpy())


# Untagged, some of them are taken for full range and some for limited.
UNTAGGED = [
    *("gray", "gray9le", "gray10le", "gray12be", "gray14le", "gray16le", "gray16be", "grayf32le", "ya8", "ya16le"),
    *("monob", "pal8", "gbrp", "rgb565le", "yuv410p", "yuv420p16le", "yuva444p", "yuvj422p", "nv12", "p010le"),
]


def test_untagged_formats_have_ffmpegs_colours(tmp_path: Path) -> None:
    if FFMPEG is None:
        pytest.skip("the ffmpeg command line makes the clips and is the reference")
    known = run_ffmpeg("-pix_fmts").decode().split()
    paths = [tmp_path / f"{name}.nut" for name in UNTAGGED if name in known]
    raw = [["-map", "0", "-c:v", "rawvideo", "-pix_fmt", path.stem, str(path)] for path in paths]
    run_ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:r=5:d=0.2", *chain(*raw))
    rgb = ["-sws_flags", "bicubic", "-pix_fmt", "rgb24", "-f", "rawvideo"]
    outputs = [["-map", str(n), *rgb, str(path.with_suffix(".rgb"))] for n, path in enumerate(paths)]
    run_ffmpeg(*chain(*(["-i", str(path)] for path in paths)), *chain(*outputs))
    for path in paths:
        expected = np.fromfile(path.with_suffix(".rgb"), np.uint8).reshape(48, 64, 3)
        ours = VideoDecoder(path, dimension_order="NHWC")[0]
        np.testing.assert_array_equal(ours, expected, err_msg=path.stem)


@pytest.mark.parametrize("pixel_format", ["gray16le", "ya8"])
def test_untagged_gray_has_torchcodecs_colours(tmp_path: Path, pixel_format: str) -> None:
    torchcodec = pytest.importorskip("torchcodec.decoders", reason="TorchCodec is the reference")
    if FFMPEG is None:
        pytest.skip("the ffmpeg command line makes the clips")
    path = tmp_path / "gray.nut"
    run_ffmpeg(
        *("-f", "lavfi", "-i", "testsrc2=s=64x48:r=5:d=0.4"),
        *("-c:v", "rawvideo", "-pix_fmt", pixel_format, str(path)),
    )
    np.testing.assert_array_equal(VideoDecoder(path)[:], torchcodec.VideoDecoder(path)[:].numpy())


@pytest.mark.parametrize("transfer", ["smpte2084", "arib-std-b67"])
def test_hdr_is_not_mapped_to_other_tones(folder: Path, transfer: str) -> None:
    sdr = VideoDecoder(tagged_clip(folder, "yuv420p10le", "bt2020nc", "tv", "bt709"))
    hdr = VideoDecoder(tagged_clip(folder, "yuv420p10le", "bt2020nc", "tv", transfer))
    assert hdr.metadata.color_transfer_characteristic == transfer
    np.testing.assert_array_equal(hdr[:], sdr[:])


def test_planes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="planes do not fit"):
        _core.Conversion(np.zeros(10, np.uint8), "yuv420p", 4, 4, 1, False)
    with pytest.raises(ValueError, match="no kernels named neon9"):
        _core.Conversion(np.zeros(24, np.uint8), "yuv420p", 4, 4, 1, False, "neon9")
