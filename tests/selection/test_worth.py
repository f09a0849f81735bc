from __future__ import annotations

import torch

from tasktheme.selection.worth import worth_learning


def test_unusually_easy_tasks_are_not_worth_it() -> None:
    recent = torch.tensor([0.5, 1.5] * 10)  # mean 1, deviation about 0.51
    losses = torch.tensor([0.4, 0.6, 1.1])
    assert worth_learning(losses, recent.expand(3, 20)).tolist() == [False, True, True]
    assert worth_learning(losses, recent.expand(3, 20), margin=0.0).tolist() == [False, False, True]
    assert worth_learning(losses, recent[:9].expand(3, 9)).tolist() == [True, True, True]
    assert worth_learning(losses[0], recent).item() is False
