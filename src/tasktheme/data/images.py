"""One image file becomes pixels of a set form: turned upright, on white, grey or colour, resized."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from tasktheme.errors import SettingsError
from tasktheme.untrusted import shorten

Pixels = npt.NDArray[np.uint8]

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp")
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # no format whose reader starts other programs
_GREY_MODES = ("1", "L", "LA", "La", "I", "F")
_MOST_PIXELS = 1 << 26  # 8192 x 8192; a header that claims more is refused before anything is decoded
_LARGEST_SIZE = 1024
_DEEPEST = {"I": 65535.0, "F": 1.0}  # white, in images of more than 8 bits; a mode is known by its first letter


@dataclass(frozen=True)
class ImageForm:
    """What every image becomes: uint8 (channels, size, size).

    channels: 1 for grey, 3 for colour, None for the image's own. inverted: black becomes 255.
    """

    size: int = 64
    channels: int | None = None
    inverted: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.size <= _LARGEST_SIZE:
            raise SettingsError(f"size, the side of an image in pixels, must be 1 to {_LARGEST_SIZE}, got {self.size}")
        if self.channels not in (None, 1, 3):
            raise SettingsError(f"channels must be 1 (grey), 3 (colour) or None (as the images are), got {self.channels}")


def decode_image(content: bytes, form: ImageForm) -> Pixels:
    """Decode one image file. Damaged files raise whatever the decoder raises; huge ones ValueError, before decoding.

    The first picture of an animation counts. Width and height are resized apart: the whole image is kept, not its aspect.
    """
    with _open(content) as image:
        image.draft(None, (2 * form.size, 2 * form.size))  # a JPEG is then decoded at a half, quarter or eighth, if that suffices
        return form_image(image, form)


def form_image(image: Image.Image, form: ImageForm) -> Pixels:
    """Bring an opened image to the form: (channels, size, size); it may be changed on the way."""
    channels = form.channels or (1 if _is_grey(image) else 3)
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode[0] in _DEEPEST:
        image = _reduce_depth(image)
    elif image.has_transparency_data:
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    image = image.convert("L" if channels == 1 else "RGB")
    if image.size != (form.size, form.size):
        image = image.resize((form.size, form.size), Image.Resampling.BILINEAR)
    pixels = np.asarray(image).reshape(form.size, form.size, channels).transpose(2, 0, 1)
    return 255 - pixels if form.inverted else pixels


def is_grey_image(content: bytes) -> bool:
    """Whether an image file holds grey levels only, by its header and palette; the pixels are not decoded."""
    with _open(content) as image:
        return _is_grey(image)


def why_unreadable(error: Exception) -> str:
    """What a failed decoding says about its file, in words that are the same each time."""
    if isinstance(error, UnidentifiedImageError):  # its own message names an address in memory
        return "not an image of a known type"
    return shorten(" ".join(str(error).split())) or type(error).__name__


def _open(content: bytes) -> Image.Image:
    if not content:
        raise ValueError("the file is empty")
    image = Image.open(BytesIO(content), formats=_FORMATS)
    width, height = image.size
    if width * height > _MOST_PIXELS:
        raise ValueError(f"claims {width:,} x {height:,} pixels; at most {_MOST_PIXELS:,} are read")
    return image


def _is_grey(image: Image.Image) -> bool:
    if image.mode in ("P", "PA"):
        palette = np.array(image.getpalette("RGB") or [], dtype=np.uint8).reshape(-1, 3)
        return bool((palette == palette[:, :1]).all())
    return image.mode in _GREY_MODES or image.mode.startswith("I;16")


def _reduce_depth(image: Image.Image) -> Image.Image:
    values = np.asarray(image)
    white = _DEEPEST[image.mode[0]]
    low, high = float(values.min()), float(values.max())
    if not 0.0 <= low <= high <= white:
        raise ValueError(f"pixel values from {low:g} to {high:g}; from 0 to {white:g} are read")
    return Image.fromarray(np.rint(values * (255.0 / white)).astype(np.uint8))
