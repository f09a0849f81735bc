"""Small meta-learners and tasks for them."""

from __future__ import annotations

from typing import Any

import torch

from tasktheme.learners.base import Learner, Points
from tasktheme.learners.build import build_learner

NAMES = ("abml", "maml", "protonet")
SMALL: dict[str, dict[str, Any]] = {
    "maml": {"filters": 4, "modules": 2, "inner_rate": 0.1, "inner_steps": 2, "test_steps": 3},
    "protonet": {"filters": 4, "modules": 2, "train_ways": 4},
    "abml": {"filters": 4, "modules": 2, "inner_rate": 0.1, "inner_steps": 2, "test_steps": 3, "test_samples": 3},
}


def make_points(tasks: int, shots: int, *, ways: int = 3, seed: int = 0, dtype: torch.dtype = torch.float64) -> Points:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand((tasks, ways * shots, 2, 9, 8), generator=generator, dtype=dtype)  # an odd side: pooling drops a row
    order = torch.randperm(ways * shots, generator=generator)
    return Points(x, torch.arange(ways).repeat_interleave(shots)[order].expand(tasks, -1), ways)


def make_learner(name: str, *, dtype: torch.dtype = torch.float64, **changes: Any) -> Learner:
    learner = build_learner(name, SMALL[name] | {"ways": 3} | changes, (2, 9, 8)).to(dtype)
    with torch.no_grad():  # away from the start, where scales are all 1: some negative
        generator = torch.Generator().manual_seed(1)
        for key, value in learner.state_dict().items():
            if key.startswith(("weights.scale_", "mean.scale_")):
                value.copy_(torch.randn(value.shape, generator=generator, dtype=dtype))
    return learner
