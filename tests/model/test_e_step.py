"""The E-step against a loop over data points and the authors' values, its invariances, and when it says it converged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oracles import plain
from oracles.authors import CASES
from oracles.problems import Problem, covariances, few, make_problem, seeds
from tasktheme.maths import gaussian
from tasktheme.model.bound import lda_bound
from tasktheme.model.e_step import TaskPosterior, e_step, responsibilities
from tasktheme.model.themes import Covariance

EXACT = {"rtol": 1e-9, "atol": 1e-9}


def solve(problem: Problem, iterations: int = 7, tolerance: float | None = None) -> TaskPosterior:
    return e_step(problem.log_likelihood(), problem.alpha, problem.mask, iterations=iterations, tolerance=tolerance)


def assert_same(found: TaskPosterior, gamma: Tensor, log_r: Tensor, mask: Tensor) -> None:
    torch.testing.assert_close(found.gamma, gamma, **EXACT)
    torch.testing.assert_close(found.log_r[mask], log_r[mask], **EXACT)


@few
@given(seeds, covariances, st.integers(1, 6))
def test_posterior_is_that_of_the_plain_loop(seed: int, covariance: Covariance, iterations: int) -> None:
    problem = make_problem(seed, covariance)
    found = solve(problem, iterations)
    for i, log_likelihood in enumerate(problem.plain_log_likelihood()):
        r, gamma = plain.e_step(log_likelihood, problem.alpha.numpy(), iterations)
        np.testing.assert_allclose(found.log_r[i][problem.mask[i]].exp().numpy(), r, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(found.gamma[i].numpy(), gamma, rtol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_posterior_is_the_authors(case: dict[str, Tensor]) -> None:
    whitening = gaussian.whitening(torch.linalg.cholesky(case["Sigma"]))
    log_likelihood = gaussian.expected_log_likelihood(case["m_t"], case["s_t"], case["mu"], whitening)[None]
    mask = torch.ones_like(log_likelihood[..., 0], dtype=torch.bool)
    found = e_step(log_likelihood, case["alpha"], mask, iterations=int(case["e_step_iterations"]))
    assert_same(found, case["gamma"][None], case["log_r"][None], mask)


@few
@given(seeds)
def test_responsibilities_sum_to_one_and_gamma_to_prior_and_size(seed: int) -> None:
    problem = make_problem(seed)
    found = solve(problem)
    torch.testing.assert_close(found.log_r.exp().sum(dim=-1), torch.ones_like(problem.m[..., 0]), **EXACT)
    torch.testing.assert_close(found.gamma.sum(dim=-1), problem.alpha.sum() + problem.mask.sum(dim=-1), **EXACT)


@few
@given(seeds)
def test_gamma_and_responsibilities_belong_together(seed: int) -> None:
    problem = make_problem(seed)
    found = solve(problem, 100, tolerance=1e-2)
    for r, mask, gamma in zip(found.log_r.exp(), problem.mask, found.gamma, strict=True):
        torch.testing.assert_close(problem.alpha + r[mask].sum(dim=0), gamma, **EXACT)


def reordered(problem: Problem, *places: slice | list[int]) -> Problem:
    """The same with tasks, or data points of each task, in another order."""
    m, s, mask = (part[places] for part in (problem.m, problem.s, problem.mask))
    return replace(problem, m=m, s=s, mask=mask)


@few
@given(seeds, st.permutations(range(6)))
def test_order_of_data_does_not_matter(seed: int, order: list[int]) -> None:
    problem = make_problem(seed)
    found, shuffled = solve(problem), reordered(problem, slice(None), order)
    assert_same(solve(shuffled), found.gamma, found.log_r[:, order], shuffled.mask)


@few
@given(seeds, st.permutations(range(3)))
def test_order_of_tasks_permutes_the_answer(seed: int, order: list[int]) -> None:
    problem = make_problem(seed)
    found, shuffled = solve(problem), reordered(problem, order)
    assert_same(solve(shuffled), found.gamma[order], found.log_r[order], shuffled.mask)


@few
@given(seeds, st.permutations(range(3)))
def test_order_of_themes_permutes_the_answer(seed: int, order: list[int]) -> None:
    problem = make_problem(seed)
    found = solve(problem)
    mu, Sigma, alpha = (part[order] for part in (problem.mu, problem.Sigma, problem.alpha))
    shuffled = replace(problem, mu=mu, Sigma=Sigma, alpha=alpha)
    assert_same(solve(shuffled), found.gamma[:, order], found.log_r[..., order], problem.mask)


@few
@given(seeds, st.sampled_from([None, 1e-2, 1e-6]))
def test_a_padded_task_in_a_batch_is_the_task_alone(seed: int, tolerance: float | None) -> None:
    problem = make_problem(seed, sizes=(6, 1, 4))
    found = solve(problem, 40, tolerance)
    alone = [solve(problem.alone(i), 40, tolerance) for i in range(3)]
    for i, single in enumerate(alone):
        torch.testing.assert_close(found.gamma[i], single.gamma[0], **EXACT)
        torch.testing.assert_close(found.log_r[i][problem.mask[i]], single.log_r[0], **EXACT)
        assert bool(found.converged[i]) == bool(single.converged[0])
    assert int(found.iterations) == max(int(single.iterations) for single in alone)


def test_an_empty_task_keeps_the_prior() -> None:
    problem = make_problem(0, sizes=(4, 0))
    found = solve(problem, tolerance=1e-9, iterations=300)
    torch.testing.assert_close(found.gamma[1], problem.alpha)
    assert found.converged.all()


@few
@given(seeds, covariances)
def test_no_update_lowers_the_bound(seed: int, covariance: Covariance) -> None:
    problem = make_problem(seed, covariance)
    log_likelihood = problem.log_likelihood()

    def bound(log_r: Tensor, gamma: Tensor) -> Tensor:
        return lda_bound(log_likelihood, log_r, gamma, problem.alpha, problem.mask).total()

    values = []
    for iterations in range(1, 9):
        found = solve(problem, iterations)
        values.append(bound(found.log_r, found.gamma))
        values.append(bound(responsibilities(log_likelihood, found.gamma), found.gamma))
    assert torch.stack(values).diff(dim=0).min() > -1e-10


def test_it_stops_at_the_tolerance_and_says_so() -> None:
    problem = make_problem(1, sizes=(6,))
    found = solve(problem, iterations=1000, tolerance=1e-6)
    done = int(found.iterations)
    assert done < 1000
    assert found.converged.all()
    torch.testing.assert_close(found.gamma, solve(problem, done).gamma, **EXACT)
    changes = [(solve(problem, n).gamma - solve(problem, n - 1).gamma).abs().mean(dim=-1).max() for n in (done - 1, done)]
    assert changes[1] < 1e-6 <= changes[0]


def test_each_task_reports_its_own_convergence() -> None:
    clear, vague = [20.0, 0.0], [0.1, 0.0]
    log_likelihood = torch.tensor([[clear, clear], [vague, vague]], dtype=torch.float64)
    mask = torch.ones(2, 2, dtype=torch.bool)
    found = e_step(log_likelihood, torch.full((2,), 0.5, dtype=torch.float64), mask, iterations=4, tolerance=1e-3)
    assert found.converged.tolist() == [True, False]
    assert int(found.iterations) == 4


def test_without_a_tolerance_all_iterations_run_and_convergence_is_not_claimed() -> None:
    found = solve(make_problem(0), iterations=123)
    assert int(found.iterations) == 123
    assert not found.converged.any()
