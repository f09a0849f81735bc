"""Data that is in memory, or comes from other libraries: arrays, .npz files, torch and Hugging Face data sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from tasktheme.data.checks import as_array
from tasktheme.data.dataset import Dataset
from tasktheme.data.decoding import Decoding
from tasktheme.data.images import ImageForm, form_image, why_unreadable
from tasktheme.errors import DataError
from tasktheme.progress import progress_bar
from tasktheme.untrusted import read_npz_arrays, shorten

_IMAGE_COLUMNS = ("image", "img", "features", "x")
_LABEL_COLUMNS = ("label", "labels", "y")
_SHOWN = 3  # names of arrays in an error; there may be thousands


def read_npz(file: Path) -> dict[str, npt.NDArray[Any]]:
    """All arrays of an .npz file; pickled objects are refused."""
    try:
        with file.open("rb") as stream:
            return read_npz_arrays(stream)
    except (ValueError, OSError) as error:
        raise DataError(f"{str(file)!r} is not an .npz file of plain arrays: {why_unreadable(error)}") from error


def dataset_from_npz(file: Path) -> Dataset:
    """A data set from the arrays x, y and, if there, groups."""
    arrays = read_npz(file)
    if not {"x", "y"} <= set(arrays) <= {"x", "y", "groups"}:
        more = f" and {len(arrays) - _SHOWN:,} more" if len(arrays) > _SHOWN else ""
        some = ", ".join(map(shorten, [*arrays][:_SHOWN])) + more
        commands = "fit, refit, embed, explore and plot themes"
        hint = f"; where each array is a task: load_tasks, or --unlabelled of {commands}" if arrays else ""
        raise DataError(f"{str(file)!r}: expected the arrays x, y and perhaps groups, got {some or 'none'}{hint}")
    return Dataset.from_arrays(arrays["x"], arrays["y"], arrays.get("groups"), name=file.stem)


def form_images(dataset: Dataset, form: ImageForm) -> Dataset:
    """The same data set, its images brought to the form; one of vectors stays as it is."""
    if dataset.x.ndim != 4:
        return dataset
    shape = (form.channels or dataset.point_shape[0], form.size, form.size)
    if dataset.point_shape == shape:
        return dataset
    x = np.empty((len(dataset), *shape), dtype=np.uint8)
    for i, image in enumerate(dataset.x):
        x[i] = form_image(Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)), form)
    return replace(dataset, x=x)


def is_hugging_face(source: object) -> bool:
    """Whether this looks like a data set of the library ``datasets``, which need not be installed."""
    columns = getattr(source, "column_names", None)
    return isinstance(columns, dict) or (columns is not None and hasattr(source, "features"))


def dataset_from_hugging_face(source: Any, decoding: Decoding, *, columns: Sequence[str] | None) -> Dataset:
    """A data set from a Hugging Face one: images (or vectors), labels and, if a third column is named, groups."""
    present = source.column_names
    if isinstance(present, dict):
        raise DataError(f"this Hugging Face data set has the parts {', '.join(present)}: pass one of them")
    chosen = _choose_columns(present, columns)
    names = [getattr((source.features or {}).get(column), "names", None) for column in chosen[1:]]

    def items() -> Iterator[tuple[Any, ...]]:
        for row in source:
            yield row[chosen[0]], *(_named(row[column], known) for column, known in zip(chosen[1:], names, strict=True))

    name = getattr(getattr(source, "info", None), "dataset_name", None)
    return _collect(items(), len(source), decoding, name=name or "hugging face")


def dataset_from_torch(source: Any, decoding: Decoding) -> Dataset:
    """A data set from a map-style torch one, whose items are (x, y) or (x, y, group)."""
    if not hasattr(source, "__len__") or not hasattr(source, "__getitem__"):
        raise DataError(f"{type(source).__name__}: expected a map-style data set, with a length and numbered items")
    return _collect((source[i] for i in range(len(source))), len(source), decoding, name=type(source).__name__)


def _choose_columns(present: Sequence[str], columns: Sequence[str] | None) -> tuple[str, ...]:
    if columns is None:
        guess = [next((c for c in known if c in present), None) for known in (_IMAGE_COLUMNS, _LABEL_COLUMNS)]
        columns = [column for column in guess if column is not None]
    if len(columns) not in (2, 3) or not set(columns) <= set(present):
        raise DataError(
            f"columns: expected (image, label) or (image, label, group) out of {', '.join(present)}; "
            f"got {', '.join(columns) or 'none'}"
        )
    return tuple(columns)


def _collect(items: Iterable[Any], total: int, decoding: Decoding, *, name: str) -> Dataset:
    """Gather (x, y) or (x, y, group) into arrays: pictures are brought to the form, arrays are taken as they are."""
    points: list[npt.NDArray[Any]] = []
    labels: list[tuple[Any, ...]] = []
    with progress_bar("reading items", total, show=decoding.progress) as advance:
        for i, item in enumerate(items):
            if not isinstance(item, tuple | list) or len(item) not in (2, 3):
                raise DataError(f"item {i} of {name!r}: expected (x, y) or (x, y, group), got {type(item).__name__}")
            x, *rest = item
            points.append(_point(x, decoding, what=f"item {i} of {name!r}"))
            labels.append(tuple(_scalar(value, what=f"label of item {i} of {name!r}") for value in rest))
            advance(1, "")
    if not points:
        raise DataError(f"data set {name!r}: is empty; at least one data point is needed")
    if len({len(row) for row in labels}) > 1:
        raise DataError(f"data set {name!r}: some items are (x, y), others (x, y, group)")
    return Dataset.from_arrays(_stack(points, name), *map(np.asarray, zip(*labels, strict=True)), name=name)


def _point(x: Any, decoding: Decoding, *, what: str) -> npt.NDArray[Any]:
    if not isinstance(x, Image.Image):
        return as_array(x, what=what)
    try:
        return form_image(x.copy(), decoding.form)
    except (ValueError, OSError) as error:
        raise DataError(f"{what}: the image cannot be read ({why_unreadable(error)})") from error


def _stack(points: list[npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
    """Stack data points; grey pictures among coloured ones become coloured."""
    if any(point.ndim == 3 and point.shape[0] == 3 for point in points):
        points = [np.repeat(point, 3, axis=0) if point.ndim == 3 and point.shape[0] == 1 else point for point in points]
    for i, point in enumerate(points):
        if point.shape != points[0].shape:
            raise DataError(f"item {i} of {name!r}: expected shape {points[0].shape} as item 0 has, got {point.shape}")
    return np.stack(points)


def _named(value: Any, names: Sequence[str] | None) -> Any:
    if names is None:
        return value
    if not 0 <= value < len(names):
        raise DataError(f"label {value}: expected a number from 0 to {len(names) - 1}; -1 means a part without labels")
    return names[value]


def _scalar(value: Any, *, what: str) -> str | int | float:
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    if not isinstance(value, str | int | float):
        raise DataError(f"{what}: expected a number or a name, got {type(value).__name__}")
    return value
