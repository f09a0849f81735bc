"""Characters drawn by hand, as it were: fonts distorted by twenty drawers, a whole script at a time.

Drawing j of every character comes from drawer j, who has a favourite face, slant, pen and manner of distorting, and never
repeats a drawing.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw, ImageFont
from torch.nn import functional

from tasktheme.errors import MissingDataError
from tasktheme.progress import progress_bar

Floats = npt.NDArray[np.float64]
CodePoints = tuple[Sequence[int], ...]

DRAWERS = 20
SIDE = 64  # pixels
MOST_CHARACTERS = 26  # in one script, so that large scripts do not outweigh small ones

_FONT_FILES = (  # three families of four: regular, slanted, bold, bold slanted
    ("DejaVuSans", "DejaVuSans-Oblique", "DejaVuSans-Bold", "DejaVuSans-BoldOblique"),
    ("DejaVuSerif", "DejaVuSerif-Italic", "DejaVuSerif-Bold", "DejaVuSerif-BoldItalic"),
    ("DejaVuSansMono", "DejaVuSansMono-Oblique", "DejaVuSansMono-Bold", "DejaVuSansMono-BoldOblique"),
)
_FONT_SIZE = 160  # pixels; glyphs are drawn this large, then reduced
_FINENESS = 2  # pixels of a master picture for one pixel of a drawing
_LONGEST_SIDE = 42.0  # of a glyph, in pixels of a drawing of scale 1
_LONGEST_DIAGONAL = 50.0  # so that a square glyph stays inside the picture when it is turned and slanted
_BLUR = 0.8  # standard deviation in pixels of a drawing
_CONTROL_POINTS = 5  # along each side of the grid that carries the elastic displacement
_FACE_SLANT = 0.2  # shear that replaces a slanted face where the character has none


@dataclass(frozen=True)
class Rendered:
    """A script's characters, as code points, and their pictures: uint8 (characters, drawers, 64, 64)."""

    codes: list[int]
    pictures: npt.NDArray[np.uint8]


def render_scripts(scripts: Mapping[str, CodePoints], *, seed: int, progress: bool = False) -> dict[str, Rendered]:
    """Draw every script; a script's drawings depend on the seed and its name, not on the other scripts."""
    fonts = _open_fonts()
    drawers = _Drawers.sample(np.random.default_rng(seed))
    rendered = {}
    with progress_bar("drawing glyphs", len(scripts), show=progress) as advance:
        for name, ranges in scripts.items():
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            rendered[name] = _render_script(ranges, fonts, drawers, rng)
            advance(1, name)
    return rendered


def _render_script(ranges: CodePoints, fonts: list[_Font], drawers: _Drawers, rng: np.random.Generator) -> Rendered:
    codes = _choose_characters(ranges, fonts[0])
    used = np.array([[_pick_font(fonts, favourite, code) for favourite in drawers.font] for code in codes])  # (C, drawers)
    pairs, master_of_drawing = np.unique(
        np.stack([np.repeat(np.arange(len(codes)), DRAWERS), used.reshape(-1)], axis=1), axis=0, return_inverse=True
    )
    masters = _make_masters([fonts[font].draw(codes[c]) for c, font in pairs])
    lost_slant = drawers.slanted & ~np.array([font.slanted for font in fonts])[used]
    pictures = _distort(masters, master_of_drawing.reshape(-1), _Manner.sample(drawers, lost_slant, rng))
    return Rendered(codes, pictures.reshape(len(codes), DRAWERS, SIDE, SIDE))


@dataclass(frozen=True)
class _Font:
    """One font file: what it can draw, and how."""

    font: ImageFont.FreeTypeFont
    characters: frozenset[int]
    slanted: bool

    def draw(self, code: int) -> Image.Image:
        """The glyph in large, white on black, cut to its ink; an empty picture where there is no ink."""
        left, top, right, bottom = (round(edge) for edge in self.font.getbbox(chr(code)))
        picture = Image.new("L", (max(1, right - left), max(1, bottom - top)))
        ImageDraw.Draw(picture).text((-left, -top), chr(code), fill=255, font=self.font)
        return picture.crop(picture.getbbox() or (0, 0, 0, 0))


