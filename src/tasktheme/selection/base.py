"""What a selection policy is: it keeps a few numbers of each task that enters a pool, and scores the pool by them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from tasktheme.errors import DataError, SettingsError
from tasktheme.learners.base import Learner, Points
from tasktheme.learners.whole_step import WholeStep

_PARTS = {  # what a policy may need of tasks, and where it comes from
    "support": "labelled images: draw tasks from a data set for a meta-learner",
    "query": "images to be predicted: draw tasks from a data set for a meta-learner",
    "gamma": "a distribution over themes: embed the tasks with a task model, or draw them with one (model, --model)",
}
_EQUAL = 1e-12  # deviation, relative to the values, that is rounding


@dataclass(frozen=True)
class Tasks:
    """T tasks, with what is known of them.

    Attributes:
        numbers: a number of each task's own; what is random about a task depends on it, never on the task's place.
        support: labelled points.
        query: points to be predicted; of target tasks their labels are never used.
        gamma: Dirichlet parameters over the themes, of tasks brought to one size.
        aspects: that the themes fall into, one after the other (docs/model.md).
    """

    numbers: Int64[Tensor, "*A T"]
    support: Points | None = None
    query: Points | None = None
    gamma: Float[Tensor, "*A T K"] | None = None
    aspects: int = 1

    def __post_init__(self) -> None:
        if self.gamma is not None and (self.aspects < 1 or self.gamma.shape[-1] % self.aspects):
            raise DataError(f"{self.gamma.shape[-1]} themes cannot be those of {self.aspects} aspects")

    def __len__(self) -> int:
        return self.numbers.shape[-1]

    def __repr__(self) -> str:
        known = [name for name in ("support", "query", "gamma") if getattr(self, name) is not None]
        return f"Tasks({len(self):,} tasks{', with ' if known else ''}{', '.join(known)})"

    @property
    def points(self) -> int:
        """How many images each task has, labelled or not."""
        return sum(points.x.shape[1] for points in (self.support, self.query) if points is not None)

    @property
    def x(self) -> Float[Tensor, "T N channels height width"]:
        """All images of each task, labelled or not."""
        return torch.cat([points.x for points in (self.support, self.query) if points is not None], dim=1)

    def __getitem__(self, rows: Int64[Tensor, " t"] | slice) -> Tasks:
        """Some of the tasks (without leading axes)."""
        support, query = (None if points is None else points[rows] for points in (self.support, self.query))
        return Tasks(self.numbers[rows], support, query, None if self.gamma is None else self.gamma[rows], self.aspects)


def labelled(tasks: Tasks) -> Points:
    """The labelled points of tasks that have them."""
    if tasks.support is None:
        raise DataError("these tasks have no labelled points, which the policy needs")
    return tasks.support


@dataclass(frozen=True)
class Pool:
    """Tasks to choose from, or target tasks, with what a policy keeps of each."""

    tasks: Tasks
    kept: Float[Tensor, "*A T d"]

    def __len__(self) -> int:
        return len(self.tasks)

    def by_aspect(self, kept: Float[Tensor, "*A T MK"] | None = None) -> Float[Tensor, "M *A T K"]:
        """For policies that keep gamma: that of each aspect, of these tasks, or of others of which the same was ``kept``."""
        return (self.kept if kept is None else kept).unflatten(-1, (self.tasks.aspects, -1)).movedim(-2, 0)


@dataclass(frozen=True)
class Now:
    """The moment of a pick: all that a policy may look at besides the tasks. It holds no hidden state, so runs resume.

    Attributes:
        seed: of the policy's random numbers, with the step.
        step: how many picks came before; on a device that replays a recorded step, a tensor there.
        learner: the current meta-learner, for policies that see it.
        compiled: :func:`adapted_losses`, to look at tasks by; None looks without compiling.
        recent: what the policy kept of the last picks, up to ``Policy.memory`` of them, the latest last.
        losses: the learner's loss on each of these, before it learned from it.
        looked: called with the number of tasks that were looked at, part by part, where that takes long.
    """

    seed: int = 0
    step: int | Int64[Tensor, ""] = 0
    learner: Learner | None = None
    recent: Float[Tensor, "*A R d"] | None = None
    losses: Float[Tensor, "*A R"] | None = None
    compiled: WholeStep | None = None
    looked: Callable[[int], None] = lambda tasks: None


class Policy(ABC):
    """A rule for which task of a pool to learn next: a subclass with a name and scores.

    ``describe`` sees each task once, with all that ``needs`` names; ``scores`` reads what it kept, ``pool.kept``, or where that
    is gamma, which may be of a model of several aspects, the Dirichlet parameters of each, ``pool.by_aspect()``. In a pool that
    lives on (the lifelong experiment) nothing else is at hand: ``pool.tasks`` has the numbers of the tasks and, for a policy
    that sees the learner, the images of those that it asks for by their rows.

    To come along under its name it has a file here and a line in ``build.py``.
    """

    name: ClassVar[str]
    title: ClassVar[str]  # what pictures and pages call it
    needs: ClassVar[tuple[str, ...]] = ()  # of support, query and gamma
    sees_learner: ClassVar[bool] = False
    looks_at_all: ClassVar[bool] = False  # at the images of every task of a pool, which takes long
    greedy: ClassVar[bool] = False  # several picks depend on each other, one after another; else the best scores are picked
    on_device: ClassVar[bool] = True  # scoring never waits for the device, so that a GPU can record it
    memory: int = 0  # how many of the last picks it asks for

    def enter(self, tasks: Tasks) -> Pool:
        """Tasks that enter a pool (or are targets), described once."""
        self.check(tasks)
        return Pool(tasks, self.describe(tasks))

    def check(self, tasks: Tasks) -> None:
        """An error where tasks do not come with what the policy needs of them."""
        name = getattr(self, "name", type(self).__name__)
        if isinstance(self.needs, str) or any(part not in _PARTS for part in self.needs):
            known = ", ".join(map(repr, _PARTS))
            raise SettingsError(f"needs of the policy {name!r} must be a tuple of some of {known}, got {self.needs!r}")
        for part in self.needs:
            if getattr(tasks, part) is None:
                raise DataError(f"the policy {name!r} needs of each task {_PARTS[part]}")

    def describe(self, tasks: Tasks) -> Float[Tensor, "*A T d"]:
        """What is kept of each task: gamma where the policy needs it, else nothing."""
        if "gamma" in self.needs and tasks.gamma is not None:
            return tasks.gamma.double()
        return torch.zeros((*tasks.numbers.shape, 0), device=tasks.numbers.device)

    @abstractmethod
    def scores(self, pool: Pool, targets: Pool | None, now: Now) -> Float[Tensor, "*A T"]:
        """How much each task of the pool should be learned next: higher is sooner.

        Without targets the learner is to do well on any task (induction), with them on these (transduction). Where ``kept``
        has leading axes, arms side by side, so has the answer; policies that see the learner take one arm at a time.
        """

    def reason(self, pool: Pool, targets: Pool | None, now: Now, scores: Float[Tensor, " T"], row: int) -> str:
        """In a few words, why the task at ``row`` has its score."""
        return f"score {float(scores[row]):.3g}, {place(scores, row)}"


def place(scores: Float[Tensor, " T"], row: int) -> str:
    """'no. 3 of 200'."""
    return f"no. {1 + int((scores > scores[row]).sum())} of {len(scores):,}"


def standardised(values: Float[Tensor, "*A T"]) -> Float[Tensor, "*A T"]:
    """With mean 0 and deviation 1 over the tasks, so that measures of different kinds can be added; 0 where all are equal."""
    apart = values - values.mean(dim=-1, keepdim=True)
    scale = apart.square().mean(dim=-1, keepdim=True).sqrt()
    return torch.where(scale > _EQUAL * values.abs().amax(dim=-1, keepdim=True), apart / scale, torch.zeros_like(apart))
