"""The bound term by term against plain sums, Monte Carlo, the authors and the true evidence; and the class probabilities."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oracles import plain
from oracles.authors import CASES
from oracles.monte_carlo import agrees, bound_samples
from oracles.problems import Problem, covariances, few, make_problem, seeds
from tasktheme.maths import gaussian
from tasktheme.model.bound import LdaBound, lda_bound, log_class_probability
from tasktheme.model.e_step import TaskPosterior, e_step
from tasktheme.model.themes import Covariance

TERMS = ["ln_p_u", "ln_p_z", "ln_p_pi", "entropy_z", "entropy_pi"]
SAMPLES = 40_000


def solve(problem: Problem, iterations: int = 2) -> tuple[TaskPosterior, LdaBound]:
    """A posterior, not necessarily converged, and its bound."""
    log_likelihood = problem.log_likelihood()
    posterior = e_step(log_likelihood, problem.alpha, problem.mask, iterations=iterations)
    return posterior, lda_bound(log_likelihood, posterior.log_r, posterior.gamma, problem.alpha, problem.mask)


@few
@given(seeds, covariances)
def test_every_term_is_the_plain_one(seed: int, covariance: Covariance) -> None:
    problem = make_problem(seed, covariance, sizes=(6, 1, 0))
    posterior, found = solve(problem)
    for i, log_likelihood in enumerate(problem.plain_log_likelihood()):
        r, gamma = posterior.log_r[i][problem.mask[i]].exp().numpy(), posterior.gamma[i].numpy()
        expected = plain.bound_terms(log_likelihood, r, gamma, problem.alpha.numpy())
        assert {name: float(getattr(found, name)[i]) for name in TERMS} == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert float(found.total()[i]) == pytest.approx(sum(expected.values()), rel=1e-9, abs=1e-9)


@pytest.fixture(scope="module")
def sampled() -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """One task's terms, and Monte Carlo samples of them."""
    problem = make_problem(11, sizes=(4,))
    posterior, found = solve(problem)
    rng = np.random.default_rng(0)
    m, s = next(problem.tasks())
    u = m + s * rng.normal(size=(SAMPLES, *m.shape))
    r, gamma = posterior.log_r[0].exp().numpy(), posterior.gamma[0].numpy()
    samples = bound_samples(
        rng, u, problem.mu.numpy(), problem.Sigma.numpy(), r / r.sum(axis=1, keepdims=True), gamma, problem.alpha.numpy()
    )
    return {name: float(getattr(found, name)[0]) for name in TERMS}, samples


@pytest.mark.parametrize("name", TERMS)
def test_every_term_agrees_with_monte_carlo(sampled: tuple[dict[str, float], dict[str, np.ndarray]], name: str) -> None:
    values, samples = sampled
    assert agrees(values[name], samples[name])


@pytest.mark.parametrize("case", CASES)
def test_total_is_the_authors(case: dict[str, Tensor]) -> None:
    whitening = gaussian.whitening(torch.linalg.cholesky(case["Sigma"]))
    log_likelihood = gaussian.expected_log_likelihood(case["m_v"], case["s_v"], case["mu"], whitening)[None]
    mask = torch.ones_like(log_likelihood[..., 0], dtype=torch.bool)
    found = lda_bound(log_likelihood, case["log_r"][None], case["gamma"][None], case["alpha"], mask).total()
    torch.testing.assert_close(found[0], case["lda_bound_v_with_r_of_t"], rtol=1e-10, atol=0.0)


def certain_task(seed: int, *, points: int, themes: int) -> tuple[float, float]:
    """The converged bound of a task with s = 0, and its true log evidence."""
    problem = make_problem(seed, sizes=(points,), themes=themes)
    problem = Problem(problem.m, torch.zeros_like(problem.s), problem.mask, problem.mu, problem.Sigma, problem.alpha)
    _, found = solve(problem, iterations=50)
    u, mu, Sigma = problem.m[0].numpy(), problem.mu.numpy(), problem.Sigma.numpy()
    return float(found.total()), plain.log_evidence(u, mu, Sigma, problem.alpha.numpy())


@few
@given(seeds, st.integers(1, 6))
def test_bound_is_below_the_evidence_and_not_far(seed: int, points: int) -> None:
    bound, evidence = certain_task(seed, points=points, themes=2)
    assert evidence - 1.0 < bound <= evidence + 1e-12 * abs(evidence)


def test_bound_of_a_single_theme_is_the_evidence() -> None:
    bound, evidence = certain_task(0, points=5, themes=1)
    assert bound == pytest.approx(evidence, rel=1e-10)


def classification(seed: int = 0, *, points: int = 7, ways: int = 4) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """t embeddings, labels and mask, and v embeddings of three tasks: whole, padded, and without its last class."""
    rng = np.random.default_rng(seed)
    t, v = torch.from_numpy(rng.normal(size=(3, points, 2))), torch.from_numpy(rng.normal(size=(3, 5, 2)))
    labels = torch.arange(points).remainder(ways).repeat(3, 1)
    mask = torch.ones(3, points, dtype=torch.bool)
    mask[1, ways:] = False
    mask[2] = labels[2] < ways - 1
    t[~mask] = 50.0
    return t, labels, mask, v


@pytest.mark.parametrize("squared", [True, False])
def test_class_probability_is_that_of_the_plain_loop(squared: bool) -> None:
    t, labels, mask, v = classification()
    found = log_class_probability(t, labels, mask, v, ways=4, squared=squared).exp()
    for i in range(3):
        real = mask[i].numpy()
        expected = plain.log_class_probability(t[i].numpy()[real], labels[i].numpy()[real], v[i].numpy(), 4, squared=squared)
        np.testing.assert_allclose(found[i].numpy(), np.exp(expected), rtol=1e-8)


@pytest.mark.parametrize("squared", [True, False])
def test_a_missing_class_has_probability_zero_and_harms_no_gradient(squared: bool) -> None:
    t, labels, mask, v = classification()
    t.requires_grad_()
    found = log_class_probability(t, labels, mask, v, ways=4, squared=squared)
    assert (found[2, :, 3] == -torch.inf).all()
    torch.testing.assert_close(found.exp().sum(dim=-1), torch.ones(3, 5, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(found[..., 0].sum(), t)
    assert gradient.isfinite().all()
    assert (gradient[~mask] == 0.0).all()


def test_root_distance_has_a_gradient_at_the_prototype() -> None:
    t = torch.tensor([[[0.0, 0.0], [1.0, 1.0]]])
    v = t.clone().requires_grad_()
    found = log_class_probability(t, torch.tensor([[0, 1]]), torch.ones(1, 2, dtype=torch.bool), v, ways=2, squared=False)
    (gradient,) = torch.autograd.grad(found.diagonal(dim1=1, dim2=2).sum(), v)
    assert gradient.isfinite().all()
    # ln softmax(0, -sqrt 2) at a prototype: sqrt(eps) away from exact
    torch.testing.assert_close(found[0, 0, 0], -torch.log1p(torch.exp(torch.tensor(-(2.0**0.5)))), rtol=0.0, atol=1e-3)
