"""Images small enough to travel inside a page: tiles on sheets, each image once, within a budget."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

TILE = 48  # pixels; a multiple of WebP's blocks of 16, so that tiles do not run into each other
COLUMNS = 24  # tiles along a sheet
_QUALITY = 82
_PAPER = 255  # what surrounds an image that is not square, or smaller than its tile


def choose_tiles(wanted: npt.NDArray[np.int64], budget: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """The first ``budget`` distinct images among the ``wanted`` rows of a data set, -1 being none: (rows, tile of each wanted).

    A tile is a place among those rows, -1 where an image is none or found no room.
    """
    distinct, first, inverse = np.unique(wanted, return_index=True, return_inverse=True)
    order = np.argsort(np.where(distinct < 0, len(wanted), first), kind="stable")[: min(budget, int((distinct >= 0).sum()))]
    tile = np.full(len(distinct), -1, dtype=np.int32)
    tile[order] = np.arange(len(order), dtype=np.int32)
    return distinct[order], tile[inverse.reshape(-1)]


def draw_sheets(images: Iterable[npt.NDArray[Any]], *, ink: bool) -> list[str]:
    """Sheets as data URIs, for images of shape (channels, height, width); ``ink`` shows them dark on light."""
    sheets: list[str] = []
    waiting: list[Image.Image] = []
    for image in images:
        waiting.append(_tile(np.uint8(255) - image if ink else image))
        if len(waiting) == COLUMNS * COLUMNS:
            sheets.append(_sheet(waiting))
            waiting = []
    return [*sheets, _sheet(waiting)] if waiting else sheets


def _tile(image: npt.NDArray[np.uint8]) -> Image.Image:
    picture = Image.fromarray(image[0] if len(image) == 1 else np.ascontiguousarray(image.transpose(1, 2, 0)))
    scale = TILE / max(picture.size)
    size = max(1, round(scale * picture.width)), max(1, round(scale * picture.height))
    if size != picture.size:  # pixels of tiny images stay square
        picture = picture.resize(size, Image.Resampling.LANCZOS if scale < 1.0 else Image.Resampling.NEAREST)
    if size == (TILE, TILE):
        return picture
    tile = Image.new(picture.mode, (TILE, TILE), _PAPER if picture.mode == "L" else (_PAPER,) * 3)
    tile.paste(picture, ((TILE - size[0]) // 2, (TILE - size[1]) // 2))
    return tile


def _sheet(tiles: list[Image.Image]) -> str:
    rows = -(-len(tiles) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * TILE, rows * TILE), (_PAPER,) * 3)
    for i, tile in enumerate(tiles):
        sheet.paste(tile, (i % COLUMNS * TILE, i // COLUMNS * TILE))
    buffer = io.BytesIO()
    sheet.save(buffer, format="WEBP", quality=_QUALITY, method=4)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"
