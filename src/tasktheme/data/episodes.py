"""Tasks drawn from a labelled data set: which classes, and which data points of each, for a whole batch at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from tasktheme.data.random import random_below, random_order
from tasktheme.errors import DataError

if TYPE_CHECKING:
    from tasktheme.data.dataset import Dataset

_KEYS_AT_ONCE = 1 << 22  # random keys held together when many tasks are drawn
_GROUP, _WAYS, _CLASSES, _POINTS = range(4)  # streams of random numbers, one for each choice


@dataclass(frozen=True, eq=False)
class EpisodeBatch:
    """A batch of tasks as rows of a data set, padded to one size.

    rows: row of each data point; labels: its class within the task, 0 to ways - 1; mask: False where padded.
    """

    rows: Int64[Tensor, "T N"]
    labels: Int64[Tensor, "T N"]
    mask: Bool[Tensor, "T N"]

    def to(self, device: torch.device) -> EpisodeBatch:
        """The same batch on another device."""
        return EpisodeBatch(self.rows.to(device), self.labels.to(device), self.mask.to(device))


class EpisodeSampler:
    """Draws task number i of an endless, seeded sequence: on any device, in any order, many at once.

    Classes are drawn without repetition from one group (itself drawn uniformly), or from all classes where
    ``within_group`` is False; data points of a class without repetition, so that the t and v halves are disjoint.
    A class with fewer than ``shots`` data points is an error, or with ``allow_fewer`` gives what it has.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        ways: int | tuple[int, int],
        shots: int,
        seed: int,
        within_group: bool = True,
        allow_fewer: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        self.ways = _as_range(ways)
        self.shots = shots
        self.seed = seed
        fewest, most = self.ways
        if not _is_whole(shots) or shots < 1:
            raise DataError(f"shots must be a whole number of at least 1, got {shots!r}")
        _check_enough(dataset, fewest=fewest, shots=1 if allow_fewer else shots, within_group=within_group)

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
        self._most_ways = min(most, members.shape[1])
        self._way_slots, self._member_slots, self._point_slots = (
            torch.arange(size, device=device) for size in (self._most_ways, members.shape[1], int(dataset.counts.max()))
        )

    def classes(self, task: Int64[Tensor, " T"]) -> tuple[Int64[Tensor, "T W"], Bool[Tensor, "T W"]]:
        """The classes of each numbered task, and a mask that is False beyond the task's own number of ways."""
        group = random_below(self.seed, _GROUP, task, torch.full_like(task, len(self._group_sizes)))
        size = self._group_sizes[group]
        fewest, most = self.ways
        ways = fewest + random_below(self.seed, _WAYS, task, size.clamp_max(most) - fewest + 1)
        order = random_order(self.seed, _CLASSES, task, size, slots=self._member_slots, take=self._most_ways)
        mask = self._way_slots < ways.unsqueeze(-1)
        return self._members[group].gather(1, order).masked_fill(~mask, 0), mask

    def draw(self, task: Int64[Tensor, " T"], *halves: int) -> tuple[EpisodeBatch, ...]:
        """Draw the numbered tasks; ``halves`` are the shots of each disjoint part (default: all shots in one)."""
        classes, class_mask = self.classes(task)
        parts = halves or (self.shots,)
        slots = self._way_slots
        counts = self._counts[classes]
        order = random_order(
            self.seed,
            _POINTS,
            task.unsqueeze(-1) * self._most_ways + slots,
            counts,
            slots=self._point_slots,
            take=min(sum(parts), len(self._point_slots)),
        )
        taken = counts.clamp_max(sum(parts)).masked_fill(~class_mask, 0).unsqueeze(-1)  # (T, W, 1)
        batches = []
        for i, shots in enumerate(parts):  # parts share what there is in proportion: a task of 7 points is 3 and 4
            first = taken * sum(parts[:i]) // sum(parts)
            last = taken * sum(parts[: i + 1]) // sum(parts)
            place = first + torch.arange(shots, device=task.device)
            mask = place < last
            points = order.gather(-1, place.clamp_max(order.shape[-1] - 1))
            rows = (self._starts[classes].unsqueeze(-1) + points).masked_fill(~mask, 0)
            labels = slots.unsqueeze(-1).expand_as(rows)
            batches.append(EpisodeBatch(rows=rows.flatten(1), labels=labels.flatten(1), mask=mask.flatten(1)))
        return tuple(batches)


