"""Arms side by side: policies and seeds that are at the same step, all in one program.

Nothing in a step waits for the device: the pools are numbers of tasks and what the policies keep of them, the images stay
where they are, and on a GPU the whole step of all arms is one CUDA graph.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from tasktheme.experiments.lifelong.section import Section
from tasktheme.experiments.lifelong.world import OnDescribed, World
from tasktheme.learners.arms import ArmsOptimiser, arm_of, arms_between, stack_arms
from tasktheme.learners.base import Learner, Noise
from tasktheme.learners.build import build_learner
from tasktheme.learners.threads import each_piece
from tasktheme.learners.whole_step import WholeStep, adapted_accuracy, adapted_losses, arm_gradients
from tasktheme.selection.base import Policy
from tasktheme.selection.worth import worth_learning
from tasktheme.training.graph import CapturedStep

_USUAL = 100  # last losses that tell whether one is unusually low


@dataclass(frozen=True, order=True)
class Arm:
    """One run of the experiment."""

    policy: str
    seed: int

    def __str__(self) -> str:
        return f"{self.policy}-{self.seed}"


@dataclass(frozen=True)
class Programs:
    """All that adapts in the experiment, each compiled at its first call: the update, the tests, what policies see of tasks."""

    learn: WholeStep = field(default_factory=partial(WholeStep, arm_gradients))
    test: WholeStep = field(default_factory=partial(WholeStep, adapted_accuracy))
    look: WholeStep = field(default_factory=partial(WholeStep, adapted_losses))


class SideBySide:
    """Arms at the same step, in one program.

    Their state lies on the device: the learner's parameters, the running means of them (``tested``), Adam's moments, ``numbers``,
    ``losses``, ``active``, and what the sections keep of pools and last picks; ``picked`` and ``learned`` are history alone. A
    step changes all in place and reads none of their values on the host: a GPU records it once and replays it on the same
    memory, where what the host had read would hold for ever. So the step's number lies there too, beside ``step``. Picks that
    must read a value (``Policy.on_device`` is False) are made between two recordings.

    Attributes:
        step: how many tasks each arm has picked.
        learner: all arms' learners; tested: the same, or what is tested instead, the running mean of their weights.
        numbers: (A, P) the tasks in each arm's pool.
        picked, losses: (A, steps) the place in its seed's stream of each task picked, and its loss before the update.
        learned: (A, steps) whether there was an update.
        active: (A,) False for an arm that has stopped learning.
        programs: what is compiled; None for nothing.

    ``kept`` is what each policy had kept of the tasks in its arms' pools, where they go on; otherwise the first pools are
    described, and ``on_described`` is called now and then with the number of tasks.
    """

    def __init__(
        self,
        world: World,
        arms: Sequence[Arm],
        policies: dict[str, Policy],
        name: str,
        steps: int,
        programs: Programs | None = None,
        *,
        kept: Mapping[str, Tensor] | None = None,
        on_described: OnDescribed = lambda tasks: None,
    ) -> None:
        self.world, self.arms, self.step, self.programs = world, sorted(arms), 0, programs
        device = world.device
        self.learner = new_learners(world, self.arms, name)
        self.tested = copy.deepcopy(self.learner) if world.settings.average else self.learner
        self.optimiser = ArmsOptimiser(self.learner)
        pool = world.settings.pool
        self.numbers = torch.stack([world.numbers(arm.seed, 0, pool) for arm in self.arms])
        self._first_fresh = torch.stack([world.numbers(arm.seed, pool, 1) for arm in self.arms])  # the fresh task of step 0
        self.picked = torch.zeros((len(self.arms), steps), dtype=torch.int32, device=device)
        self.losses = torch.zeros((len(self.arms), steps), device=device)
        self.learned = torch.zeros((len(self.arms), steps), dtype=torch.bool, device=device)
        self.active = torch.ones(len(self.arms), dtype=torch.bool, device=device)
        self.sections, look = [], None if programs is None else programs.look
        for policy in dict.fromkeys(arm.policy for arm in self.arms):
            places = [i for i, arm in enumerate(self.arms) if arm.policy == policy]
            own = [arm_of(self.learner, i) for i in places] if policies[policy].sees_learner else []
            seeds, rows = [self.arms[i].seed for i in places], slice(places[0], places[-1] + 1)
            before = None if kept is None else kept[policy]
            section = Section(policies[policy], world, seeds, rows, own, look, kept=before, on_described=on_described)
            self.sections.append(section)
        self._usual = torch.arange(-_USUAL, 0, device=device)  # the last losses, from the present step
        self._steps_before_recording = max([section.policy.memory for section in self.sections] + [_USUAL] * world.settings.skip)
        self._device_step = torch.zeros((), dtype=torch.int64, device=device)  # the step, where the device sees it
        self._picks = torch.zeros((len(self.arms), 1), dtype=torch.int64, device=device)
        self._parts: dict[tuple[int, int], Learner] = {}  # of the arms, for threads of a CPU
        self._replay: list[Callable[[], None]] = []

    def prepare(self) -> None:
        """Have what is compiled made, by a pick and an update that are not taken: the first step is as long as the others."""
        if self.programs is not None:
            for section in self.sections:
                if section.policy.sees_learner:
                    section.pick(self.numbers[section.rows], self._device_step, 0)
            self._gradients(self.numbers.gather(1, self._picks).squeeze(1))

    def train_step(self) -> None:
        """Pick, learn, discard, add; on a GPU, after the first few steps, the replay of recorded ones."""
        for section in self.sections:
            section.look_ahead(self.step)
        if not self._replay:
            self._device_step.fill_(self.step)
            if self.step >= self._steps_before_recording:  # from here on every step is alike
                self._record()
        for part in self._replay or (self._pick_and_learn,):
            part()
        self.step += 1

    def _record(self) -> None:
        """What is called at each step from now on: on a GPU one recording, or two around picks that wait for the device."""
        waiting = [section for section in self.sections if not section.policy.on_device]
        if self.world.device.type != "cuda":
            self._replay = [self._pick_and_learn]
        elif not waiting:
            self._replay = [CapturedStep(self._pick_and_learn)]
        else:
            others = [section for section in self.sections if section.policy.on_device]
            self._replay = [CapturedStep(partial(self._pick, others))] if others else []
            self._replay += [partial(self._pick, waiting), CapturedStep(self._learn)]

    def _pick_and_learn(self) -> None:
        self._pick(self.sections)
        self._learn()

    def _pick(self, sections: Sequence[Section]) -> None:
        for section in sections:
            known = min(self.step, section.policy.memory)
            self._picks[section.rows, 0] = section.pick(self.numbers[section.rows], self._device_step, known)

    def _learn(self) -> None:
        step, places = self._device_step, self._picks
        chosen = self.numbers.gather(1, places)
        found, *slopes = self._gradients(chosen.squeeze(1))
        learning = self._learning(found)
        self.optimiser.step(slopes, learning)
        if self.world.settings.average:  # at first the plain mean of all steps, then an exponentially weighted one
            weight = 1.0 / (step + 1).clamp_max(self.world.settings.average)
            for mean, value in zip(self.tested.parameters(), self.learner.parameters(), strict=True):
                mean.data.lerp_(value.data, weight)
        for section in self.sections:
            section.exchange(places[section.rows], found[section.rows], step)
        at = step.expand(len(places), 1)
        self.picked.scatter_(1, at, self.world.place_in_stream(chosen).int())
        self.losses.scatter_(1, at, found.unsqueeze(1))
        self.learned.scatter_(1, at, (torch.ones_like(found, dtype=torch.bool) if learning is None else learning).unsqueeze(1))
        self.numbers.scatter_(1, places, self._first_fresh + step)
        self._device_step += 1

    def _gradients(self, numbers: Int64[Tensor, " A"]) -> tuple[Tensor, ...]:
        """Each arm's loss on the task of its number, and the gradients of the parameters."""
        support, query = self.world.draw(numbers)
        if self.programs is not None:
            return self.programs.learn(self.learner, support, query, 0, numbers)
        if self.world.device.type != "cpu" or torch.get_num_threads() == 1:
            return arm_gradients(self.learner, support, query, Noise(0, numbers))

        def of_some(rows: Int64[Tensor, " a"]) -> tuple[Tensor, ...]:
            part = slice(int(rows[0]), int(rows[-1]) + 1)
            return arm_gradients(self._some(part), support[part], query[part], Noise(0, numbers[part]))

        each = torch.arange(len(numbers))
        return tuple(torch.cat(parts) for parts in zip(*each_piece(of_some, each, len(each)), strict=True))

    def _some(self, rows: slice) -> Learner:
        """The learners of some arms, which share the memory of all."""
        key = (rows.start, rows.stop)
        if key not in self._parts:
            self._parts[key] = arms_between(self.learner, *key)
        return self._parts[key]

    def _learning(self, losses: Float[Tensor, " A"]) -> Bool[Tensor, " A"] | None:
        """Which arms learn from their pick; None where all always do."""
        settings = self.world.settings
        if not settings.skip:
            return self.active if self.world.learner.patience else None
        last = self._usual[max(0, _USUAL - self.step) :] + self._device_step
        return self.active & worth_learning(losses, self.losses.index_select(1, last), margin=settings.skip_margin)


def new_learners(world: World, arms: Sequence[Arm], name: str) -> Learner:
    """The arms' learners as they begin, stacked: those of one seed are alike."""
    each = (world.learner.changed({"seed": arm.seed}).as_dict() for arm in arms)
    return stack_arms([build_learner(name, settings, world.split.train.point_shape) for settings in each]).to(world.device)
