"""Which images travel with the page: the themes' means and typical images first, then some of each task, within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from tasktheme.data.dataset import Dataset
from tasktheme.ptm import PTM
from tasktheme.report.explorer.origin import Origin, dataset_of, sample_rows, text
from tasktheme.report.explorer.packing import packed
from tasktheme.report.explorer.thumbnails import COLUMNS, TILE, choose_tiles, draw_sheets
from tasktheme.report.typical import full_contrast, is_ink, typical_rows

OF_TASK, OF_THEME = 10, 13
MOST_IMAGES = 8_000  # distinct ones on a page: 6 MB of photographs


def image_payload(model: PTM, origin: Origin | None) -> dict[str, Any] | None:
    """Sheets, and where on them each theme's and each task's images lie; None where there is no image at all.

    Tiles are counted over all sheets: first the themes' means, then images of the data set, each once. The first image of
    every task has room before any second one.
    """
    decoded = model.decode_themes()
    means = _pixels(decoded) if decoded is not None and decoded.ndim == 4 else np.empty((0, 1, 1, 1), dtype=np.uint8)
    data = None if origin is None else dataset_of(origin)
    if origin is None or data is None or len(data.point_shape) != 3:
        return _described(draw_sheets(means, ink=is_ink(means)), len(means)) if len(means) else None
    typical = _padded(typical_rows(model, data, OF_THEME), OF_THEME)
    samples = sample_rows(origin, OF_TASK)
    rows, tiles = choose_tiles(np.concatenate([typical.reshape(-1), samples.T.reshape(-1)]), MOST_IMAGES)
    tiles = np.where(tiles < 0, -1, tiles + len(means))
    return _described(
        draw_sheets(chain(means, (data.x[row] for row in rows)), ink=is_ink(data.x)),
        len(means),
        typical=packed(tiles[: typical.size].reshape(typical.shape), np.int32),
        samples=packed(tiles[typical.size :].reshape(samples.T.shape).T, np.int32),
        **_labels(data, rows),
    )


def _described(sheets: list[str], means: int, **more: Any) -> dict[str, Any]:
    shape = {"tile": TILE, "columns": COLUMNS, "of_task": OF_TASK, "of_theme": OF_THEME, "means": means}
    return {"sheets": sheets, **shape, "typical": None, "samples": None, "labels": [], "label": "", **more}


def _labels(data: Dataset, rows: npt.NDArray[np.int64]) -> dict[str, Any]:
    """The name of each shown image's class."""
    classes, label = np.unique(np.searchsorted(data.starts, rows, side="right") - 1, return_inverse=True)
    return {"labels": [text(data.class_names[c]) for c in classes], "label": packed(label, np.int32)}


def _pixels(decoded: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    return np.round(255.0 * np.clip(full_contrast(decoded), 0.0, 1.0)).astype(np.uint8)


def _padded(lists: Sequence[npt.NDArray[np.int64]], width: int) -> npt.NDArray[np.int64]:
    return np.stack([np.pad(own, (0, width - len(own)), constant_values=-1) for own in lists])
