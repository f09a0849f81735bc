"""Arms side by side do what each would do by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from oracles.learners import NAMES, make_learner, make_points
from oracles.small import small_images
from tasktheme.learners.arms import ArmsOptimiser, arm_of, clip_each, stack_arms
from tasktheme.learners.base import Learner, Noise, Points
from tasktheme.learners.build import build_learner
from tasktheme.learners.testing import ListedTasks, random_classes
from tasktheme.learners.whole_step import arm_gradients

every = pytest.mark.parametrize("name", NAMES)
ARMS = 3


def three(name: str, **changes: Any) -> list[Learner]:
    learners = [make_learner(name, seed=seed, **changes) for seed in range(ARMS)]
    assert any(not torch.equal(*pair) for pair in zip(learners[0].parameters(), learners[1].parameters(), strict=True))
    return learners


def block(points: Points, first: int, count: int = 1) -> Points:
    return Points(points.x[first : first + count], points.y[first : first + count], points.ways)


def assert_same(stacked: Learner, learners: list[Learner]) -> None:
    for arm, learner in enumerate(learners):
        for (key, ours), theirs in zip(stacked.named_parameters(), learner.parameters(), strict=True):
            torch.testing.assert_close(ours[arm], theirs, msg=lambda text, key=key, arm=arm: f"{key} of arm {arm}: {text}")


@every
def test_each_arm_predicts_with_its_own_weights(name: str) -> None:
    learners = three(name)
    stacked = stack_arms(learners)
    support, query = make_points(2 * ARMS, 1), make_points(2 * ARMS, 2, seed=1)
    noise = Noise(0, torch.arange(2 * ARMS))
    together = stacked.predict(stacked.adapt(support, noise), query.x, noise)
    for arm, learner in enumerate(learners):
        for own in (learner, arm_of(stacked, arm)):
            noise = Noise(0, 2 * arm + torch.arange(2))
            alone = own.predict(own.adapt(block(support, 2 * arm, 2), noise), block(query, 2 * arm, 2).x, noise)
            torch.testing.assert_close(together[2 * arm : 2 * arm + 2], alone)


@every
@pytest.mark.parametrize("own", [{}, {"weight_decay": 0.1}, {"gradient_clip": 0.05}, {"learn_rates": True}])
def test_arms_train_as_each_does_alone(name: str, own: dict[str, Any]) -> None:
    if "learn_rates" in own and name != "maml":
        pytest.skip("only maml learns rates")
    learners = three(name, **own)
    stacked = stack_arms(learners)
    optimiser = ArmsOptimiser(stacked)
    settings = stacked.settings
    adams = [
        torch.optim.Adam(one.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay) for one in learners
    ]
    for step in range(4):
        support, query = make_points(ARMS, 1, seed=10 + step), make_points(ARMS, 2, seed=20 + step)
        numbers = 5 * step + torch.arange(ARMS)
        norms = optimiser.step(arm_gradients(stacked, support, query, Noise(0, numbers))[1:])
        for arm, (learner, adam) in enumerate(zip(learners, adams, strict=True)):
            adam.zero_grad()
            noise = Noise(0, numbers[arm : arm + 1])
            learner.meta_loss(block(support, arm), block(query, arm), noise)[0].sum().backward()
            norm = nn.utils.clip_grad_norm_(learner.parameters(), settings.gradient_clip)
            torch.testing.assert_close(norms[arm], norm)
            adam.step()
    assert_same(stacked, learners)


@pytest.mark.parametrize("resting", [0, 2])
def test_an_arm_at_rest_stays_as_it_was(resting: int) -> None:
    """From the first step on, and after some; the others go on as if nothing were."""
    stacked, free = (stack_arms(three("protonet", weight_decay=0.1)) for _ in range(2))
    optimiser, other = ArmsOptimiser(stacked), ArmsOptimiser(free)
    active = torch.tensor([True, False, True])
    for step in range(4):
        support, query = make_points(ARMS, 1, seed=10 + step), make_points(ARMS, 2, seed=20 + step)
        noise = Noise(0, torch.arange(ARMS))
        if step == resting:
            kept = [value[1].clone() for value in (*stacked.parameters(), *optimiser.tensors().values())]
        mask = active if step >= resting else torch.ones_like(active)
        optimiser.step(arm_gradients(stacked, support, query, noise)[1:], mask)
        other.step(arm_gradients(free, support, query, noise)[1:])
    now = [value[1] for value in (*stacked.parameters(), *optimiser.tensors().values())]
    kept += [torch.zeros_like(value) for value in now[len(kept) :]]  # moments, of an arm that never moved
    for before, after in zip(kept, now, strict=True):
        assert torch.equal(before, after)
    for ours, theirs in zip(stacked.parameters(), free.parameters(), strict=True):
        assert torch.equal(ours[active], theirs[active])
    moved = [not torch.equal(ours[1], theirs[1]) for ours, theirs in zip(stacked.parameters(), free.parameters(), strict=True)]
    assert any(moved)


def test_the_optimiser_goes_on_from_its_tensors() -> None:
    stacked = stack_arms(three("maml"))
    optimiser = ArmsOptimiser(stacked)
    assert optimiser.tensors() == {}

    def train(learner: Learner, optimiser: ArmsOptimiser, steps: range) -> None:
        for step in steps:
            noise = Noise(0, torch.arange(ARMS))
            support, query = make_points(ARMS, 1, seed=step), make_points(ARMS, 2, seed=9 + step)
            optimiser.step(arm_gradients(learner, support, query, noise)[1:])

    train(stacked, optimiser, range(3))
    kept = {name: value.clone() for name, value in optimiser.tensors().items()}
    weights = {name: value.clone() for name, value in stacked.state_dict().items()}
    train(stacked, optimiser, range(3, 5))
    again = stack_arms(three("maml"))
    for name, parameter in again.named_parameters():
        parameter.data.copy_(weights[name])
    second = ArmsOptimiser(again)
    second.load(kept, 3)
    train(again, second, range(3, 5))
    for ours, theirs in zip(again.parameters(), stacked.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_each_gradient_is_bounded_by_itself() -> None:
    parameter = nn.Parameter(torch.zeros(2, 2))
    parameter.grad = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    torch.testing.assert_close(clip_each([parameter], 1.0), torch.tensor([5.0, 0.5]))
    torch.testing.assert_close(parameter.grad, torch.tensor([[0.6, 0.8], [0.3, 0.4]]))


@every
def test_arms_are_tested_as_each_is_alone(name: str) -> None:
    data = small_images()
    own = {"train_ways": 3} if name == "protonet" else {"test_steps": 2, "inner_rate": 0.1}
    common = {"ways": 3, "queries": 4, "filters": 4, "modules": 2}
    learners = [build_learner(name, common | own | {"seed": seed}, data.point_shape) for seed in range(2)]
    settings = learners[0].settings
    tasks = ListedTasks(data, settings, random_classes(data, settings, 5, seed=0), torch.device("cpu"), seed=3)
    together = tasks.accuracies(stack_arms(learners))
    assert together.shape == (2, 5)
    for arm, learner in enumerate(learners):
        torch.testing.assert_close(together[arm], tasks.accuracies(learner))
        torch.testing.assert_close(together[arm, 1:3], tasks.accuracies(learner, 1, 3))
    assert together.unique().numel() > 1
