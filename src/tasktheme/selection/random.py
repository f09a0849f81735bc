"""Random selection: every task of the pool alike."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from tasktheme.data.random import random_bits
from tasktheme.selection.base import Now, Policy, Pool

_STREAM = 3000  # of selection's random numbers, apart from those of samplers, trainings and learners


class Random(Policy):
    """A uniform number for each task, from the seed, the step and the task's own number."""

    name = "random"
    title = "Random"

    def scores(self, pool: Pool, targets: Pool | None, now: Now) -> Float[Tensor, "*A T"]:
        """Uniform numbers in [0, 1)."""
        step = torch.as_tensor(now.step, device=pool.kept.device)
        return random_bits(now.seed, _STREAM, step, pool.tasks.numbers).double() * 2.0**-63

    def reason(self, pool: Pool, targets: Pool | None, now: Now, scores: Float[Tensor, " T"], row: int) -> str:
        """That there is none."""
        return "chance"
