"""Layouts of decoded frames equal what transformers' processors make of the same RGB picture, byte for byte."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from flashcodec.geometry import best_resolution, canvas_grid, canvas_size, fitted_size, shortest_edge_size, tile_grid
from hf_processors import as_bytes, image_outputs, processor, video_outputs
from hypothesis import given, settings
from hypothesis import strategies as st

from flashcodec import Layout, PatchLayout, RGBLayout, TileLayout, _core

SIZES = [(120, 160), (161, 97), (64, 64), (51, 300), (400, 90)]
SIDES = st.integers(1, 4000)
ONEVISION = [(384 * rows, 384 * columns) for rows in range(1, 7) for columns in range(1, 7)]
NEXT = [(336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008)]
CLIP_MEAN = (122, 116, 104)


def picture(height: int, width: int) -> npt.NDArray[np.uint8]:
    """Noise over shapes: edges, flat parts, saturated colours."""
    rng = np.random.default_rng(height * 4099 + width)
    y, x = np.mgrid[:height, :width]
    shapes = np.stack([(x // 13 + y // 7) % 2 * 255, x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1)], -1)
    noise = rng.integers(-60, 60, (height, width, 3))
    return np.clip(shapes + noise * (x[..., None] % 3 == 0), 0, 255).astype(np.uint8)


def laid_out(rgb: npt.NDArray[np.uint8], layout: Layout) -> npt.NDArray[np.uint8]:
    return _core.lay_out(rgb, layout.to_core()).reshape(layout.group_shape(1))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("patch", "merge"), [(14, 2), (16, 2), (14, 1)])
@pytest.mark.parametrize("kind", ["Image", "Video"])
def test_qwen_vl_patches(size: tuple[int, int], patch: int, merge: int, kind: str) -> None:
    # of Qwen2-VL, Qwen2.5-VL and, with patches of 16, Qwen3-VL
    rgb = picture(*size)
    limits = {"shortest_edge": 4 * (patch * merge) ** 2, "longest_edge": 200 * (patch * merge) ** 2}
    hf = processor(f"Qwen2VL{kind}Processor", patch_size=patch, merge_size=merge, temporal_patch_size=2, size=limits)
    outputs = image_outputs(hf, rgb) if kind == "Image" else video_outputs(hf, rgb)
    _, rows, columns = outputs[f"{kind.lower()}_grid_thw"][0].tolist()
    pixels = as_bytes(outputs["pixel_values" if kind == "Image" else "pixel_values_videos"])
    np.testing.assert_array_equal(laid_out(rgb, PatchLayout(rows * patch, columns * patch, patch, 2, merge)), pixels)


@pytest.mark.parametrize("size", SIZES)
def test_internvl_tiles(size: tuple[int, int]) -> None:
    rgb = picture(*size)
    layout = TileLayout.internvl(*size, tile=56, max_tiles=6)
    options = {"size": {"height": 56, "width": 56}, "crop_to_patches": True, "min_patches": 1, "max_patches": 6}
    hf = processor("GotOcr2ImageProcessor", **options)
    expected = as_bytes(image_outputs(hf, rgb)["pixel_values"])
    np.testing.assert_array_equal(laid_out(rgb, layout)[0], expected)


@pytest.mark.parametrize("name", ["InternVLVideoProcessor", "LlavaOnevisionVideoProcessor"])
def test_videos_of_one_tile(name: str) -> None:
    rgb = picture(120, 160)
    hf = processor(name, size={"height": 84, "width": 84})
    np.testing.assert_array_equal(
        laid_out(rgb, RGBLayout(84, 84)), as_bytes(video_outputs(hf, rgb)["pixel_values_videos"])[0]
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["CLIPImageProcessor", "LlavaImageProcessor"])
def test_shortest_edge_and_centre_crop(size: tuple[int, int], name: str) -> None:
    rgb = picture(*size)
    layout = RGBLayout(*shortest_edge_size(*size, 84), crop=(84, 84))
    hf = processor(name, size={"shortest_edge": 84}, crop_size={"height": 84, "width": 84})
    np.testing.assert_array_equal(laid_out(rgb, layout), as_bytes(image_outputs(hf, rgb)["pixel_values"]))


@pytest.mark.parametrize("size", SIZES)
def test_llava_padded_to_a_square(size: tuple[int, int]) -> None:
    rgb = picture(*size)
    layout = RGBLayout(84, 84, square=CLIP_MEAN)
    hf = processor(
        "LlavaImageProcessor", do_pad=True, size={"shortest_edge": 84}, crop_size={"height": 84, "width": 84}
    )
    np.testing.assert_array_equal(laid_out(rgb, layout), as_bytes(image_outputs(hf, rgb)["pixel_values"]))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["LlavaNextImageProcessor", "LlavaOnevisionImageProcessor"])
def test_anyres_tiles(size: tuple[int, int], name: str) -> None:
    rgb = picture(*size)
    resolutions = [(84 * rows, 84 * columns) for rows in (1, 2, 3) for columns in (1, 2, 3)]
    side = {"height": 84, "width": 84}
    next_options = {"size": {"shortest_edge": 84}, "crop_size": side}
    hf = processor(
        name,
        image_grid_pinpoints=[list(resolution) for resolution in resolutions],
        **(next_options if name == "LlavaNextImageProcessor" else {"size": side}),
    )
    layout = TileLayout.anyres(*size, resolutions, 84)
    np.testing.assert_array_equal(laid_out(rgb, layout), as_bytes(image_outputs(hf, rgb)["pixel_values"]))


@pytest.mark.parametrize("size", SIZES)
def test_mllama_tiles(size: tuple[int, int]) -> None:
    rgb = picture(*size)
    layout = TileLayout.mllama(*size, tile=84)
    hf = processor("MllamaImageProcessor", size={"height": 84, "width": 84})
    expected = as_bytes(image_outputs(hf, rgb)["pixel_values"])[0, 0]
    np.testing.assert_array_equal(laid_out(rgb, layout)[0], expected[: layout.tiles])


@settings(max_examples=300)
@given(height=SIDES, width=SIDES, tile=st.sampled_from([224, 448]), most=st.integers(1, 40), data=st.data())
def test_internvls_grid_is_transformers(height: int, width: int, tile: int, most: int, data: st.DataObject) -> None:
    processor("GotOcr2ImageProcessor")
    from transformers.models.got_ocr2.image_processing_got_ocr2 import get_optimal_tiled_canvas

    least = data.draw(st.integers(1, most))
    columns, rows = get_optimal_tiled_canvas((height, width), (tile, tile), least, most)
    assert tile_grid(height, width, tile, least, most) == (rows, columns)


@settings(max_examples=300)
@given(height=SIDES, width=SIDES, tile=st.sampled_from([224, 560]), most=st.integers(1, 9))
def test_mllamas_canvas_is_transformers(height: int, width: int, tile: int, most: int) -> None:
    processor("MllamaImageProcessor")
    from transformers.models.mllama import image_processing_mllama as rules

    canvas = rules.get_optimal_tiled_canvas(height, width, most, tile)
    rows, columns = canvas_grid(height, width, tile, most)
    assert (rows * tile, columns * tile) == canvas
    assert canvas_size(height, width, tile, canvas) == rules.get_image_size_fit_to_canvas(height, width, *canvas, tile)


@settings(max_examples=300)
@given(height=SIDES, width=SIDES, resolutions=st.sampled_from([NEXT, ONEVISION]))
def test_anyres_resolution_is_transformers(height: int, width: int, resolutions: list[tuple[int, int]]) -> None:
    pytest.importorskip("transformers", reason="transformers is the reference")
    from transformers.image_processing_utils import get_patch_output_size, select_best_resolution

    resolution = best_resolution(height, width, resolutions)
    assert resolution == select_best_resolution((height, width), resolutions)
    image = np.empty((1, height, width), np.uint8)
    assert fitted_size(height, width, resolution) == get_patch_output_size(image, resolution, "channels_first")


@settings(max_examples=300)
@given(height=SIDES, width=SIDES, edge=st.integers(1, 800))
def test_shortest_edge_is_transformers(height: int, width: int, edge: int) -> None:
    pytest.importorskip("transformers", reason="transformers is the reference")
    from transformers.image_transforms import get_resize_output_image_size

    expected = get_resize_output_image_size(np.empty((1, height, width), np.uint8), edge, False, None, "channels_first")
    assert shortest_edge_size(height, width, edge) == expected


@settings(max_examples=60)
@given(st.data())
def test_a_crop_is_part_of_the_whole(data: st.DataObject) -> None:
    rgb = picture(data.draw(st.integers(1, 90)), data.draw(st.integers(1, 90)))
    height, width = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 70))
    crop = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    corners = st.tuples(st.integers(0, height - crop[0]), st.integers(0, width - crop[1]))
    corner = data.draw(st.one_of(st.none(), corners))
    order = data.draw(st.sampled_from(["NCHW", "NHWC"]))
    whole = laid_out(rgb, RGBLayout(height, width, "NHWC"))[0]
    top, left = corner or ((height - crop[0]) // 2, (width - crop[1]) // 2)
    expected = whole[top : top + crop[0], left : left + crop[1]]
    part = laid_out(rgb, RGBLayout(height, width, order, crop=crop, corner=corner))[0]
    np.testing.assert_array_equal(part if order == "NHWC" else part.transpose(1, 2, 0), expected)


@settings(max_examples=60)
@given(st.data())
def test_a_part_is_resized_as_a_picture_of_its_own(data: st.DataObject) -> None:
    size = data.draw(st.tuples(st.integers(1, 90), st.integers(1, 90)))
    height, width = data.draw(st.integers(1, size[0])), data.draw(st.integers(1, size[1]))
    top, left = data.draw(st.integers(0, size[0] - height)), data.draw(st.integers(0, size[1] - width))
    rgb = picture(*size)
    target = data.draw(st.one_of(st.none(), st.tuples(st.integers(1, 70), st.integers(1, 70))))
    own = np.ascontiguousarray(rgb[top : top + height, left : left + width])
    layout = RGBLayout(*(target or (None, None)), part=(top, left, height, width)).sized(*size)
    np.testing.assert_array_equal(laid_out(rgb, layout), laid_out(own, RGBLayout(*(target or (height, width)))))


def test_squares_with_a_crop_equal_numpys_padding() -> None:
    rgb = picture(41, 66)
    padded = np.full((66, 66, 3), (10, 20, 30), np.uint8)
    padded[12:53] = rgb
    layout = RGBLayout(45, 45, square=(10, 20, 30), crop=(31, 22))
    np.testing.assert_array_equal(laid_out(rgb, layout), laid_out(padded, RGBLayout(45, 45, crop=(31, 22))))


REFUSED: dict[str, Callable[[], object]] = {
    "crop": lambda: RGBLayout(20, 20, crop=(21, 5)),
    "at \\(3, 0\\)": lambda: RGBLayout(20, 20, crop=(18, 5), corner=(3, 0)),
    "part": lambda: RGBLayout(20, 20, part=(0, 0, 0, 5)),
    "part or square": lambda: RGBLayout(20, 20, part=(0, 0, 5, 5), square=(0, 0, 0)),
    "colour": lambda: RGBLayout(20, 20, square=(0, 0, 256)),
    "interpolation": lambda: PatchLayout(56, 56, interpolation="lanczos"),  # type: ignore[arg-type]
    "neither": lambda: RGBLayout(20, None),
    "multiples": lambda: PatchLayout(100, 100),
    "positive": lambda: TileLayout(0, 1, 56),
    "content": lambda: TileLayout(1, 1, 56, content=(57, 10)),
    "thumbnail": lambda: TileLayout(1, 1, 56, "middle"),  # type: ignore[arg-type]
    "multiple of the tile": lambda: TileLayout.anyres(10, 10, [(100, 84)], 84),
    "min_tiles": lambda: TileLayout.internvl(10, 10, min_tiles=3, max_tiles=2),
    "a side may have": lambda: RGBLayout(1 << 20, 4).to_core(),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_sizes_that_do_not_fit_are_refused(reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        REFUSED[reason]()
