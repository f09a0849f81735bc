"""Which tasks of a pool to learn next, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tasktheme.errors import DataError, SettingsError
from tasktheme.learners.base import Learner
from tasktheme.learners.meta import MetaLearner
from tasktheme.progress import Advance, progress_bar
from tasktheme.selection.base import Now, Policy, Pool, Tasks
from tasktheme.selection.build import build_policy
from tasktheme.tasks.taskset import TaskSet

RANKED = ("rank", "task", "score", "reason")  # columns that the command gives to picks: they say nothing of which task it is
_AT_ONCE = 8  # tasks described between two movements of the progress bar

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Selection:
    """The picked tasks, best first; all (k,).

    Attributes:
        indices: their places in the pool.
        scores: higher is sooner; what a policy picks greedily is scored at the moment of each pick.
        reasons: a few words on each.
        size: the number of data points that all tasks were brought to, where theirs differed.
    """

    indices: npt.NDArray[np.int64]
    scores: Floats
    reasons: tuple[str, ...]
    size: int | None = None

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        lines = [f"task {index}: {reason}" for index, reason in zip(self.indices[:10], self.reasons, strict=False)]
        return "\n".join([*lines, *([f"and {len(self) - 10:,} more"] if len(self) > 10 else [])])


def select(
    pool: TaskSet | Tasks,
    policy: str | Policy = "ptm",
    k: int = 1,
    *,
    targets: TaskSet | Tasks | None = None,
    learner: MetaLearner | Learner | None = None,
    recent: TaskSet | Tasks | None = None,
    seed: int = 0,
    step: int = 0,
    progress: bool = True,
) -> Selection:
    """The ``k`` tasks of a pool to learn next.

    Args:
        pool: a task set, or tasks with images (``draw_tasks``) for the policies that look at them.
        policy: "ptm", "task2vec", "worst-case", "random", "predicted", "diverse", or one with settings of its own.
        k: how many, best first.
        targets: tasks that the learner is to do well on; without them, on any. "random" does not look at them.
        learner: the current meta-learner, for "worst-case" and "predicted"; for "task2vec" its probe, a MAML.
        recent: tasks picked before, latest last: those of them that are still in the pool are not picked again, and policies with
            a memory, as "diverse", look at the last. A task is known by gamma and the columns that both sets have.
        seed: with ``step``, of everything random.
        step: how many picks came before.
        progress: show a progress bar on standard error while images are looked at.

    Task sets of different sizes are brought to the smallest, as entropy and KL depend on the size.
    """
    network = learner.learner if isinstance(learner, MetaLearner) else learner
    if network is not None and not isinstance(network, Learner):
        raise SettingsError(f"learner must be a MetaLearner, got {type(learner).__name__}")
    chosen = build_policy(policy, probe=network) if isinstance(policy, str) else policy
    if not isinstance(chosen, Policy):
        raise SettingsError(f"policy must be a name or an object of a subclass of tasktheme.Policy, got {chosen!r}")
    if not isinstance(step, int | np.integer) or step < 0:
        raise SettingsError(f"step must be a whole number of earlier picks, 0 or more, got {step!r}")
    for part in (pool, *(given for given in (targets, recent) if given is not None)):
        if not isinstance(part, TaskSet | Tasks):
            raise DataError(f"expected a task set (model.embed) or tasks with images (draw_tasks), got {type(part).__name__}")
    if targets is not None and not len(targets):
        raise DataError("there are no target tasks; leave targets out to do well on any task")
    if not len(pool):
        raise DataError("the pool is empty: there is no task to pick")
    left = not_picked(pool, recent)
    if not left.any():
        raise DataError("all tasks of the pool were picked before: leave recent out, or take another pool")
    if not isinstance(k, int | np.integer) or not 1 <= k <= left.sum():
        what = "the size of the pool" if recent is None else "the tasks of the pool that were not picked before"
        raise DataError(f"k must be a whole number from 1 to {left.sum()}, {what}, got {k!r}")
    [own, aims, last], size = _as_tasks([pool, targets, recent])
    assert own is not None
    chosen.check(own)
    slow = not chosen.sees_learner and "support" in chosen.needs  # to describe; who sees the learner is slow to score
    total = len(own) + (len(aims) if slow and aims is not None else 0)
    with progress_bar("looking at tasks", total, show=progress and chosen.looks_at_all) as advance:
        described, aimed = (None if tasks is None else _enter(chosen, tasks, slow, advance) for tasks in (own, aims))
        assert described is not None
        looks_back = last is not None and chosen.memory and not chosen.sees_learner  # who sees it wants its losses on them too
        remembered = chosen.enter(last).kept[-chosen.memory :] if last is not None and looks_back else described.kept[:0]
        now = Now(seed, step, network, remembered, looked=lambda tasks: advance(tasks, ""))
        pick = _greedily if chosen.greedy else _at_once
        picks = pick(chosen, described, aimed, now, k, torch.from_numpy(left).to(described.kept.device))
    indices, scores, reasons = zip(*picks, strict=True)
    return Selection(np.array(indices, dtype=np.int64), np.array(scores, dtype=np.float64), reasons, size)


def not_picked(pool: TaskSet | Tasks, recent: TaskSet | Tasks | None) -> npt.NDArray[np.bool_]:
    """(T,) False for tasks of a pool that were picked before: of those alike in all that both sets know, as many as were picked.

    Gamma alone does not tell small tasks apart: with few data points, many have the very same.
    """
    left = np.ones(len(pool), dtype=np.bool_)
    if isinstance(pool, TaskSet) and isinstance(recent, TaskSet) and pool.prior is not None and recent.prior is not None:
        size = int(min((*pool.sizes, *recent.sizes), default=0))
        pool, recent = (part.resized(size) if size else part for part in (pool, recent))  # one of them may have been
    own, known = (_known(part) for part in (pool, recent))
    if own is None or known is None:
        return left
    shared = [name for name in own[1] if name in known[1] and name not in RANKED]
    picked = Counter(_keys(*known, shared))
    for row, key in enumerate(_keys(*own, shared)):
        if picked[key]:
            picked[key] -= 1
            left[row] = False
    return left


def _known(tasks: TaskSet | Tasks | None) -> tuple[Floats, Mapping[str, Sequence[Any]]] | None:
    """Gamma, and what else tells tasks apart, by name."""
    if isinstance(tasks, TaskSet):
        return tasks.concentration, tasks.columns
    if isinstance(tasks, Tasks) and tasks.gamma is not None:
        return tasks.gamma.double().cpu().numpy(), {"number": tasks.numbers.tolist()}
    return None


def _keys(gamma: Floats, columns: Mapping[str, Sequence[Any]], names: Sequence[str]) -> Iterator[tuple[bytes | str, ...]]:
    """What each task is known by; values as texts, which are the same before and after a file of any kind."""
    for row, numbers in enumerate(gamma):
        rounded = numbers.astype(np.float32)  # brought to one size by another way, they may differ in the last digits
        yield rounded.tobytes(), *(_text(columns[name][row]) for name in names)


def _text(value: Any) -> str:
    """A value as what any file makes of it: CSV has no lists, nothing of its own for what is absent, and 1.0 is 1 there."""
    if isinstance(value, list | tuple | np.ndarray):
        return " ".join(map(str, value))
    if value is None or value != value:  # NaN
        return ""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _enter(policy: Policy, tasks: Tasks, slow: bool, advance: Advance) -> Pool:
    """Tasks as a policy describes them, a few at a time where that is slow."""
    if not slow:
        return policy.enter(tasks)
    kept = []
    for first in range(0, len(tasks), _AT_ONCE):
        part = policy.enter(tasks[first : first + _AT_ONCE])
        kept.append(part.kept)
        advance(len(part), "")
    return Pool(tasks, torch.cat(kept))


def _scores(policy: Policy, pool: Pool, targets: Pool | None, now: Now) -> Tensor:
    """What a policy, which may be a user's own, gives for each task."""
    scores: object = policy.scores(pool, targets, now)
    name = getattr(policy, "name", type(policy).__name__)
    if not isinstance(scores, Tensor) or scores.shape != (len(pool),) or scores.is_complex():
        raise DataError(f"the policy {name!r} must give a tensor of {len(pool)} numbers, one for each task of the pool")
    if count := int(scores.isnan().sum()):
        raise DataError(f"the policy {name!r} must give numbers, but {count} of its {len(pool)} scores are NaN")
    return scores