def _open_fonts() -> list[_Font]:
    """All fonts in the order of ``_FONT_FILES``: number = 4 * family + 2 * bold + slanted."""
    import matplotlib
    from matplotlib.ft2font import FT2Font

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    fonts = []
    for family in _FONT_FILES:
        for number, file in enumerate(family):
            path = folder / f"{file}.ttf"
            if not path.is_file():
                raise MissingDataError(f"glyphs: matplotlib should ship the font {path}, which is missing; reinstall matplotlib")
            # The basic layout draws the plain glyph of a code point, whatever shaping library the machine has.
            font = ImageFont.truetype(str(path), _FONT_SIZE, layout_engine=ImageFont.Layout.BASIC)
            fonts.append(_Font(font, frozenset(FT2Font(str(path)).get_charmap()), slanted=number % 2 == 1))
    return fonts


def _choose_characters(ranges: CodePoints, font: _Font) -> list[int]:
    """At most 26 code points, evenly spaced among those that the font draws and draws differently."""
    distinct: dict[tuple[tuple[int, int], bytes], int] = {}
    for code in (code for part in ranges for code in part):
        if code in font.characters:
            picture = font.draw(code)
            if picture.getbbox() is not None:
                distinct.setdefault((picture.size, picture.tobytes()), code)
    codes = list(distinct.values())
    kept = np.linspace(0, len(codes) - 1, min(len(codes), MOST_CHARACTERS)).round().astype(int)
    return [codes[i] for i in kept]


def _pick_font(fonts: list[_Font], favourite: int, code: int) -> int:
    """The font nearest to the favourite that has the character: first it gives up the slant, then the family, then both."""
    upright, style = favourite - favourite % 2, favourite % 4
    choices = (favourite, upright, style, style - style % 2, 0)
    return next(choice for choice in choices if code in fonts[choice].characters)


