"""The tasks that all arms live among: an endless stream for each seed, and the same test tasks for everybody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from tasktheme.data.dataset import Dataset, DataSplit
from tasktheme.data.episodes import EpisodeBatch, Episodes, EpisodeSampler
from tasktheme.errors import DataError, SettingsError
from tasktheme.experiments.lifelong.settings import LifelongSettings
from tasktheme.learners.base import Points
from tasktheme.learners.settings import LearnerSettings
from tasktheme.learners.tasks import PointSource, make_sampler
from tasktheme.learners.testing import ListedTasks, listed_classes, random_classes
from tasktheme.ptm import PTM
from tasktheme.selection.base import Policy, Pool, Tasks

_SEED_SHIFT = 32  # bits of a task's number that count tasks; those above are the seed
_POINTS_AT_ONCE = {"cpu": 1 << 12, "cuda": 1 << 14}  # images held together for policies that describe tasks by them
_LOOKED_AT = {"support", "query"}  # parts of a task that are images

OnDescribed = Callable[[int], None]


class World:
    """Training tasks by number, and fixed test tasks, on one device.

    Task i of a seed has the number seed x 2^32 + i: all arms of a seed meet the same tasks in the same order, and what is
    random about a task depends on its number alone.
    """

    def __init__(
        self,
        split: DataSplit,
        learner: LearnerSettings,
        settings: LifelongSettings,
        device: torch.device,
        model: PTM | None = None,
    ) -> None:
        self.split, self.learner, self.settings, self.device, self.model = split, learner, settings, device, model
        self.aspects = 1 if model is None else model.themes.aspects
        self.points = PointSource(split.train, device)
        self.sampler = make_sampler(split.train, learner, device, ways=learner.ways, seed=0)
        fixed = random_classes(split.test, learner, settings.test_tasks, seed=settings.test_seed)
        self.test = ListedTasks(split.test, learner, fixed, device, seed=settings.test_seed)
        self._gamma: dict[tuple[int, int, int], Tensor] = {}

    def final(self, tasks: int | str) -> ListedTasks:
        """The tasks of the last test: "all" choices of the test classes, or a number of random ones."""
        seed = self.settings.test_seed + 1
        classes = listed_classes(self.split.test, self.learner, tasks, seed=seed)
        return ListedTasks(self.split.test, self.learner, classes, self.device, seed=seed)

    def validation(self) -> ListedTasks:
        """The validation tasks that the learner's settings ask for."""
        if self.split.val is None:
            raise SettingsError("early stopping (patience) needs validation classes, and this data set has none")
        seed = self.settings.test_seed + 2
        classes = random_classes(self.split.val, self.learner, self.learner.validation_tasks, seed=seed)
        return ListedTasks(self.split.val, self.learner, classes, self.device, seed=seed)

    def numbers(self, seed: int, first: int, count: int) -> Int64[Tensor, " count"]:
        """The numbers of tasks ``first``, ``first`` + 1, ... of a seed."""
        return (seed << _SEED_SHIFT) + torch.arange(first, first + count, device=self.device)

    @staticmethod
    def place_in_stream(numbers: Int64[Tensor, "*B"]) -> Int64[Tensor, "*B"]:
        """Which task of its seed each numbered one is."""
        return numbers & ((1 << _SEED_SHIFT) - 1)

    def draw(self, numbers: Int64[Tensor, " T"]) -> tuple[Points, Points]:
        """Labelled points and queries of the numbered tasks; never waits for the device."""
        drawn = self.sampler.draw(numbers, self.learner.shots, self.learner.queries)
        support, query = (self.points(part, self.learner.ways) for part in drawn)
        return support, query

    def describe(
        self, policy: Policy, seed: int, first: int, count: int, on_described: OnDescribed = lambda tasks: None
    ) -> Float[Tensor, "count d"]:
        """What a policy keeps of some tasks of a seed; ``on_described`` is called with the number of each part that is done."""
        whole = Tasks(self.numbers(seed, first, count), aspects=self.aspects)
        if "gamma" in policy.needs:
            whole = replace(whole, gamma=self._gamma_of_stretch(seed, first, count, on_described))
        if policy.sees_learner or not _LOOKED_AT & set(policy.needs):  # who sees the learner looks at images at each pick
            return policy.describe(whole)
        found = []
        for rows in torch.arange(count, device=self.device).split(self._tasks_at_once()):
            support, query = self.draw(whole.numbers[rows])
            found.append(policy.describe(replace(whole[rows], support=support, query=query)))
            on_described(len(rows))
        return torch.cat(found)

    def _gamma_of_stretch(self, seed: int, first: int, count: int, on_described: OnDescribed) -> Float[Tensor, "count K"]:
        """Gamma of some tasks of a seed; kept, with those of other seeds, until other tasks of the streams are asked for.

        Policies come one after another, each with all its seeds: they ask for the same stretch of all streams, then for the next.
        """
        key = (seed, first, count)
        if key not in self._gamma:
            self._gamma = {kept: value for kept, value in self._gamma.items() if kept[1:] == key[1:]}
            self._gamma[key] = self._infer(self.split.train, self.sampler, self.numbers(seed, first, count))
            on_described(count)
        return self._gamma[key]

    def tasks(self, policy: Policy, numbers: Int64[Tensor, " T"]) -> Tasks:
        """Tasks with all their points, where a policy looks at any: every policy knows the same of a task."""
        if _LOOKED_AT & set(policy.needs):
            return UndrawnTasks(numbers, aspects=self.aspects, world=self)
        return Tasks(numbers, aspects=self.aspects)

    def targets(self, policy: Policy) -> Pool | None:
        """The test tasks as a policy sees them, in transduction."""
        if self.settings.setting == "induction":
            return None
        numbers = torch.arange(len(self.test), device=self.device)
        halves = self.test.sampler.draw(numbers, self.learner.shots, self.learner.queries)
        support, query = (self.test.points(half, self.learner.ways) for half in halves)
        tasks = Tasks(numbers, support, query, aspects=self.aspects)
        if "gamma" in policy.needs:
            tasks = replace(tasks, gamma=self._infer(self.split.test, self.test.sampler, numbers))
        return policy.enter(tasks)

    def _infer(self, dataset: Dataset, sampler: EpisodeSampler, numbers: Int64[Tensor, " T"]) -> Float[Tensor, "T K"]:
        """Gamma of the numbered tasks, of labelled points and queries together."""
        if self.model is None:
            raise DataError("this policy needs a task model: give --model, a folder that fit wrote")
        classes, mask = (part.cpu() for part in sampler.classes(numbers))
        halves = sampler.draw(numbers, self.learner.shots, self.learner.queries)
        whole = (torch.cat([getattr(half, part) for half in halves], dim=1) for part in ("rows", "labels", "mask"))
        found = self.model.embed(Episodes(dataset, EpisodeBatch(*whole).to(torch.device("cpu")), classes, mask))
        return torch.tensor(found.concentration, device=self.device)

    def _tasks_at_once(self) -> int:
        points = self.learner.ways * (self.learner.shots + self.learner.queries)
        return max(1, _POINTS_AT_ONCE.get(self.device.type, _POINTS_AT_ONCE["cpu"]) // points)


@dataclass(frozen=True, kw_only=True)
class UndrawnTasks(Tasks):
    """Tasks whose points are drawn for those that somebody looks at: for a part of them, which is asked for by its rows."""

    world: World

    @property
    def points(self) -> int:
        """How many images each task has, labelled or not."""
        settings = self.world.learner
        return settings.ways * (settings.shots + settings.queries)

    def __getitem__(self, rows: Int64[Tensor, " t"] | slice) -> Tasks:
        """Some of the tasks, drawn."""
        numbers = self.numbers[rows]
        return Tasks(numbers, *self.world.draw(numbers), aspects=self.aspects)
