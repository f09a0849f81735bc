"""Whether a task is worth learning from at all: the best of a pool may teach nothing, or the wrong thing.

The paper sees its learners overfit and leaves that open. Two rules, either for a policy's pick, which is then discarded without
an update: the loss that the update computes anyway, or whether the update would lower the loss on tasks held out for this.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from tasktheme.errors import DataError
from tasktheme.learners.base import Learner, Noise, precision
from tasktheme.selection.base import Tasks, labelled

_FEWEST = 10  # losses from which it is known what is usual


def worth_learning(loss: Float[Tensor, "*A"], recent: Float[Tensor, "*A R"], *, margin: float = 1.0) -> Bool[Tensor, "*A"]:
    """Whether the learner's loss on a task, before learning it, is above the usual on the last picks less ``margin`` deviations.

    A task that the learner already does unusually well teaches little. ``margin`` 0 learns only from tasks that are harder
    than usual. Always true as long as there are fewer than ten losses.
    """
    if recent.shape[-1] < _FEWEST:
        return torch.ones_like(loss, dtype=torch.bool)
    return loss > recent.mean(dim=-1) - margin * recent.std(dim=-1)


def meta_gradient(learner: Learner, tasks: Tasks, *, seed: int) -> Float[Tensor, " P"]:
    """The gradient of the mean loss that meta-training lowers, over all parameters of the learner."""
    if tasks.query is None:
        raise DataError("these tasks have no queries, which the loss of meta-training needs")
    with precision(learner.settings), torch.enable_grad():
        loss = learner.meta_loss(labelled(tasks), tasks.query, Noise(seed, tasks.numbers))[0].mean()
        found = torch.autograd.grad(loss, list(learner.parameters()))
    return torch.cat([gradient.flatten() for gradient in found])


def alignment(gradient: Float[Tensor, "*A P"], reference: Float[Tensor, "*A P"]) -> Float[Tensor, "*A"]:
    """The cosine of a task's :func:`meta_gradient` with that of reference tasks, such as validation tasks.

    A small step against the first changes the loss on the others by minus the product of the two: where it is not above 0,
    the task is not worth learning.
    """
    return F.cosine_similarity(gradient, reference, dim=-1)
