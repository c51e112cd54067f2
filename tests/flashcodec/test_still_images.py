"""Images: as transformers' loader decodes them, resized as torch does, in the patch order of its processor."""

import contextlib
import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flashcodec.image import MAX_SIDE, Background, decode_image, decode_images, image_in_layout, image_size
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashcodec import DamagedError, DecodeError, LimitError, PatchLayout, SourceError, UnsupportedError, jpeg

torch = pytest.importorskip("torch", reason="torch is the reference")
PIL = pytest.importorskip("PIL", reason="Pillow decodes images")
from PIL import IcoImagePlugin, Image, ImageOps, PngImagePlugin, features  # noqa: E402


def picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    rng = np.random.default_rng(width * height)
    channels = len(Image.new(mode, (1, 1)).getbands())
    pixels = rng.integers(0, 256, (height, width, channels), np.uint8)
    return Image.fromarray(pixels.squeeze(), mode) if channels > 1 else Image.fromarray(pixels[:, :, 0])


def encoded(image: Image.Image, file_format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("mode", "file_format"),
    [("RGB", "JPEG"), ("L", "JPEG"), ("CMYK", "JPEG"), ("RGB", "PNG"), ("RGBA", "PNG"), ("P", "PNG"), ("RGBA", "WEBP")],
)
def test_images_decode_as_in_transformers(mode: str, file_format: str) -> None:
    base = picture(37, 23, "RGBA" if mode == "P" else mode)
    image = base.convert("RGB").convert("P") if mode == "P" else base
    data = encoded(image, file_format)
    reference = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    np.testing.assert_array_equal(decode_image(data, background=None), np.asarray(reference))
    assert image_size(data) == (37, 23)


def half_hidden(mode: str) -> Image.Image:
    """A red square left, and right a blue one that no viewer shows; between them a half transparent column."""
    image = Image.new("RGBA", (41, 20), (255, 0, 0, 255))
    image.paste((0, 0, 255, 0), (21, 0, 41, 20))
    image.paste((255, 0, 0, 128), (20, 0, 21, 20))
    if mode == "P":
        image = Image.new("P", (41, 20), 0)
        image.putpalette([255, 0, 0, 0, 0, 255])
        image.paste(1, (20, 0, 41, 20))
        image.info["transparency"] = 1
    if mode == "RGB":
        image = image.convert("RGB")
        image.info["transparency"] = (0, 0, 255)
    return image.convert("LA") if mode == "LA" else image


