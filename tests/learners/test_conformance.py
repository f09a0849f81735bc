"""What every meta-learner must do, whatever it is inside."""

from __future__ import annotations

import pytest
import torch

from oracles.learners import NAMES, make_learner, make_points
from tasktheme.learners.base import Noise, Points

every = pytest.mark.parametrize("name", NAMES)


def noise(*tasks: int) -> Noise:
    return Noise(0, torch.tensor(tasks))


def one(points: Points, task: int) -> Points:
    return Points(points.x[task : task + 1], points.y[task : task + 1], points.ways)


@every
def test_predictions_are_probabilities(name: str) -> None:
    learner, support, query = make_learner(name), make_points(2, 1), make_points(2, 4, seed=1)
    log_p = learner.predict(learner.adapt(support, noise(0, 1)), query.x, noise(0, 1))
    assert log_p.shape == (2, 12, 3)
    torch.testing.assert_close(log_p.exp().sum(dim=-1), torch.ones(2, 12, dtype=torch.float64))


@every
def test_a_batch_is_its_tasks_one_at_a_time(name: str) -> None:
    learner, support, query = make_learner(name), make_points(3, 2), make_points(3, 4, seed=1)
    numbers = noise(4, 5, 6)
    together = learner.predict(learner.adapt(support, numbers), query.x, numbers)
    for task in range(3):
        alone = noise(4 + task)
        log_p = learner.predict(learner.adapt(one(support, task), alone), one(query, task).x, alone)
        torch.testing.assert_close(log_p, together[task : task + 1])


@every
def test_the_meta_loss_of_a_batch_and_its_gradient_are_those_of_its_tasks(name: str) -> None:
    learner, support, query = make_learner(name), make_points(3, 1), make_points(3, 2, seed=1)
    weights = list(learner.parameters())
    together, log_p = learner.meta_loss(support, query, noise(0, 1, 2))
    torch.testing.assert_close(log_p.exp().sum(dim=-1), torch.ones(3, 6, dtype=torch.float64))
    alone = torch.cat([learner.meta_loss(one(support, t), one(query, t), noise(t))[0] for t in range(3)])
    torch.testing.assert_close(together, alone)
    for ours, theirs in zip(torch.autograd.grad(together.sum(), weights), torch.autograd.grad(alone.sum(), weights), strict=True):
        torch.testing.assert_close(ours, theirs)


@every
def test_the_meta_gradient_is_the_slope_of_the_meta_loss(name: str) -> None:
    learner, support, query = make_learner(name), make_points(2, 1), make_points(2, 2, seed=1)
    weights = list(learner.parameters())
    directions = [torch.randn(w.shape, dtype=w.dtype, generator=torch.Generator().manual_seed(i)) for i, w in enumerate(weights)]

    def loss_at(step: float) -> torch.Tensor:
        with torch.no_grad():
            for weight, direction in zip(weights, directions, strict=True):
                weight += step * direction
        loss = learner.meta_loss(support, query, noise(0, 1))[0].sum().detach()
        with torch.no_grad():
            for weight, direction in zip(weights, directions, strict=True):
                weight -= step * direction
        return loss

    slopes = torch.autograd.grad(learner.meta_loss(support, query, noise(0, 1))[0].sum(), weights)
    ours = sum(float((slope * direction).sum()) for slope, direction in zip(slopes, directions, strict=True))
    h = 1e-6
    assert ours == pytest.approx(float((loss_at(h) - loss_at(-h)) / (2 * h)), rel=1e-4, abs=1e-6)


@every
def test_testing_leaves_no_graph_and_no_gradient_behind(name: str) -> None:
    learner, support, query = make_learner(name), make_points(2, 1), make_points(2, 2, seed=1)
    with torch.no_grad():
        log_p = learner.predict(learner.adapt(support, noise(0, 1)), query.x, noise(0, 1))
    assert not log_p.requires_grad
    assert all(weight.grad is None for weight in learner.parameters())


@pytest.mark.parametrize("name", ["maml", "protonet"])  # ABML draws noise for each class
def test_classes_have_no_order(name: str) -> None:
    learner, support, query = make_learner(name), make_points(1, 2), make_points(1, 2, seed=1)
    if name == "maml":  # a head that prefers no class
        with torch.no_grad():
            learner.state_dict()["weights.head"].zero_()
    turned = torch.tensor([2, 0, 1])
    before = learner.predict(learner.adapt(support, noise(0)), query.x, noise(0))
    after = learner.predict(learner.adapt(Points(support.x, turned[support.y], 3), noise(0)), query.x, noise(0))
    torch.testing.assert_close(after[..., turned], before)
