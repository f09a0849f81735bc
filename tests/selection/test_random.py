from __future__ import annotations

import torch
from scipy import stats

from tasktheme.selection.base import Now, Tasks
from tasktheme.selection.random import Random

POLICY = Random()


def test_every_task_is_picked_alike() -> None:
    pool = POLICY.enter(Tasks(torch.arange(8) + 1000))
    picks = torch.tensor([int(POLICY.scores(pool, None, Now(step=step)).argmax()) for step in range(2000)])
    assert stats.chisquare(torch.bincount(picks, minlength=8)).pvalue > 1e-4


def test_a_pick_depends_on_seed_step_and_the_tasks_numbers_alone() -> None:
    numbers = torch.arange(50)
    pool, turned = POLICY.enter(Tasks(numbers)), POLICY.enter(Tasks(numbers.flip(0)))
    scores = POLICY.scores(pool, None, Now(seed=1, step=3))
    assert torch.equal(scores, POLICY.scores(turned, None, Now(seed=1, step=3)).flip(0))
    assert not torch.equal(scores, POLICY.scores(pool, None, Now(seed=1, step=4)))
    assert not torch.equal(scores, POLICY.scores(pool, None, Now(seed=2, step=3)))
    assert bool(((scores >= 0.0) & (scores < 1.0)).all())
