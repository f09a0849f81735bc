"""The M-step against loops, the authors and scipy's optimiser; its online forms; and EM as a whole never lowers the bound."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from torch import Tensor

from oracles import plain
from oracles.authors import CASES
from oracles.problems import COVARIANCES, Problem, covariances, few, make_problem, seeds
from tasktheme.maths import dirichlet
from tasktheme.model.bound import lda_bound
from tasktheme.model.e_step import TaskPosterior, e_step, responsibilities
from tasktheme.model.m_step import combine, isotropic, moments, online_parameters, online_statistics, shrunk, update_alpha
from tasktheme.model.themes import Covariance, Moments, Themes
from tasktheme.settings import Settings
from tasktheme.training.embedding import PlacedTasks, TaskPoints
from tasktheme.training.polish import em_sweep

RHOS = st.floats(0.0, 1.0)


def log_responsibilities(problem: Problem, seed: int = 0) -> Tensor:
    """(T, N, K) random ln r, normalised over themes."""
    scores = np.random.default_rng(seed).normal(scale=2.0, size=(*problem.mask.shape, len(problem.alpha)))
    return torch.log_softmax(torch.from_numpy(scores), dim=-1)


def flat_moments(problem: Problem, log_r: Tensor, covariance: Covariance) -> Moments:
    """Moments of all tasks' data points together."""
    parts = (part.flatten(0, 1) for part in (problem.m, problem.s, log_r, problem.mask))
    return moments(*parts, covariance=covariance)


def with_local_moments(
    seed: int, covariance: Covariance, sizes: Sequence[int] = (6, 3, 5)
) -> tuple[Problem, Tensor, list[Moments]]:
    """A problem, random ln r, and each task's own moments, found as a batch."""
    problem = make_problem(seed, covariance, sizes=sizes)
    log_r = log_responsibilities(problem, seed)
    local = moments(problem.m, problem.s, log_r, problem.mask, covariance=covariance)
    return problem, log_r, [Moments(*parts) for parts in zip(local.n, local.mu, local.Sigma, strict=True)]


def plain_moments(problem: Problem, log_r: Tensor, covariance: Covariance) -> Moments:
    """The same by a loop over the real data points."""
    m, s, r = (part[problem.mask].numpy() for part in (problem.m, problem.s, log_r.exp()))
    n, mu, Sigma = plain.m_step(m, s, r)
    return Moments(*(torch.from_numpy(part) for part in (n, mu, plain.restrict(Sigma, covariance))))


def assert_same(found: Moments, expected: Moments, rtol: float = 1e-9) -> None:
    for name, value in vars(expected).items():
        torch.testing.assert_close(getattr(found, name), value, rtol=rtol, atol=rtol)


