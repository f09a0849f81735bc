"""Several learners side by side as one: their parameters along a leading axis of arms, trained in one program.

Arm a owns the a-th block of a batch's tasks. Each task has weights of its own in the inner loop anyway, so A arms of one task
cost what a mini-batch of A tasks does. The gradient of the sum of all losses gives each arm the gradient of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tasktheme.learners.base import Learner

_TINY = 1e-6  # added to a gradient's norm before dividing by it, as torch's own clipping does
_MOMENTS = ("exp_avg", "exp_avg_sq")


def stack_arms(learners: Sequence[Learner]) -> Learner:
    """One learner that holds the parameters of all the given ones, which must have the same settings but for the seed."""
    stacked = copy.deepcopy(learners[0])
    stacked.arms = len(learners)
    parts = [dict(learner.named_parameters()) for learner in learners]
    for name, parameter in stacked.named_parameters():
        parameter.data = torch.stack([part[name].detach() for part in parts])
    return stacked


def arm_of(stacked: Learner, arm: int) -> Learner:
    """One of the stacked learners by itself; it shares their memory, and so learns with them."""
    found = copy.deepcopy(stacked)
    found.arms = None
    for own, parameter in zip(found.parameters(), stacked.parameters(), strict=True):
        own.data = parameter.data[arm]
    return found


def arms_between(stacked: Learner, first: int, last: int) -> Learner:
    """The stacked learners from ``first`` to before ``last``, stacked; they share the memory too."""
    found = copy.deepcopy(stacked)
    found.arms = last - first
    for own, parameter in zip(found.parameters(), stacked.parameters(), strict=True):
        own.data = parameter.data[first:last]
    return found


class ArmsOptimiser:
    """Adam for stacked learners, with the L2 and the bound on the gradient's norm that their settings ask for, arm by arm."""

    def __init__(self, learner: Learner) -> None:
        self._clip = learner.settings.gradient_clip
        self._named = dict(learner.named_parameters())
        self._adam = torch.optim.Adam(
            self._named.values(),
            lr=learner.settings.learning_rate,
            weight_decay=learner.settings.weight_decay,
            capturable=next(learner.parameters()).is_cuda,
        )

    def step(self, slopes: Sequence[Tensor], active: Bool[Tensor, " A"] | None = None) -> Float[Tensor, " A"]:
        """Step along the gradients, which are bounded in place, and give their norms before that.

        An arm that is not active stays as it was; only Adam's correction for its first steps counts on.
        """
        for parameter, slope in zip(self._named.values(), slopes, strict=True):
            parameter.grad = slope
        norms = clip_each(self._named.values(), self._clip)
        before = {} if active is None else {name: value.clone() for name, value in self._changing().items()}
        self._adam.step()
        if active is not None:
            for name, value in self._changing().items():
                rows = active.view(-1, *(1 for _ in value.shape[1:]))
                value.copy_(torch.where(rows, value, before[name] if name in before else torch.zeros_like(value)))
        return norms

    def tensors(self) -> dict[str, Tensor]:
        """Both moments of each parameter, with the axis of arms, under their names; none before the first step."""
        return {
            f"{name}.{moment}": self._adam.state[parameter][moment]
            for name, parameter in self._named.items()
            if parameter in self._adam.state
            for moment in _MOMENTS
        }

    def load(self, tensors: Mapping[str, Tensor], steps: int) -> None:
        """Take over what :meth:`tensors` gave after so many steps."""
        state = {
            i: {"step": torch.tensor(float(steps)), **{moment: tensors[f"{name}.{moment}"] for moment in _MOMENTS}}
            for i, name in enumerate(self._named)
        }
        self._adam.load_state_dict({**self._adam.state_dict(), "state": state})

    def _changing(self) -> dict[str, Tensor]:
        return {name: parameter.data for name, parameter in self._named.items()} | self.tensors()


def clip_each(parameters: Iterable[nn.Parameter], largest: float) -> Float[Tensor, " A"]:
    """Scale each arm's gradient down to the largest norm allowed, and give the norms that they had."""
    slopes = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norms = torch.stack([slope.reshape(len(slope), -1).square().sum(dim=1) for slope in slopes]).sum(dim=0).sqrt()
    factor = (largest / (norms + _TINY)).clamp_max(1.0)
    for slope in slopes:
        slope.mul_(factor.view(-1, *(1 for _ in slope.shape[1:])))
    return norms
