"""Whether a model tells tasks apart at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tasktheme.tasks.distances import Floats
from tasktheme.tasks.taskset import TaskSet

_LARGE = 10**9  # data points; in tasks so large nothing is left of the prior, whose part differs with their sizes
_ALIKE = 1e-4  # largest difference of any theme's share between tasks that are told apart by rounding only
_FIRST = 1_000  # tasks; where these differ, the millions after them need no look


def all_alike(*sets: TaskSet) -> str | None:
    """One line where all tasks of some sets have one mixture: a model that has not learned says this of any task. Else None."""
    count = sum(map(len, sets))
    if count < 2 or _differ([tasks[:_FIRST] for tasks in sets]) or (count > _FIRST and _differ(sets)):
        return None
    return (
        f"all {count:,} tasks are alike to this model, so their distances mean nothing; "
        "it was probably trained on too few tasks, or on data of another kind"
    )


def _differ(sets: Sequence[TaskSet]) -> bool:
    """Whether tasks have different shares of themes; true of a model's only theme, which was to tell nothing apart."""
    mixtures = [_mixture(tasks) for tasks in sets if len(tasks)]
    themes = {mixture.shape[1] for mixture in mixtures}
    if len(themes) > 1 or themes == {sets[0].aspects}:  # sets of different models are an error elsewhere
        return True
    highest, lowest = (np.stack([end(mixture, axis=0) for mixture in mixtures]) for end in (np.max, np.min))
    return bool((highest.max(axis=0) - lowest.min(axis=0)).max() >= _ALIKE)


def _mixture(tasks: TaskSet) -> Floats:
    return (tasks if tasks.prior is None else tasks.resized(_LARGE)).mean_mixture()
