"""What users may give as tasks: a data set, episodes, or simply arrays, in a list or by name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tasktheme.data.dataset import Dataset, DataSplit
from tasktheme.data.episodes import Episodes, EpisodeStream
from tasktheme.errors import DataError

Arrays = Sequence[npt.ArrayLike] | Mapping[str, npt.ArrayLike]
TaskData = Episodes | Dataset | DataSplit | Arrays


def as_dataset(data: TaskData) -> Dataset:
    """What :meth:`PTM.fit` was given, as a data set: of several parts the training part, of episodes their tasks alone."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, Episodes):
        points = [data.dataset.x[rows[mask].numpy()] for rows, mask in zip(data.batch.rows, data.batch.mask, strict=True)]
        return Dataset.from_tasks(points, name=data.dataset.name)
    if isinstance(data, DataSplit):
        return data.train
    return _as_unlabelled(data)


def as_tasks(tasks: TaskData) -> Episodes | Dataset:
    """What :meth:`PTM.embed` was given, as tasks."""
    if isinstance(tasks, Episodes) or (isinstance(tasks, Dataset) and tasks.unlabelled):
        return tasks
    if isinstance(tasks, Dataset | DataSplit):
        raise DataError(f"{tasks.name!r} is a labelled data set, not tasks: draw some with .episodes(...)")
    return _as_unlabelled(tasks)


def check_stream(tasks: object) -> None:
    """DataError unless :meth:`PTM.embed_stream` was given a stream."""
    if not isinstance(tasks, EpisodeStream):
        hint = "what is in memory is for embed" if isinstance(tasks, Episodes | Dataset | Sequence | Mapping) else "draw one"
        raise DataError(f"expected a stream of tasks, such as dataset.stream(...) gives, got {type(tasks).__name__}: {hint}")


def _as_unlabelled(tasks: Arrays) -> Dataset:
    """A list of arrays, or arrays by name: each is a task."""
    if isinstance(tasks, np.ndarray | Tensor):
        raise DataError("expected a list of tasks, got one array: pass [x] for a single task")
    if isinstance(tasks, Mapping):
        return Dataset.from_tasks(list(tasks.values()), names=[str(name) for name in tasks])
    if isinstance(tasks, str | os.PathLike):
        raise DataError(f"expected tasks, got {str(tasks)!r}: load it with load_dataset, or as unlabelled tasks with load_tasks")
    if not isinstance(tasks, Sequence) or isinstance(tasks, bytes):
        raise DataError(f"expected a data set or a list of tasks, each an array of data points, got {type(tasks).__name__}")
    return Dataset.from_tasks(tasks)


def count_tasks(tasks: Episodes | Dataset) -> int:
    """How many tasks there are."""
    return len(tasks) if isinstance(tasks, Episodes) else len(tasks.counts)
