from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from tasktheme.errors import DataError
from tasktheme.evaluation.correlation import correlate, least_squares, over_classes, spearman, spearman_interval

Arrays = tuple[np.ndarray, np.ndarray]


def planted(count: int, slope: float = -0.03, seed: int = 0) -> Arrays:
    generator = np.random.default_rng(seed)
    x = generator.uniform(-20.0, -5.0, size=count)
    return x, 0.2 + slope * x + 0.05 * generator.normal(size=count)


def alone(count: int) -> np.ndarray:
    """Tasks that share no class."""
    return np.arange(count)[:, None]


def unrelated(classes: np.ndarray, part: float, seed: int) -> Arrays:
    """Two numbers of each task that have nothing to do with each other; a part of the variance of each is its classes'."""
    generator = np.random.default_rng(seed)
    effects = generator.normal(size=(2, classes.max() + 1))
    shared = effects[:, classes].sum(axis=2) / np.sqrt(classes.shape[1])
    x, y = np.sqrt(part) * shared + np.sqrt(1.0 - part) * generator.normal(size=(2, len(classes)))
    return x, y


def test_spearman_is_scipys_also_with_ties() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.integers(0, 6, size=(2, 80)).astype(np.float64)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert spearman(x, np.ones(80)) == 0.0


def test_a_planted_line_is_found() -> None:
    x, y = planted(400)
    found = correlate(x, y, alone(400))
    least = stats.linregress(x, y)  # with so many tasks the prior does not matter
    assert found.slope == pytest.approx(least.slope, rel=1e-2)
    assert least_squares(x, y) == pytest.approx(least.slope)
    assert found.intercept == pytest.approx(least.intercept, rel=2e-2)
    assert found.slope_interval[1] - found.slope == pytest.approx(1.96 * least.stderr, rel=0.1)
    assert found.noise == pytest.approx(0.05, rel=0.1)
    middle = int(np.argmin(np.abs(np.array(found.line["x"]) - x.mean())))
    assert found.line["mean"][middle] == pytest.approx(y.mean(), abs=0.02)
    assert found.line["std"][middle] == pytest.approx(0.05, rel=0.1)


def test_intervals_hold_the_truth_about_as_often_as_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasktheme.evaluation.correlation._RESAMPLES", 1)  # only the slope is looked at
    inside = 0
    for seed in range(60):
        low, high = correlate(*planted(25, seed=seed), alone(25)).slope_interval
        inside += low <= -0.03 <= high
    assert 51 <= inside < 60  # 57 expected


@pytest.mark.parametrize(
    ("classes", "part"),
    [
        (np.array(list(combinations(range(12), 3))), 0.5),  # every task of a few classes
        (np.array(list(combinations(range(12), 3)))[::4], 0.5),  # some of them
        (np.random.default_rng(0).permuted(np.tile(np.arange(12), (80, 1)), axis=1)[:, :3], 0.0),  # which share nothing else
    ],
)
def test_intervals_know_that_tasks_share_classes(classes: np.ndarray, part: float) -> None:
    for statistic in (spearman, least_squares):
        found = []
        for seed in range(100):
            x, y = unrelated(classes, part, seed)
            half = over_classes(statistic, x, y, classes, 1.0 / np.sqrt(len(x)))
            found.append((statistic(x, y), half))
        values, halves = np.array(found).T
        assert (np.abs(values) <= halves).mean() >= 0.9
        assert np.median(halves) <= 1.7 * np.quantile(np.abs(values), 0.95)  # and no wider than they need be
        if len(classes) == 220:
            assert (np.abs(values) <= 1.96 / np.sqrt(len(classes))).mean() < 0.8, "independent tasks would be too narrow"


def test_where_no_class_can_be_left_out_tasks_count_as_independent() -> None:
    x, y = planted(6)
    assert over_classes(spearman, x, y, np.zeros((6, 1), dtype=np.int64), 0.1) == pytest.approx(0.196)


def test_the_bootstrap_is_that_of_scipy() -> None:
    x, y = unrelated(alone(80), 0.0, 3)
    options = {"paired": True, "vectorized": False, "n_resamples": 1000, "method": "percentile"}
    other = stats.bootstrap((x, y), lambda a, b: stats.spearmanr(a, b).statistic, rng=np.random.default_rng(1), **options)
    low, high = other.confidence_interval
    np.testing.assert_allclose(spearman_interval(x, y, 0), (low, high), atol=0.03)


@pytest.mark.parametrize(("x", "words"), [([1.0, 2.0], "at least three"), ([1.0, 1.0, 1.0], "differ")])
def test_too_little(x: list[float], words: str) -> None:
    with pytest.raises(DataError, match=words):
        correlate(np.array(x), np.linspace(0.0, 1.0, len(x)), alone(len(x)))
