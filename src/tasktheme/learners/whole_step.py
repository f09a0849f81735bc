"""A meta-learner's step as one compiled program: inner loop, loss, and the gradients through both.

``torch.compile`` cannot differentiate twice. But what a step computes, its derivatives included, is one long list of plain
operations on tensors. ``make_fx`` runs the step once on tensors without values and writes that list down; there is nothing
left in it to differentiate, and the compiler fuses its thousands of small passes over feature maps.

The list holds for the shapes that it was written for, and everything that changes from step to step is an input: the
parameters, the images, the labels, the tasks' numbers. So learners that differ in their parameters alone share a program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from tasktheme.learners.base import Learner, Noise, Points, task_accuracy, task_loss
from tasktheme.training.compiler import compile_step, silent_compiler

Step = Callable[[Learner, Points, Points, Noise], tuple[Tensor, ...]]
"""What is done with labelled points and queries: one of the functions below."""


def meta_gradients(learner: Learner, support: Points, query: Points, noise: Noise) -> tuple[Tensor, ...]:
    """Mean loss and mean accuracy over the tasks, and the loss's gradient in each of the learner's parameters."""
    losses, log_p = learner.meta_loss(support, query, noise)
    loss = losses.mean()
    return loss.detach(), task_accuracy(log_p.detach(), query.y).mean(), *_slopes(learner, loss)


def arm_gradients(learner: Learner, support: Points, query: Points, noise: Noise) -> tuple[Tensor, ...]:
    """The loss of each task, and the gradient of their sum: where each arm has one task, that of the arm's own loss."""
    losses, _ = learner.meta_loss(support, query, noise)
    return losses.detach(), *_slopes(learner, losses.sum())


def _slopes(learner: Learner, loss: Float[Tensor, ""]) -> list[Tensor]:
    return [slope.contiguous() for slope in torch.autograd.grad(loss, list(learner.parameters()))]


def adapted_accuracy(learner: Learner, support: Points, query: Points, noise: Noise) -> tuple[Float[Tensor, " T"]]:
    """The share of each task's queries that are predicted right after adapting to its labelled points."""
    return (task_accuracy(_adapted(learner, support, query, noise), query.y),)


def adapted_losses(learner: Learner, support: Points, query: Points, noise: Noise) -> tuple[Float[Tensor, " T"]]:
    """The loss on each task's queries after adapting to its labelled points."""
    return (task_loss(_adapted(learner, support, query, noise), query.y),)


@torch.no_grad()
def _adapted(learner: Learner, support: Points, query: Points, noise: Noise) -> Float[Tensor, "T N C"]:
    return learner.predict(learner.adapt(support, noise), query.x, noise)


class WholeStep:
    """A step, compiled at the first call with a learner of some settings and tensors of some shapes.

    Attributes:
        made: the programs, by all that they depend on: the seed where the step draws random numbers, else None.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self.made: dict[tuple[Any, ...], Callable[..., tuple[Tensor, ...]]] = {}

    def __call__(
        self, learner: Learner, support: Points, query: Points, seed: int, tasks: Int64[Tensor, " T"]
    ) -> tuple[Tensor, ...]:
        """The step's results for these points, with the noise of this seed for the tasks of these numbers."""
        names, parameters = zip(*learner.named_parameters(), strict=True)
        inputs = [*(value.detach() for value in parameters), support.x, support.y, query.x, query.y, tasks]
        shapes = [(tensor.shape, tensor.stride(), tensor.dtype, tensor.device) for tensor in inputs]
        key = (type(learner), learner.settings, learner.arms, support.ways, query.ways, *shapes)
        with torch.no_grad():
            for known in ((*key, seed), (*key, None)):
                if known in self.made:
                    return self.made[known](*inputs)
            traced = _Traced(learner, self._step, names, (support.ways, query.ways), seed)
            with silent_compiler():
                program = _compiled(traced, inputs)
                self.made[(*key, seed if traced.draws else None)] = program
                return program(*inputs)


class _Traced(nn.Module):
    """A step as a function of tensors alone."""

    def __init__(self, learner: Learner, step: Step, names: Sequence[str], ways: tuple[int, int], seed: int) -> None:
        super().__init__()
        self._learner, self._step, self._names, self._ways, self._seed = learner, step, names, ways, seed
        self.draws = False  # whether the step drew random numbers, known when it was traced

    def forward(self, support: Points, query: Points, noise: Noise) -> tuple[Tensor, ...]:
        """The step by the learner, whose parameters the caller has exchanged."""
        return self._step(self._learner, support, query, noise)

    def of_tensors(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The step with the given parameters, images, labels and numbers of tasks."""
        *parameters, support_x, support_y, query_x, query_y, tasks = inputs
        leaves = (value.detach().requires_grad_() for value in parameters)
        named = {f"_learner.{name}": leaf for name, leaf in zip(self._names, leaves, strict=True)}
        points = (Points(support_x, support_y, self._ways[0]), Points(query_x, query_y, self._ways[1]))
        noise = Noise(self._seed, tasks)
        with torch.enable_grad():
            found: tuple[Tensor, ...] = torch.func.functional_call(self, named, (*points, noise))
        self.draws = noise.calls > 0
        return found


def _compiled(traced: _Traced, inputs: Sequence[Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    with torch.autograd.set_multithreading_enabled(False):  # other threads' operations would not be written down
        program = make_fx(traced.of_tensors, tracing_mode="fake")(*inputs)
    return compile_step(program)