def _make_masters(glyphs: Sequence[Image.Image]) -> torch.Tensor:
    """Centre the glyphs of one script, reduced to like sizes, in float32 pictures (G, 1, 128, 128) in [0, 1], blurred.

    A glyph that is small in its script (a comma, a yod) is enlarged, but only half the way (on a log scale) to full size.
    """
    fits = np.array([min(_LONGEST_SIDE / max(g.size), _LONGEST_DIAGONAL / math.hypot(*g.size)) for g in glyphs])
    scales = _FINENESS * np.minimum(fits, np.sqrt(fits * np.median(fits)))
    side = _FINENESS * SIDE
    masters = np.zeros((len(glyphs), 1, side, side), dtype=np.float32)
    for master, glyph, scale in zip(masters, glyphs, scales, strict=True):
        width, height = (max(1, round(length * scale)) for length in glyph.size)
        left, top = (side - width) // 2, (side - height) // 2
        reduced = glyph.resize((width, height), Image.Resampling.BICUBIC)
        master[0, top : top + height, left : left + width] = np.asarray(reduced, dtype=np.float32) / 255.0

    # A blur along rows and columns is a product with a banded matrix on either side, much faster than a convolution here.
    pixel = np.arange(side)
    weights = np.exp(-0.5 * ((pixel[:, None] - pixel) / (_FINENESS * _BLUR)) ** 2)
    blur = torch.from_numpy(weights / weights[side // 2].sum()).float()
    return blur @ torch.from_numpy(masters) @ blur


@dataclass(frozen=True)
class _Drawers:
    """The tendencies of each drawer, all of shape (drawers,)."""

    font: npt.NDArray[np.int64]
    turn: Floats  # radians
    shear: Floats
    log_scale: Floats
    log_aspect: Floats  # wide is positive
    pen: Floats  # pixels added to each side of a stroke
    unrest: Floats  # pixels, standard deviation of the elastic displacement

    @classmethod
    def sample(cls, rng: np.random.Generator) -> _Drawers:
        fonts = sum(len(family) for family in _FONT_FILES)
        rounds = math.ceil(DRAWERS / fonts)
        # Every font has its drawer before one has a second.
        return cls(
            font=np.concatenate([rng.permutation(fonts) for _ in range(rounds)])[:DRAWERS],
            turn=rng.normal(0.0, math.radians(4.0), DRAWERS),
            shear=rng.normal(0.0, 0.08, DRAWERS),
            log_scale=rng.uniform(math.log(0.85), math.log(1.05), DRAWERS),
            log_aspect=rng.normal(0.0, 0.08, DRAWERS),
            pen=rng.uniform(0.0, 0.9, DRAWERS),
            unrest=rng.uniform(0.7, 1.7, DRAWERS),
        )

    @property
    def slanted(self) -> npt.NDArray[np.bool_]:
        """Whether the favourite font is a slanted one."""
        slanted: npt.NDArray[np.bool_] = self.font % 2 == 1
        return slanted


@dataclass(frozen=True)
class _Manner:
    """How each of B drawings departs from its master: a drawer's tendency plus fresh noise."""

    matrix: Floats  # (B, 2, 2), from the glyph to the picture
    shift: Floats  # (B, 2) pixels
    pen: Floats  # (B,) pixels added to each side of a stroke
    displacement: Floats  # (B, 2, control points, control points) pixels

    @classmethod
    def sample(cls, drawers: _Drawers, lost_slant: npt.NDArray[np.bool_], rng: np.random.Generator) -> _Manner:
        """One manner for each character and drawer; ``lost_slant`` (characters, drawers): a slanted font had to be replaced."""
        shape = lost_slant.shape
        turn = np.clip(drawers.turn + rng.normal(0.0, math.radians(4.0), shape), -math.radians(12.0), math.radians(12.0))
        shear = drawers.shear + _FACE_SLANT * lost_slant + rng.normal(0.0, 0.05, shape)
        scale = np.exp(np.clip(drawers.log_scale + rng.normal(0.0, 0.06, shape), math.log(0.8), math.log(1.1)))
        aspect = np.exp(drawers.log_aspect + rng.normal(0.0, 0.05, shape))
        # Picture rows run downwards, so a slant to the right moves x against y.
        slanted = np.array([[scale * aspect, -shear * scale / aspect], [np.zeros(shape), scale / aspect]])
        turned = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        fields = rng.normal(0.0, 1.0, (*shape, 2, _CONTROL_POINTS, _CONTROL_POINTS))
        return cls(
            matrix=np.einsum("ikcj,klcj->cjil", turned, slanted).reshape(-1, 2, 2),
            shift=rng.uniform(-3.0, 3.0, (*shape, 2)).reshape(-1, 2),
            pen=(drawers.pen + rng.uniform(-0.15, 0.15, shape)).reshape(-1),
            displacement=(drawers.unrest[:, None, None, None] * fields).reshape(-1, *fields.shape[2:]),
        )


def _distort(masters: torch.Tensor, master: npt.NDArray[np.int64], manner: _Manner) -> npt.NDArray[np.uint8]:
    """Draw B pictures (B, 64, 64), the b-th from ``masters[master[b]]``, all at once."""
    half = SIDE / 2  # a sampling grid measures the picture from -1 to 1
    back = np.linalg.inv(manner.matrix)
    offset = -(back @ manner.shift[:, :, None]) / half
    theta = torch.from_numpy(np.concatenate([back, offset], axis=2)).float()
    grid = functional.affine_grid(theta, [len(theta), 1, SIDE, SIDE], align_corners=False)
    control = torch.from_numpy(manner.displacement / half).float()
    elastic = functional.interpolate(control, size=(SIDE, SIDE), mode="bicubic", align_corners=True)
    blurred = functional.grid_sample(
        masters[torch.from_numpy(master)], grid + elastic.permute(0, 2, 3, 1), padding_mode="zeros", align_corners=False
    )
    # Near a straight edge a blurred glyph is the normal distribution function of the distance to the edge, so its inverse
    # gives that distance: adding the pen thickens every stroke alike, and edges stay one pixel wide.
    distance = _BLUR * torch.special.ndtri(blurred[:, 0].clamp(1e-3, 1.0 - 1e-3))
    ink = (0.5 + distance + torch.from_numpy(manner.pen).float().view(-1, 1, 1)).clamp(0.0, 1.0)
    pictures: npt.NDArray[np.uint8] = (255.0 * ink).round().to(torch.uint8).numpy()
    return pictures
