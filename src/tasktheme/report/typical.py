"""What a theme looks like: the images most typical of it, and how images are best shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tasktheme import theme_summary
from tasktheme.data.dataset import Dataset
from tasktheme.ptm import PTM


def typical_rows(model: PTM, data: Dataset, columns: int) -> list[npt.NDArray[np.int64]]:
    """Rows of ``data`` that are most typical of each theme, the most typical first."""
    rows = theme_summary.some_rows(data)
    share, aspects = model.themes.share.cpu().numpy(), model.themes.aspects
    return theme_summary.typical_rows(data, rows, model.theme_log_likelihood(data.x[rows]), share, columns, aspects)


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
