from __future__ import annotations

import pytest
import torch

from oracles.learners import make_learner, make_points
from oracles.meta import plain_logits, plain_maml_loss
from tasktheme.learners.base import Noise


def noise(tasks: int) -> Noise:
    return Noise(0, torch.arange(tasks))


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("first_order", [False, True])
@pytest.mark.parametrize("convolution", ["loop", "patches", "grouped"])
def test_the_meta_gradient_is_that_of_a_plain_loop(steps: int, first_order: bool, convolution: str) -> None:
    learner = make_learner("maml", inner_steps=steps, first_order=first_order, convolution=convolution)
    support, query = make_points(3, 2), make_points(3, 4, seed=1)
    ours = learner.meta_loss(support, query, noise(3))[0].mean()
    weights = dict(learner.weights)
    plain = plain_maml_loss(weights, support, query, steps=steps, rate=0.1, first_order=first_order)
    torch.testing.assert_close(ours, plain)
    slopes = [torch.autograd.grad(loss, list(weights.values())) for loss in (ours, plain)]
    for name, got, expected in zip(weights, *slopes, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-9, msg=name)


def test_the_orders_differ() -> None:
    slopes = []
    for first_order in (False, True):
        learner = make_learner("maml", first_order=first_order)
        loss = learner.meta_loss(make_points(2, 1), make_points(2, 2, seed=1), noise(2))[0].sum()
        slopes.append(torch.autograd.grad(loss, learner.weights["convolution_0"])[0])
    assert not torch.allclose(*slopes, rtol=1e-2)


def test_testing_takes_its_own_number_of_steps() -> None:
    learner = make_learner("maml", inner_steps=1, test_steps=3)
    support = make_points(1, 2)
    weights = {name: value.detach().requires_grad_() for name, value in learner.weights.items()}
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(plain_logits(weights, support.x[0]), support.y[0])
        slopes = torch.autograd.grad(loss, list(weights.values()))
        weights = {n: (w - 0.1 * g).detach().requires_grad_() for (n, w), g in zip(weights.items(), slopes, strict=True)}
    adapted = learner.adapt(support, noise(1))
    for name, value in weights.items():
        torch.testing.assert_close(adapted[name][0], value, msg=name)


def test_learned_rates_start_at_the_rate_and_get_a_gradient() -> None:
    plain, learned = (make_learner("maml", learn_rates=choice) for choice in (False, True))
    support, query = make_points(2, 1), make_points(2, 2, seed=1)
    losses = [learner.meta_loss(support, query, noise(2))[0].sum() for learner in (plain, learned)]
    torch.testing.assert_close(*losses)
    rates = list(learned.rates.values())
    assert len(rates) == len(learned.weights)
    slopes = torch.autograd.grad(losses[1], rates)
    with torch.no_grad():
        rates[0] += 1e-6
    raised = learned.meta_loss(support, query, noise(2))[0].sum()
    assert slopes[0].item() == pytest.approx((raised - losses[1]).item() / 1e-6, rel=1e-3)
