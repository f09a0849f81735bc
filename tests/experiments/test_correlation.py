from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tasktheme.errors import DataError
from tasktheme.experiments.correlation import correlate, spearman


def planted(count: int, slope: float = -0.03, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = generator.uniform(-20.0, -5.0, size=count)
    return x, 0.2 + slope * x + 0.05 * generator.normal(size=count)


def test_spearman_is_scipys_also_with_ties() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.integers(0, 6, size=(2, 80)).astype(np.float64)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert spearman(x, np.ones(80)) == 0.0


def test_a_planted_line_is_found() -> None:
    x, y = planted(400)
    found = correlate(x, y)
    least = stats.linregress(x, y)  # with so many tasks the prior does not matter
    assert found.slope == pytest.approx(least.slope, rel=1e-2)
    assert found.intercept == pytest.approx(least.intercept, rel=2e-2)
    assert found.slope_interval[1] - found.slope == pytest.approx(1.96 * least.stderr, rel=2e-2)
    assert found.noise == pytest.approx(0.05, rel=0.1)
    assert found.spearman_interval[0] < found.spearman < found.spearman_interval[1]
    middle = int(np.argmin(np.abs(np.array(found.line["x"]) - x.mean())))
    assert found.line["mean"][middle] == pytest.approx(y.mean(), abs=0.02)
    assert found.line["std"][middle] == pytest.approx(0.05, rel=0.1)


def test_intervals_hold_the_truth_about_as_often_as_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasktheme.experiments.correlation._RESAMPLES", 1)  # only the slope is looked at
    inside = 0
    for seed in range(60):
        low, high = correlate(*planted(25, seed=seed)).slope_interval
        inside += low <= -0.03 <= high
    assert inside >= 51  # 57 expected


@pytest.mark.parametrize(("x", "words"), [([1.0, 2.0], "at least three"), ([1.0, 1.0, 1.0], "differ")])
def test_too_little(x: list[float], words: str) -> None:
    with pytest.raises(DataError, match=words):
        correlate(np.array(x), np.linspace(0.0, 1.0, len(x)))
