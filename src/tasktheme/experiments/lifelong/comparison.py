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
StreamPlaces = npt.NDArray[np.integer[Any]]  # which tasks of a seed's stream


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
        by_seed: the mean of each seed, in the order of the rows.
        spread: standard deviation of these; None for a single seed.
    """

    mean: float
    over_tasks: float | None
    over_seeds: float | None
    by_seed: list[float]
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
        over_seeds=_over_seeds(spread, len(seeds)),
        by_seed=seeds.tolist(),
        spread=spread,
    )


def _over_seeds(spread: float | None, seeds: int, *, intervals: int = 1) -> float | None:
    """Half the width of an interval over seeds, which so many of its kind all hold with 95 % at least (Bonferroni)."""
    return None if spread is None else float(student.ppf(1.0 - 0.025 / intervals, seeds - 1) * spread / np.sqrt(seeds))


def compare(final: Mapping[str, Mapping[int, Floats]]) -> list[dict[str, Any]]:
    """All pairs of policies, of accuracies (T,) by policy and seed: the first less the second, with the ``seeds`` that both have.

    ``over_seeds`` is for one pair that was chosen before anything was seen, ``over_seeds_all_pairs`` for looking at all of them:
    where no two policies differ, one of six pairs has 0 outside of the first in a quarter of all experiments.
    """
    chosen = [(pair, sorted(final[pair[0]].keys() & final[pair[1]].keys())) for pair in combinations(final, 2)]
    chosen = [(pair, seeds) for pair, seeds in chosen if seeds]
    found = []
    for (first, second), seeds in chosen:
        mean = mean_of(np.stack([final[first][seed] - final[second][seed] for seed in seeds]))
        wide = _over_seeds(mean.spread, len(seeds), intervals=len(chosen))
        found.append({"first": first, "second": second, "seeds": seeds, **mean.as_dict(), "over_seeds_all_pairs": wide})
    return found


def tasks_in_common(first: Mapping[int, StreamPlaces], second: Mapping[int, StreamPlaces], seeds: Sequence[int]) -> float:
    """The share of what two policies learned from, each task once, that both did; the mean over the seeds."""
    shared = [2 * len(np.intersect1d(first[seed], second[seed])) / (len(first[seed]) + len(second[seed]) or 1) for seed in seeds]
    return float(np.mean(shared))
