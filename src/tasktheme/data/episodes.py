"""Tasks drawn from a labelled data set: which classes, and which data points of each, for a whole batch at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from tasktheme.data.random import random_below, random_order
from tasktheme.data.task_lists import TaskList, task_table
from tasktheme.errors import DataError

if TYPE_CHECKING:
    from tasktheme.data.dataset import Dataset

_RANDOM_TASKS = 100  # drawn where nobody says how many
_MOST = 2**31 - 1  # tasks, ways or shots
_KEYS_AT_ONCE = 1 << 22  # random keys held together when many tasks are drawn
_MOST_AT_ONCE = 1 << 28  # data points of drawn tasks held together: 17 bytes for each, twice that while they are drawn
_GROUP, _WAYS, _CLASSES, _POINTS, _SHOTS = range(5)  # streams of random numbers, one for each choice; _SHOTS + i for half i

Range = int | tuple[int, int]


@dataclass(frozen=True, eq=False)
class EpisodeBatch:
    """A batch of tasks as rows of a data set, padded to one size.

    rows: row of each data point; labels: its class within the task, 0 to ways - 1; mask: False where padded.
    """

    rows: Int64[Tensor, "T N"]
    labels: Int64[Tensor, "T N"]
    mask: Bool[Tensor, "T N"]

    def __getitem__(self, part: slice | Int64[Tensor, " t"]) -> EpisodeBatch:
        """Some of the tasks."""
        return EpisodeBatch(self.rows[part], self.labels[part], self.mask[part])

    def to(self, device: torch.device) -> EpisodeBatch:
        """The same batch on another device."""
        return EpisodeBatch(self.rows.to(device), self.labels.to(device), self.mask.to(device))


class EpisodeSampler:
    """Draws task number i of an endless, seeded sequence: on any device, in any order, many at once.

    Classes are drawn without repetition from one group (itself drawn uniformly), or from all classes where
    ``within_group`` is False; or they are those of task i modulo T in a list of T ``tasks`` (see :func:`task_table`). Data
    points of a class are drawn without repetition, so that the t and v halves are disjoint. Ways and shots are numbers, or
    ranges (fewest, most) from which each task draws its own. A class with fewer data points than the most shots is an
    error, or with ``allow_fewer`` gives what it has.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        shots: Range,
        seed: int,
        ways: Range | None = None,
        tasks: TaskList | None = None,
        within_group: bool = True,
        allow_fewer: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        if (ways is None) == (tasks is None):
            raise DataError("tasks take either ways, to draw classes at random, or a list of tasks: give one of them")
        self.shots = _as_range(shots, "shots")
        self.seed = seed
        self.listed: Int64[Tensor, "T W"] | None = None
        if tasks is not None:
            table = task_table(dataset, tasks)
            self.listed = torch.from_numpy(table).to(device)
            used = np.unique(table[table >= 0])
        else:
            self.ways = _as_range(ways, "ways")
            _check_classes(dataset, fewest=self.ways[0], within_group=within_group)
            used = np.arange(len(dataset.class_names))
        _check_points(dataset, used, shots=1 if allow_fewer else self.shots[1])

        classes = torch.arange(len(dataset.class_names))
        group_of_class = torch.as_tensor(dataset.class_group) if within_group else torch.zeros_like(classes)
        sizes = torch.bincount(group_of_class)
        members = torch.zeros((len(sizes), int(sizes.max())), dtype=torch.int64)
        for group in range(len(sizes)):
            members[group, : sizes[group]] = classes[group_of_class == group]
        self._members = members.to(device)
        self._group_sizes = sizes.to(device)
        self._starts = torch.as_tensor(dataset.starts).to(device)
        self._counts = torch.as_tensor(dataset.counts).to(device)
        self.most_ways = self.listed.shape[1] if self.listed is not None else min(self.ways[1], members.shape[1])
        self._way_slots, self._member_slots, self._point_slots = (
            torch.arange(size, device=device) for size in (self.most_ways, members.shape[1], int(dataset.counts.max()))
        )

    def classes(self, task: Int64[Tensor, " T"]) -> tuple[Int64[Tensor, "T W"], Bool[Tensor, "T W"]]:
        """The classes of each numbered task, and a mask that is False beyond the task's own number of ways."""
        if self.listed is not None:
            classes = self.listed[task % len(self.listed)]
            return classes.clamp_min(0), classes >= 0
        group = random_below(self.seed, _GROUP, task, torch.full_like(task, len(self._group_sizes)))
        size = self._group_sizes[group]
        fewest, most = self.ways
        ways = fewest + random_below(self.seed, _WAYS, task, size.clamp_max(most) - fewest + 1)
        order = random_order(self.seed, _CLASSES, task, size, slots=self._member_slots, take=self.most_ways)
        mask = self._way_slots < ways.unsqueeze(-1)
        return self._members[group].gather(1, order).masked_fill(~mask, 0), mask

    def draw(self, task: Int64[Tensor, " T"], *halves: Range) -> tuple[EpisodeBatch, ...]:
        """Draw the numbered tasks; ``halves`` are the shots of each disjoint part (default: all shots in one).

        The shots of a part may be a range, too: (1, 5), 15 draws 1 to 5 data points of each class and then 15 others.
        """
        classes, class_mask = self.classes(task)
        parts = [_as_range(half, "the shots of a half") for half in halves] or [self.shots]
        slots = self._way_slots
        counts = self._counts[classes]
        order = random_order(
            self.seed,
            _POINTS,
            task.unsqueeze(-1) * self.most_ways + slots,
            counts,
            slots=self._point_slots,
            take=min(sum(most for _, most in parts), len(self._point_slots)),
        )
        sizes = [self._sizes(task, i, *part) for i, part in enumerate(parts)]
        wanted = sum(sizes)
        taken = counts.unsqueeze(-1).clamp(max=wanted) * class_mask.unsqueeze(-1)  # (T, W, 1)
        batches = []
        for i, (_, most) in enumerate(parts):  # parts share what there is in proportion: a task of 7 points is 3 and 4
            first = taken * sum(sizes[:i]) // wanted
            last = taken * sum(sizes[: i + 1]) // wanted
            place = first + torch.arange(most, device=task.device)
            mask = place < last
            points = order.gather(-1, place.clamp_max(order.shape[-1] - 1))
            rows = (self._starts[classes].unsqueeze(-1) + points).masked_fill(~mask, 0)
            labels = slots.unsqueeze(-1).expand_as(rows)
            batches.append(EpisodeBatch(rows=rows.flatten(1), labels=labels.flatten(1), mask=mask.flatten(1)))
        return tuple(batches)

    def _sizes(self, task: Int64[Tensor, " T"], half: int, fewest: int, most: int) -> int | Int64[Tensor, "T 1 1"]:
        """How many data points of each class a half takes: one number for all tasks, or one drawn for each."""
        if fewest == most:
            return most
        drawn = random_below(self.seed, _SHOTS + half, task, torch.full_like(task, most - fewest + 1))
        return (fewest + drawn)[:, None, None]


