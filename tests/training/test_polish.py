"""Full EM over data points that tasks share: that of the plain loop over every place in every task, and the trainer's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles import plain
from oracles.plain import Array
from oracles.problems import COVARIANCES, covariances, few, make_problem, seeds
from oracles.small import SMALL, small_images, small_vectors
from tasktheme.model.e_step import e_step
from tasktheme.model.m_step import log_sum_over_tasks, moments, shrunk
from tasktheme.model.themes import Covariance, Moments, Themes
from tasktheme.nets.build import Networks
from tasktheme.settings import Settings
from tasktheme.training import finish, polish
from tasktheme.training.embedding import PlacedTasks, TaskPoints
from tasktheme.training.loop import Trainer
from tasktheme.training.polish import em_sweep

CPU = torch.device("cpu")
POINTS = 12
SIZES = (7, 3, 5, 7, 1)  # of tasks among so few points: most are in several
Tasks = Sequence[tuple[Array, Array]]


def shared_problem(seed: int, covariance: Covariance, *, at_once: int = 2) -> tuple[Themes, TaskPoints, Tasks]:
    """Themes, tasks that share data points, and m and s of each task's own points; padding points at a real one."""
    problem = make_problem(seed, covariance, sizes=(POINTS,))
    rng = np.random.default_rng(seed)
    mask = torch.arange(max(SIZES)) < torch.tensor(SIZES)[:, None]
    rows = torch.from_numpy(np.array([rng.permutation(POINTS)[: max(SIZES)] for _ in SIZES]))
    m, s = problem.m[0], problem.s[0]
    batches = zip(rows.split(at_once), mask.split(at_once), strict=True)
    data = TaskPoints(m, s, [PlacedTasks.build(*batch) for batch in batches], POINTS)
    return problem.themes(), data, [(m[row[own]].numpy(), s[row[own]].numpy()) for row, own in zip(rows, mask, strict=True)]


def plain_sweep(themes: Moments, alpha: Array, tasks: Tasks, settings: Settings) -> Moments:
    """E-step task by task and M-step over every place in every task, by the slow versions; floor as in training."""
    Sigma = plain.dense(themes.Sigma.numpy())
    lift = settings.covariance_floor * np.mean([np.diag(one).mean() for one in Sigma])
    Sigma = Sigma + lift * np.eye(Sigma.shape[-1])
    r = []
    for m, s in tasks:
        log_likelihood = plain.expected_log_likelihood(m, s, themes.mu.numpy(), Sigma)
        r.append(plain.e_step(log_likelihood, alpha, settings.e_step_iterations)[0])
    m, s = (np.concatenate(part) for part in zip(*tasks, strict=True))
    n, mu, Sigma = plain.m_step(m, s, np.concatenate(r))
    found = (n / n.sum(), mu, plain.restrict(Sigma, settings.covariance))
    return Moments(*(torch.from_numpy(part) for part in found))


def assert_same(found: Moments, expected: Moments, tolerance: float) -> None:
    for name, value in vars(expected).items():
        torch.testing.assert_close(getattr(found, name).double(), value, rtol=tolerance, atol=tolerance)


@few
@given(seeds, covariances, st.integers(1, 5), st.sampled_from([1, 30, 1 << 21]), st.sampled_from([0.0, 0.7]))
def test_a_sweep_is_plain_em_over_every_place_in_every_task(
    seed: int, covariance: Covariance, at_once: int, numbers: int, prior: float
) -> None:
    settings = Settings(themes=3, covariance=covariance, e_step_iterations=4)
    themes, data, tasks = shared_problem(seed, covariance, at_once=at_once)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(polish._NUMBERS_AT_ONCE, "cpu", numbers)  # all points in one piece, in several, or each alone
        themes = Themes.build(themes.alpha, themes.moments, floor=settings.covariance_floor)
        found = em_sweep(settings, themes, data, prior=prior)
    expected = plain_sweep(themes.moments, themes.alpha.numpy(), tasks, settings)
    assert_same(found.moments, shrunk(expected, prior * 2 / POINTS), 1e-9)


