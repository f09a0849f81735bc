"""What the arms say about the policies: smoothed curves, means with intervals, and differences paired by seed and test task.

An interval over test tasks says how the difference would vary with other tasks for these very runs; one over seeds how it would
vary with other runs. Test tasks that share classes are not independent, which the first does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter
from scipy.stats import t as student

SMOOTHING = 0.98  # as in the paper

Floats = npt.NDArray[np.float64]
Tasks = npt.NDArray[np.integer[Any]]


def smoothed(values: Floats, weight: float = SMOOTHING) -> Floats:
    """The exponentially weighted mean of the values so far, along the last axis: one that is i values old weighs weight^i."""
    sums, weights = (lfilter([1.0], [1.0, -weight], part, axis=-1) for part in (values, np.ones_like(values)))
    found: Floats = sums / weights
    return found


@dataclass(frozen=True)
class Mean:
    """The mean of (seeds, tasks) numbers.

    Attributes:
        mean: over both.
        over_tasks: half the width of its 95 % interval over tasks, by the normal distribution; None for a single task.
        over_seeds: the same over seeds, by Student's distribution; None for a single seed.
        seeds: the mean of each seed.
        spread: standard deviation of these; None for a single seed.
    """

    mean: float
    over_tasks: float | None
    over_seeds: float | None
    seeds: list[float]
    spread: float | None

    def as_dict(self) -> dict[str, Any]:
        """All numbers, ready for JSON."""
        return asdict(self)


def mean_of(values: Floats) -> Mean:
    """Of (S, T) numbers."""
    seeds, tasks = values.mean(axis=1), values.mean(axis=0)
    spread = float(seeds.std(ddof=1)) if len(seeds) > 1 else None
    return Mean(
        mean=float(values.mean()),
        over_tasks=float(1.96 * tasks.std(ddof=1) / np.sqrt(len(tasks))) if len(tasks) > 1 else None,
        over_seeds=None if spread is None else float(student.ppf(0.975, len(seeds) - 1) * spread / np.sqrt(len(seeds))),
        seeds=seeds.tolist(),
        spread=spread,
    )


def compare(final: Mapping[str, Mapping[int, Floats]]) -> list[dict[str, Any]]:
    """All pairs of policies, of accuracies (T,) by policy and seed: the first less the second, with the seeds that both have."""
    found = []
    for first, second in combinations(final, 2):
        both = sorted(final[first].keys() & final[second].keys())
        if both:
            difference = np.stack([final[first][seed] - final[second][seed] for seed in both])
            found.append({"first": first, "second": second, "paired_seeds": both, **mean_of(difference).as_dict()})
    return found


def tasks_in_common(first: Mapping[int, Tasks], second: Mapping[int, Tasks], seeds: Sequence[int]) -> float:
    """The share of what two policies learned from, each task once, that both did; the mean over the seeds."""
    shared = [2 * len(np.intersect1d(first[seed], second[seed])) / (len(first[seed]) + len(second[seed]) or 1) for seed in seeds]
    return float(np.mean(shared))
