"""The lifelong experiment in plain Python: one arm, one task at a time, lists for pools, a learner that is not stacked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from tasktheme.experiments.lifelong.world import World
from tasktheme.learners.base import Learner, Noise, Points, task_loss
from tasktheme.learners.build import build_learner
from tasktheme.ptm import PTM
from tasktheme.selection.base import Now, Policy, Pool, Tasks


@dataclass
class PlainArm:
    """An arm's life: what it picked at what loss, its pool at the end, and its weights."""

    learner: Learner
    pool: list[int]
    picked: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)


Score = Callable[[PlainArm], Sequence[float]]  # of each task of the arm's pool, before its next pick


def live(world: World, name: str, seed: int, steps: int, score: Score) -> PlainArm:
    """``steps`` steps of one arm: pick the task of the highest score, learn, discard, add."""
    learner = build_learner(name, world.learner.as_dict() | {"seed": seed}, world.split.train.point_shape)
    adam = torch.optim.Adam(learner.parameters(), lr=world.learner.learning_rate, weight_decay=world.learner.weight_decay)
    arm = PlainArm(learner, list(range(world.settings.pool)))
    for step in range(steps):
        scores = score(arm)
        task = arm.pool[max(range(len(arm.pool)), key=lambda row: scores[row])]
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


def score_by(policy: Policy, stream: Tasks, targets: Tasks | None) -> Score:
    """The policy's own scores of one arm's pool, a part of its seed's ``stream``."""
    kept, aims = policy.enter(stream).kept, None if targets is None else policy.enter(targets)

    def score(arm: PlainArm) -> list[float]:
        last = slice(max(0, len(arm.picked) - policy.memory), len(arm.picked))
        recent = (kept[torch.tensor(arm.picked[last], dtype=torch.int64)], torch.tensor(arm.losses[last]))
        now = Now(step=len(arm.picked), learner=arm.learner, recent=recent[0], losses=recent[1])
        rows = torch.tensor(arm.pool)
        found: list[float] = policy.scores(Pool(stream[rows], kept[rows]), aims, now).tolist()
        return found

    return score


def plain_tasks(world: World, model: PTM, numbers: Sequence[int], *, test: bool = False) -> Tasks:
    """Tasks of these numbers, made one after another with all that a policy may need: images by their rows, and gamma."""
    data, sampler = (world.split.test, world.test.sampler) if test else (world.split.train, world.sampler)
    parts: list[list[Tensor]] = []
    for number in numbers:
        halves = sampler.draw(torch.tensor([number]), world.learner.shots, world.learner.queries)
        rows = [half.rows[0].numpy() for half in halves]
        images = [torch.from_numpy(data.x[some]).float() / 255.0 for some in rows]
        gamma = torch.tensor(model.embed([data.x[np.concatenate(rows)]]).concentration[0])
        parts.append([*images, *(half.labels[0] for half in halves), gamma])
    support_x, query_x, support_y, query_y, gamma = (torch.stack(part) for part in zip(*parts, strict=True))
    support, query = (Points(x, y, world.learner.ways) for x, y in ((support_x, support_y), (query_x, query_y)))
    return Tasks(torch.tensor(numbers), support, query, gamma, model.themes.aspects)


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
