"""Gaussian closed forms against dense scipy densities and Monte Carlo, with full and diagonal factors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from oracles import plain
from oracles.monte_carlo import agrees
from oracles.problems import COVARIANCES, covariances, few, make_problem, seeds
from tasktheme.maths.gaussian import diagonal_entropy, expected_log_likelihood, whitening
from tasktheme.model.themes import Covariance

SAMPLES = 50_000
FACTORS = ("full", "diagonal")


def flat_problem(seed: int, covariance: Covariance = "full", *, dim: int = 3) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """m, s, mu and whitening with a single task's data points."""
    problem = make_problem(seed, covariance, sizes=(5,), themes=4, dim=dim)
    return problem.m[0], problem.s[0], problem.mu, problem.themes().whitening


def covariance_of(whitening: Tensor) -> np.ndarray:
    return 1.0 / whitening.square().numpy() if whitening.ndim == 2 else np.linalg.inv((whitening.mT @ whitening).numpy())


@few
@given(seeds, covariances)
def test_whitening_makes_the_covariance_the_identity(seed: int, covariance: Covariance) -> None:
    problem = make_problem(seed, covariance, dim=4)
    Sigma = problem.Sigma
    found = plain.dense(whitening(Sigma.sqrt() if Sigma.ndim == 2 else torch.linalg.cholesky(Sigma)).numpy())
    white = found @ plain.dense(Sigma.numpy()) @ found.transpose(0, 2, 1)
    np.testing.assert_allclose(white, np.broadcast_to(np.eye(4), white.shape), atol=1e-9)


def float32_error(m: Tensor, s: Tensor, mu: Tensor, whitening: Tensor) -> Tensor:
    """(N, K) how far the float32 value is from the float64 value of the same, rounded, inputs."""
    single = [part.float() for part in (m, s, mu, whitening)]
    return (expected_log_likelihood(*single).double() - expected_log_likelihood(*(part.double() for part in single))).abs()


@few
@given(seeds, covariances, st.integers(1, 5))
def test_likelihood_is_the_mean_of_scipys_density(seed: int, covariance: Covariance, dim: int) -> None:
    m, s, mu, whitening = flat_problem(seed, covariance, dim=dim)
    expected = plain.expected_log_likelihood(m.numpy(), s.numpy(), mu.numpy(), covariance_of(whitening))
    np.testing.assert_allclose(expected_log_likelihood(m, s, mu, whitening).numpy(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("covariance", FACTORS)
def test_likelihood_agrees_with_monte_carlo(covariance: Covariance) -> None:
    m, s, mu, whitening = flat_problem(3, covariance)
    found = expected_log_likelihood(m, s, mu, whitening)
    noise = np.random.default_rng(0).normal(size=(SAMPLES, 3))
    for k, Sigma in enumerate(plain.dense(covariance_of(whitening))):
        for n in range(len(m)):
            samples = stats.multivariate_normal(mu[k], Sigma).logpdf(m[n].numpy() + s[n].numpy() * noise)
            assert agrees(float(found[n, k]), samples)


@few
@given(seeds)
def test_diagonal_factor_is_the_full_one_with_zeros(seed: int) -> None:
    m, s, mu, scale = flat_problem(seed, "diagonal")
    full = expected_log_likelihood(m, s, mu, torch.diag_embed(scale))
    torch.testing.assert_close(expected_log_likelihood(m, s, mu, scale), full, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_batched_tasks_are_looped_tasks(covariance: Covariance) -> None:
    problem = make_problem(1, covariance)
    mu, whitening = problem.mu, problem.themes().whitening
    looped = [expected_log_likelihood(m, s, mu, whitening) for m, s in zip(problem.m, problem.s, strict=True)]
    torch.testing.assert_close(expected_log_likelihood(problem.m, problem.s, mu, whitening), torch.stack(looped))


@pytest.mark.parametrize("covariance", FACTORS)
def test_gradient_is_that_of_finite_differences(covariance: Covariance) -> None:
    inputs = [part.clone().requires_grad_() for part in flat_problem(5, covariance)]
    assert torch.autograd.gradcheck(expected_log_likelihood, inputs)


@pytest.mark.parametrize("covariance", FACTORS)
@pytest.mark.parametrize("offset", [1e3, 1e4])
def test_common_offset_costs_float32_nothing(covariance: Covariance, offset: float) -> None:
    m, s, mu, whitening = flat_problem(2, covariance)
    error = float32_error(m + offset, s, mu + offset, whitening)
    assert (error <= 1e-5 * (1.0 + expected_log_likelihood(m, s, mu, whitening).abs())).all()


@pytest.mark.parametrize("distance", [10.0, 1e3])
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_distant_themes_cost_float32_little(covariance: Covariance, distance: float) -> None:
    _, _, mu, _ = flat_problem(2)
    mu = distance * mu
    scale = torch.full_like(mu, 0.1)
    m = mu + 0.1  # one standard deviation from its own theme in each dimension
    error = float32_error(m, torch.zeros_like(m), mu, whitening(torch.diag_embed(scale) if covariance == "full" else scale))
    # m - mu is known to the rounding of m: 2 D roundings of |m| / scale, at one standard deviation each
    assert error.diagonal().max() <= 1e-5 + 6.0 * torch.finfo(torch.float32).eps * float(mu.abs().max()) / 0.1


@pytest.mark.parametrize("covariance", FACTORS)
def test_certain_point_at_the_mean_has_the_modes_density(covariance: Covariance) -> None:
    _, _, mu, whitening = (part.float() for part in flat_problem(4, covariance))
    found = expected_log_likelihood(mu, torch.zeros_like(mu), mu, whitening).diagonal()
    covariances = plain.dense(covariance_of(whitening))
    modes = [stats.multivariate_normal(mean, Sigma).logpdf(mean) for mean, Sigma in zip(mu, covariances, strict=True)]
    np.testing.assert_allclose(found.numpy(), modes, rtol=1e-5)


@few
@given(seeds)
def test_entropy_of_an_embedding_is_scipys(seed: int) -> None:
    m, s, _, _ = flat_problem(seed)
    expected = [stats.multivariate_normal(m[n], np.diag(s[n].numpy() ** 2)).entropy() for n in range(len(m))]
    np.testing.assert_allclose(diagonal_entropy(s).numpy(), expected, rtol=1e-10)
