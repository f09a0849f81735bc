"""Where tasks came from: which data points each holds, so that their images can be shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tasktheme.data.dataset import Dataset
from tasktheme.data.episodes import Episodes
from tasktheme.errors import DataError
from tasktheme.tasks.taskset import TaskSet

Origin = Episodes | Dataset  # tasks drawn from classes, or whole unlabelled tasks


def dataset_of(origin: Origin) -> Dataset:
    """The data set that holds the tasks' data points."""
    return origin.dataset if isinstance(origin, Episodes) else origin


def check_origin(tasks: TaskSet, origin: Origin) -> None:
    """DataError unless ``origin`` holds just these tasks in this order, as far as sizes and names can tell."""
    if isinstance(origin, Episodes):
        sizes = origin.batch.mask.sum(dim=1).numpy()
        columns: dict[str, Sequence[Any]] = {"group": origin.groups(), "classes": origin.class_names()}
    else:
        sizes, columns = origin.counts, {"name": origin.class_names}
    known = {name: values for name, values in columns.items() if name in tasks.columns}
    alike = len(tasks) == len(sizes) and bool((tasks.sizes == sizes).all())
    if not alike or any([text(v) for v in tasks.columns[name]] != [text(v) for v in values] for name, values in known.items()):
        raise DataError(
            f"these {len(tasks):,} tasks are not those that {dataset_of(origin).name!r} gives with these options: "
            "repeat the options that they were embedded with"
        )


def sample_rows(origin: Origin, most: int) -> npt.NDArray[np.int64]:
    """(T, most) rows of the data set that show each task, -1 where it has fewer: a point of every class before a second."""
    if isinstance(origin, Episodes):
        ways = origin.classes.shape[1]
        rows, mask = (
            part.unflatten(1, (ways, -1)).transpose(1, 2).flatten(1).numpy() for part in (origin.batch.rows, origin.batch.mask)
        )
        first = np.argsort(~mask, axis=1, kind="stable")[:, :most]  # what is padded comes last
        found = np.where(np.take_along_axis(mask, first, axis=1), np.take_along_axis(rows, first, axis=1), -1)
        return np.pad(found, ((0, 0), (0, most - found.shape[1])), constant_values=-1)
    place = np.arange(most)
    counts = origin.counts[:, None]
    spread = place * counts // most  # over the whole task, which may be sorted
    return np.where(place < counts, origin.starts[:, None] + np.where(counts > most, spread, place), -1)


def text(value: Any) -> str:
    """A value of a column as one line of text; a list of names as its members."""
    if isinstance(value, list | tuple):
        return " ".join(text(part) for part in value)
    return "" if value is None else " ".join(str(value).split())
