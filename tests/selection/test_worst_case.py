from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from oracles.learners import NAMES, make_learner
from oracles.meta import plain_logits
from oracles.selection import make_tasks, plain_adapted
from tasktheme.errors import DataError
from tasktheme.learners import testing
from tasktheme.learners.base import Points
from tasktheme.learners.maml import MAML
from tasktheme.selection.base import Now, Tasks
from tasktheme.selection.worst_case import WorstCase

POLICY = WorstCase()


def test_induction_is_the_loss_of_a_plain_loop() -> None:
    learner, tasks = make_learner("maml"), make_tasks(3)
    assert isinstance(learner, MAML)
    assert tasks.support is not None
    assert tasks.query is not None
    expected = []
    for task in range(3):
        logits = plain_logits(plain_adapted(learner, tasks.support, task), tasks.query.x[task])
        expected.append(F.cross_entropy(logits, tasks.query.y[task]).item())
    scores = POLICY.scores(POLICY.enter(tasks), None, Now(learner=learner))
    torch.testing.assert_close(scores, torch.tensor(expected, dtype=torch.float64))


def test_transduction_is_the_entropy_of_a_plain_loop() -> None:
    learner, tasks, targets = make_learner("maml"), make_tasks(3), make_tasks(2, seed=7)
    assert isinstance(learner, MAML)
    assert tasks.support is not None
    expected = []
    for task in range(3):
        weights = plain_adapted(learner, tasks.support, task)
        entropies = []
        for target in range(2):
            p = F.softmax(plain_logits(weights, targets.x[target]), dim=-1)
            entropies += [sum(-q.item() * q.log().item() for q in row) for row in p]
        expected.append(sum(entropies) / len(entropies))
    scores = POLICY.scores(POLICY.enter(tasks), POLICY.enter(targets), Now(learner=learner))
    torch.testing.assert_close(scores, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("transduction", [False, True])
def test_batched_is_one_at_a_time(name: str, transduction: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, tasks = make_learner(name), make_tasks(4)
    targets = POLICY.enter(make_tasks(2, seed=7)) if transduction else None
    now = Now(seed=5, learner=learner)
    together = POLICY.scores(POLICY.enter(tasks), targets, now)
    single = [POLICY.scores(POLICY.enter(tasks[i : i + 1]), targets, now) for i in range(4)]
    torch.testing.assert_close(together, torch.cat(single))
    monkeypatch.setitem(testing._NUMBERS_AT_ONCE, "cpu", 1)  # blocks of a single task
    torch.testing.assert_close(together, POLICY.scores(POLICY.enter(tasks), targets, now))
    assert not together.requires_grad


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("transduction", [False, True])
def test_threads_share_the_looks(transduction: bool) -> None:
    learner, tasks = make_learner("maml"), make_tasks(5)
    targets = POLICY.enter(make_tasks(2, seed=7)) if transduction else None
    looked: list[int] = []
    found = POLICY.scores(POLICY.enter(tasks), targets, Now(seed=5, learner=learner, looked=looked.append))
    assert looked == [3, 2], "a part for each thread, in order"
    assert not found.requires_grad
    torch.set_num_threads(1)
    torch.testing.assert_close(found, POLICY.scores(POLICY.enter(tasks), targets, Now(seed=5, learner=learner)))
    torch.set_num_threads(2)


def test_labels_of_queries_count_in_the_pool_and_not_in_targets() -> None:
    learner, tasks = make_learner("maml"), make_tasks(3)
    assert tasks.query is not None
    query = tasks.query
    other = dataclasses.replace(tasks, query=Points(query.x, (query.y + 1) % query.ways, query.ways))
    now = Now(learner=learner)

    def scores(pool: Tasks, targets: Tasks | None) -> torch.Tensor:
        return POLICY.scores(POLICY.enter(pool), None if targets is None else POLICY.enter(targets), now)

    assert not torch.equal(scores(tasks, None), scores(other, None))
    assert torch.equal(scores(tasks, tasks), scores(tasks, other))


def test_it_asks_for_a_learner() -> None:
    with pytest.raises(DataError, match="give one"):
        POLICY.scores(POLICY.enter(make_tasks(2)), None, Now())
