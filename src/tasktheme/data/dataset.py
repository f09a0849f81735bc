"""A data set in memory: data points sorted by class, classes that may belong to groups."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tasktheme.data.checks import as_array, check_data
from tasktheme.data.episodes import Episodes, EpisodeStream, Range
from tasktheme.data.task_lists import TaskList, all_combinations
from tasktheme.errors import DataError

WAYS = 5  # classes in a task, where nobody says how many
_NAMED = 5  # of many tasks at fault


@dataclass(frozen=True, eq=False)
class Dataset:
    """Data points with a class each, and optionally a group (alphabet, domain, ...) for each class.

    ``x`` is (M, channels, height, width) uint8 or (M, D) float32, sorted by class: class c owns the rows
    ``starts[c] : starts[c] + counts[c]``. Make one with :meth:`from_arrays`, or from unlabelled tasks with
    :meth:`from_tasks`: then ``unlabelled`` is True and each "class" is a whole task.
    """

    name: str
    x: npt.NDArray[np.generic]
    counts: npt.NDArray[np.int64]
    class_names: tuple[str, ...]
    class_group: npt.NDArray[np.int64]
    group_names: tuple[str, ...]
    unlabelled: bool = False

    @classmethod
    def from_tasks(cls, tasks: Sequence[npt.ArrayLike], *, names: Sequence[str] | None = None, name: str = "tasks") -> Dataset:
        """Build a data set of unlabelled tasks: a list of arrays of data points, of any sizes from one point up.

        A task may also be a pair (points, labels): its labels are left aside.
        """
        if len(tasks) == 0:
            raise DataError(f"{name!r} holds no task; at least one is needed")
        if names is not None and len(names) != len(tasks):
            raise DataError(f"{name!r}: expected a name for each of the {len(tasks)} tasks, got {len(names)} names")
        points = [task[0] if isinstance(task, tuple) and len(task) == 2 else task for task in tasks]  # labels do not matter
        titles = [f"task {i}" if names is None else f"task {names[i]!r}" for i in range(len(tasks))]
        arrays, faults = [], {}
        for what, task in zip(titles, points, strict=True):
            try:
                arrays.append(check_data(as_array(task, what=what), what=what))
            except DataError as fault:
                faults[what] = str(fault)
        if faults:
            first, *others = faults
            more = f", and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
            named = f"; at fault too: {', '.join(others[:_NAMED])}{more}" if others else ""
            raise DataError(faults[first] + named)
        for what, array in zip(titles, arrays, strict=True):
            if array.shape[1:] != arrays[0].shape[1:]:
                wanted = f"{arrays[0].shape[1:]} as in {titles[0]}"
                raise DataError(f"{what}: expected data points of shape {wanted}, got {array.shape[1:]}")
        return cls(
            name=name,
            x=arrays[0] if len(arrays) == 1 else np.concatenate(arrays),  # a single large task is not copied
            counts=np.array([len(array) for array in arrays], dtype=np.int64),
            class_names=tuple(str(i) for i in range(len(tasks))) if names is None else tuple(names),
            class_group=np.zeros(len(tasks), dtype=np.int64),
            group_names=(name,),
            unlabelled=True,
        )

    @classmethod
    def from_arrays(
        cls,
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        groups: npt.ArrayLike | None = None,
        *,
        name: str = "arrays",
    ) -> Dataset:
        """Build a data set from points ``x``, their labels ``y`` and, optionally, their ``groups``.

        Labels and groups may be numbers or strings. A class that occurs in two groups is two classes.
        """
        points = check_data(as_array(x, what=f"data set {name!r}"), what=f"data set {name!r}")
        labels = as_array(y, what=f"labels of {name!r}")
        if labels.shape != (len(points),):
            raise DataError(f"labels of {name!r}: expected shape ({len(points)},) to match the data, got {labels.shape}")
        group_values = np.zeros(len(points), dtype=np.int64) if groups is None else as_array(groups, what=f"groups of {name!r}")
        if group_values.shape != (len(points),):
            raise DataError(f"groups of {name!r}: expected shape ({len(points)},) to match the data, got {group_values.shape}")

        group_names, group_of_point = _distinct(group_values, what=f"groups of {name!r}")
        label_names, label_of_point = _distinct(labels, what=f"labels of {name!r}")
        pairs = np.stack([group_of_point, label_of_point], axis=1)
        classes, class_of_point, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        order = np.argsort(class_of_point.reshape(-1), kind="stable")
        return cls(
            name=name,
            x=points[order],
            counts=counts.astype(np.int64),
            class_names=tuple(str(label_names[c]) for c in classes[:, 1]),
            class_group=classes[:, 0].astype(np.int64),
            group_names=(name,) if groups is None else tuple(str(g) for g in group_names),
        )

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}: {len(self.x):,} points of shape {self.point_shape}, "
            f"{len(self.class_names)} classes, {len(self.group_names)} groups)"
        )

    @property
    def point_shape(self) -> tuple[int, ...]:
        """Shape of one data point: (channels, height, width) or (D,)."""
        return tuple(self.x.shape[1:])

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """First row of each class."""
        return np.concatenate([[0], np.cumsum(self.counts)[:-1]]).astype(np.int64)

    @cached_property
    def tensor(self) -> torch.Tensor:
        """The data points as one tensor that shares their memory; only to be read."""
        with warnings.catch_warnings():
            # A cached data set is mapped read-only. Copying it would cost its size in memory, and nothing here writes to it.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)
            return torch.from_numpy(np.asarray(np.require(self.x, requirements="C")))

    def inverted(self) -> Dataset:
        """The same images with black and white exchanged: ink on paper for a model of light strokes on a dark ground."""
        if self.x.dtype != np.uint8:
            raise DataError(f"{self.name!r} holds features of shape {self.point_shape}: only images can be inverted")
        return replace(self, x=255 - self.x)

    def turned(self) -> Dataset:
        """These images, and the same turned by right angles and mirrored, each of the eight as groups and classes of their own.

        To train on where images have no way up and groups are few: a new alphabet is more like a turned one than like none.
        """
        if self.x.dtype != np.uint8 or self.point_shape[1] != self.point_shape[2]:
            raise DataError(f"{self.name!r} holds data points of shape {self.point_shape}: only square images can be turned")
        views = [np.rot90(x, quarters, axes=(2, 3)) for x in (self.x, self.x[..., ::-1]) for quarters in range(4)]
        names = ["", *(f" turned {90 * i}" for i in range(1, 4)), *(f" mirrored, turned {90 * i}" for i in range(4))]
        return replace(
            self,
            x=np.concatenate(views),
            counts=np.tile(self.counts, len(views)),
            class_names=self.class_names * len(views),
            class_group=np.concatenate([self.class_group + i * len(self.group_names) for i in range(len(views))]),
            group_names=tuple(f"{group}{view}" for view in names for group in self.group_names),
        )

    def select_groups(self, groups: Sequence[str], *, name: str | None = None) -> Dataset:
        """The part of this data set whose classes belong to ``groups``, in this data set's order."""
        unknown = sorted(set(groups) - set(self.group_names))
        if unknown:
            raise DataError(f"{self.name!r} has no group {unknown[0]!r}; it has {', '.join(self.group_names[:8])}, ...")
        kept = [g for g, group_name in enumerate(self.group_names) if group_name in set(groups)]
        return self.select_classes(np.flatnonzero(np.isin(self.class_group, kept)), name=name)

    def classes_as_groups(self) -> Dataset:
        """The same data, each class a group of its own, named as it was in its group."""
        several = len(self.group_names) > 1
        names = [f"{self.group_names[g]}/{c}" if several else c for g, c in zip(self.class_group, self.class_names, strict=True)]
        return replace(self, class_group=np.arange(len(self.class_names)), group_names=tuple(names))

    def select_classes(self, classes: Sequence[int] | npt.NDArray[np.int64], *, name: str | None = None) -> Dataset:
        """The part of this data set that holds the numbered classes, in this data set's order.

        Neighbouring classes share this data set's memory; others are copied.
        """
        kept = np.unique(np.asarray(classes, dtype=np.int64))
        if len(kept) == 0:
            raise DataError(f"no class of {self.name!r} is chosen; at least one is needed")
        if kept[0] < 0 or kept[-1] >= len(self.counts):
            raise DataError(f"{self.name!r} has classes 0 to {len(self.counts) - 1}, got {kept[0]} to {kept[-1]}")
        if len(kept) == kept[-1] - kept[0] + 1:
            x = self.x[self.starts[kept[0]] : self.starts[kept[-1]] + self.counts[kept[-1]]]
        else:
            x = self.x[np.concatenate([np.arange(self.starts[c], self.starts[c] + self.counts[c]) for c in kept])]
        groups, class_group = np.unique(self.class_group[kept], return_inverse=True)
        return Dataset(
            name=name or self.name,
            x=x,
            counts=self.counts[kept],
            class_names=tuple(self.class_names[c] for c in kept),
            class_group=class_group.astype(np.int64),
            group_names=tuple(self.group_names[g] for g in groups),
            unlabelled=self.unlabelled,
        )

    def combinations(self, ways: int = 5) -> npt.NDArray[np.int64]:
        """All tasks of ``ways`` classes, whatever their groups: (T, ways) class numbers, for ``episodes(tasks=...)``."""
        return all_combinations(self, ways)

    def episodes(
        self,
        ways: Range | None = None,
        shots: Range = 20,
        n: int | None = None,
        *,
        seed: int = 0,
        within_group: bool = True,
        tasks: TaskList | None = None,
    ) -> Episodes:
        """Random tasks: each draws ``ways`` classes (of one group), or takes those listed, and ``shots`` points of each.

        Args:
            ways: classes in a task, a number or an inclusive range (fewest, most); 5 unless tasks are listed.
            shots: data points drawn from each class, a number or a range from which each task draws its own.
            n: how many tasks; by default 100, or as many as are listed. Beyond that a list starts again, with other points.
            seed: the same seed gives the same tasks, on any device.
            within_group: all classes of a task come from one group; False mixes groups.
            tasks: the classes of each task, instead of ``ways``: rows of class names ("group/class" where a name is not
                enough) or numbers, such as :meth:`combinations` gives, or a CSV file with a line for each task.
        """
        return self.stream(ways, shots, n, seed=seed, within_group=within_group, tasks=tasks).all()

    def stream(
        self,
        ways: Range | None = None,
        shots: Range = 20,
        n: int | None = None,
        *,
        seed: int = 0,
        within_group: bool = True,
        tasks: TaskList | None = None,
    ) -> EpisodeStream:
        """The tasks of :meth:`episodes`, drawn some at a time: for more of them than memory holds (``PTM.embed_stream``)."""
        if ways is None and tasks is None:
            ways = WAYS
        return EpisodeStream.open(self, ways=ways, shots=shots, tasks=tasks, n=n, seed=seed, within_group=within_group)


def _distinct(values: npt.NDArray[Any], *, what: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The distinct values in order, and each value's place among them."""
    if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
        raise DataError(f"{what}: value {int(np.flatnonzero(~np.isfinite(values))[0])} is a NaN or an infinity")
    try:
        names, places = np.unique(values, return_inverse=True)
    except TypeError as error:
        raise DataError(f"{what}: expected all numbers or all strings, got both") from error
    return names, places


@dataclass(frozen=True, eq=False)
class DataSplit:
    """A training part, a held-out part and, in some data sets, a part for choosing settings; they share no class."""

    name: str
    train: Dataset
    test: Dataset
    val: Dataset | None = None

    def inverted(self) -> DataSplit:
        """The same images in all parts with black and white exchanged, see :meth:`Dataset.inverted`."""
        val = None if self.val is None else self.val.inverted()
        return replace(self, train=self.train.inverted(), test=self.test.inverted(), val=val)
