from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tasktheme as tt
from tasktheme.errors import DataError, TrainingWarning


def make(mixture: tuple[float, ...], count: int, seed: int, fingerprint: str = "m") -> tt.TaskSet:
    rng = np.random.default_rng(seed)
    gamma = 1.1 + 60.0 * rng.dirichlet(50.0 * np.array(mixture), size=count)
    return tt.TaskSet(gamma, np.full(count, 60), np.ones(count, dtype=np.bool_), {}, fingerprint, np.full(len(mixture), 1.1))


KNOWN = (0.5, 0.4, 0.05, 0.05)
STRANGE = (0.05, 0.05, 0.1, 0.8)


def test_percentile_is_the_share_of_known_tasks_that_lie_closer() -> None:
    known, new = make(KNOWN, 80, 0), make((0.3, 0.4, 0.2, 0.1), 15, 1)
    found = new.novelty(known)
    among = known.kl(known)
    np.fill_diagonal(among, np.inf)
    usual = among.min(axis=1)
    to_known = new.kl(known)
    for i in range(15):
        nearest = to_known[i].min()
        share = np.mean([float(value < nearest) + 0.5 * float(value == nearest) for value in usual])
        assert found.percentile[i] == pytest.approx(100.0 * share, abs=0.7)  # distances equal but for rounding count half
        assert found.distances[i] == pytest.approx(nearest, rel=1e-9)
        assert found.indices[i] == to_known[i].argmin()


@pytest.mark.parametrize("direction", ["forward", "reverse", "symmetric"])
def test_strange_tasks_are_novel_and_familiar_ones_spread_over_the_percentiles(direction: str) -> None:
    known = make(KNOWN, 150, 0)
    assert make(STRANGE, 10, 1).novelty(known, direction=direction).percentile.min() == 100.0  # type: ignore[arg-type]
    familiar = make(KNOWN, 150, 2).novelty(known, direction=direction).percentile  # type: ignore[arg-type]
    assert 35.0 < familiar.mean() < 65.0


def test_a_known_task_is_as_novel_as_its_rank_among_the_known() -> None:
    known = make(KNOWN, 60, 0)
    percentile = known.novelty(known).percentile
    assert percentile.mean() == pytest.approx(50.0)
    np.testing.assert_array_equal(known[:].novelty(known).percentile, percentile)  # the same tasks, read anew
    assert known[:30].novelty(known).percentile.max() == 0.0  # some of them, which are not new at all


def test_known_tasks_that_are_there_twice_count_once() -> None:
    known, new = make(KNOWN, 60, 0), make((0.4, 0.4, 0.1, 0.1), 20, 1)
    named = known.with_columns(name=[f"task {i}" for i in range(60)])
    twice = tt.TaskSet.concatenate([named, named[:25]])
    np.testing.assert_array_equal(new.novelty(twice).percentile, new.novelty(named).percentile)
    assert new.novelty(tt.TaskSet.concatenate([known, known])).percentile.min() == 100.0  # unnamed ones may be alike by chance


def test_a_known_task_that_the_themes_do_not_explain_is_told() -> None:
    known, new = make(KNOWN, 40, 0), make(KNOWN, 5, 1)
    fits = np.linspace(-12.0, -10.0, 40)
    usual, fine = (dataclasses.replace(part, log_likelihood=fits[: len(part)]) for part in (known, new))
    assert fine.novelty(usual).misfit is not None
    fits[7] = -60.0
    junk = dataclasses.replace(known, log_likelihood=fits, columns={"name": [f"set {i}" for i in range(40)]})
    with pytest.warns(TrainingWarning, match=r"the known task 'set 7' is explained worse than most, by \d\d nats a data point"):
        fine.novelty(junk)
    with pytest.warns(TrainingWarning, match="the known task no. 7 is"):
        fine.novelty(dataclasses.replace(junk, columns={}))


def test_a_sample_of_the_known_stands_for_all() -> None:
    known, new = make(KNOWN, 600, 0), make((0.4, 0.4, 0.1, 0.1), 40, 1)
    all_of_them, some = new.novelty(known).percentile, new.novelty(known, sample=200).percentile
    assert np.abs(all_of_them - some).max() < 12.0
    assert (all_of_them != some).any()


def test_what_is_of_no_theme_misfits_whatever_its_mixture() -> None:
    rng = np.random.default_rng(0)
    centres = 8.0 * rng.normal(size=(6, 5))

    def draw(kinds: np.ndarray, count: int) -> list[np.ndarray]:
        """Tasks of 10 to 40 points of two kinds each."""
        return [
            kinds[rng.choice(len(kinds), 2, replace=False)][rng.integers(2, size=size)] + rng.normal(size=(size, 5))
            for size in rng.integers(10, 40, size=count)
        ]

    model = tt.PTM(4, device="cpu", seed=0).fit(draw(centres[:4], 60), tasks=200, progress=False)
    known, familiar, new = (model.embed(draw(*which)) for which in ((centres[:4], 80), (centres[:4], 40), (centres[4:], 20)))
    spread, found = familiar.novelty(known).misfit, new.novelty(known).misfit
    assert spread is not None
    assert found is not None
    assert known.log_likelihood is not None
    assert new.log_likelihood is not None
    assert spread.max() < 3.0
    assert found.min() > 10.0
    np.testing.assert_allclose(found, known.log_likelihood.min() - new.log_likelihood)
    assert known.novelty(known).misfit == pytest.approx(0.0)


def test_where_a_likelihood_is_missing_there_is_no_misfit() -> None:
    known = make(KNOWN, 5, 0)
    assert known.novelty(known).misfit is None


def test_bad_input_is_refused() -> None:
    known = make(KNOWN, 5, 0)
    with pytest.raises(DataError, match="at least two known tasks"):
        known.novelty(known[:1])
    with pytest.raises(DataError, match="sample"):
        known.novelty(known, sample=0)
    with pytest.raises(DataError, match="different models"):
        known.novelty(make(KNOWN, 5, 0, "other"))
