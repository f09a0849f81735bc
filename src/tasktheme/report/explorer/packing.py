"""Arrays as text, for a page to unpack."""

from __future__ import annotations

import base64

import numpy as np
import numpy.typing as npt


def packed(values: npt.ArrayLike, kind: type[np.generic]) -> str:
    """Base64 of an array's little-endian bytes."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<")).tobytes()).decode()
