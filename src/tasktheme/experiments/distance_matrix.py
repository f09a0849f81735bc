"""The paper's matrix of task distances: tasks in blocks of one group (alphabet, script) each, and whether blocks are near."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from tasktheme.data.dataset import Dataset
from tasktheme.errors import DataError
from tasktheme.evaluation.retrieval import Retrieval, retrieval
from tasktheme.ptm import PTM
from tasktheme.tasks.taskset import TaskSet

GROUPS, TASKS_OF_EACH, WAYS = 10, 5, 5  # the paper's: 50 tasks, of 5 characters as all its tasks
_RESAMPLES = 1000


@dataclass(frozen=True, eq=False)
class DistanceMatrix:
    """Tasks in blocks, how well KL finds a task's block, and the 95 % bootstrap interval of the AUC over groups."""

    tasks: TaskSet
    found: Retrieval
    auc_interval: tuple[float, float]
    about: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """All numbers, ready for JSON."""
        return {
            "experiment": "distance-matrix",
            **self.about,
            "tasks": len(self.tasks),
            "groups": len(set(self.tasks.columns["group"])),
            "auc": self.found.auc,
            "auc interval": list(self.auc_interval),
            "nearest is of the same group": self.found.nearest_same_group,
            "mean entropy": float(self.tasks.entropy().mean()),
            "mean entropy interval": list(mean_interval(self.tasks.entropy(), np.asarray(self.tasks.columns["group"]))),
            "standard deviation of entropy": float(self.tasks.entropy().std(ddof=1)),
            "kl": self.tasks.kl(self.tasks).tolist(),
        }


def distance_matrix(
    model: PTM,
    dataset: Dataset,
    *,
    groups: int = GROUPS,
    tasks: int = TASKS_OF_EACH,
    shots: int = 20,
    seed: int = 1,
    progress: bool = False,
) -> DistanceMatrix:
    """Embed ``tasks`` tasks of each of ``groups`` random groups, block by block, and measure their distances."""
    listed = block_tasks(dataset, groups=groups, tasks=tasks, ways=WAYS, seed=seed)
    embedded = model.embed(dataset.episodes(shots=shots, tasks=listed, seed=seed), progress=progress)
    kl, group = embedded.kl(embedded), np.asarray(embedded.columns["group"])
    about = {"data": dataset.name, "shots": shots, "seed": seed, "model": model.fingerprint}
    return DistanceMatrix(embedded, retrieval(kl, group), auc_interval(kl, group, seed), about)


def block_tasks(dataset: Dataset, *, groups: int, tasks: int, ways: int, seed: int) -> npt.NDArray[np.int64]:
    """(groups x tasks, ways) class numbers: groups drawn without repetition, then the classes of each task from its group."""
    sizes = np.bincount(dataset.class_group, minlength=len(dataset.group_names))
    fitting = np.flatnonzero(sizes >= ways)
    if len(fitting) < 2:
        raise DataError(
            f"a matrix of blocks needs two groups with {ways} classes, but {dataset.name!r} has {len(fitting)}: hold out more"
        )
    if groups < 2 or tasks < 2:
        raise DataError(f"a matrix of blocks needs at least two tasks of each of two groups, got {tasks} of {groups}")
    if groups > len(fitting):
        raise DataError(
            f"only {len(fitting)} groups of the held-out part of {dataset.name!r} have {ways} classes, {groups} were asked for: "
            f"--groups {len(fitting)}, or hold out more"
        )
    generator = np.random.default_rng(seed)
    rows = [
        generator.choice(np.flatnonzero(dataset.class_group == group), size=ways, replace=False)
        for group in np.sort(generator.choice(fitting, size=groups, replace=False))
        for _ in range(tasks)
    ]
    return np.stack(rows).astype(np.int64)


def auc_interval(kl: npt.NDArray[np.float64], group: npt.NDArray[Any], seed: int) -> tuple[float, float]:
    """95 % bootstrap interval of the AUC over groups: tasks of one group share characters and are not independent."""
    generator = np.random.default_rng(seed)
    count = len(set(group.tolist()))
    drawn = [np.bincount(generator.integers(count, size=count), minlength=count) for _ in range(_RESAMPLES)]
    times = np.stack([each for each in drawn if (each > 0).sum() > 1])  # one group alone has no pairs of two
    low, high = np.quantile(resampled_aucs(kl, group, times), [0.025, 0.975])
    return float(low), float(high)


def mean_interval(values: npt.NDArray[np.float64], group: npt.NDArray[Any]) -> tuple[float, float]:
    """95 % interval of the mean of equally large groups, by Student's distribution of their means: the groups are independent."""
    _, place = np.unique(group, return_inverse=True)
    means = np.bincount(place, values) / np.bincount(place)
    half = float(student.ppf(0.975, len(means) - 1) * means.std(ddof=1) / np.sqrt(len(means)))
    return float(means.mean()) - half, float(means.mean()) + half


def resampled_aucs(kl: npt.NDArray[np.float64], group: npt.NDArray[Any], times: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """(R,) the AUC where each group, in order of name, counts (R, G) ``times``; copies of a group are not compared."""
    _, place = np.unique(group, return_inverse=True)
    first, second = np.nonzero(~np.eye(len(group), dtype=bool))
    values, distance = np.unique(kl[first, second], return_inverse=True)
    same = place[first] == place[second]
    found = []
    for often in times:
        weight = np.where(same, often[place[first]], often[place[first]] * often[place[second]])
        of_one, of_two = (
            np.bincount(distance[kind], weight[kind], minlength=len(values)).astype(np.float64) for kind in (same, ~same)
        )
        farther = of_two.sum() - np.cumsum(of_two) + of_two / 2.0  # ties count half
        found.append(float((of_one * farther).sum() / (of_one.sum() * of_two.sum())))
    return np.array(found)
