"""Every distance against an oracle that does not share its formula, and 0 from a task to itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import trapezoid
from scipy.optimize import linprog
from scipy.spatial.distance import jensenshannon

import tasktheme as tt
from oracles import plain
from oracles.problems import few
from tasktheme.errors import DataError, SettingsError
from tasktheme.tasks import distances

KINDS = ("kl", "reverse", "symmetric_kl", "hellinger", "jensen_shannon", "earth_mover")


def make(count: int, themes: int = 4, seed: int = 0, scale: float = 3.0) -> tt.TaskSet:
    gamma = np.random.default_rng(seed).gamma(1.0, scale, size=(count, themes)) + 0.2
    return tt.TaskSet(gamma, np.ones(count, dtype=np.int64), np.ones(count, dtype=np.bool_), {}, "m")


def ground(themes: int) -> np.ndarray:
    place = np.random.default_rng(9).normal(size=(themes, 3))
    return np.linalg.norm(place[:, None] - place, axis=-1)


def distance(kind: str, first: tt.TaskSet, second: tt.TaskSet) -> np.ndarray:
    if kind == "reverse":
        return first.kl(second, direction="reverse")
    if kind == "earth_mover":
        return first.earth_mover(second, ground(first.concentration.shape[1]))
    return getattr(first, kind)(second)


def test_kl_in_each_direction_is_torchs() -> None:
    first, second = make(4), make(6, seed=1)
    forward = np.array([[plain.dirichlet_kl(a, b) for b in second.concentration.copy()] for a in first.concentration.copy()])
    reverse = np.array([[plain.dirichlet_kl(b, a) for b in second.concentration.copy()] for a in first.concentration.copy()])
    np.testing.assert_allclose(first.kl(second), forward, rtol=1e-9)
    np.testing.assert_allclose(first.kl(second, direction="reverse"), reverse, rtol=1e-9)
    np.testing.assert_allclose(first.symmetric_kl(second), (forward + reverse) / 2.0, rtol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_hellinger_agrees_with_monte_carlo(scale: float) -> None:
    first, second = make(2, themes=3, scale=scale), make(2, themes=3, seed=1, scale=scale)
    found = first.hellinger(second)
    for i, a in enumerate(first.concentration):
        for j, b in enumerate(second.concentration):
            middle = np.random.default_rng(3).dirichlet((a + b) / 2.0, size=40_000)  # close to the product's own shape
            log_a, log_b, log_m = (stats.dirichlet(c).logpdf(middle.T) for c in (a, b, (a + b) / 2.0))
            affinity = np.exp((log_a + log_b) / 2.0 - log_m)
            assert found[i, j] ** 2 == pytest.approx(1.0 - affinity.mean(), abs=5.0 * affinity.std() / 200.0 + 1e-9)


def test_hellinger_of_beta_distributions_is_an_integral() -> None:
    first, second = (
        tt.TaskSet(tasks.concentration + 1.0, tasks.sizes, tasks.converged)  # densities without poles
        for tasks in (make(3, themes=2), make(3, themes=2, seed=1))
    )
    grid = np.linspace(0.0, 1.0, 200_001)[1:-1]
    for i, a in enumerate(first.concentration):
        for j, b in enumerate(second.concentration):
            affinity = trapezoid(np.sqrt(stats.beta(*a).pdf(grid) * stats.beta(*b).pdf(grid)), grid)
            assert first.hellinger(second)[i, j] == pytest.approx(np.sqrt(1.0 - affinity), abs=1e-5)


def test_jensen_shannon_is_scipys_of_the_mean_mixtures() -> None:
    first, second = make(4), make(5, seed=1)
    expected = [[jensenshannon(a, b) for b in second.mean_mixture()] for a in first.mean_mixture()]
    np.testing.assert_allclose(first.jensen_shannon(second), expected, rtol=1e-9)


def test_earth_mover_is_the_linear_programme() -> None:
    first, second, themes = make(3, themes=3), make(2, themes=3, seed=1), 3
    cost = ground(themes)
    cost[0, 1] += 0.5  # a cost that is not symmetric tells rows from columns
    found = first.earth_mover(second, cost)
    sums = np.concatenate([np.kron(np.eye(themes), np.ones(themes)), np.kron(np.ones(themes), np.eye(themes))])
    for i, a in enumerate(first.mean_mixture()):
        for j, b in enumerate(second.mean_mixture()):
            least = linprog(cost.reshape(-1), A_eq=sums, b_eq=np.concatenate([a, b])).fun
            assert found[i, j] == pytest.approx(least, rel=1e-6)


def test_earth_mover_of_a_set_to_itself_is_that_to_a_copy() -> None:
    tasks, copy = make(5), make(5)
    cost = ground(4)
    np.testing.assert_allclose(tasks.earth_mover(tasks, cost), tasks.earth_mover(copy, cost), atol=1e-12)
    cost[0, 1] += 1.0
    np.testing.assert_allclose(tasks.earth_mover(tasks, cost), tasks.earth_mover(copy, cost), atol=1e-12)


@pytest.mark.parametrize("cost", [np.ones((3, 3)), -np.ones((4, 4)), np.full((4, 4), np.nan)])
def test_a_bad_ground_cost_is_refused(cost: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"ground cost must be \(4, 4\)"):
        make(2).earth_mover(make(2), cost)


def test_earth_mover_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(SettingsError, match=r"pip install 'tasktheme\[transport\]'"):
        make(2).earth_mover(make(2), ground(4))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [3.0, 1e5])
def test_a_task_is_at_distance_exactly_zero_from_itself_and_from_its_copies(kind: str, scale: float) -> None:
    tasks = make(9, themes=5, scale=scale)
    twice = tt.TaskSet.concatenate([tasks, make(3, themes=5, seed=4), tasks[[2, 2]]])
    found = distance(kind, twice, tasks)
    for i, a in enumerate(twice.concentration):
        for j, b in enumerate(tasks.concentration):
            assert (found[i, j] == 0.0) == bool((a == b).all()), (i, j)


def test_only_equal_tasks_are_at_zero_where_their_keys_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = make(9)
    whole = tasks.kl(tasks[[3, 3, 5]])
    monkeypatch.setattr(distances, "_key", lambda gamma: np.zeros(len(gamma), dtype=np.uint64))
    np.testing.assert_array_equal(tasks.kl(tasks[[3, 3, 5]]), whole)
    assert (whole == 0.0).sum() == 3


@few
@given(st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.integers(1, 6))
def test_distances_are_finite_never_negative_and_follow_a_permutation_of_themes(seed: int, kind: str, themes: int) -> None:
    first, second = make(3, themes, seed=seed), make(4, themes, seed=seed + 1)
    found = distance(kind, first, second)
    assert found.shape == (3, 4)
    assert np.isfinite(found).all()
    assert (found >= 0.0).all()
    if kind != "earth_mover":
        order = np.random.default_rng(seed).permutation(themes)
        swapped = [tt.TaskSet(t.concentration[:, order], t.sizes, t.converged, {}, "m") for t in (first, second)]
        np.testing.assert_allclose(distance(kind, *swapped), found, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["hellinger", "jensen_shannon", "earth_mover"])
def test_metrics_obey_the_triangle_inequality(kind: str) -> None:
    tasks = make(12)
    found = distance(kind, tasks, tasks)
    np.testing.assert_allclose(found, found.T, atol=1e-9)
    assert (found[:, None, :] <= found[:, :, None] + found[None] + 1e-9).all()


@pytest.mark.parametrize("kind", ["hellinger", "jensen_shannon"])
def test_blocks_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    first, second = make(7), make(5, seed=1)
    whole = distance(kind, first, second)
    monkeypatch.setattr(distances, "_BLOCK", 45)
    np.testing.assert_array_equal(distance(kind, first, second), whole)


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_of_different_models_have_no_distance(kind: str) -> None:
    other = tt.TaskSet(make(2).concentration, make(2).sizes, make(2).converged, {}, "other")
    with pytest.raises(DataError, match="different models"):
        distance(kind, make(2), other)


def test_a_direction_is_one_of_three() -> None:
    with pytest.raises(DataError, match="forward, reverse, symmetric, got 'up'"):
        make(2).kl(make(2), direction="up")  # type: ignore[arg-type]
