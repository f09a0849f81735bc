"""Whether a task is worth learning from at all: the best of a pool may teach nothing, or the wrong thing.

The paper sees its learners overfit and leaves that open. A rule for a policy's pick, which is then discarded without an update:
by the loss that the update computes anyway.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_FEWEST = 10  # losses from which it is known what is usual


def worth_learning(loss: Float[Tensor, "*A"], recent: Float[Tensor, "*A R"], *, margin: float = 1.0) -> Bool[Tensor, "*A"]:
    """Whether the learner's loss on a task, before learning it, is above the usual on the last picks less ``margin`` deviations.

    A task that the learner already does unusually well teaches little. ``margin`` 0 learns only from tasks that are harder
    than usual. Always true as long as there are fewer than ten losses.
    """
    if recent.shape[-1] < _FEWEST:
        return torch.ones_like(loss, dtype=torch.bool)
    return loss > recent.mean(dim=-1) - margin * recent.std(dim=-1)
