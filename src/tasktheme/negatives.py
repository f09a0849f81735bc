"""Whether images are negatives of those that a model knows, such as ink on paper for light strokes on a dark ground."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tasktheme.data.dataset import Dataset

if TYPE_CHECKING:
    from tasktheme.ptm import PTM

_DARK, _LIGHT = 0.3, 0.7  # mean brightness: drawings on black or white are well beyond these, photographs between
_LOOKED_AT = 1_000  # images


def are_negatives(dataset: Dataset, model: PTM) -> bool:
    """Whether the images are mostly white where those that the model decodes are mostly black, or the other way round."""
    if dataset.x.dtype != np.uint8 or len(model.point_shape) != 3:
        return False
    known = model.brightness
    assert known is not None  # images have a decoder
    found = float(dataset.x[:: -(-len(dataset) // _LOOKED_AT)].mean()) / 255.0
    return min(known, found) < _DARK and max(known, found) > _LIGHT
