"""What a meta-learner is: it adapts to labelled points and predicts, for a whole batch of tasks at once."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from tasktheme.data.random import random_normal
from tasktheme.learners.network import Network, Weights
from tasktheme.learners.settings import LearnerSettings

_FIRST_STREAM = 2000  # of the learners' random numbers, apart from those of samplers and other trainings


@dataclass(frozen=True)
class Points:
    """Labelled images of T tasks: x with values in [0, 1], y the class within the task, one of ``ways``."""

    x: Float[Tensor, "T N channels height width"]
    y: Int64[Tensor, "T N"]
    ways: int

    def __getitem__(self, tasks: Int64[Tensor, " t"] | slice) -> Points:
        """Some of the tasks."""
        return Points(self.x[tasks], self.y[tasks], self.ways)


class Noise:
    """Random numbers for a batch of tasks that depend on the seed, each task's own number and the place of the call alone."""

    def __init__(self, seed: int, tasks: Int64[Tensor, " T"]) -> None:
        self._seed, self._tasks = seed, tasks
        self.calls = 0

    def normal(self, *shape: int) -> Float[Tensor, "T ..."]:
        """Standard normal numbers of the given shape for each task."""
        places, stream = _places(self._tasks, math.prod(shape)), _FIRST_STREAM + self.calls
        self.calls += 1
        return random_normal(self._seed, stream, self._tasks.unsqueeze(-1), places).unflatten(1, shape)


# a compiler would not wrap the products of an arange
@torch.library.custom_op("tasktheme::places", mutates_args=(), schema="(Tensor tasks, SymInt count) -> Tensor")
def _places(tasks: Tensor, count: int) -> Tensor:
    """The numbers from 0 to ``count``, on the tasks' device."""
    return torch.arange(count, device=tasks.device)


_places.register_fake(lambda tasks, count: tasks.new_empty(count))


class Learner(nn.Module, ABC):
    """A meta-learner. Its parameters are what meta-training learns; nothing else changes from task to task.

    A new one is a file with a subclass: its settings, ``adapt``, ``predict`` and, where the loss is not that of the
    queries, ``meta_loss``; and a line in ``build.py``.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[LearnerSettings]]
    arms: int | None = None  # where parameters have a leading axis: so many learners side by side (arms.py)

    def __init__(self, settings: LearnerSettings, point_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.settings, self.point_shape = settings, point_shape
        self.network = self._build_network(settings, point_shape)

    def _build_network(self, settings: LearnerSettings, point_shape: tuple[int, ...]) -> Network:
        return Network(settings, point_shape, settings.ways)

    @property
    def networks(self) -> int:
        """How many networks a task's prediction takes at once, for the memory that it needs."""
        return 1

    @abstractmethod
    def adapt(self, support: Points, noise: Noise, *, training: bool = False) -> Any:
        """What the learner makes of each task's labelled points; ``training`` keeps it differentiable."""

    @abstractmethod
    def predict(self, adapted: Any, x: Float[Tensor, "T N channels height width"], noise: Noise) -> Float[Tensor, "T N C"]:
        """Log-probabilities of the classes, for the images of the tasks that were adapted to."""

    def meta_loss(self, support: Points, query: Points, noise: Noise) -> tuple[Float[Tensor, " T"], Float[Tensor, "T N C"]]:
        """The loss of each task that meta-training lowers, and the queries' log-probabilities."""
        log_p = self.predict(self.adapt(support, noise, training=True), query.x, noise)
        return task_loss(log_p, query.y), log_p


def task_loss(log_p: Float[Tensor, "T N C"], y: Int64[Tensor, "T N"]) -> Float[Tensor, " T"]:
    """Mean negative log-probability of each task's labels."""
    return -log_p.gather(-1, y.unsqueeze(-1)).mean(dim=(1, 2))


def task_accuracy(log_p: Float[Tensor, "T N C"], y: Int64[Tensor, "T N"]) -> Float[Tensor, " T"]:
    """Share of each task's points whose most probable class is right."""
    return log_p.argmax(dim=-1).eq(y).float().mean(dim=1)


def log_softmax(logits: Float[Tensor, "T N C"]) -> Float[Tensor, "T N C"]:
    """Log-probabilities, at least in float32."""
    return F.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def gradients(loss: Float[Tensor, ""], weights: Weights, *, differentiable: bool) -> dict[str, Tensor]:
    """The gradient of a loss summed over tasks: each task's weights get the gradient of that task's own loss."""
    found = torch.autograd.grad(loss, list(weights.values()), create_graph=differentiable)
    return dict(zip(weights, found, strict=True))


def for_each_task(weights: Weights, tasks: int, *, training: bool, arms: int | None = None) -> dict[str, Tensor]:
    """Weights with a leading axis of tasks, all alike; in training they stay a function of the given ones.

    Of ``arms`` weights, the tasks take turns in equal blocks: the first so many have those of the first arm.
    """
    if arms is None:
        each = {name: value.expand(tasks, *value.shape) for name, value in weights.items()}
    else:
        block = tasks // arms
        each = {name: value.unsqueeze(1).expand(-1, block, *value.shape[1:]).flatten(0, 1) for name, value in weights.items()}
    return each if training else detached(each)


def detached(weights: Weights) -> dict[str, Tensor]:
    """Weights as new leaves, where what came before no longer matters."""
    return {name: value.detach().requires_grad_() for name, value in weights.items()}


@contextmanager
def precision(settings: LearnerSettings) -> Iterator[None]:
    """Products of float32 numbers on a GPU as the settings ask; torch's own choice comes back afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if settings.precision == "float32" else "high")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=settings.precision != "float32"):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