@few
@given(seeds, covariances)
def test_moments_are_those_of_the_plain_loop(seed: int, covariance: Covariance) -> None:
    problem = make_problem(seed, covariance)
    log_r = log_responsibilities(problem, seed)
    assert_same(flat_moments(problem, log_r, covariance), plain_moments(problem, log_r, covariance))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_moments_are_the_authors(case: dict[str, Tensor], covariance: Covariance) -> None:
    mask = torch.ones_like(case["m_v"][:, 0], dtype=torch.bool)
    found = moments(case["m_v"], case["s_v"], case["log_r"], mask, covariance=covariance)
    expected = torch.from_numpy(plain.restrict(case["local_Sigma"].numpy(), covariance))
    torch.testing.assert_close(found.mu, case["local_mu"], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.Sigma, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_newton_step_is_the_authors(case: dict[str, Tensor]) -> None:
    found = dirichlet.newton_step(case["alpha"], dirichlet.expected_log(case["gamma"]))
    torch.testing.assert_close(found, case["newton_step_alpha"], rtol=1e-8, atol=1e-10)


@few
@given(seeds, covariances)
def test_batched_tasks_are_looped_unpadded_tasks(seed: int, covariance: Covariance) -> None:
    problem, log_r, local = with_local_moments(seed, covariance)
    for i, found in enumerate(local):
        assert_same(found, flat_moments(problem.alone(i), log_r[i][problem.mask[i]][None], covariance))


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_a_theme_that_owns_nothing_has_a_finite_mean(covariance: Covariance) -> None:
    m = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    log_r = torch.tensor([0.0, -1e4]).expand(8, 2)
    found = moments(m, torch.ones_like(m), log_r, torch.ones(8, dtype=torch.bool), covariance=covariance)
    assert found.n.tolist() == [8.0, 0.0]
    torch.testing.assert_close(found.mu[1], m.mean(dim=0))
    torch.testing.assert_close(found.Sigma[1], found.Sigma[0])


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_padding_far_from_the_data_costs_float32_nothing(covariance: Covariance) -> None:
    m = 1e3 + 0.5 * torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    padded = torch.cat([m, torch.zeros_like(m)])
    log_r = torch.zeros(len(padded), 1)
    mask = torch.arange(len(padded)) < len(m)
    found = moments(padded, torch.zeros_like(padded), log_r, mask, covariance=covariance)
    assert_same(found, moments(m, torch.zeros_like(m), log_r[:40], mask[:40], covariance=covariance), rtol=1e-4)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_distant_themes_keep_their_variance_in_float32(covariance: Covariance) -> None:
    own = 0.1 * torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    m = torch.cat([own - 100.0, own + 100.0])
    log_r = torch.where((torch.arange(100) < 50)[:, None] == torch.tensor([True, False]), 0.0, -60.0)
    found = moments(m, torch.zeros_like(m), log_r, torch.ones(100, dtype=torch.bool), covariance=covariance)
    expected = moments(
        m.double(), torch.zeros_like(m.double()), log_r.double(), torch.ones(100, dtype=torch.bool), covariance=covariance
    )
    torch.testing.assert_close(found.Sigma.double(), expected.Sigma, rtol=0.01, atol=1e-4)


@few
@given(seeds, covariances)
def test_combine_is_the_moments_of_the_concatenation(seed: int, covariance: Covariance) -> None:
    problem, log_r, local = with_local_moments(seed, covariance)
    found = reduce(lambda first, second: combine(first, second, first_weight=1.0, second_weight=1.0), local)
    found = isotropic(found) if covariance == "isotropic" else found
    assert_same(found, plain_moments(problem, log_r, covariance))


@few
@given(seeds, st.floats(0.1, 5.0), st.floats(0.1, 5.0))
def test_weights_of_combine_repeat_the_data(seed: int, first_weight: float, second_weight: float) -> None:
    problem, log_r, local = with_local_moments(seed, "full", (5, 4))
    found = combine(*local, first_weight=first_weight, second_weight=second_weight)
    weights = torch.tensor([first_weight, second_weight], dtype=torch.float64)[:, None, None]
    assert_same(found, plain_moments(problem, log_r + weights.log(), "full"))


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_combine_with_nothing_changes_nothing(covariance: Covariance) -> None:
    problem = make_problem(3, covariance)
    first = flat_moments(problem, log_responsibilities(problem), covariance)
    nothing = Moments(torch.zeros_like(first.n), first.mu + 7.0, first.Sigma)
    assert_same(combine(first, nothing, first_weight=1.0, second_weight=1.0), first)
    empty = combine(nothing, nothing, first_weight=1.0, second_weight=1.0)
    assert_same(empty, nothing)


@few
@given(seeds, covariances)
def test_a_rate_of_one_over_all_tasks_is_the_full_m_step(seed: int, covariance: Covariance) -> None:
    problem, log_r = make_problem(seed, covariance), log_responsibilities(make_problem(seed, covariance), seed)
    batch = flat_moments(problem, log_r, covariance)
    found = online_statistics(problem.themes().moments, batch, 1.0, covariance=covariance)
    expected = plain_moments(problem, log_r, covariance)
    assert_same(found, Moments(expected.n / expected.n.sum(), expected.mu, expected.Sigma))


@few
@given(seeds, covariances, RHOS)
def test_online_statistics_smooth_the_sums(seed: int, covariance: Covariance, rho: float) -> None:
    problem = make_problem(seed, covariance)
    old = problem.themes().moments
    batch = flat_moments(problem, log_responsibilities(problem, seed), covariance)
    found = online_statistics(old, batch, rho, covariance=covariance)
    n, mu, Sigma = (np.array(part) for part in smoothed_sums(old, batch, rho))
    np.testing.assert_allclose(found.n.numpy(), n, rtol=1e-9)
    np.testing.assert_allclose(found.mu.numpy(), mu, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.Sigma.numpy(), plain.restrict(Sigma, covariance), rtol=1e-9, atol=1e-9)


def smoothed_sums(old: Moments, batch: Moments, rho: float) -> tuple[list, list, list]:
    """Each theme's N_k, sum of r u and sum of r u u', smoothed one by one and then normalised."""
    share = (batch.n / batch.n.sum()).numpy()
    result: tuple[list, list, list] = ([], [], [])
    for k in range(len(share)):
        mass, first, second = 0.0, 0.0, 0.0
        for weight, value in (((1.0 - rho) * old.n[k].item(), old), (rho * share[k], batch)):
            mean, Sigma = value.mu[k].numpy(), plain.dense(value.Sigma.numpy())[k]
            mass += weight
            first = first + weight * mean
            second = second + weight * (Sigma + np.outer(mean, mean))
        for part, one in zip(result, (mass, first / mass, second / mass - np.outer(first, first) / mass**2), strict=True):
            part.append(one)
    return result


@few
@given(seeds, covariances, RHOS)
def test_online_parameters_average_the_tasks_with_equal_weight(seed: int, covariance: Covariance, rho: float) -> None:
    problem = make_problem(seed, covariance, sizes=(6, 2))
    log_r = log_responsibilities(problem, seed)
    old = problem.themes().moments
    found = online_parameters(old, moments(problem.m, problem.s, log_r, problem.mask, covariance=covariance), rho)
    tasks = [plain_moments(problem.alone(i), log_r[i][problem.mask[i]][None], covariance) for i in range(2)]
    share = (tasks[0].n + tasks[1].n) / 8.0  # the eight data points of both tasks
    expected = [
        (1.0 - rho) * before + rho * after
        for before, after in (
            (old.n, share),
            (old.mu, (tasks[0].mu + tasks[1].mu) / 2.0),
            (old.Sigma, (tasks[0].Sigma + tasks[1].Sigma) / 2.0),
        )
    ]
    assert_same(found, Moments(*expected))


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_covariances_stay_positive_semi_definite_in_float32(covariance: Covariance) -> None:
    generator = torch.Generator().manual_seed(0)
    current = Moments(
        torch.full((3,), 1 / 3), torch.zeros(3, 4), torch.eye(4).expand(3, 4, 4) if covariance == "full" else torch.ones(3, 4)
    )
    everyone = torch.ones(2, dtype=torch.bool)
    for _ in range(300):  # mini-batches of two certain points, far apart: of rank one
        m = 1e3 * torch.randn(2, 4, generator=generator)
        log_r = torch.log_softmax(20.0 * torch.randn(2, 3, generator=generator), dim=-1)
        batch = moments(m, torch.zeros_like(m), log_r, everyone, covariance=covariance)
        rho = float(torch.rand((), generator=generator))
        current = online_statistics(current, batch, rho, covariance=covariance)
        smallest = torch.linalg.eigvalsh(current.Sigma.double())[:, 0] if covariance == "full" else current.Sigma.amin(dim=-1)
        largest = current.Sigma.flatten(1).amax(dim=-1)
        assert (smallest >= -4.0 * torch.finfo(torch.float32).eps * largest).all()


def alpha_bound(alpha: Tensor, gamma: Tensor) -> float:
    """The part of the bound that depends on alpha, over the tasks."""
    prior = torch.distributions.Dirichlet(alpha, validate_args=False)
    return float(prior.log_prob(dirichlet.expected_log(gamma).exp()).sum())


def task_gammas(seed: int, *, tasks: int = 12, themes: int = 4) -> Tensor:
    """Posteriors as an E-step leaves them: a prior plus each task's counts."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(0.8 + 40.0 * rng.dirichlet(np.full(themes, 0.5), size=tasks))


@few
@given(seeds, st.floats(-2.0, 2.0))
def test_iterated_alpha_is_scipys_maximum_likelihood(seed: int, power: float) -> None:
    gamma = task_gammas(seed)
    alpha = torch.full((4,), 10.0**power, dtype=torch.float64)
    for _ in range(40):
        alpha = update_alpha(alpha, gamma, 1.0)
    best = optimize.minimize(lambda log_alpha: -alpha_bound(torch.from_numpy(np.exp(log_alpha)), gamma), np.zeros(4), tol=1e-12)
    np.testing.assert_allclose(alpha.numpy(), np.exp(best.x), rtol=1e-4)
    assert alpha_bound(alpha, gamma) >= -best.fun - 1e-9


@few
@given(seeds, st.floats(0.01, 0.2))
def test_rate_scales_the_newton_step(seed: int, rho: float) -> None:
    gamma, alpha = task_gammas(seed), torch.full((4,), 0.5, dtype=torch.float64)
    step = dirichlet.newton_step(alpha, torch.stack([dirichlet.expected_log(row) for row in gamma]).mean(dim=0))
    torch.testing.assert_close(update_alpha(alpha, gamma, rho), alpha - rho * step)


@few
@given(st.lists(st.lists(st.floats(-3.0, 5.0), min_size=3, max_size=3), min_size=1, max_size=4), st.floats(-2.0, 4.0))
def test_alpha_stays_positive_and_finite_whatever_gamma(powers: list[list[float]], power: float) -> None:
    gamma, alpha = 10.0 ** torch.tensor(powers), torch.full((3,), 10.0**power)
    for _ in range(15):
        alpha = update_alpha(alpha, gamma, 1.0)
        assert (alpha > 0.0).all()
        assert alpha.isfinite().all()


def test_a_shortened_step_keeps_its_direction() -> None:
    gamma, alpha = torch.tensor([[1e-2, 1e-2, 60.0]], dtype=torch.float64), torch.full((3,), 30.0, dtype=torch.float64)
    step = dirichlet.newton_step(alpha, dirichlet.expected_log(gamma)[0])
    assert (step > alpha).any(), "the whole step would make alpha negative"
    taken = alpha - update_alpha(alpha, gamma, 1.0)
    torch.testing.assert_close(taken / taken.norm(), step / step.norm())
    assert float((taken / alpha).max()) == pytest.approx(0.9)


def total_bound(problem: Problem, themes: Themes, log_r: Tensor, gamma: Tensor) -> float:
    log_likelihood = themes.expected_log_likelihood(problem.m, problem.s)
    return float(lda_bound(log_likelihood, log_r, gamma, themes.alpha, problem.mask).total().sum())


def rough_themes(problem: Problem, covariance: Covariance) -> Themes:
    """Themes to start EM from: those of random responsibilities."""
    found = flat_moments(problem, log_responsibilities(problem, 99), covariance)
    return Themes.build(torch.full_like(problem.alpha, 1.1), found, floor=0.0)


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("seed", range(4))
def test_no_coordinate_update_lowers_the_bound(covariance: Covariance, seed: int) -> None:
    problem = make_problem(seed, covariance, sizes=(12, 9, 10, 4))
    themes = rough_themes(problem, covariance)
    gamma = themes.alpha + problem.mask.sum(dim=1, keepdim=True) / 3.0
    values = []
    for _ in range(12):
        log_r = responsibilities(themes.expected_log_likelihood(problem.m, problem.s), gamma)
        values.append(total_bound(problem, themes, log_r, gamma))
        gamma = themes.alpha + torch.where(problem.mask[..., None], log_r.exp(), 0.0).sum(dim=1)
        values.append(total_bound(problem, themes, log_r, gamma))
        themes = Themes.build(themes.alpha, flat_moments(problem, log_r, covariance), floor=0.0)
        values.append(total_bound(problem, themes, log_r, gamma))
        themes = Themes.build(update_alpha(themes.alpha, gamma, 1.0), themes.moments, floor=0.0)
        values.append(total_bound(problem, themes, log_r, gamma))
    assert np.diff(values).min() > -1e-9
    assert values[-1] > values[0] + 1.0


@few
@given(seeds, covariances, st.floats(0.3, 2.0))
def test_shrunk_covariances_are_the_most_probable_ones(seed: int, covariance: Covariance, weight: float) -> None:
    """By scipy's densities: of data points under a theme's Gaussian times that of its covariance under the prior."""
    problem = make_problem(seed, covariance, sizes=(20, 16, 14))
    log_r = log_responsibilities(problem, seed)
    m, s, r = (part[problem.mask].numpy() for part in (problem.m, problem.s, log_r.exp()))
    n, mu, Sigma = plain.m_step(m, s, r)
    inside = sum(n[k] * Sigma[k] for k in range(3)) / len(m)
    [common] = plain.dense(plain.restrict(inside[None], covariance))
    points = weight * len(m)  # that the prior counts as
    prior = stats.invwishart(points - 3, points * common)  # ln p = -points / 2 (ln |Sigma| + tr(common Sigma^-1)) + constant
    found = shrunk(flat_moments(problem, log_r, covariance), weight)
    torch.testing.assert_close(found.mu, torch.from_numpy(mu))
    rng = np.random.default_rng(seed)
    for k, best in enumerate(plain.dense(found.Sigma.numpy())):

        def log_posterior(value: plain.Array, k: int = k) -> float:
            """E over q(u): of a quadratic in u by the points m and m +- s along each axis, which have q's mean and variances."""
            spread = [m] + [m + sign * s * axis for axis in np.eye(2) for sign in (-1.0, 1.0)]
            weights = [-1.0, 0.5, 0.5, 0.5, 0.5]
            data = sum(w * stats.multivariate_normal(mu[k], value).logpdf(u) for w, u in zip(weights, spread, strict=True))
            return float(r[:, k] @ data + prior.logpdf(value))

        for _ in range(6):
            [step] = plain.dense(plain.restrict(rng.normal(size=(1, 2, 2)), covariance))
            step = 1e-3 * (step + step.T)
            ahead, here, back = (log_posterior(best + sign * step) for sign in (1.0, 0.0, -1.0))
            assert ahead + back < 2.0 * here
            assert abs(ahead - back) < 1e-2 * (2.0 * here - ahead - back)  # flat: the slope is 0


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_without_weight_covariances_are_their_own_and_with_all_the_weight_one(covariance: Covariance) -> None:
    problem = make_problem(3, covariance)
    found = flat_moments(problem, log_responsibilities(problem), covariance)
    assert_same(shrunk(found, 0.0), found)
    alike = shrunk(found, 1e12).Sigma
    torch.testing.assert_close(alike, alike[:1].expand_as(alike))


def sweep_settings(covariance: Covariance, *, learn: bool) -> Settings:
    return Settings(covariance=covariance, covariance_floor=0.0, e_step_iterations=40, learn_concentration=learn, themes=3)


def each_its_own(problem: Problem, size: int) -> TaskPoints:
    """The tasks in batches of ``size``, no data point in two tasks."""
    rows = torch.arange(problem.mask.numel()).view_as(problem.mask)
    tasks = [PlacedTasks.build(*part) for part in zip(rows.split(size), problem.mask.split(size), strict=True)]
    return TaskPoints(problem.m.flatten(0, 1), problem.s.flatten(0, 1), tasks, int(problem.mask.sum()))


def posterior_of(problem: Problem, themes: Themes) -> TaskPosterior:
    return e_step(themes.expected_log_likelihood(problem.m, problem.s), themes.alpha, problem.mask, iterations=40)


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_no_em_sweep_lowers_the_bound(covariance: Covariance, learn: bool, seed: int) -> None:
    problem = make_problem(seed, covariance, sizes=(12, 9, 10, 4))
    themes, settings = rough_themes(problem, covariance), sweep_settings(covariance, learn=learn)
    values = []
    for _ in range(8):
        posterior = posterior_of(problem, themes)
        values.append(total_bound(problem, themes, posterior.log_r, posterior.gamma))
        themes = em_sweep(settings, themes, each_its_own(problem, 3))
        values.append(total_bound(problem, themes, posterior.log_r, posterior.gamma))
    assert np.diff(values).min() > -1e-7  # an E-step starts afresh each time, so it is exact only to its convergence
    assert bool((themes.alpha != 1.1).all()) == learn


@few
@given(seeds, covariances, st.integers(1, 4))
def test_em_sweep_is_one_m_step_over_all_batches(seed: int, covariance: Covariance, size: int) -> None:
    problem = make_problem(seed, covariance, sizes=(6, 4, 5, 2))
    themes = rough_themes(problem, covariance)
    found = em_sweep(sweep_settings(covariance, learn=True), themes, each_its_own(problem, size))
    posterior = posterior_of(problem, themes)
    expected = plain_moments(problem, posterior.log_r, covariance)
    assert_same(found.moments, Moments(expected.n / expected.n.sum(), expected.mu, expected.Sigma), rtol=1e-8)
    torch.testing.assert_close(found.alpha, update_alpha(themes.alpha, posterior.gamma, 1.0))
