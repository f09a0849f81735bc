"""One image: every kind of file comes out upright, on white, in the form asked for; huge and foreign ones do not."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image, UnidentifiedImageError

from tasktheme.data.images import ImageForm, decode_image, form_image, is_grey_image, why_unreadable
from tasktheme.errors import SettingsError


def encode(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    stream = BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def decode(image: Image.Image, kind: str = "PNG", form: ImageForm | None = None, **options: Any) -> np.ndarray:
    return decode_image(encode(image, kind, **options), form or ImageForm(size=image.width))


def ramp(mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "PPM", "TIFF"])
def test_colour_is_kept_channels_first(kind: str) -> None:
    np.testing.assert_array_equal(decode(ramp(), kind), np.asarray(ramp()).transpose(2, 0, 1))


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "GIF"])
def test_lossy_kinds_come_close(kind: str) -> None:
    pixels = decode(Image.new("RGB", (16, 16), (200, 40, 90)), kind)
    assert pixels.shape == (3, 16, 16)
    np.testing.assert_allclose(pixels.mean(axis=(1, 2)), (200, 40, 90), atol=6)


@pytest.mark.parametrize("mode", ["L", "1"])
def test_grey_has_one_channel(mode: str) -> None:
    pixels = decode(ramp(mode))
    assert pixels.shape == (1, 8, 8)
    np.testing.assert_array_equal(pixels[0], np.asarray(ramp(mode).convert("L")))
    np.testing.assert_array_equal(decode(ramp(mode), form=ImageForm(8, 3)), np.repeat(pixels, 3, axis=0))


def test_colour_as_grey_and_inverted() -> None:
    grey = decode(ramp(), form=ImageForm(8, 1))
    np.testing.assert_array_equal(grey[0], np.asarray(ramp("L")))
    np.testing.assert_array_equal(decode(ramp(), form=ImageForm(8, 1, inverted=True)), 255 - grey)


def test_sixteen_bits_keep_their_scale() -> None:
    values = np.array([[0, 257], [32896, 65535]], dtype=np.uint16)
    np.testing.assert_array_equal(decode(Image.fromarray(values))[0], [[0, 1], [128, 255]])
    np.testing.assert_array_equal(decode(Image.fromarray(values), "TIFF")[0], [[0, 1], [128, 255]])


def test_real_numbers_lie_between_0_and_1() -> None:
    np.testing.assert_array_equal(
        decode(Image.fromarray(np.array([[0.0, 1.0], [0.5, 0.2]], dtype=np.float32)), "TIFF")[0], [[0, 255], [128, 51]]
    )
    for bad in (7.0, -0.1, np.nan):
        with pytest.raises(ValueError, match="from 0 to 1 are read"):
            decode(Image.fromarray(np.full((2, 2), bad, dtype=np.float32)), "TIFF")


def test_what_is_transparent_is_white() -> None:
    half = Image.new("RGBA", (2, 2), (255, 0, 0, 128))
    half.putpixel((0, 0), (10, 20, 30, 0))
    pixels = decode(half)
    np.testing.assert_array_equal(pixels[:, 0, 0], (255, 255, 255))
    np.testing.assert_allclose(pixels[:, 1, 1], (255, 127, 127), atol=1)
    assert decode(Image.new("LA", (2, 2), (0, 0))).tolist() == [[[255, 255], [255, 255]]]


def test_transparent_palette_entry_is_white() -> None:
    image = Image.new("P", (2, 2), 0)
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putpixel((1, 1), 1)
    pixels = decode(image, transparency=0)
    np.testing.assert_array_equal(pixels[:, 0, 0], (255, 255, 255))
    np.testing.assert_array_equal(pixels[:, 1, 1], (0, 0, 255))


def test_a_palette_of_greys_is_grey() -> None:
    grey = ramp("L").convert("P", palette=Image.Palette.ADAPTIVE)
    assert is_grey_image(encode(grey))
    assert decode(grey).shape == (1, 8, 8)
    assert not is_grey_image(encode(ramp().quantize(16)))


def test_cmyk_is_converted() -> None:
    pixels = decode(Image.new("RGB", (16, 16), (250, 20, 30)).convert("CMYK"), "JPEG")
    np.testing.assert_allclose(pixels.mean(axis=(1, 2)), (250, 20, 30), atol=8)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_images_are_turned_upright(kind: str) -> None:
    image = Image.new("L", (16, 16), 0)
    image.paste(255, (0, 0, 16, 8))  # white above
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned by a quarter, clockwise: what is above goes to the right
    pixels = decode(image, kind, form=ImageForm(16, 1), exif=exif)[0]
    assert pixels[:, 9:].min() > 200
    assert pixels[:, :7].max() < 55


def test_any_size_is_resized_whole() -> None:
    image = Image.new("L", (40, 10), 0)
    image.paste(255, (20, 0, 40, 10))
    pixels = decode_image(encode(image), ImageForm(8))[0]
    assert pixels.shape == (8, 8)
    assert (pixels[:, :3] == 0).all()
    assert (pixels[:, 5:] == 255).all()
    assert decode_image(encode(Image.new("L", (1, 1), 7)), ImageForm(8)).tolist() == [[[7] * 8] * 8]


def test_a_large_jpeg_decoded_small_is_like_a_large_one_resized() -> None:
    smooth = Image.fromarray(np.random.default_rng(1).integers(0, 256, (9, 12, 3), dtype=np.uint8)).resize((800, 600))
    content = encode(smooth, "JPEG", quality=95)
    with Image.open(BytesIO(content)) as image:
        slow = form_image(image, ImageForm(32)).astype(int)
    assert np.abs(decode_image(content, ImageForm(32)) - slow).mean() < 2.0


def test_only_the_first_picture_of_an_animation_counts() -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    for kind in ("GIF", "TIFF"):
        pixels = decode(frames[0], kind, save_all=True, append_images=frames[1:])
        np.testing.assert_array_equal(pixels[:, 0, 0], (255, 0, 0))


def test_huge_images_are_refused_by_their_header(huge_png: Callable[[int, int], bytes]) -> None:
    with pytest.raises(ValueError, match=r"claims 8,193 x 8,192 pixels"):
        decode_image(huge_png(8193, 8192), ImageForm())
    with pytest.raises(Image.DecompressionBombError):
        decode_image(huge_png(100_000, 100_000), ImageForm())


def test_damaged_and_foreign_files_raise() -> None:
    with pytest.raises(ValueError, match="empty"):
        decode_image(b"", ImageForm())
    with pytest.raises(UnidentifiedImageError) as caught:
        decode_image(b"hello, this is no image", ImageForm())
    assert why_unreadable(caught.value) == "not an image of a known type"
    with pytest.raises(OSError, match="truncated"):
        decode_image(encode(ramp(), "JPEG")[:-40], ImageForm())
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n"
    with pytest.raises(UnidentifiedImageError):  # its reader would start Ghostscript
        decode_image(postscript, ImageForm())


def test_reasons_are_one_line() -> None:
    assert why_unreadable(OSError("a\n  b")) == "a b"
    assert why_unreadable(KeyError()) == "KeyError"


@pytest.mark.parametrize("form", [{"size": 0}, {"size": -3}, {"size": 100_000}, {"channels": 2}, {"channels": 4}])
def test_bad_forms_are_refused(form: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match=next(iter(form))):
        ImageForm(**form)
