"""How one number of each task depends on another: Bayesian ridge regression, and Spearman's rank correlation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tasktheme.errors import DataError

_RESAMPLES = 1000
_LINE = 50  # places at which the regression is kept

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Correlation:
    """A regression of accuracy on ``x`` over tasks.

    Attributes:
        tasks: how many.
        slope, slope_interval: posterior mean, and the central 95 % of the posterior.
        intercept: accuracy where x is 0.
        noise: standard deviation of a task's accuracy around the line.
        spearman, spearman_interval: rank correlation, and its 95 % bootstrap interval over tasks. Tasks that share classes
            are not independent, which the interval does not know.
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


def correlate(x: Floats, accuracy: Floats, *, seed: int = 0) -> Correlation:
    """Regress ``accuracy`` on ``x``, both (T,)."""
    from sklearn.linear_model import BayesianRidge

    if len(x) < 3:
        raise DataError(f"a correlation needs at least three tasks, got {len(x)}")
    centre, spread = float(x.mean()), float(x.std())
    if not spread > 0.0:
        raise DataError("a correlation needs tasks that differ, but all have the same entropy or distance")
    unit = (x - centre) / spread  # the prior on the slope knows no units
    ridge = BayesianRidge().fit(unit[:, None], accuracy)
    slope, deviation = float(ridge.coef_[0]) / spread, float(np.sqrt(ridge.sigma_[0, 0])) / spread
    places = np.linspace(x.min(), x.max(), _LINE)
    mean, std = ridge.predict(((places - centre) / spread)[:, None], return_std=True)
    return Correlation(
        tasks=len(x),
        slope=slope,
        slope_interval=(slope - 1.96 * deviation, slope + 1.96 * deviation),
        intercept=float(ridge.intercept_) - slope * centre,
        noise=float(1.0 / np.sqrt(ridge.alpha_)),
        spearman=spearman(x, accuracy),
        spearman_interval=spearman_interval(x, accuracy, seed),
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


def spearman_interval(x: Floats, y: Floats, seed: int) -> tuple[float, float]:
    """95 % bootstrap interval of :func:`spearman`, over tasks."""
    generator = np.random.default_rng(seed)
    drawn = [generator.integers(len(x), size=len(x)) for _ in range(_RESAMPLES)]
    low, high = np.quantile([spearman(x[rows], y[rows]) for rows in drawn], [0.025, 0.975])
    return float(low), float(high)