@few
@given(seeds)
def test_sums_over_tasks_are_the_sums_of_the_responsibilities(seed: int) -> None:
    themes, data, _ = shared_problem(seed, "full", at_once=len(SIZES))
    [tasks] = data.tasks
    likelihood = themes.expected_log_likelihood(data.m, data.s)
    log_r = e_step(tasks.gather(likelihood), themes.alpha, tasks.mask, iterations=3).log_r
    expected = np.zeros((len(tasks.points), 3))
    for task, size in enumerate(SIZES):
        for place in range(size):
            expected[tasks.place[task, place]] += log_r[task, place].exp().numpy()
    found = log_sum_over_tasks(log_r, tasks.place, tasks.mask, points=len(tasks.points))
    np.testing.assert_allclose(found.exp().numpy(), expected, rtol=1e-12)
    assert expected.sum() == pytest.approx(sum(SIZES))
    assert expected.max() > 1.0  # more than any single responsibility


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_a_theme_far_from_all_data_stays_finite(covariance: Covariance) -> None:
    """Its responsibilities are zeros in float32, their logarithms are not: the mean is where it owns the most."""
    themes, data, _ = shared_problem(0, covariance, at_once=len(SIZES))
    mu = themes.mu.clone()
    mu[0] = 1e3
    far = Themes.build(themes.alpha, Moments(themes.moments.n, mu, themes.moments.Sigma), floor=0.0)
    found = em_sweep(Settings(themes=3, covariance=covariance), far, data)
    assert found.moments.n[0] == 0.0
    assert bool(found.valid)
    [tasks] = data.tasks
    log_r = e_step(tasks.gather(far.expected_log_likelihood(data.m, data.s)), far.alpha, tasks.mask, iterations=10).log_r
    slots = (part.flatten(0, 1) for part in (tasks.gather(data.m), tasks.gather(data.s), log_r, tasks.mask))
    expected = moments(*slots, covariance=covariance)
    assert_same(found.moments, Moments(expected.n / expected.n.sum(), expected.mu, expected.Sigma), 1e-9)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_the_trainers_final_em_is_plain_em(shared: bool, covariance: Covariance) -> None:
    """Features, each once, or images whose embedding depends on their task, each place in each task."""
    small = {
        "covariance": covariance,
        "norm": "batch",
        "filters": (2,),
        "latent_dim": 2,
        "e_step_iterations": 3,
        "polish_tasks": 5,
    }
    settings, data = SMALL.changed(small), small_vectors() if shared else small_images()
    trainer = Trainer(settings, Networks(settings, data.point_shape, CPU), data, 2, CPU)
    trainer._initialise_themes()
    embedded = trainer.embedded_tasks(settings.polish_tasks)
    drawn = trainer.sampler.draw(torch.arange(settings.polish_tasks))[0]
    assert len(embedded.m) == (len(drawn.rows.unique()) if shared else drawn.rows.numel())
    assert len(drawn.rows.unique()) < 0.7 * drawn.rows.numel()
    with torch.no_grad():
        m, s = (part.double().numpy() for part in trainer.networks.encoder(data.tensor[drawn.rows], drawn.mask))
    tasks = list(zip(m, s, strict=True))
    expected = Moments(*(part.double() for part in vars(trainer.themes.moments).values()))
    for _ in range(settings.polish_sweeps):
        expected = plain_sweep(expected, trainer.themes.alpha.double().numpy(), tasks, settings)
        expected = shrunk(expected, settings.covariance_prior * m.shape[-1] / len(embedded.m))
    finish._polish(trainer, embedded, lambda: False, None, progress=False)
    assert_same(trainer.themes.moments, expected, 1e-4)


def test_the_prior_is_the_final_ems_alone() -> None:
    """Where themes start, and the choice of their number, stay maximum likelihood."""
    _, data, _ = shared_problem(1, "diagonal")
    one, other = (
        polish.start_themes(Settings(themes=3, covariance="diagonal", covariance_prior=prior), data, sweeps=2)
        for prior in (0.0, 2.0)
    )
    assert torch.equal(one.moments.Sigma, other.moments.Sigma)
    [final] = polish.polish(Settings(themes=3, covariance="diagonal", covariance_prior=2.0), one, data, 1)
    likeliest = em_sweep(Settings(themes=3, covariance="diagonal"), one, data)
    assert_same(final.moments, shrunk(likeliest.moments, 2.0 * 2 / POINTS), 1e-9)


@few
@given(seeds, covariances, st.integers(1, 6))
def test_themes_start_from_all_places_of_clusters_of_tasks(seed: int, covariance: Covariance, at_once: int) -> None:
    """Two kinds of tasks that share a data point; those of a kind are one cluster."""
    rng = np.random.default_rng(seed)
    kind, sizes = np.array([0, 1, 1, 0, 1, 0]), (5, 3, 4, 5, 2, 3)
    m, s = rng.normal(size=(15, 2)), rng.uniform(0.1, 0.7, size=(15, 2))
    m[8:] += 40.0  # rows 0 to 7 are of the first kind, 7 is in tasks of both
    rows = np.array([rng.choice(7, size=5, replace=False) + 8 * k for k in kind])
    rows[:2, 0] = 7
    mask = torch.arange(5) < torch.tensor(sizes)[:, None]
    batches = zip(torch.from_numpy(rows).split(at_once), mask.split(at_once), strict=True)
    table = (torch.from_numpy(m), torch.from_numpy(s))
    data = TaskPoints(*table, [PlacedTasks.build(*batch) for batch in batches], len(m))
    found = polish.start_from_tasks(Settings(themes=2, covariance=covariance, covariance_floor=0.0), data).moments

    places = [np.concatenate([row[:size] for row, size, k in zip(rows, sizes, kind, strict=True) if k == one]) for one in (0, 1)]
    total = sum(map(len, places))
    mu = np.array([m[place].mean(axis=0) for place in places])
    inside = sum(np.cov(m[place].T, ddof=0) * len(place) + np.diag((s[place] ** 2).sum(axis=0)) for place in places) / total
    order = found.mu[:, 0].argsort()
    np.testing.assert_allclose(found.mu[order].numpy(), mu, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.n[order].numpy(), [len(place) / total for place in places])
    expected = plain.restrict(np.stack([inside, inside]), covariance)
    np.testing.assert_allclose(found.Sigma.numpy(), expected, rtol=1e-9)


def test_with_fewer_tasks_than_themes_they_start_from_data_points() -> None:
    _, data, _ = shared_problem(1, "full")
    settings = Settings(themes=len(SIZES) + 1)
    found = polish.start_from_tasks(settings, data)
    assert_same(found.moments, polish.start_themes(settings, data, sweeps=0).moments, 0.0)


def test_themes_start_from_every_so_many_th_place_of_all_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    _, data, tasks = shared_problem(1, "full")
    for most in (1, 4, 5, 100):
        monkeypatch.setattr(polish, "_STARTING_POINTS", most)
        m, s = polish._some_embeddings(data)
        every = -(-sum(SIZES) // most)
        np.testing.assert_array_equal(m.numpy(), np.concatenate([own for own, _ in tasks])[::every])
        np.testing.assert_array_equal(s.numpy(), np.concatenate([own for _, own in tasks])[::every])
