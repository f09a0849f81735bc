"""What a theme looks like: the images most typical of it, and how images are best shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tasktheme.data.dataset import Dataset
from tasktheme.ptm import PTM

_PER_CLASS = 2  # images of one class among those typical of a theme
_MOST_POINTS = 20_000  # data points that are searched for typical ones


def typical_rows(model: PTM, data: Dataset, columns: int) -> list[npt.NDArray[np.int64]]:
    """Rows of ``data`` that are most typical of each theme, the most typical first."""
    rows = np.unique(np.linspace(0, len(data) - 1, min(len(data), _MOST_POINTS)).round().astype(np.int64))
    log_likelihood = model.theme_log_likelihood(data.x[rows]).astype(np.float64)
    share = model.themes.share.cpu().numpy().astype(np.float64)
    with np.errstate(divide="ignore"):  # a theme without share is nobody's
        best = (log_likelihood + np.log(share)).argmax(axis=1)
    class_of = np.searchsorted(data.starts, rows, side="right") - 1
    chosen = []
    for theme in range(log_likelihood.shape[1]):
        taken: dict[int, int] = {}
        kept: list[int] = []
        for i in np.argsort(-log_likelihood[:, theme], kind="stable"):
            label = int(class_of[i])
            if best[i] == theme and taken.get(label, 0) < _PER_CLASS and len(kept) < columns:
                taken[label] = taken.get(label, 0) + 1
                kept.append(int(rows[i]))
        chosen.append(np.array(kept, dtype=np.int64))
    return chosen


def full_contrast(decoded: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Decoded means (K, channels, height, width); grey ones at full contrast: a mean of drawings is paler than any drawing."""
    if decoded.shape[1] != 1:
        return decoded
    low, high = decoded.min(), decoded.max()
    stretched: npt.NDArray[np.float32] = (decoded - low) / max(high - low, np.finfo(np.float32).eps)
    return stretched


def is_ink(images: npt.NDArray[Any]) -> bool:
    """Whether images (M, channels, height, width) of bytes are grey and mostly black, as drawings are: shown dark on light."""
    if images.shape[1] != 1:
        return False
    some = images[:: max(1, len(images) // 500)]
    return float(np.median(some.astype(np.float32))) < 0.1 * 255.0