def _at_once(policy: Policy, pool: Pool, targets: Pool | None, now: Now, k: int, left: Tensor) -> list[tuple[int, float, str]]:
    """The best of those that are ``left``."""
    scores = _scores(policy, pool, targets, now)
    rows = left.nonzero().squeeze(1)
    order = rows[scores[rows].argsort(descending=True, stable=True)][:k].tolist()
    return [(row, float(scores[row]), policy.reason(pool, targets, now, scores, row)) for row in order]


def _greedily(policy: Policy, pool: Pool, targets: Pool | None, now: Now, k: int, left: Tensor) -> list[tuple[int, float, str]]:
    """One pick after another of those that are ``left``, each remembered by the next."""
    picks: list[tuple[int, float, str]] = []
    left = left.clone()
    for _ in range(k):
        scores = _scores(policy, pool, targets, now)
        rows = left.nonzero().squeeze(1)
        row = int(rows[scores[rows].argmax()])
        picks.append((row, float(scores[row]), policy.reason(pool, targets, now, scores, row)))
        left[row] = False
        kept = pool.kept[row : row + 1]
        earlier: Tensor = kept[:0] if now.recent is None else now.recent
        now = replace(now, step=now.step + 1, recent=torch.cat([earlier, kept])[-policy.memory :])
    return picks


def _as_tasks(given: list[TaskSet | Tasks | None]) -> tuple[list[Tasks | None], int | None]:
    """Task sets as tasks that compare by content: of one model and, if their sizes differ, brought to the smallest."""
    if any(isinstance(part, Tasks) for part in given):
        if any(isinstance(part, TaskSet) for part in given):
            raise DataError("pool, targets and recent must all be task sets, or all tasks with images")
        tasks = [part if isinstance(part, Tasks) else None for part in given]
        if len({(part.gamma.shape[-1], part.aspects) for part in tasks if part is not None and part.gamma is not None}) > 1:
            raise DataError("the tasks come from different models and cannot be compared: draw all with one model")
        return tasks, None
    sets = [part for part in given if isinstance(part, TaskSet)]
    sizes = np.concatenate([part.sizes for part in sets])
    if (sizes == 0).any():
        raise DataError("a task without data points says nothing, and cannot be chosen or chosen for: leave it out")
    size = None if not len(sizes) or sizes.min() == sizes.max() else int(sizes.min())
    found: list[Tasks | None] = []
    for part in given:
        if not isinstance(part, TaskSet):
            found.append(None)
            continue
        sets[0].check_same_model(part)
        compared = part if size is None else part.resized(size)
        found.append(Tasks(torch.arange(len(part)), gamma=torch.tensor(compared.concentration), aspects=part.aspects))
    return found, size
