"""The lifelong experiment in plain Python: one arm, one task at a time, lists for pools, a learner that is not stacked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from tasktheme.experiments.lifelong.world import World
from tasktheme.learners.base import Learner, Noise, task_loss
from tasktheme.learners.build import build_learner

Score = Callable[[Learner, int, int], float]  # of the learner, a task of the stream and the step


@dataclass
class PlainArm:
    """An arm's life: what it picked at what loss, its pool at the end, and its weights."""

    learner: Learner
    pool: list[int]
    picked: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)


def live(world: World, name: str, seed: int, steps: int, score: Score) -> PlainArm:
    """``steps`` steps of one arm: pick the task of the highest score, learn, discard, add."""
    learner = build_learner(name, world.learner.as_dict() | {"seed": seed}, world.split.train.point_shape)
    adam = torch.optim.Adam(learner.parameters(), lr=world.learner.learning_rate, weight_decay=world.learner.weight_decay)
    arm = PlainArm(learner, list(range(world.settings.pool)))
    for step in range(steps):
        task = max(arm.pool, key=lambda place: score(learner, place, step))
        number = torch.tensor([seed * 2**32 + task])
        support, query = world.draw(number)
        [loss], _ = learner.meta_loss(support, query, Noise(0, number))
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(learner.parameters(), world.learner.gradient_clip)
        adam.step()
        arm.picked.append(task)
        arm.losses.append(loss.item())
        arm.pool[arm.pool.index(task)] = world.settings.pool + step
    return arm


def plain_loss(world: World, learner: Learner, seed: int, task: int) -> float:
    """The learner's loss on a task, adapted as when testing."""
    number = torch.tensor([seed * 2**32 + task])
    support, query = world.draw(number)
    noise = Noise(0, number)
    with torch.no_grad():
        return float(task_loss(learner.predict(learner.adapt(support, noise), query.x, noise), query.y))


def plain_average(values: Sequence[float], weight: float) -> list[float]:
    """The mean of the values so far, one that is i values old weighing weight^i."""
    found = []
    for last in range(len(values)):
        weights = [weight ** (last - i) for i in range(last + 1)]
        found.append(sum(w * v for w, v in zip(weights, values, strict=False)) / sum(weights))
    return found