@dataclass(frozen=True, eq=False)
class Episodes:
    """A finite list of tasks drawn from a data set; slices, and yields batches."""

    dataset: Dataset
    batch: EpisodeBatch
    classes: Int64[Tensor, "T W"]
    class_mask: Bool[Tensor, "T W"]

    def __len__(self) -> int:
        return len(self.classes)

    def __repr__(self) -> str:
        return f"Episodes({len(self):,} tasks of {self.dataset.name!r}, up to {self.batch.mask.shape[1]:,} data points in each)"

    def __getitem__(self, part: int | np.integer | slice | Sequence[int] | npt.NDArray[Any]) -> Episodes:
        """Some of the tasks, by slice, indices or a boolean mask; one index gives a list of one task."""
        rows = part if isinstance(part, slice) and (part.step or 1) > 0 else self._places(part)  # such a slice is a view
        return Episodes(self.dataset, self.batch[rows], self.classes[rows], self.class_mask[rows])

    def _places(self, part: Any) -> Int64[Tensor, " t"]:
        found = np.atleast_1d(np.arange(len(self))[part])
        if found.ndim > 1:
            raise IndexError(f"expected places of tasks, one after another, got {part!r}")
        return torch.from_numpy(found.copy())

    def batches(self, size: int) -> Iterator[EpisodeBatch]:
        """The tasks in order, ``size`` at a time."""
        for start in range(0, len(self), size):
            yield self[start : start + size].batch

    def fewest_shots(self) -> int:
        """Data points of the smallest class of any task."""
        points = self.batch.mask.unflatten(1, (self.classes.shape[1], -1)).sum(dim=-1)
        return int(points[self.class_mask].min()) if len(self) else 0

    def class_names(self) -> list[list[str]]:
        """Names of each task's classes."""
        names = self.dataset.class_names
        return [[names[c] for c in row[mask].tolist()] for row, mask in zip(self.classes, self.class_mask, strict=True)]

    def groups(self) -> list[str]:
        """The group of each task, or "mixed" where its classes come from several."""
        groups = torch.as_tensor(self.dataset.class_group)[self.classes]
        alike = (groups.eq(groups[:, :1]) | ~self.class_mask).all(dim=1)
        names = self.dataset.group_names
        return [names[g] if one else "mixed" for g, one in zip(groups[:, 0].tolist(), alike.tolist(), strict=True)]


