"""Worst-case selection (Collins, Mokhtari & Shakkottai, 2020): the task that the current learner is worst at.

It looks at every task of the pool at every pick, and in transduction at every pair of a task and a target.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from tasktheme.errors import DataError
from tasktheme.learners.base import Learner, Noise, precision
from tasktheme.learners.testing import tasks_at_once
from tasktheme.learners.whole_step import WholeStep, adapted_losses
from tasktheme.selection.base import Now, Policy, Pool, Tasks, labelled, place

Looked = Callable[[int], None]


class WorstCase(Policy):
    """Induction: the highest loss on the queries, after adapting to the labelled points. Transduction: adapted to the task,
    the highest mean entropy of the predictions on all points of the targets (MacKay, 1992)."""

    name = "worst-case"
    title = "Worst case"
    needs = ("support", "query")
    looks_at_all = True
    sees_learner = True

    def scores(self, pool: Pool, targets: Pool | None, now: Now) -> Float[Tensor, " T"]:
        """Losses, or mean entropies in nats."""
        learner = require_learner(now, self.name)
        if targets is None:
            return learner_losses(learner, pool.tasks, seed=now.seed, compiled=now.compiled, looked=now.looked)
        return target_entropies(learner, pool.tasks, targets.tasks, seed=now.seed, looked=now.looked)

    def reason(self, pool: Pool, targets: Pool | None, now: Now, scores: Float[Tensor, " T"], row: int) -> str:
        """Loss, or entropy of the predictions."""
        measure = "loss" if targets is None else "targets predicted with entropy"
        return f"{measure} {float(scores[row]):.3f} nats, {place(scores, row)}"


def require_learner(now: Now, name: str) -> Learner:
    """The learner of the moment."""
    if now.learner is None:
        raise DataError(f"the policy {name!r} looks at the current meta-learner, and there is none: give one")
    return now.learner


def learner_losses(
    learner: Learner, tasks: Tasks, *, seed: int, compiled: WholeStep | None = None, looked: Looked = lambda tasks: None
) -> Float[Tensor, " T"]:
    """The loss on each task's queries, of the learner adapted to its labelled points as when testing."""
    found: list[Tensor] = []
    with precision(learner.settings):
        for rows in _blocks(learner, tasks, tasks.points):
            part = tasks[rows]
            support, query = labelled(part), part.query
            assert query is not None
            if compiled is None:
                found += adapted_losses(learner, support, query, Noise(seed, part.numbers))
            else:
                found += compiled(learner, support, query, seed, part.numbers)
            looked(len(part))
    return torch.cat(found)


@torch.no_grad()
def target_entropies(
    learner: Learner, tasks: Tasks, targets: Tasks, *, seed: int, looked: Looked = lambda tasks: None
) -> Float[Tensor, " T"]:
    """Adapted to each task, the mean over all points of all targets of -sum_c p_c ln p_c."""
    images = targets.x
    found = []
    with precision(learner.settings):
        for rows in _blocks(learner, tasks, tasks.points + images.shape[1]):
            part = tasks[rows]
            noise = Noise(seed, part.numbers)
            adapted = learner.adapt(labelled(part), noise)
            together = len(part)
            entropies = []
            for x in images:  # with a block of tasks at once, but batch norm sees one target at a time
                log_p = learner.predict(adapted, x.expand(together, *x.shape), noise)
                entropies.append(torch.special.entr(log_p.exp()).sum(dim=-1).mean(dim=-1))
            found.append(torch.stack(entropies).mean(dim=0))
            looked(len(part))
    return torch.cat(found)


def _blocks(learner: Learner, tasks: Tasks, points: int) -> list[slice]:
    parts = -(-len(tasks) // tasks_at_once(learner, points, tasks.numbers.device))
    size = -(-len(tasks) // parts)  # as equal as can be: a compiled program is for one number of tasks
    return [slice(first, first + size) for first in range(0, len(tasks), size)]
