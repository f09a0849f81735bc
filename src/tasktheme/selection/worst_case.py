"""Worst-case selection (Collins, Mokhtari & Shakkottai, 2020): the task that the current learner is worst at.

It looks at every task of the pool at every pick, and in transduction at every pair of a task and a target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from tasktheme.errors import DataError
from tasktheme.learners.base import Learner, Noise, precision
from tasktheme.learners.testing import tasks_at_once
from tasktheme.learners.threads import each_piece
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

    def losses(rows: Int64[Tensor, " t"]) -> Float[Tensor, " t"]:
        part = tasks[rows]
        support, query = labelled(part), part.query
        assert query is not None
        if compiled is None:
            [found] = adapted_losses(learner, support, query, Noise(seed, part.numbers))
        else:
            [found] = compiled(learner, support, query, seed, part.numbers)
        return found

    size = _equal_parts(learner, tasks, tasks.points)
    rows = torch.arange(len(tasks), device=tasks.numbers.device)
    with precision(learner.settings):
        return _looked_at(each_piece(losses, rows, size) if compiled is None else map(losses, rows.split(size)), looked)


def target_entropies(
    learner: Learner, tasks: Tasks, targets: Tasks, *, seed: int, looked: Looked = lambda tasks: None
) -> Float[Tensor, " T"]:
    """Adapted to each task, the mean over all points of all targets of -sum_c p_c ln p_c."""
    images = targets.x

    @torch.no_grad()
    def entropies(rows: Int64[Tensor, " t"]) -> Float[Tensor, " t"]:
        part = tasks[rows]
        noise = Noise(seed, part.numbers)
        adapted = learner.adapt(labelled(part), noise)
        found = []
        for x in images:  # with a block of tasks at once, but batch norm sees one target at a time
            log_p = learner.predict(adapted, x.expand(len(part), *x.shape), noise)
            found.append(torch.special.entr(log_p.exp()).sum(dim=-1).mean(dim=-1))
        return torch.stack(found).mean(dim=0)

    size = _equal_parts(learner, tasks, tasks.points + images.shape[1])
    rows = torch.arange(len(tasks), device=tasks.numbers.device)
    with precision(learner.settings):
        return _looked_at(each_piece(entropies, rows, size), looked)


def _equal_parts(learner: Learner, tasks: Tasks, points: int) -> int:
    """The size of parts as equal as can be: a compiled program is for one number of tasks."""
    parts = -(-len(tasks) // tasks_at_once(learner, points, tasks.numbers.device))
    return -(-len(tasks) // parts)


def _looked_at(parts: Iterable[Float[Tensor, " t"]], looked: Looked) -> Float[Tensor, " T"]:
    found = []
    for part in parts:
        found.append(part)
        looked(len(part))
    return torch.cat(found)
