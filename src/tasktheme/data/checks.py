"""Data points from outside are checked here, once, before anything else sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tasktheme.errors import DataError

_LARGEST = 1e15  # magnitude of a feature: the squares of larger ones, summed, leave float32
_BLOCK = 1 << 24  # values looked at in one go, so that a check never doubles the memory of the data


def as_array(values: Any, *, what: str) -> npt.NDArray[Any]:
    """An array, a tensor or nested lists as an array, or a DataError that says why not."""
    detach = getattr(values, "detach", None)  # a tensor: it may be on a GPU, or part of a graph
    try:
        return np.asarray(values if detach is None else detach().cpu())
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{what}: expected an array of one shape, got {type(values).__name__} ({error})") from error


def check_data(x: npt.NDArray[Any], *, what: str) -> npt.NDArray[Any]:
    """Bring data points to (M, channels, height, width) uint8 or (M, D) float32, or say what is wrong.

    Images are uint8, or real numbers in [0, 1]; (M, height, width) means one channel. Vectors are any finite numbers.
    """
    if x.dtype.kind not in "biuf":
        raise DataError(f"{what}: expected an array of real numbers, got dtype {x.dtype}")
    if x.shape[:1] == (0,):
        raise DataError(f"{what}: is empty; at least one data point is needed")
    if x.ndim not in (2, 3, 4):
        raise DataError(
            f"{what}: expected vectors (points, features) or images (points, height, width) or "
            f"(points, channels, height, width), got shape {x.shape}"
        )
    if 0 in x.shape:
        raise DataError(f"{what}: has an empty dimension, shape {x.shape}")
    return _check_vectors(x, what) if x.ndim == 2 else _check_images(x, what)


def _check_vectors(x: npt.NDArray[Any], what: str) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what is too large for float32 becomes an infinity, and is named below
        vectors = np.ascontiguousarray(x, dtype=np.float32)
    _check_finite(vectors, what)
    for part in _blocks(vectors):
        if (largest := float(np.abs(vectors[part]).max())) > _LARGEST:
            raise DataError(f"{what}: holds a value of magnitude {largest:.3g}; scale the features below {_LARGEST:g}")
    return vectors


def _check_images(x: npt.NDArray[Any], what: str) -> npt.NDArray[np.uint8]:
    images = x[:, None] if x.ndim == 3 else x
    if images.shape[1] not in (1, 3):
        hint = "; the channels come first: use x.transpose(0, 3, 1, 2)" if images.shape[-1] in (1, 3) else ""
        raise DataError(f"{what}: expected 1 or 3 channels, got shape {images.shape}{hint}")
    if images.dtype == bool:
        return np.ascontiguousarray(images).astype(np.uint8) * np.uint8(255)
    if images.dtype == np.uint8:
        return np.ascontiguousarray(images)
    if not np.issubdtype(images.dtype, np.floating):
        raise DataError(f"{what}: images are uint8 or real numbers in [0, 1], got dtype {images.dtype}")
    _check_finite(images, what)
    low, high = float(images.min()), float(images.max())
    if low < 0.0 or high > 1.0:
        raise DataError(
            f"{what}: images of dtype {images.dtype} must lie in [0, 1], got values from {low:.3g} to {high:.3g}; "
            "scale them, or pass uint8"
        )
    pixels = np.empty(images.shape, dtype=np.uint8)
    for part in _blocks(images):
        pixels[part] = np.rint(images[part] * 255.0)
    return pixels


def _check_finite(x: npt.NDArray[Any], what: str) -> None:
    for part in _blocks(x):
        finite = np.isfinite(x[part]).reshape(len(x[part]), -1).all(axis=1)
        if not finite.all():
            row = part.start + int(np.flatnonzero(~finite)[0])
            raise DataError(f"{what}: data point {row} holds a NaN or an infinity")


def _blocks(x: npt.NDArray[Any]) -> Iterator[slice]:
    rows = max(1, _BLOCK // x[0].size)
    for start in range(0, len(x), rows):
        yield slice(start, start + rows)
