from __future__ import annotations

import dataclasses

import pytest
import torch

from oracles.learners import NAMES, make_learner
from oracles.selection import make_tasks
from tasktheme.errors import DataError
from tasktheme.learners.base import Noise, Points
from tasktheme.selection.base import Tasks
from tasktheme.selection.worth import alignment, meta_gradient, worth_learning


def test_unusually_easy_tasks_are_not_worth_it() -> None:
    recent = torch.tensor([0.5, 1.5] * 10)  # mean 1, deviation about 0.51
    losses = torch.tensor([0.4, 0.6, 1.1])
    assert worth_learning(losses, recent.expand(3, 20)).tolist() == [False, True, True]
    assert worth_learning(losses, recent.expand(3, 20), margin=0.0).tolist() == [False, False, True]
    assert worth_learning(losses, recent[:9].expand(3, 9)).tolist() == [True, True, True]
    assert worth_learning(losses[0], recent).item() is False


def loss_of(learner: torch.nn.Module, tasks: Tasks) -> float:
    return learner.meta_loss(tasks.support, tasks.query, Noise(3, tasks.numbers))[0].mean().item()


@pytest.mark.parametrize("name", NAMES)
def test_a_step_against_an_aligned_gradient_lowers_the_reference_loss(name: str) -> None:
    learner, reference = make_learner(name), make_tasks(3, seed=8)
    aim = meta_gradient(learner, reference, seed=3)
    found = []
    for seed in range(6):
        gradient = meta_gradient(learner, make_tasks(1, seed=seed), seed=3)
        step, before = 1e-5, loss_of(learner, reference)
        shifted = torch.nn.utils.parameters_to_vector(learner.parameters()).detach()
        torch.nn.utils.vector_to_parameters(shifted - step * gradient, learner.parameters())
        change = (loss_of(learner, reference) - before) / step
        torch.nn.utils.vector_to_parameters(shifted, learner.parameters())
        expected = -float(alignment(gradient, aim) * gradient.norm() * aim.norm())
        assert change == pytest.approx(expected, rel=0.02, abs=0.02 * float(gradient.norm() * aim.norm()))
        found.append(change)
    assert min(found) < 0.0
    torch.testing.assert_close(alignment(aim, aim), torch.tensor(1.0, dtype=torch.float64))


def test_a_task_with_wrong_labels_is_against_its_own() -> None:
    learner, tasks = make_learner("maml"), make_tasks(4, seed=2)
    assert tasks.query is not None
    right = meta_gradient(learner, tasks, seed=0)
    wrong = [
        dataclasses.replace(tasks, query=Points(tasks.query.x, (tasks.query.y + shift) % 3, 3)) for shift in (1, 2)
    ]  # with all wrong labels alike the three gradients nearly cancel
    against = sum(meta_gradient(learner, one, seed=0) for one in wrong)
    assert isinstance(against, torch.Tensor)
    assert float(alignment(against, right)) < 0.0


def test_it_needs_queries() -> None:
    tasks = make_tasks(1)
    with pytest.raises(DataError, match="no queries"):
        meta_gradient(make_learner("maml"), Tasks(tasks.numbers, tasks.support), seed=0)
