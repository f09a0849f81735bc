"""How good a model's task representation is, measured on tasks whose group is known but was never shown to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tasktheme.data.dataset import Dataset
from tasktheme.data.episodes import Range
from tasktheme.data.task_lists import TaskList
from tasktheme.errors import DataError
from tasktheme.ptm import PTM
from tasktheme.tasks.taskset import Floats, TaskSet

_TASKS = 200  # drawn where nobody says how many


@dataclass(frozen=True)
class Evaluation:
    """Measures of a task representation.

    Attributes:
        tasks: how many tasks were embedded.
        groups: how many groups they come from.
        auc: probability that a random pair of tasks of one group is closer, by KL, than a random pair of two groups;
            ordered pairs, 0.5 is chance.
        auc_mean_embedding: the same by the Euclidean distance of the tasks' mean embeddings, the plain rival.
        nearest_same_group: share of tasks whose nearest other task is of the same group.
        largest_share: of the mass of all tasks in one theme; near 1 is a collapse.
        effective_themes: exponential of the entropy of the themes' shares; K if all are used alike.
        converged: share of tasks whose E-step met its tolerance.
    """

    tasks: int
    groups: int
    auc: float
    auc_mean_embedding: float
    nearest_same_group: float
    largest_share: float
    effective_themes: float
    converged: float

    def as_dict(self) -> dict[str, Any]:
        """All measures, ready for JSON."""
        return asdict(self)


def evaluate(
    model: PTM,
    data: Dataset,
    *,
    ways: Range | None = None,
    shots: Range = 20,
    n: int | None = None,
    seed: int = 1,
    tasks: TaskList | None = None,
    progress: bool = False,
) -> Evaluation:
    """Draw ``n`` tasks (200, or all that ``tasks`` lists) from ``data``, embed them, and measure how well KL finds tasks of
    the same group; the arguments are those of :meth:`Dataset.episodes`.
    """
    if n is None and tasks is None:
        n = _TASKS
    episodes = data.episodes(ways, shots, n, seed=seed, tasks=tasks)
    embedded = model.embed(episodes, progress=progress)
    return measure(embedded, model.mean_embedding(episodes))


def measure(tasks: TaskSet, means: npt.NDArray[np.floating[Any]]) -> Evaluation:
    """The measures of embedded tasks with a column "group"; ``means`` (T, D) are the tasks' mean embeddings."""
    groups = np.asarray(tasks.columns["group"])
    if len(set(groups)) < 2:
        raise DataError(f"evaluation needs tasks of at least two groups, got only {groups[0]!s}")
    distances = tasks.kl(tasks)
    apart = torch.cdist(*2 * (torch.from_numpy(means).double(),)).numpy()
    nearest = tasks.nearest(tasks, k=1).indices[:, 0]
    share = tasks.mean_mixture().mean(axis=0)
    return Evaluation(
        tasks=len(tasks),
        groups=len(set(groups)),
        auc=same_group_auc(distances, groups),
        auc_mean_embedding=same_group_auc(apart, groups),
        nearest_same_group=float(np.mean(groups[nearest] == groups)),
        largest_share=float(share.max()),
        effective_themes=float(np.exp(-(share * np.log(share)).sum())),
        converged=float(tasks.converged.mean()),
    )


def same_group_auc(distances: Floats | npt.NDArray[np.floating[Any]], groups: npt.NDArray[Any]) -> float:
    """Area under the curve of "same group" against small distance, over ordered pairs of different tasks."""
    from sklearn.metrics import roc_auc_score

    others = ~np.eye(len(groups), dtype=bool)
    same = groups[:, None] == groups[None]
    return float(roc_auc_score(same[others], -distances[others]))
