"""Themes: the factor, the floor, and what counts as valid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oracles import plain
from oracles.problems import COVARIANCES, covariances, few, make_problem, seeds
from tasktheme.model.themes import Covariance, Moments, Themes


@few
@given(seeds, covariances, st.floats(0.0, 0.5))
def test_factor_is_that_of_the_lifted_covariance(seed: int, covariance: Covariance, floor: float) -> None:
    problem = make_problem(seed, covariance, dim=3)
    whitening = problem.themes(floor=floor).whitening
    Sigma = plain.dense(problem.Sigma.numpy())
    lifted = Sigma + floor * np.mean([np.trace(one) / 3.0 for one in Sigma]) * np.eye(3)
    expected = np.linalg.inv(np.linalg.cholesky(lifted))
    np.testing.assert_allclose(plain.dense(whitening.numpy()), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_likelihood_uses_the_lifted_covariance(covariance: Covariance) -> None:
    problem = make_problem(0, covariance)
    themes = problem.themes(floor=0.3)
    factor = np.linalg.inv(plain.dense(themes.whitening.numpy()))
    m, s = next(problem.tasks())
    expected = plain.expected_log_likelihood(m, s, problem.mu.numpy(), factor @ factor.transpose(0, 2, 1))
    found = themes.expected_log_likelihood(torch.from_numpy(m), torch.from_numpy(s))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9)
    assert bool(themes.valid)


def test_share_is_the_part_of_the_mass() -> None:
    problem = make_problem(0)
    moments = Moments(torch.tensor([1.0, 3.0, 4.0], dtype=torch.float64), problem.mu, problem.Sigma)
    assert Themes.build(problem.alpha, moments, floor=0.0).share.tolist() == [0.125, 0.375, 0.5]


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_a_singular_covariance_needs_the_floor(covariance: Covariance) -> None:
    problem = make_problem(0, covariance)
    problem.Sigma[1] = 0.0
    assert not bool(problem.themes(floor=0.0).valid)
    lifted = problem.themes(floor=1e-4)
    assert bool(lifted.valid)
    assert lifted.whitening.isfinite().all()


def test_a_covariance_of_low_rank_needs_the_floor_in_float32() -> None:
    moments = Moments(torch.ones(1), torch.zeros(1, 5), torch.ones(1, 5, 5))  # that of points on one line
    assert not bool(Themes.build(torch.ones(1), moments, floor=0.0).valid)
    assert bool(Themes.build(torch.ones(1), moments, floor=1e-4).valid)


def test_an_indefinite_covariance_is_not_valid() -> None:
    problem = make_problem(0)
    problem.Sigma[0] = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    assert not bool(problem.themes().valid)


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("part", ["mu", "Sigma", "alpha"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_value_that_is_not_finite_is_not_valid(covariance: Covariance, part: str, value: float) -> None:
    problem = make_problem(0, covariance)
    spoilt: Tensor = getattr(problem, part).clone()
    spoilt[(-1,) * spoilt.ndim] = value
    assert not bool(replace(problem, **{part: spoilt}).themes(floor=1e-4).valid)


@pytest.mark.parametrize("value", [0.0, -0.5])
def test_a_concentration_that_is_not_positive_is_not_valid(value: float) -> None:
    problem = make_problem(0)
    problem.alpha[1] = value
    assert not bool(problem.themes().valid)


@pytest.mark.parametrize("covariance", ["diagonal", "isotropic"])
def test_a_negative_variance_is_not_valid(covariance: Covariance) -> None:
    problem = make_problem(0, covariance)
    problem.Sigma[2, 0] = -0.1
    assert not bool(problem.themes().valid)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_themes_of_aspects_see_their_own_dimensions_alone(covariance: Covariance) -> None:
    first, second = (make_problem(seed, covariance, dim=2).themes(floor=0.1) for seed in (0, 1))
    both = Themes.together([first, second])
    random = torch.Generator().manual_seed(0)
    m, s = torch.randn(2, 5, 4, dtype=torch.float64, generator=random)
    s = s.abs()
    found = both.expected_log_likelihood(m, s)
    wanted = [part.expected_log_likelihood(m[:, i::2], s[:, i::2]) for i, part in enumerate((first, second))]
    torch.testing.assert_close(found, torch.cat(wanted, dim=-1))
    mask = torch.ones(1, 5, dtype=torch.bool)
    explained = [part.explained(values[None], mask) for part, values in zip((first, second), wanted, strict=True)]
    torch.testing.assert_close(both.explained(found[None], mask), explained[0] + explained[1])
    torch.testing.assert_close(both.share, torch.cat([first.share, second.share]))
    assert (both.aspects, both.dimensions, first.dimensions) == (2, 4, 2)
    for apart, alone, likelihood in zip(both.apart(), (first, second), wanted, strict=True):
        assert (apart.aspects, apart.valid) == (1, True)
        own = slice(int(alone is second), None, 2)
        torch.testing.assert_close(apart.expected_log_likelihood(m[:, own], s[:, own]), likelihood)
        torch.testing.assert_close(apart.tensors(), alone.tensors())


def test_the_centre_of_an_aspects_theme_is_the_mean_of_all_in_other_dimensions() -> None:
    first, second = (make_problem(seed, dim=2).themes(floor=0.1) for seed in (0, 1))
    both = Themes.together([first, second])
    K = len(first.mu)
    torch.testing.assert_close(both.centres[:K, 0::2], first.mu)
    torch.testing.assert_close(both.centres[K:, 1::2], second.mu)
    torch.testing.assert_close(both.centres[:K, 1::2], (second.share @ second.mu).expand(K, -1))
    torch.testing.assert_close(both.centres[K:, 0::2], (first.share @ first.mu).expand(len(second.mu), -1))
    assert first.centres is first.mu