@dataclass(frozen=True, eq=False)
class EpisodeStream:
    """As many tasks as one likes, drawn only when asked for: any part of them is the same part of :class:`Episodes`."""

    dataset: Dataset
    sampler: EpisodeSampler
    n: int

    @classmethod
    def open(
        cls,
        dataset: Dataset,
        *,
        shots: Range,
        seed: int,
        ways: Range | None = None,
        tasks: TaskList | None = None,
        n: int | None = None,
        within_group: bool = True,
    ) -> EpisodeStream:
        """The first ``n`` tasks of the seed's sequence; by default all that ``tasks`` lists, or 100 where it is left out."""
        sampler = EpisodeSampler(dataset, ways=ways, shots=shots, seed=seed, tasks=tasks, within_group=within_group)
        if n is None:
            n = _RANDOM_TASKS if sampler.listed is None else len(sampler.listed)
        if not _is_whole(n) or not 1 <= n <= _MOST:
            raise DataError(f"n, the number of tasks (at most {_MOST:,}), must be a whole number of at least 1, got {n!r}")
        return cls(dataset, sampler, int(n))

    def __len__(self) -> int:
        return self.n

    @property
    def points_of_task(self) -> int:
        """Data points of the largest task that can come."""
        return self.sampler.most_ways * self.sampler.shots[1]

    def draw(self, start: int, stop: int) -> Episodes:
        """The tasks from number ``start`` to before ``stop``."""
        numbers = torch.arange(start, stop)
        classes, class_mask = self.sampler.classes(numbers)
        keys_of_task = classes.shape[1] * int(self.dataset.counts.max())
        drawn = [self.sampler.draw(task)[0] for task in numbers.split(max(1, _KEYS_AT_ONCE // keys_of_task))]
        rows, labels, mask = (torch.cat([getattr(part, name) for part in drawn]) for name in ("rows", "labels", "mask"))
        return Episodes(self.dataset, EpisodeBatch(rows, labels, mask), classes, class_mask)

    def all(self) -> Episodes:
        """All tasks at once; DataError where that is too much for memory."""
        if self.n * self.points_of_task > _MOST_AT_ONCE:
            raise DataError(
                f"{self.n:,} tasks of {self.points_of_task:,} data points are too many to hold at once: draw fewer, or let embed "
                "write them to a .parquet file (in Python stream and embed_stream), some at a time"
            )
        return self.draw(0, self.n)

    def parts(self, size: int) -> Iterator[Episodes]:
        """All tasks in order, ``size`` at a time."""
        for start in range(0, self.n, size):
            yield self.draw(start, min(start + size, self.n))


def _as_range(value: object, what: str) -> tuple[int, int]:
    pair: Any = (value, value) if _is_whole(value) else value
    if isinstance(pair, list | tuple) and len(pair) == 2 and all(map(_is_whole, pair)) and 1 <= pair[0] <= pair[1] <= _MOST:
        return int(pair[0]), int(pair[1])
    raise DataError(f"{what} must be a positive whole number or a range (fewest, most), of at most {_MOST:,}, got {value!r}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer)


def whole_tasks(
    dataset: Dataset, *, points: int, of: npt.NDArray[np.int64] | None = None
) -> Iterator[tuple[npt.NDArray[np.int64], EpisodeBatch]]:
    """Unlabelled tasks, all or those ``of`` some places, with all their data points: batches of about ``points``, and places.

    They come in order of size, so that little is padded.
    """
    places = np.arange(len(dataset.counts)) if of is None else of
    order = places[np.argsort(dataset.counts[places], kind="stable")]
    start = 0
    while start < len(order):
        sizes = dataset.counts[order[start:]]
        fitting = int((sizes * np.arange(1, len(sizes) + 1) <= points).sum())
        which = order[start : start + max(1, fitting)]
        counts = torch.from_numpy(dataset.counts[which])
        place = torch.arange(int(counts.max()))
        mask = place < counts[:, None]
        rows = (torch.from_numpy(dataset.starts[which])[:, None] + place).masked_fill(~mask, 0)
        yield which, EpisodeBatch(rows=rows, labels=torch.zeros_like(rows), mask=mask)
        start += len(which)


def _check_points(dataset: Dataset, used: npt.NDArray[np.int64], *, shots: int) -> None:
    poorest = int(used[dataset.counts[used].argmin()])
    if dataset.counts[poorest] < shots:
        raise DataError(
            f"class {dataset.class_names[poorest]!r} of {dataset.name!r} has "
            f"{_counted(int(dataset.counts[poorest]), 'data point')}, but tasks ask for {shots} of each class; "
            "ask for fewer shots"
        )


def _check_classes(dataset: Dataset, *, fewest: int, within_group: bool) -> None:
    if within_group:
        sizes = torch.bincount(torch.as_tensor(dataset.class_group))
        smallest = int(sizes.argmin())
        if sizes[smallest] < fewest:
            raise DataError(
                f"group {dataset.group_names[smallest]!r} of {dataset.name!r} has {_counted(int(sizes[smallest]), 'class')}, "
                f"but tasks ask for {fewest} ways; ask for fewer ways, or mix groups"
            )
    elif len(dataset.class_names) < fewest:
        raise DataError(f"{dataset.name!r} has {_counted(len(dataset.class_names), 'class')}, but tasks ask for {fewest} ways")


def _counted(count: int, noun: str) -> str:
    """'1 class', '2 classes', '2 data points'."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{'es' if noun.endswith('s') else 's'}"
