"""Dirichlet closed forms against scipy, torch, Monte Carlo and finite differences, and over nine orders of magnitude."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import integrate, special, stats
from torch import Tensor

from oracles import plain
from oracles.monte_carlo import agrees
from oracles.problems import few
from tasktheme.maths import dirichlet

GAMMAS = [(0.3, 0.9), (0.7, 2.5, 11.0), (4.0, 1.0, 1.0, 60.0)]
SAMPLES = 200_000
ROUNDINGS = 8.0  # float32 roundings, each as large as all terms together, that a value may collect


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def concentrations(tasks: int | None = None, *, low: float = -3.0, high: float = 3.0) -> st.SearchStrategy[Tensor]:
    """(T, K) concentrations, evenly spread over orders of magnitude."""
    rows = st.integers(1, 4) if tasks is None else st.just(tasks)
    shapes = st.tuples(rows, st.integers(2, 6))
    powers = shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=st.floats(low, high, width=32)))
    return powers.map(lambda power: torch.from_numpy(10.0**power))


def wide_concentrations() -> st.SearchStrategy[Tensor]:
    """(2, K) concentrations from 1e-3 to 1e6 that float32 holds exactly."""
    return concentrations(2, low=-3.0, high=6.0).map(lambda gamma: gamma.float().double())


def magnitude(gamma: Tensor, other: Tensor) -> Tensor:
    """(T,) the sizes of all terms that ln B, entropy and KL add up: float32 keeps seven digits of these, not of the sum."""
    digamma = torch.digamma(gamma).abs() + torch.digamma(gamma.sum(dim=-1, keepdim=True)).abs()
    normalisers = [torch.lgamma(c).abs().sum(dim=-1) + torch.lgamma(c.sum(dim=-1)).abs() for c in (gamma, other)]
    return ((gamma + other + 1.0) * digamma).sum(dim=-1) + sum(normalisers)


def gradient_magnitude(gamma: Tensor, other: Tensor) -> Tensor:
    """(T, K) likewise for the gradient of entropy and KL in gamma."""
    weight = gamma + other + 1.0
    total, total_weight = gamma.sum(dim=-1, keepdim=True), weight.sum(dim=-1, keepdim=True)
    slopes = weight * torch.polygamma(1, gamma) + total_weight * torch.polygamma(1, total)
    return slopes + torch.digamma(gamma).abs() + torch.digamma(total).abs()


def pairwise_kl(gamma: Tensor, other: Tensor) -> Tensor:
    """(T,) KL of row i with row i."""
    return dirichlet.kl_divergence(gamma, other).diagonal()


@pytest.mark.parametrize("gamma", GAMMAS)
def test_expected_log_is_the_integral_over_the_beta_marginal(gamma: tuple[float, ...]) -> None:
    for k, found in enumerate(dirichlet.expected_log(tensor(*gamma)).tolist()):
        marginal = stats.beta(gamma[k], sum(gamma) - gamma[k])
        # over y = ln x the integrand is smooth at x = 0, whatever the exponent
        expected, _ = integrate.quad(lambda y, beta=marginal: y * np.exp(y + beta.logpdf(np.exp(y))), -200.0, -1e-12, limit=500)
        assert found == pytest.approx(expected, rel=1e-5)


@few
@given(concentrations())
def test_expected_log_is_the_slope_of_the_log_normaliser(gamma: Tensor) -> None:
    slope = torch.func.vmap(torch.func.grad(dirichlet.log_normaliser))(gamma)
    torch.testing.assert_close(dirichlet.expected_log(gamma), slope, rtol=1e-9, atol=1e-9)


@few
@given(concentrations())
def test_log_normaliser_is_a_product_of_beta_functions(gamma: Tensor) -> None:
    for row, found in zip(gamma.tolist(), dirichlet.log_normaliser(gamma).tolist(), strict=True):
        expected = sum(special.betaln(row[k], sum(row[k + 1 :])) for k in range(len(row) - 1))
        assert found == pytest.approx(expected, rel=1e-10, abs=1e-9)


@few
@given(concentrations())
def test_entropy_is_scipys(gamma: Tensor) -> None:
    expected = [float(stats.dirichlet(row).entropy()) for row in gamma.numpy()]
    np.testing.assert_allclose(dirichlet.entropy(gamma).numpy(), expected, rtol=1e-9, atol=1e-8)


@few
@given(concentrations(2), concentrations(3))
def test_kl_is_torchs_pair_by_pair(gamma: Tensor, other: Tensor) -> None:
    themes = min(gamma.shape[1], other.shape[1])
    gamma, other = gamma[:, :themes], other[:, :themes]
    expected = [[plain.dirichlet_kl(row.numpy(), column.numpy()) for column in other] for row in gamma]
    np.testing.assert_allclose(dirichlet.kl_divergence(gamma, other).numpy(), expected, rtol=1e-9, atol=1e-7)


@few
@given(concentrations(3))
def test_paired_kl_is_torchs_and_exactly_zero_on_itself(gamma: Tensor) -> None:
    other = gamma.roll(1, dims=0)
    expected = [plain.dirichlet_kl(a.numpy(), b.numpy()) for a, b in zip(gamma, other, strict=True)]
    np.testing.assert_allclose(dirichlet.paired_kl(gamma, other).numpy(), expected, rtol=1e-9, atol=1e-7)
    assert (dirichlet.paired_kl(gamma, gamma.clone()) == 0.0).all()


@pytest.mark.parametrize("gamma", GAMMAS)
def test_expectations_agree_with_monte_carlo(gamma: tuple[float, ...]) -> None:
    alpha = np.linspace(0.5, 2.0, len(gamma))
    pi = np.random.default_rng(0).dirichlet(gamma, size=SAMPLES)
    own, prior = (stats.dirichlet(c).logpdf(pi.T) for c in (gamma, alpha))
    q, p = tensor(*gamma), torch.from_numpy(alpha)
    assert agrees(float(dirichlet.entropy(q)), -own)
    assert agrees(float(dirichlet.expected_log_density(q, p)), prior)
    assert agrees(float(dirichlet.kl_divergence(q[None], p[None])), own - prior)


def test_one_prior_serves_many_tasks() -> None:
    gamma, alpha = tensor(0.5, 2.0, 9.0).outer(tensor(1.0, 3.0)).T, tensor(0.4, 1.0, 2.0)
    expected = torch.stack([dirichlet.expected_log_density(row, alpha) for row in gamma])
    torch.testing.assert_close(dirichlet.expected_log_density(gamma, alpha), expected)


def test_a_single_theme_is_certain() -> None:
    gamma = tensor(0.2, 1.0, 700.0)[:, None]
    for function in (dirichlet.expected_log, dirichlet.log_normaliser, dirichlet.entropy):
        assert function(gamma).abs().max() < 1e-9
    assert dirichlet.kl_divergence(gamma, gamma).abs().max() < 1e-9


@few
@given(concentrations(low=-3.0, high=6.0))
def test_kl_is_zero_on_itself_and_never_negative(gamma: Tensor) -> None:
    kl = dirichlet.kl_divergence(gamma, gamma)
    assert (kl >= 0.0).all()
    assert (kl.diagonal() <= 1e-14 * magnitude(gamma, gamma)).all()


@few
@given(concentrations(3), st.randoms(use_true_random=False))
def test_order_of_themes_does_not_matter(gamma: Tensor, random: Random) -> None:
    order = list(range(gamma.shape[1]))
    random.shuffle(order)
    shuffled = gamma[:, order]
    for function in (dirichlet.log_normaliser, dirichlet.entropy, lambda c: dirichlet.kl_divergence(c, c.flip(0))):
        torch.testing.assert_close(function(shuffled), function(gamma), rtol=1e-9, atol=1e-8)
    torch.testing.assert_close(dirichlet.expected_log(shuffled), dirichlet.expected_log(gamma)[:, order], rtol=1e-9, atol=1e-9)


@few
@given(concentrations(3))
def test_matrix_of_pairs_is_pair_by_pair(gamma: Tensor) -> None:
    other = gamma.flip(1)
    alone = [[dirichlet.kl_divergence(gamma[i : i + 1], other[j : j + 1]).item() for j in range(3)] for i in range(3)]
    np.testing.assert_allclose(dirichlet.kl_divergence(gamma, other).numpy(), alone, rtol=1e-9, atol=1e-8)


@few
@given(wide_concentrations(), st.sampled_from([dirichlet.log_normaliser, dirichlet.entropy]))
def test_float32_values_are_exact_to_rounding_of_their_terms(gamma: Tensor, function: Callable[[Tensor], Tensor]) -> None:
    error = (function(gamma.float()).double() - function(gamma)).abs()
    assert (error <= ROUNDINGS * torch.finfo(torch.float32).eps * magnitude(gamma, gamma)).all()


@few
@given(wide_concentrations())
def test_float32_expected_log_is_exact_to_rounding(gamma: Tensor) -> None:
    error = (dirichlet.expected_log(gamma.float()).double() - dirichlet.expected_log(gamma)).abs()
    terms = torch.digamma(gamma).abs() + torch.digamma(gamma.sum(dim=-1, keepdim=True)).abs()
    assert (error <= ROUNDINGS * torch.finfo(torch.float32).eps * (terms + 1.0)).all()


@few
@given(wide_concentrations())
def test_float32_kl_is_exact_to_rounding_of_its_terms(gamma: Tensor) -> None:
    other = gamma.flip(0)
    error = (pairwise_kl(gamma.float(), other.float()).double() - pairwise_kl(gamma, other)).abs()
    assert (error <= ROUNDINGS * torch.finfo(torch.float32).eps * magnitude(gamma, other)).all()


@few
@given(wide_concentrations(), st.booleans())
def test_float32_gradients_are_exact_to_rounding_of_their_terms(gamma: Tensor, of_kl: bool) -> None:
    other = gamma.flip(0)

    def gradient(dtype: torch.dtype) -> Tensor:
        variable = gamma.to(dtype).requires_grad_()
        value = pairwise_kl(variable, other.to(dtype)) if of_kl else dirichlet.entropy(variable)
        return torch.autograd.grad(value.sum(), variable)[0].double()

    found, expected = gradient(torch.float32), gradient(torch.float64)
    assert found.isfinite().all()
    assert ((found - expected).abs() <= ROUNDINGS * torch.finfo(torch.float32).eps * gradient_magnitude(gamma, other)).all()


def test_float32_kl_of_everyday_tasks_is_good_to_a_thousandth() -> None:
    gamma = torch.from_numpy(np.random.default_rng(0).uniform(0.5, 40.0, size=(50, 8)))
    found, expected = dirichlet.kl_divergence(gamma.float(), gamma.flip(0).float()), dirichlet.kl_divergence(gamma, gamma.flip(0))
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("themes", [2, 3, 8])
@pytest.mark.parametrize("scale", [0.05, 1.0, 50.0])
def test_newton_step_solves_the_dense_hessian(themes: int, scale: float) -> None:
    rng = np.random.default_rng(themes)
    alpha = torch.from_numpy(scale * rng.uniform(0.5, 2.0, size=themes))
    ln_pi = dirichlet.expected_log(torch.from_numpy(rng.uniform(0.5, 30.0, size=(7, themes))))

    def bound(alpha: Tensor) -> Tensor:  # ln p(pi | alpha) is linear in ln pi, so its mean over q is its value at E[ln pi]
        return torch.distributions.Dirichlet(alpha, validate_args=False).log_prob(ln_pi.exp()).sum()

    gradient, hessian = torch.func.grad(bound)(alpha), torch.autograd.functional.hessian(bound, alpha)
    expected = torch.linalg.solve(hessian, gradient)
    torch.testing.assert_close(dirichlet.newton_step(alpha, ln_pi.mean(dim=0)), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("scale", [1e3, 1e4, 1e5])
def test_newton_step_of_a_large_alpha_is_that_of_float64(scale: float) -> None:
    """The Hessian's two parts nearly cancel there: in float32 the step had the wrong sign, then none."""
    alpha = scale * torch.tensor([1.0, 2.0, 3.0, 4.0])
    mean = dirichlet.expected_log(alpha + torch.tensor([8.0, 3.0, -2.0, -7.0]))
    found = dirichlet.newton_step(alpha, mean)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), dirichlet.newton_step(alpha.double(), mean.double()), rtol=1e-5, atol=1e-5)
    assert found.abs().max() > 0.1


def test_newton_step_of_a_single_theme_is_zero() -> None:
    assert dirichlet.newton_step(tensor(1.1), tensor(0.0)).tolist() == [0.0]
