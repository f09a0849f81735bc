"""The arrays that a task set is made of: numbers of one kind, which nobody else can change."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np
import numpy.typing as npt

from tasktheme.errors import DataError

KINDS = {
    "concentration": (np.float64, "fiu"),
    "prior": (np.float64, "fiu"),
    "log_likelihood": (np.float64, "fiu"),
    "sizes": (np.int64, "iu"),
    "converged": (np.bool_, "b"),
}


def as_numbers(name: str, values: Any) -> npt.NDArray[Any]:
    """Values as numbers of the one kind that all else computes with."""
    kind, taken = KINDS[name]
    try:
        found = np.asarray(values)
    except ValueError:  # rows of different lengths
        found = np.array("")
    if found.size and found.dtype.kind not in taken:
        wanted = {"fiu": "numbers", "iu": "whole numbers", "b": "true or false"}[taken]
        raise DataError(f"{name} must be an array of {wanted}, got {reprlib.repr(values)}")
    return found.astype(kind, copy=False)


def kept(values: Any) -> Any:
    """Values that nobody else changes: what can be written to is copied."""
    if isinstance(values, np.ndarray):
        return values.copy() if values.flags.writeable else values
    return list(values) if isinstance(values, list) else values