@dataclass(frozen=True, eq=False)
class Episodes:
    """A finite list of tasks drawn from a data set; slices, and yields batches."""

    dataset: Dataset
    batch: EpisodeBatch
    classes: Int64[Tensor, "T W"]
    class_mask: Bool[Tensor, "T W"]

    @classmethod
    def sample(
        cls,
        dataset: Dataset,
        *,
        ways: int | tuple[int, int],
        shots: int,
        n: int,
        seed: int,
        within_group: bool = True,
    ) -> Episodes:
        """The first ``n`` tasks of the seed's sequence."""
        if not _is_whole(n) or n < 1:
            raise DataError(f"n, the number of tasks, must be a whole number of at least 1, got {n!r}")
        sampler = EpisodeSampler(dataset, ways=ways, shots=shots, seed=seed, within_group=within_group)
        classes, class_mask = sampler.classes(torch.arange(n))
        keys_of_task = classes.shape[1] * int(dataset.counts.max())
        drawn = [sampler.draw(task)[0] for task in torch.arange(n).split(max(1, _KEYS_AT_ONCE // keys_of_task))]
        rows, labels, mask = (torch.cat([getattr(part, name) for part in drawn]) for name in ("rows", "labels", "mask"))
        return cls(dataset, EpisodeBatch(rows, labels, mask), classes, class_mask)

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, part: int | slice) -> Episodes:
        if isinstance(part, int):
            part = slice(part, part + 1 or None)
        batch = EpisodeBatch(self.batch.rows[part], self.batch.labels[part], self.batch.mask[part])
        return Episodes(self.dataset, batch, self.classes[part], self.class_mask[part])

    def batches(self, size: int) -> Iterator[EpisodeBatch]:
        """The tasks in order, ``size`` at a time."""
        for start in range(0, len(self), size):
            yield self[start : start + size].batch

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


def _as_range(ways: int | tuple[int, int]) -> tuple[int, int]:
    pair: Any = (ways, ways) if _is_whole(ways) else ways
    if isinstance(pair, list | tuple) and len(pair) == 2 and all(map(_is_whole, pair)) and 1 <= pair[0] <= pair[1]:
        return int(pair[0]), int(pair[1])
    raise DataError(f"ways must be a positive whole number or a range (fewest, most), got {ways!r}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer)


def whole_tasks(dataset: Dataset, *, points: int) -> Iterator[tuple[npt.NDArray[np.int64], EpisodeBatch]]:
    """All unlabelled tasks with all their data points, in batches of about ``points``, with the tasks' places.

    They come in order of size, so that little is padded.
    """
    order = np.argsort(dataset.counts, kind="stable")
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


def _check_enough(dataset: Dataset, *, fewest: int, shots: int, within_group: bool) -> None:
    poorest = int(dataset.counts.argmin())
    if dataset.counts[poorest] < shots:
        raise DataError(
            f"class {dataset.class_names[poorest]!r} of {dataset.name!r} has {dataset.counts[poorest]} data points, "
            f"but tasks ask for {shots} of each class; ask for fewer shots"
        )
    if within_group:
        sizes = torch.bincount(torch.as_tensor(dataset.class_group))
        smallest = int(sizes.argmin())
        if sizes[smallest] < fewest:
            raise DataError(
                f"group {dataset.group_names[smallest]!r} of {dataset.name!r} has {sizes[smallest]} classes, "
                f"but tasks ask for {fewest} ways; ask for fewer ways, or mix groups"
            )
    elif len(dataset.class_names) < fewest:
        raise DataError(f"{dataset.name!r} has {len(dataset.class_names)} classes, but tasks ask for {fewest} ways")
