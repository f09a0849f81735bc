"""How well distances between tasks find tasks of the same group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tasktheme.errors import DataError
from tasktheme.tasks.distances import Floats


@dataclass(frozen=True)
class Retrieval:
    """Measures of one distance.

    Attributes:
        auc: probability that a random pair of tasks of one group is closer than a random pair of two groups; ordered
            pairs, 0.5 is chance.
        mean_average_precision: mean over tasks of the average precision of the other tasks, nearest first, being of its
            group; a task alone in its group does not count.
        nearest_same_group: share of tasks whose nearest other task is of the same group.
    """

    auc: float
    mean_average_precision: float
    nearest_same_group: float


def retrieval(distances: Floats, groups: npt.NDArray[Any]) -> Retrieval:
    """The measures of (T, T) ``distances``, from row to column, of tasks of (T,) ``groups``."""
    apart = np.where(np.eye(len(groups), dtype=bool), np.inf, distances)
    return Retrieval(
        auc=same_group_auc(distances, groups),
        mean_average_precision=float(average_precision(distances, groups).mean()),
        nearest_same_group=float(np.mean(groups[apart.argmin(axis=1)] == groups)),
    )


def check_groups(groups: npt.NDArray[Any]) -> None:
    """DataError unless some pairs of tasks are of one group and others of two."""
    names, counts = np.unique(groups, return_counts=True)
    if len(names) < 2:
        raise DataError(f"evaluation needs tasks of at least two groups, got only {names[0]!s}: hold out more")
    if counts.max() < 2:
        raise DataError("evaluation needs a group with at least two tasks; draw more tasks")


def same_group_auc(distances: Floats, groups: npt.NDArray[Any]) -> float:
    """Area under the curve of "same group" against small distance, over ordered pairs of different tasks."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(*_pairs(distances, groups)))


def roc(distances: Floats, groups: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """The curve itself: shares of the pairs of two groups, and of one group, within each distance."""
    from sklearn.metrics import roc_curve

    false, true, _ = roc_curve(*_pairs(distances, groups))
    return false, true


def average_precision(distances: Floats, groups: npt.NDArray[Any]) -> Floats:
    """The average precision of each task that is not alone in its group, ties counted together; all rows at once."""
    count = len(groups)
    others = ~np.eye(count, dtype=bool)
    same = (groups[:, None] == groups)[others].reshape(count, count - 1)
    near = distances[others].reshape(count, count - 1)
    order = np.argsort(near, axis=1, kind="stable")
    near, same = np.take_along_axis(near, order, axis=1), np.take_along_axis(same, order, axis=1)
    place = np.arange(count - 1)
    last = np.concatenate([near[:, 1:] != near[:, :-1], np.ones((count, 1), dtype=bool)], axis=1)  # of its ties
    end = np.minimum.accumulate(np.where(last, place, count)[:, ::-1], axis=1)[:, ::-1]
    precision = np.take_along_axis(same.cumsum(axis=1), end, axis=1) / (end + 1)
    relevant = same.sum(axis=1)
    found: Floats = ((precision * same).sum(axis=1) / np.maximum(relevant, 1))[relevant > 0]
    return found


def _pairs(distances: Floats, groups: npt.NDArray[Any]) -> tuple[npt.NDArray[np.bool_], Floats]:
    """Of each ordered pair of different tasks: whether they are of one group, and how near they are."""
    others = ~np.eye(len(groups), dtype=bool)
    return (groups[:, None] == groups)[others], -distances[others]
