"""How one number of each task depends on another: Bayesian ridge regression, and Spearman's rank correlation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tasktheme.errors import DataError

_RESAMPLES = 1000
_LINE = 50  # places at which the regression is kept
_FEWEST = 3  # tasks of a correlation

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Correlation:
    """A regression of accuracy on ``x`` over tasks.

    Attributes:
        tasks: how many.
        slope, slope_interval: posterior mean, and its 95 % interval over classes.
        intercept: accuracy where x is 0.
        noise: standard deviation of a task's accuracy around the line.
        spearman, spearman_interval: rank correlation, and its 95 % interval over classes.
        line: x, predicted mean and one standard deviation, for drawing.
    """

    tasks: int
    slope: float
    slope_interval: tuple[float, float]
    intercept: float
    noise: float
    spearman: float
    spearman_interval: tuple[float, float]
    line: dict[str, list[float]]

    def as_dict(self) -> dict[str, Any]:
        """All numbers, ready for JSON."""
        return asdict(self)


def correlate(x: Floats, accuracy: Floats, classes: npt.NDArray[np.int64], *, seed: int = 0) -> Correlation:
    """Regress ``accuracy`` on ``x``, both (T,), of tasks with these (T, W) classes."""
    from sklearn.linear_model import BayesianRidge

    if len(x) < _FEWEST:
        raise DataError(f"a correlation needs at least three tasks, got {len(x)}")
    centre, spread = float(x.mean()), float(x.std())
    if not spread > 0.0:
        raise DataError("a correlation needs tasks that differ, but all have the same entropy or distance")
    unit = (x - centre) / spread  # the prior on the slope knows no units
    ridge = BayesianRidge().fit(unit[:, None], accuracy)
    slope, deviation = float(ridge.coef_[0]) / spread, float(np.sqrt(ridge.sigma_[0, 0])) / spread
    rank = spearman(x, accuracy)
    apart = {
        "slope": over_classes(least_squares, x, accuracy, classes, deviation),
        "rank": over_classes(spearman, x, accuracy, classes, float(np.std(_resampled(x, accuracy, seed)))),
    }
    places = np.linspace(x.min(), x.max(), _LINE)
    mean, std = ridge.predict(((places - centre) / spread)[:, None], return_std=True)
    return Correlation(
        tasks=len(x),
        slope=slope,
        slope_interval=(slope - apart["slope"], slope + apart["slope"]),
        intercept=float(ridge.intercept_) - slope * centre,
        noise=float(1.0 / np.sqrt(ridge.alpha_)),
        spearman=rank,
        spearman_interval=(max(rank - apart["rank"], -1.0), min(rank + apart["rank"], 1.0)),
        line={"x": places.tolist(), "mean": mean.tolist(), "std": std.tolist()},
    )


def spearman(x: Floats, y: Floats) -> float:
    """Correlation of the ranks; 0 where one side is constant."""
    first, second = _ranks(x), _ranks(y)
    if not (np.ptp(first) and np.ptp(second)):
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: Floats) -> Floats:
    """Ranks from 1, equal values sharing their mean rank."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(count) - (count - 1) / 2.0)[place]
    return ranks


def least_squares(x: Floats, y: Floats) -> float:
    """The slope of the line through the points; 0 where x is constant."""
    spread = x - x.mean()
    square = float(spread @ spread)
    return float(spread @ y) / square if square > 0.0 else 0.0


def over_classes(
    statistic: Callable[[Floats, Floats], float], x: Floats, y: Floats, classes: npt.NDArray[np.int64], deviation: float
) -> float:
    """Half the width of the 95 % interval of a statistic of tasks that share classes: each class is left out in turn.

    ``deviation`` is what the statistic's standard deviation would be if tasks were independent. The jackknife over classes leaves
    a task out with each of its classes, and so counts several times what is a task's own; for a mean of independent tasks it is
    known how often, and that is taken off. The interval is never narrower than that of independent tasks, which is also what
    is left where too few tasks remain without a class. A simulation is in the tests.
    """
    from scipy.stats import t as student

    without = np.stack([~(classes == each).any(axis=1) for each in np.unique(classes)])  # (classes, T)
    without = without[without.sum(axis=1) >= _FEWEST]
    count = len(without)
    if count < 2:
        return 1.96 * deviation
    each = np.array([statistic(x[rows], y[rows]) for rows in without])
    weight = without / without.sum(axis=1, keepdims=True)
    part = (count - 1) / count
    times = part * len(x) * float(np.square(weight - weight.mean(axis=0)).sum())  # that a task's own variance is counted
    jackknife = part * float(np.square(each - each.mean()).sum())
    variance = max(jackknife - (times - 1.0) * deviation**2, deviation**2)
    return float(student.ppf(0.975, count - 1) * np.sqrt(variance))


def spearman_interval(x: Floats, y: Floats, seed: int) -> tuple[float, float]:
    """95 % bootstrap interval of :func:`spearman`, over tasks as if they were independent."""
    low, high = np.quantile(_resampled(x, y, seed), [0.025, 0.975])
    return float(low), float(high)


def _resampled(x: Floats, y: Floats, seed: int) -> list[float]:
    """:func:`spearman` of tasks drawn with replacement, again and again."""
    generator = np.random.default_rng(seed)
    drawn = (generator.integers(len(x), size=len(x)) for _ in range(_RESAMPLES))
    return [spearman(x[rows], y[rows]) for rows in drawn]
