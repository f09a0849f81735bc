"""Meta-testing: how well a trained meta-learner learns each of many tasks."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from tasktheme import distributed
from tasktheme.data.dataset import Dataset
from tasktheme.data.episodes import Episodes, EpisodeSampler
from tasktheme.errors import DataError, ModelFileError, OutputError
from tasktheme.files import check_free, make_folder
from tasktheme.learners.base import Learner, Noise, Points, precision
from tasktheme.learners.settings import LearnerSettings
from tasktheme.learners.tasks import PointSource, all_classes, listed_sampler, make_sampler
from tasktheme.learners.threads import each_piece
from tasktheme.learners.whole_step import WholeStep, adapted_accuracy
from tasktheme.progress import Advance, progress_bar
from tasktheme.tasks.files import check_ending

_FORMAT = 1
_NUMBERS_AT_ONCE = {"cpu": 1 << 23, "cuda": 1 << 31}  # at most, in the first feature maps of the tasks that are tested together
_BYTES_OF_ONE = 48  # of a GPU's free memory for each: up to 23 were used, and half is left to others

Floats = npt.NDArray[np.float64]


def random_classes(dataset: Dataset, settings: LearnerSettings, count: int, *, seed: int) -> Int64[Tensor, "T W"]:
    """The classes of ``count`` random tasks."""
    sampler: EpisodeSampler = make_sampler(dataset, settings, torch.device("cpu"), ways=settings.ways, seed=seed)
    return sampler.classes(torch.arange(count))[0]


def listed_classes(dataset: Dataset, settings: LearnerSettings, tasks: int | str, *, seed: int) -> Int64[Tensor, "T W"]:
    """The classes of the tasks that a user asked for: "all" of them, or a number of random ones."""
    if tasks == "all":
        return all_classes(dataset, settings.ways, within_group=settings.within_group)
    if not isinstance(tasks, int | np.integer) or isinstance(tasks, bool) or tasks < 1:
        raise DataError(f"tasks must be 'all' or a whole number of at least 1, got {tasks!r}")
    return random_classes(dataset, settings, int(tasks), seed=seed)


def task_accuracies(
    learner: Learner,
    dataset: Dataset,
    classes: Int64[Tensor, "T W"],
    *,
    seed: int,
    progress: bool = False,
    compiled: WholeStep | None = None,
) -> Floats:
    """(T,) the accuracy on each listed task's queries; it does not depend on which tasks are tested together.

    ``compiled`` is :func:`adapted_accuracy` of this learner, to test by.
    """
    tasks = ListedTasks(dataset, learner.settings, classes, next(learner.parameters()).device, seed=seed)
    with progress_bar("meta-testing", len(classes), show=progress) as advance:
        own = distributed.share(len(classes))
        if own.start == own.stop:  # there are more processes than tasks
            return distributed.all_rows(np.zeros(0))
        found = tasks.accuracies(learner, own.start, own.stop, advance=advance, compiled=compiled)
        return distributed.all_rows(found.double().cpu().numpy())


class ListedTasks:
    """Tasks to test on, now or again and again: their classes are listed, their images stay on the device."""

    def __init__(
        self, dataset: Dataset, settings: LearnerSettings, classes: Int64[Tensor, "T W"], device: torch.device, *, seed: int
    ) -> None:
        self.dataset, self.classes = dataset, classes
        self._settings, self._device, self._seed = settings, device, seed
        self.points = PointSource(dataset, device)
        self.sampler = listed_sampler(dataset, settings, classes, device, seed=seed)

    def __len__(self) -> int:
        return len(self.classes)

    def accuracies(
        self,
        learner: Learner,
        first: int = 0,
        last: int | None = None,
        *,
        advance: Advance | None = None,
        compiled: WholeStep | None = None,
        at_once: int | None = None,
    ) -> Float[Tensor, "*A T"]:
        """The share of each task's queries that are predicted right, of the tasks from ``first`` to before ``last``.

        Of a learner with arms, every arm is tested on every task. A compiled program is for one number of tasks: equal parts,
        or ``at_once`` tasks, the last part filled up with its last task.
        """
        settings, arms = self._settings, learner.arms or 1
        if self.dataset.point_shape != learner.point_shape:
            raise DataError(f"this learner takes images of shape {learner.point_shape}, got {self.dataset.point_shape}")
        last = len(self) if last is None else last
        size = at_once or (self._room(learner) if compiled is None else self.equal_parts(learner, last - first))
        end = last if compiled is None else first + -(-(last - first) // size) * size
        all_numbers = torch.arange(first, end, device=self._device).clamp_max(last - 1)

        def accuracies(numbers: Int64[Tensor, " t"]) -> Float[Tensor, "A t"]:
            drawn = self.sampler.draw(numbers, settings.shots, settings.queries)
            support, query = (_for_each_arm(self.points(part, settings.ways), arms) for part in drawn)
            if compiled is None:
                [accuracy] = adapted_accuracy(learner, support, query, Noise(self._seed, numbers.repeat(arms)))
            else:
                [accuracy] = compiled(learner, support, query, self._seed, numbers.repeat(arms))
            return accuracy.unflatten(0, (arms, -1))

        found = []
        with precision(settings):
            parts = each_piece(accuracies, all_numbers, size) if compiled is None else map(accuracies, all_numbers.split(size))
            for accuracy in parts:
                found.append(accuracy)
                if advance is not None:
                    advance(accuracy.shape[1], "")
        whole = torch.cat(found, dim=1)[:, : last - first]
        return whole[0] if learner.arms is None else whole

    def equal_parts(self, learner: Learner, tasks: int) -> int:
        """How many of so many tasks are tested at once, where all parts are of one size and as large as there is room for."""
        parts = -(-tasks // self._room(learner))
        return -(-tasks // parts)

    def _room(self, learner: Learner) -> int:
        points = self._settings.ways * (self._settings.shots + self._settings.queries)
        return max(1, tasks_at_once(learner, points, self._device) // (learner.arms or 1))


def _for_each_arm(points: Points, arms: int) -> Points:
    """The same tasks once for each arm."""
    return Points(points.x.repeat(arms, 1, 1, 1, 1), points.y.repeat(arms, 1), points.ways) if arms > 1 else points


def tasks_at_once(learner: Learner, points: int, device: torch.device) -> int:
    """How many tasks of so many data points a device has room for."""
    numbers = points * math.prod(learner.point_shape[1:]) * learner.settings.filters * learner.networks
    if device.type == "cuda":
        return max(1, min(_NUMBERS_AT_ONCE["cuda"], _free_memory() // _BYTES_OF_ONE) // numbers)
    return max(1, _NUMBERS_AT_ONCE["cpu"] // numbers)


@cache  # as it was first: a program is compiled for one number of tasks
def _free_memory() -> int:
    """Of the current GPU, which is the only one in use (``find_device``), with what torch holds there without using it."""
    return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()


@dataclass(frozen=True, eq=False)
class Accuracies:
    """The accuracy of a meta-learner on each of many tasks.

    Attributes:
        accuracy: (T,) share of a task's queries that are predicted right.
        columns: what else is known of the tasks: their classes and group.
        about: the learner's fingerprint, the data, the seed, ways, shots and queries.
    """

    accuracy: Floats
    columns: Mapping[str, Sequence[Any]]
    about: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.accuracy)

    @property
    def mean(self) -> float:
        """Mean accuracy over the tasks."""
        return float(self.accuracy.mean())

    @property
    def interval(self) -> float:
        """Half the width of the mean's 95 % interval, by the normal distribution, as the field reports it."""
        return float(1.96 * self.accuracy.std(ddof=1) / np.sqrt(len(self))) if len(self) > 1 else float("nan")

    def __repr__(self) -> str:
        spread = f" +- {100 * self.interval:.2f} over {len(self):,} tasks" if len(self) > 1 else " on 1 task"
        return f"{100 * self.mean:.2f} %{spread}"

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a Parquet file with a row for each task."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        target = Path(path)
        check_ending(target, [".parquet"])
        check_free(target, overwrite=overwrite)
        make_folder(target.absolute().parent)
        arrays = {"accuracy": pa.array(self.accuracy), **{name: pa.array(list(values)) for name, values in self.columns.items()}}
        about = json.dumps({"format": _FORMAT, "kind": "accuracies", **self.about})
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            pq.write_table(pa.table(arrays).replace_schema_metadata({"tasktheme": about}), temporary)
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise OutputError(f"cannot write {str(target)!r}: {error.strerror or error}") from error

    @classmethod
    def load(cls, path: str | Path) -> Accuracies:
        """Read what :meth:`save` wrote."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(path)
            about = json.loads(table.schema.metadata[b"tasktheme"])
            if about.pop("kind") != "accuracies" or about.pop("format") > _FORMAT:
                raise ValueError("foreign or newer")
            accuracy = table.column("accuracy").to_numpy().astype(np.float64)
        except FileNotFoundError as error:
            raise ModelFileError(f"there is no file {str(path)!r}") from error
        except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"{str(path)!r} does not hold accuracies that tasktheme wrote, or is damaged") from error
        columns = {name: table.column(name).to_pylist() for name in table.column_names if name != "accuracy"}
        return cls(accuracy, columns, about)


def listed_episodes(dataset: Dataset, settings: LearnerSettings, classes: Int64[Tensor, "T W"], *, seed: int) -> Episodes:
    """The listed tasks with the very points that a meta-test of this seed uses, labelled and queries together."""
    return dataset.episodes(shots=settings.shots + settings.queries, tasks=classes.numpy(), seed=seed)
