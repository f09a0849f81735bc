"""Gaussian closed forms against dense scipy densities and Monte Carlo, with full and diagonal factors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg, stats
from torch import Tensor

from oracles import plain
from oracles.monte_carlo import agrees
from oracles.problems import COVARIANCES, covariances, few, make_problem, seeds
from tasktheme.maths.gaussian import diagonal_entropy, expected_log_likelihood, wasserstein
from tasktheme.model.themes import Covariance

SAMPLES = 50_000
FACTORS = ("full", "diagonal")


def flat_problem(seed: int, covariance: Covariance = "full", *, dim: int = 3) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """m, s, mu and scale_tril with a single task's data points."""
    problem = make_problem(seed, covariance, sizes=(5,), themes=4, dim=dim)
    return problem.m[0], problem.s[0], problem.mu, problem.themes().scale_tril


def covariance_of(scale_tril: Tensor) -> np.ndarray:
    return (scale_tril.square() if scale_tril.ndim == 2 else scale_tril @ scale_tril.mT).numpy()


def float32_error(m: Tensor, s: Tensor, mu: Tensor, scale_tril: Tensor) -> Tensor:
    """(N, K) how far the float32 value is from the float64 value of the same, rounded, inputs."""
    single = [part.float() for part in (m, s, mu, scale_tril)]
    return (expected_log_likelihood(*single).double() - expected_log_likelihood(*(part.double() for part in single))).abs()


@few
@given(seeds, covariances, st.integers(1, 5))
def test_likelihood_is_the_mean_of_scipys_density(seed: int, covariance: Covariance, dim: int) -> None:
    m, s, mu, scale_tril = flat_problem(seed, covariance, dim=dim)
    expected = plain.expected_log_likelihood(m.numpy(), s.numpy(), mu.numpy(), covariance_of(scale_tril))
    np.testing.assert_allclose(expected_log_likelihood(m, s, mu, scale_tril).numpy(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("covariance", FACTORS)
def test_likelihood_agrees_with_monte_carlo(covariance: Covariance) -> None:
    m, s, mu, scale_tril = flat_problem(3, covariance)
    found = expected_log_likelihood(m, s, mu, scale_tril)
    noise = np.random.default_rng(0).normal(size=(SAMPLES, 3))
    for k, Sigma in enumerate(plain.dense(covariance_of(scale_tril))):
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
    mu, scale_tril = problem.mu, problem.themes().scale_tril
    looped = [expected_log_likelihood(m, s, mu, scale_tril) for m, s in zip(problem.m, problem.s, strict=True)]
    torch.testing.assert_close(expected_log_likelihood(problem.m, problem.s, mu, scale_tril), torch.stack(looped))


@pytest.mark.parametrize("covariance", FACTORS)
def test_gradient_is_that_of_finite_differences(covariance: Covariance) -> None:
    inputs = [part.clone().requires_grad_() for part in flat_problem(5, covariance)]
    assert torch.autograd.gradcheck(expected_log_likelihood, inputs)


@pytest.mark.parametrize("covariance", FACTORS)
@pytest.mark.parametrize("offset", [1e3, 1e4])
def test_common_offset_costs_float32_nothing(covariance: Covariance, offset: float) -> None:
    m, s, mu, scale_tril = flat_problem(2, covariance)
    error = float32_error(m + offset, s, mu + offset, scale_tril)
    assert (error <= 1e-5 * (1.0 + expected_log_likelihood(m, s, mu, scale_tril).abs())).all()


@pytest.mark.parametrize("distance", [10.0, 1e3])
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_distant_themes_cost_float32_little(covariance: Covariance, distance: float) -> None:
    _, _, mu, _ = flat_problem(2)
    mu = distance * mu
    scale = torch.full_like(mu, 0.1)
    m = mu + 0.1  # one standard deviation from its own theme in each dimension
    error = float32_error(m, torch.zeros_like(m), mu, torch.diag_embed(scale) if covariance == "full" else scale)
    # m - mu is known to the rounding of m: 2 D roundings of |m| / scale, at one standard deviation each
    assert error.diagonal().max() <= 1e-5 + 6.0 * torch.finfo(torch.float32).eps * float(mu.abs().max()) / 0.1


@pytest.mark.parametrize("covariance", FACTORS)
def test_certain_point_at_the_mean_has_the_modes_density(covariance: Covariance) -> None:
    _, _, mu, scale_tril = (part.float() for part in flat_problem(4, covariance))
    found = expected_log_likelihood(mu, torch.zeros_like(mu), mu, scale_tril).diagonal()
    covariances = plain.dense(covariance_of(scale_tril))
    modes = [stats.multivariate_normal(mean, Sigma).logpdf(mean) for mean, Sigma in zip(mu, covariances, strict=True)]
    np.testing.assert_allclose(found.numpy(), modes, rtol=1e-5)


@few
@given(seeds)
def test_entropy_of_an_embedding_is_scipys(seed: int) -> None:
    m, s, _, _ = flat_problem(seed)
    expected = [stats.multivariate_normal(m[n], np.diag(s[n].numpy() ** 2)).entropy() for n in range(len(m))]
    np.testing.assert_allclose(diagonal_entropy(s).numpy(), expected, rtol=1e-10)


@few
@given(seeds, covariances, st.integers(1, 5))
def test_wasserstein_is_that_by_matrix_square_roots(seed: int, covariance: Covariance, dim: int) -> None:
    _, _, mu, scale_tril = flat_problem(seed, covariance, dim=dim)
    found = wasserstein(mu, scale_tril).numpy()
    covariances = plain.dense(covariance_of(scale_tril))
    for i, A in enumerate(covariances):
        root = linalg.sqrtm(A)
        for j, B in enumerate(covariances):
            squared = float(((mu[i] - mu[j]) ** 2).sum()) + np.trace(A + B - 2.0 * linalg.sqrtm(root @ B @ root)).real
            assert found[i, j] ** 2 == pytest.approx(squared, rel=1e-6, abs=1e-6)
    assert (np.diag(found) == 0.0).all()
    np.testing.assert_array_equal(found, found.T)


def test_wasserstein_of_gaussians_in_one_dimension_is_between_their_quantiles() -> None:
    mu, scale = torch.tensor([[0.0], [3.0]]).double(), torch.tensor([[1.0], [2.5]]).double()
    levels = (np.arange(200_000) + 0.5) / 200_000
    quantiles = [stats.norm(float(m), float(s)).ppf(levels) for m, s in zip(mu, scale, strict=True)]
    expected = np.sqrt(np.mean((quantiles[0] - quantiles[1]) ** 2))
    assert float(wasserstein(mu, scale)[0, 1]) == pytest.approx(expected, rel=1e-4)
    assert float(wasserstein(mu, scale[..., None])[0, 1]) == pytest.approx(expected, rel=1e-4)
