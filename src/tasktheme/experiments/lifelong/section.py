"""The arms of one policy: what it keeps of the tasks in their pools, and the picks that it makes by that."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from tasktheme.experiments.lifelong.world import OnDescribed, World
from tasktheme.learners.base import Learner
from tasktheme.learners.whole_step import WholeStep
from tasktheme.selection.base import Now, Policy, Pool, Tasks

_AHEAD = {"cpu": 10, "cuda": 2_000}  # fresh tasks of a seed that are described at once


class Section:
    """The arms of one policy: what it keeps of the tasks in their pools, and of those that come next."""

    def __init__(
        self,
        policy: Policy,
        world: World,
        seeds: Sequence[int],
        rows: slice,
        learners: Sequence[Learner],
        compiled: WholeStep | None = None,
        *,
        kept: Float[Tensor, "S P d"] | None = None,
        on_described: OnDescribed = lambda tasks: None,
    ) -> None:
        self.policy, self.rows = policy, rows
        self._world, self._seeds, self._learners, self._compiled = world, seeds, learners, compiled
        self._targets = world.targets(policy)
        if self._targets is not None and not policy.sees_learner:  # the same for all arms, which are scored together
            aims = Tasks(self._targets.tasks.numbers, aspects=world.aspects)
            self._targets = Pool(aims, self._targets.kept.expand(len(seeds), -1, -1))
        if kept is None:
            pool = world.settings.pool
            kept = torch.stack([world.describe(policy, seed, 0, pool, on_described) for seed in seeds])
        self.kept = kept
        self.recent = self.kept.new_zeros((len(seeds), policy.memory, self.kept.shape[-1]))
        self.losses = torch.zeros((len(seeds), policy.memory), device=world.device)
        self._ahead = _AHEAD.get(world.device.type, _AHEAD["cpu"])
        self._fresh = self.kept.new_zeros((len(seeds), self._ahead, self.kept.shape[-1]))
        self._fresh_batch: int | None = None  # which batch of the stream's fresh tasks these are

    def look_ahead(self, step: int) -> None:
        """Have the fresh task of this step described, with those after it."""
        batch = step // self._ahead
        if self._fresh_batch != batch and self.kept.shape[-1]:
            first = self._world.settings.pool + batch * self._ahead
            for row, seed in zip(self._fresh, self._seeds, strict=True):
                row.copy_(self._world.describe(self.policy, seed, first, self._ahead))
            self._fresh_batch = batch

    def pick(self, numbers: Int64[Tensor, "S P"], step: Int64[Tensor, ""], known: int) -> Int64[Tensor, " S"]:
        """The place in each pool of the task to learn next; ``known`` of the last picks are remembered."""
        since = self.policy.memory - known
        recent, losses = self.recent[:, since:], self.losses[:, since:]
        if not self.policy.sees_learner:
            now = Now(step=step, recent=recent, losses=losses)
            pool = Pool(Tasks(numbers, aspects=self._world.aspects), self.kept)
            return self.policy.scores(pool, self._targets, now).argmax(dim=-1)
        picks = []
        for arm, learner in enumerate(self._learners):
            pool = Pool(self._world.tasks(self.policy, numbers[arm]), self.kept[arm])
            now = Now(step=step, learner=learner, recent=recent[arm], losses=losses[arm], compiled=self._compiled)
            picks.append(self.policy.scores(pool, self._targets, now).argmax(dim=-1))
        return torch.stack(picks)

    def exchange(self, places: Int64[Tensor, "S 1"], losses: Float[Tensor, " S"], step: Int64[Tensor, ""]) -> None:
        """Remember what was picked, and keep what there is of the fresh task in its place."""
        place = places.unsqueeze(-1).expand(-1, 1, self.kept.shape[-1])
        if self.policy.memory:
            self.recent.copy_(torch.cat([self.recent[:, 1:], self.kept.gather(1, place)], dim=1))
            self.losses.copy_(torch.cat([self.losses[:, 1:], losses.unsqueeze(1)], dim=1))
        fresh = self._fresh.index_select(1, (step % self._ahead).view(1))
        self.kept.scatter_(1, place, fresh)
