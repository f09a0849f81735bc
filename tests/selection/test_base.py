from __future__ import annotations

import pytest
import torch

from oracles.selection import make_gamma, make_tasks
from tasktheme.errors import DataError, SettingsError
from tasktheme.selection.base import Now, Policy, Pool, Tasks
from tasktheme.selection.ptm import PTMPolicy
from tasktheme.selection.worst_case import WorstCase


def test_some_tasks() -> None:
    tasks = make_tasks(4)
    some = tasks[torch.tensor([2, 0])]
    assert len(some) == 2
    assert some.numbers.tolist() == [2, 0]
    assert tasks.support is not None
    assert some.support is not None
    assert some.query is not None
    assert some.gamma is not None
    assert torch.equal(some.support.x, tasks.support.x[[2, 0]])
    assert torch.equal(some.gamma, make_gamma(4)[[2, 0]])
    assert tasks.points == tasks.x.shape[1] == 9


def test_a_policy_says_what_it_misses() -> None:
    with pytest.raises(DataError, match="'ptm' needs of each task a distribution"):
        PTMPolicy().enter(Tasks(torch.arange(2)))
    with pytest.raises(DataError, match="'worst-case' needs of each task labelled images"):
        WorstCase().enter(Tasks(torch.arange(3), gamma=make_gamma(3)))


@pytest.mark.parametrize("asked", [("gama",), ("support", "points"), "gamma"])
def test_a_policy_that_needs_what_is_not_there_is_told(asked: tuple[str, ...]) -> None:
    class Own(Policy):
        name, needs = "own", asked

        def scores(self, pool: Pool, targets: Pool | None, now: Now) -> torch.Tensor:
            return torch.zeros(len(pool))

    with pytest.raises(SettingsError, match=r"^needs of the policy 'own' must be .* some of 'support', 'query', 'gamma', got "):
        Own().enter(make_tasks(2))