@pytest.mark.parametrize(("background", "seen"), [((255, 255, 255), 255), ((0, 0, 0), 0), (None, None)])
@pytest.mark.parametrize(
    ("mode", "file_format", "options"),
    [
        ("RGBA", "PNG", {}),
        ("LA", "PNG", {}),
        ("P", "PNG", {"transparency": 1}),
        ("RGB", "PNG", {"transparency": (0, 0, 255)}),
        ("P", "GIF", {"transparency": 1}),
        ("RGBA", "WEBP", {"lossless": True, "exact": True}),
        ("RGBA", "TIFF", {}),
        ("RGBA", "AVIF", {"quality": 100, "subsampling": "4:4:4"}),
    ],
)
def test_the_background_is_seen_through_an_image(
    mode: str, file_format: str, options: dict[str, object], background: Background, seen: int | None
) -> None:
    if file_format == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    data = encoded(half_hidden(mode), file_format, **options)
    rgb = decode_image(data, background=background).astype(int)
    red = (76, 76, 76) if mode == "LA" else (255, 0, 0)
    np.testing.assert_allclose(rgb[:, :20], np.broadcast_to(red, (20, 20, 3)), atol=2)
    hidden = np.broadcast_to((29 if mode == "LA" else (0, 0, 255)) if seen is None else seen, (20, 20, 3))
    np.testing.assert_allclose(rgb[:, 21:], hidden, atol=2)
    if mode == "RGBA" and seen is not None:
        np.testing.assert_allclose(
            rgb[:, 20], np.broadcast_to([128 + seen // 2, seen // 2, seen // 2], (20, 3)), atol=2
        )


def test_a_white_background_is_the_default() -> None:
    data = encoded(half_hidden("RGBA"), "PNG")
    layout = PatchLayout(28, 28)
    np.testing.assert_array_equal(decode_image(data), decode_image(data, background=(255, 255, 255)))
    assert not np.array_equal(image_in_layout(data, layout), image_in_layout(data, layout, background=None))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(picture(40, 24), "JPEG", exif=exif)
    rgb = decode_image(data)
    assert image_size(data) == (rgb.shape[1], rgb.shape[0])
    assert rgb.shape == ((24, 40, 3) if orientation < 5 else (40, 24, 3))
    reference = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    np.testing.assert_array_equal(rgb, np.asarray(reference))


@pytest.mark.parametrize("layout", [PatchLayout(56, 84), PatchLayout(32, 48, 16, 1, 1), PatchLayout(60, 40, 10, 3, 2)])
def test_patches_equal_the_processors(layout: PatchLayout) -> None:
    image = picture(123, 77)
    native = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
    size = (layout.height, layout.width)
    resized = torch.nn.functional.interpolate(native, size, mode="bicubic", antialias=True)[0].numpy()
    tp, p, m = layout.temporal_patch_size, layout.patch_size, layout.merge_size
    frames = np.stack([resized] * tp)
    grid_h, grid_w = layout.height // p, layout.width // p
    expected = (
        frames.reshape(1, tp, 3, grid_h // m, m, p, grid_w // m, m, p)
        .transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)
        .reshape(grid_h * grid_w, -1)
    )
    np.testing.assert_array_equal(image_in_layout(encoded(image, "PNG"), layout), expected)


@pytest.mark.parametrize("file_format", ["PNG", "TIFF", "PPM"])
def test_of_16_bits_the_upper_8_are_kept(file_format: str) -> None:
    grey = np.arange(0, 65536, 64, np.uint16).reshape(32, 32)
    rgb = decode_image(encoded(Image.fromarray(grey), file_format))
    np.testing.assert_array_equal(rgb, np.repeat((grey >> 8)[..., None], 3, 2))


@pytest.mark.parametrize(
    ("mode", "file_format", "options"),
    [
        ("RGB", "JPEG", {"progressive": True}),
        ("RGB", "GIF", {}),
        ("RGB", "BMP", {}),
        ("CMYK", "TIFF", {}),
        ("RGBA", "AVIF", {}),
        ("LA", "PNG", {}),
        ("1", "PNG", {}),
    ],
)
def test_other_formats(mode: str, file_format: str, options: dict[str, object]) -> None:
    if file_format == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    image = picture(37, 23).convert(mode) if mode == "1" else picture(37, 23, mode)
    data = encoded(image, file_format, **options)
    reference = Image.open(io.BytesIO(data)).convert("RGB")
    np.testing.assert_array_equal(decode_image(data, background=None), np.asarray(reference))


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_batch_is_its_images_in_order(threads: int) -> None:
    sources = [encoded(picture(10 + i, 20), "PNG") for i in range(7)]
    for image, source in zip(decode_images(sources, threads), sources, strict=True):
        np.testing.assert_array_equal(image, decode_image(source))
    assert decode_images([], threads) == []
    with pytest.raises(UnsupportedError, match="<4 bytes>"):
        decode_images([*sources, b"text", b"other text"], threads)


def test_a_batch_needs_no_negative_number_of_threads() -> None:
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        decode_images([], num_threads=-1)


def test_heic_is_refused_clearly(tmp_path: Path) -> None:
    path = tmp_path / "photo.heic"
    path.write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    for source in (path, path.read_bytes()):
        with pytest.raises(UnsupportedError, match="HEIC images are not supported: convert it"):
            decode_image(source)


def test_a_path_is_as_good_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    picture(20, 10).save(path)
    np.testing.assert_array_equal(decode_image(path), decode_image(path.read_bytes()))
    assert image_size(str(path)) == (20, 10)


def test_images_over_the_limits_are_refused_from_their_header() -> None:
    wide = encoded(Image.new("RGB", (100_000, 1)), "PNG")
    for function in (image_size, decode_image):
        with pytest.raises(LimitError, match=f"100000x1, over the limits of {MAX_SIDE} pixels a side"):
            function(wide)
    bomb = bytearray(encoded(Image.new("1", (64, 64)), "PNG"))
    bomb[16:24] = (30_000).to_bytes(4, "big") * 2
    with pytest.raises(DecodeError):
        decode_image(bytes(bomb))
    with pytest.raises(DecodeError, match="over the limits"):
        decode_image(encoded(picture(40, 40), "PNG"), max_pixels=1000)


def test_what_is_no_image(tmp_path: Path) -> None:
    jpeg = encoded(picture(64, 64), "JPEG")
    for data in (b"", b"text", jpeg[: len(jpeg) // 2], b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"):
        with pytest.raises(DecodeError) as caught:
            decode_image(data)
        assert caught.value.reason
        assert caught.value.stream is None
    with pytest.raises(DamagedError):
        decode_image(jpeg[: len(jpeg) // 2])
    with pytest.raises(SourceError, match="No such file"):
        image_size(tmp_path / "missing.png")


JPEGS: list[tuple[tuple[int, int], dict[str, object]]] = [
    ((64, 48), {"quality": 95, "subsampling": 0}),
    ((37, 23), {"quality": 30, "subsampling": 1}),
    ((641, 359), {"quality": 90, "subsampling": 2}),
    ((130, 77), {"progressive": True, "optimize": True}),
    ((50, 50), {"restart_marker_blocks": 2}),
    ((8, 8), {}),
]


def outcome(data: bytes) -> object:
    """Return the pixels, or the kind of error."""
    try:
        return decode_image(data).tolist()
    except DecodeError as error:
        return type(error)


@pytest.mark.parametrize(("size", "options"), JPEGS)
@pytest.mark.parametrize("orientation", [1, 6, 7])
def test_jpegs_are_pillows_pixel_by_pixel(
    size: tuple[int, int], options: dict[str, object], orientation: int, tmp_path: Path
) -> None:
    pytest.importorskip("simplejpeg")
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "image.jpg"
    path.write_bytes(encoded(picture(*size), "JPEG", exif=exif, **options))
    reference = np.asarray(ImageOps.exif_transpose(Image.open(path)))
    for source in (path, path.read_bytes(), memoryview(bytearray(path.read_bytes()))):
        np.testing.assert_array_equal(decode_image(source), reference)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_jpegs_end_as_with_pillow(monkeypatch: pytest.MonkeyPatch, data: st.DataObject) -> None:
    pytest.importorskip("simplejpeg")
    size, options = data.draw(st.sampled_from(JPEGS[:2] + JPEGS[3:5]))
    damaged = bytearray(encoded(picture(*size), "JPEG", **options))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(2, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(2, len(damaged)))])
    found = outcome(cut)
    with monkeypatch.context() as pillow_only:
        pillow_only.setattr(jpeg, "decoded", lambda image, source, kept: None)
        assert outcome(cut) == found


def with_chunk(png: bytes, kind: bytes, data: bytes, count: int = 1) -> bytes:
    """Put a chunk behind the pixels of a PNG, several times."""
    chunk = struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    end = png.rindex(b"IEND") - 4
    return png[:end] + chunk * count + png[end:]


def test_the_size_of_a_png_is_told_without_decoding_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(image: Image.Image) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load", load)
    exif = Image.Exif()
    exif[0x0112] = 6
    png = encoded(picture(40, 24), "PNG")
    assert image_size(png) == (40, 24)
    assert image_size(encoded(picture(40, 24), "PNG", exif=exif)) == (24, 40)
    assert image_size(with_chunk(png, b"eXIf", exif.tobytes()[6:])) == (24, 40)


@pytest.mark.parametrize("kind", [b"eXIf", b"tEXt"])
def test_what_comes_behind_the_pixels_of_a_png_counts_for_size_and_pixels_alike(kind: bytes) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    xmp = b'XML:com.adobe.xmp\0<x tiff:Orientation="6"/>'
    data = with_chunk(encoded(picture(40, 24), "PNG"), kind, exif.tobytes()[6:] if kind == b"eXIf" else xmp)
    height, width, _ = decode_image(data).shape
    assert image_size(data) == (width, height)


def test_a_jpeg_of_too_many_scans_is_refused_by_its_head() -> None:
    progressive = encoded(picture(64, 64), "JPEG", progressive=True)
    scan = progressive.rindex(b"\xff\xda")
    repeated = progressive[:scan] + progressive[scan:-2] * 101 + progressive[-2:]
    assert image_size(progressive) == (64, 64)
    for read in (image_size, decode_image):
        with pytest.raises(LimitError, match="more than 100 scans"):
            read(repeated)


def png_of_chunks(count: int) -> bytes:
    """With so many chunks beside the pixels, of which IHDR and IEND are two."""
    return with_chunk(encoded(picture(8, 8), "PNG"), b"aaAa", b"", count - 2)


def jpeg_of_markers(count: int) -> bytes:
    data = encoded(picture(8, 8), "JPEG")
    head = data[: data.index(b"\xff\xda")]
    others = sum(head.count(bytes([0xFF, marker])) for marker in (0xC0, 0xC4, 0xDB, 0xE0))
    return data[:2] + b"\xff\xfe\0\2" * (count - others) + data[2:]


def jpeg_of_filling(count: int) -> bytes:
    data = encoded(picture(8, 8), "JPEG")
    return data[:2] + b"\xff" * count + data[2:]


def gif_of_blocks(count: int) -> bytes:
    data = encoded(picture(8, 8, "L"), "GIF")
    picture_at = 13 + (3 << (data[10] & 7) + 1)
    return data[:picture_at] + b"!\xfe\0" * (count // 2) + data[picture_at:]


def tiff_of_strips(count: int, big: bool = False) -> bytes:
    """Grey, 8x8; a strip a row, and more of them than there are rows."""
    entries = 8
    if big:
        head, entry, end = b"II+\0" + struct.pack("<HHQQ", 8, 0, 16, entries), "<HHQQ", 24 + 20 * entries + 8
    else:
        head, entry, end = b"II*\0" + struct.pack("<IH", 8, entries), "<HHII", 10 + 12 * entries + 4
    pixels = end + 4 * count * 2
    tags = [(256, 8), (257, 8), (258, 8), (259, 1), (262, 1)]
    directory = b"".join(struct.pack(entry, tag, 3, 1, value) for tag, value in tags)
    directory += struct.pack(entry, 273, 4, count, end) + struct.pack(entry, 278, 3, 1, 1)
    directory += struct.pack(entry, 279, 4, count, end + 4 * count) + bytes(8 if big else 4)
    offsets = struct.pack(f"<{count}I", *(pixels + 8 * (row % 8) for row in range(count)))
    return head + directory + offsets + struct.pack("<I", 8) * count + bytes(range(64))


@pytest.mark.parametrize(
    ("made", "most", "words"),
    [
        (png_of_chunks, 1024, "1024 chunks that are no pictures"),
        (jpeg_of_markers, 1024, "1024 markers before its first scan"),
        (gif_of_blocks, 65536, "65536 blocks before its first picture"),
        (tiff_of_strips, 131072, "131072 strips or tiles"),
    ],
    ids=["png", "jpeg", "gif", "tiff"],
)
def test_an_image_of_too_many_parts_is_refused_by_their_number(
    made: Callable[[int], bytes], most: int, words: str
) -> None:
    assert image_size(made(most)) == (8, 8)
    for read in (image_size, decode_image):
        with pytest.raises(LimitError, match=f"more than {words}"):
            read(made(most + 2))


@pytest.mark.parametrize(
    "data", [jpeg_of_filling(2000), tiff_of_strips(200_000, big=True)], ids=["filling of a JPEG", "a big TIFF"]
)
def test_other_parts_count_as_well(data: bytes) -> None:
    with pytest.raises(LimitError, match="more than"):
        image_size(data)


CUT: list[tuple[str, dict[str, object]]] = [
    ("PNG", {}),
    ("JPEG", {}),
    ("JPEG", {"progressive": True}),
    ("GIF", {}),
    ("WEBP", {}),
    ("AVIF", {}),
    ("TIFF", {}),
    ("TIFF", {"compression": "tiff_lzw"}),
    ("BMP", {}),
    ("PPM", {}),
    ("ICO", {"sizes": [(64, 64)]}),
]


@pytest.mark.parametrize(("file_format", "options"), CUT)
def test_an_image_that_is_cut_off_is_said_to_be(file_format: str, options: dict[str, object]) -> None:
    if file_format == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    whole = encoded(picture(96, 64), file_format, **options)
    sizes = [12, 16, 30, 40, 60, *range(100, len(whole) * 9 // 10, len(whole) // 20)]
    for size in sizes:
        with pytest.raises(DamagedError, match=rf"\b({file_format}|WebP) image .*cut off"):
            decode_image(whole[:size])
        with contextlib.suppress(DamagedError):  # the head may be whole
            image_size(whole[:size])


@pytest.mark.parametrize("size", range(1, 12))
def test_too_few_bytes_to_tell_what_they_were_are_said_to_be(size: int) -> None:
    with pytest.raises(UnsupportedError, match=f"not an image, or cut off: the source has {size} bytes"):
        decode_image(encoded(picture(9, 9), "PNG")[:size])


def icon(picture: bytes) -> bytes:
    return b"\0\0\1\0" + struct.pack("<HBBBBHHII", 1, 0, 0, 0, 0, 1, 32, len(picture), 22) + picture


@pytest.mark.parametrize("file_format", ["PNG", "DIB"])
def test_an_icon_of_a_giant_picture_is_refused_before_it_is_decoded(
    file_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(image: Image.Image) -> None:
        raise AssertionError("decoded")

    data = icon(encoded(Image.new("RGB", (1025, 4000)), file_format))
    monkeypatch.setattr(IcoImagePlugin.IcoImageFile, "load", load)
    for read in (image_size, decode_image):
        with pytest.raises(LimitError, match=r"a picture of 1025x\d+, over the limit of 1024 pixels a side"):
            read(data)


def test_icons_are_decoded_as_pillow_does() -> None:
    data = encoded(picture(256, 256, "RGBA"), "ICO", sizes=[(16, 16), (256, 256)])
    reference = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    np.testing.assert_array_equal(decode_image(data, background=None), reference)
    assert image_size(data) == (256, 256)
