"""Run arms of the lifelong experiment to the same number of steps, then test them; every arm goes on from its file."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tasktheme.errors import Interrupted, TrainingError
from tasktheme.experiments.lifelong.arms import Arm, Programs, SideBySide, new_learners
from tasktheme.experiments.lifelong.records import Record, open_records, save_together
from tasktheme.experiments.lifelong.world import World
from tasktheme.files import make_folder
from tasktheme.learners.base import Learner, precision
from tasktheme.learners.testing import ListedTasks
from tasktheme.progress import Advance, progress_bar
from tasktheme.selection.base import Policy
from tasktheme.training.checkpoint import data_identity
from tasktheme.training.interrupt import stop_requests

_SAVE_SECONDS = 20.0
_SHOW_SECONDS = 0.5
_FINAL_BLOCK = {"cpu": 32, "cuda": 6_000}  # tests, tasks by arms, between two looks at the clock

Stopping = Callable[[], bool]


@dataclass(frozen=True)
class Experiment:
    """Arms that differ in policy and seed alone.

    Attributes:
        world: the tasks, and the settings of learner and experiment.
        learner: its name.
        policies: by name, each with what tells it from another of that name (the model behind it).
        folder: where each arm keeps its file.
        compiled: whether updates, tests and looks are compiled. Results differ in rounding alone, so arms may go on either way.
        programs: what has been compiled.
    """

    world: World
    learner: str
    policies: Mapping[str, tuple[Policy, Mapping[str, Any]]]
    folder: Path
    compiled: bool = False
    programs: Programs = field(default_factory=Programs)

    def identity(self, policy: str) -> dict[str, Any]:
        """What makes two arms of one name the same."""
        world = self.world
        return {
            "learner": self.learner,
            "settings": world.learner.as_dict(),
            "experiment": world.settings.as_dict(),
            "data": [data_identity(world.split.train), data_identity(world.split.test)],
            "policy": dict(self.policies[policy][1]),
        }

    def accuracies(
        self, learner: Learner, tasks: ListedTasks, first: int = 0, last: int | None = None, advance: Advance | None = None
    ) -> Float[Tensor, "A T"]:
        """Of all arms on listed tasks; parts are of the size that suits the fixed test tasks, so that one program serves all."""
        if not self.compiled:
            return tasks.accuracies(learner, first, last, advance=advance)
        at_once = self.world.test.equal_parts(learner, len(self.world.test))
        return tasks.accuracies(learner, first, last, advance=advance, compiled=self.programs.test, at_once=at_once)

    def run(self, seeds: int, steps: int, final_tasks: int | str, *, progress: bool = True) -> ListedTasks:
        """Bring every policy with every seed to ``steps`` steps and through the last test, those at the same point together.

        Returns the tasks of that test.
        """
        listed = self.world.final(final_tasks)
        make_folder(self.folder)
        arms = sorted(Arm(policy, seed) for policy in self.policies for seed in range(seeds))
        records = open_records(self.folder, arms, [self.identity(arm.policy) for arm in arms])
        with precision(self.world.learner), stop_requests() as stopping:
            self._train(records, steps, stopping, progress=progress)
            self._test(records, listed, final_tasks, stopping, progress=progress)
        return listed

    def _train(self, records: Sequence[Record], steps: int, stopping: Stopping, *, progress: bool) -> None:
        title, done = f"{self.learner}, {self.world.settings.setting}", sum(min(record.step, steps) for record in records)
        with progress_bar(title, len(records) * steps, done=done, show=progress) as advance:
            while behind := sorted({record.step for record in records if record.step < steps}):
                until = min([*behind[1:2], steps])  # there the next ones join
                group = [record for record in records if record.step == behind[0]]
                _Training(self, group, until, advance, stopping).run()
            owing = [record for record in records if self.owes_evaluation(record) or self.owes_validation(record)]
            for step in sorted({record.step for record in owing}):  # stopped in a test, and asked for no more steps
                _Training(self, [record for record in owing if record.step == step], step, advance, stopping).run()

    def owes_evaluation(self, record: Record) -> bool:
        """Whether an arm is still to be tested on the fixed test tasks at its step."""
        return record.step % self.world.settings.evaluate_every == 0 and record.step not in record.evaluated

    def owes_validation(self, record: Record) -> bool:
        """Whether an arm is still to be validated at its step."""
        due = self.world.learner.patience > 0 and record.step > 0 and record.step % self.world.learner.validate_every == 0
        return due and not record.stopped and record.step not in record.validated

    def _test(
        self, records: Sequence[Record], listed: ListedTasks, tasks: int | str, stopping: Stopping, *, progress: bool
    ) -> None:
        """The last test of each arm at its present step."""
        for record in records:
            if record.final_tasks != tasks:
                record.final, record.final_tasks = np.zeros(0), tasks
            record.final_count = len(listed)
        total, done = len(records) * len(listed), sum(len(record.final) for record in records)
        with progress_bar("last test", total, done=done, show=progress) as advance:
            while behind := sorted({len(record.final) for record in records if len(record.final) < len(listed)}):
                until = min([*behind[1:2], len(listed)])
                group = [record for record in records if len(record.final) == behind[0]]
                _test_group(self, group, listed, until, advance, stopping)


class _Training:
    """Arms at the same step, with their records, on their way to a later one."""

    def __init__(
        self, experiment: Experiment, records: Sequence[Record], until: int, advance: Advance, stopping: Stopping
    ) -> None:
        self.records, self.until, self._experiment = sorted(records, key=lambda record: record.arm), until, experiment
        self._advance, self._stopping, self._described_count = advance, stopping, 0
        self.world = world = experiment.world
        self._validation = world.validation() if world.learner.patience else None  # first, as data may have none
        policies = {name: policy for name, (policy, _) in experiment.policies.items()}
        programs = experiment.programs if experiment.compiled else None
        begun, listed = self.records[0].step > 0, [record.arm for record in self.records]
        kept = self._kept() if begun else None
        self.arms = SideBySide(
            world, listed, policies, experiment.learner, until, programs, kept=kept, on_described=self._tell_described
        )
        self._saved = self.records[0].step  # where the arms' files are
        if begun:
            self._load()
        self._begun = time.monotonic()  # the present stretch of steps, between two evaluations or savings

    def _tell_described(self, tasks: int) -> None:
        """The first pools may take long to describe: show that they are, and end between two parts where that is asked for."""
        self._described_count += tasks
        self._advance(0, f"tasks of the first pools described: {self._described_count:,}")
        if self._stopping():
            raise Interrupted("the lifelong experiment was interrupted before its first step")

    def run(self) -> None:
        """Train; keep the arms' files now and then and before an interrupt ends the run."""
        if self._experiment.compiled and self.arms.step < self.until:
            self._advance(0, "compiling")
            self.arms.prepare()
        try:
            self._run_steps()
        except Interrupted:
            if self._saved < self.arms.step:
                self.save()
            raise

    def _run_steps(self) -> None:
        arms = self.arms
        note = self._test_if_owed()  # at the start, or where an interrupt came before this test
        if note and arms.step:
            self.save()
        saved = shown = self._begin()
        shown_step = arms.step
        while arms.step < self.until:
            arms.train_step()
            now, stop, last = time.monotonic(), self._stopping(), arms.step == self.until
            overdue = last or now - saved > _SAVE_SECONDS
            if overdue or stop or self._tests_come():
                self._end()
                note = self._test_if_owed() or note
                if overdue:
                    self.save()
                    saved = now
                self._begin()
            if now - shown > _SHOW_SECONDS or last:
                self._advance((arms.step - shown_step) * len(self.records), note)
                shown, shown_step = now, arms.step
            if stop and not last:
                self._interrupt()

    def _interrupt(self) -> NoReturn:
        raise Interrupted(f"the lifelong experiment was interrupted after {self.arms.step:,} of {self.until:,} steps")

    def _tests_come(self) -> bool:
        """Whether arms are tested or validated at this step."""
        every = [
            self.world.settings.evaluate_every,
            *([self.world.learner.validate_every] if self._validation is not None else []),
        ]
        return any(self.arms.step % steps == 0 for steps in every)

    def _test_if_owed(self) -> str:
        """The tests of this step that were not made yet; what the progress bar is to say of them."""
        note = ""
        if any(map(self._experiment.owes_evaluation, self.records)):
            note = f"accuracy {100 * self._evaluate():.1f} %"
        if any(map(self._experiment.owes_validation, self.records)):
            self._validate()
            note = note or "validated"
        return note

    def _begin(self) -> float:
        self._begun = time.monotonic()
        return self._begun

    def _end(self) -> None:
        """Note the time of the stretch that ends here, and its picks and losses."""
        step = self.arms.step
        kept = [part[:, :step].cpu().numpy() for part in (self.arms.picked, self.arms.losses, self.arms.learned)]
        spent = time.monotonic() - self._begun  # the device has finished: it was asked for the losses
        for row, record in enumerate(self.records):
            record.seconds += spent / len(self.records)
            record.step = step
            record.picked, record.losses, record.learned = (part[row] for part in kept)
            if len(bad := np.flatnonzero(~np.isfinite(record.losses))):  # a skipped pick leaves those after it sound
                raise TrainingError(
                    f"{record.arm}: the loss was not finite at step {bad[0] + 1:,}; try a smaller learning_rate or inner_rate"
                )

    def _accuracies(self, tasks: ListedTasks) -> Float[Tensor, "A T"]:
        done = 0

        def tell(count: int, _: str) -> None:
            nonlocal done
            done = min(done + count, len(tasks))  # a compiled program's last part is filled up
            self._advance(0, f"tested on {done:,} of {len(tasks):,} tasks")
            if self._stopping() and done < len(tasks) and self.arms.step < self.until:  # the last point is not left half made
                self._interrupt()

        return self._experiment.accuracies(self.arms.tested, tasks, advance=tell).double()

    def _evaluate(self) -> float:
        found = self._accuracies(self.world.test).cpu().numpy()
        for record, accuracies in zip(self.records, found, strict=True):
            record.evaluated[self.arms.step] = accuracies
        return float(found.mean())

    def _validate(self) -> None:
        """Keep each arm's best weights; an arm without a better validation for too long takes them and stops."""
        assert self._validation is not None
        patience = self.world.learner.patience
        parameters = dict(self.arms.tested.named_parameters())
        found = self._accuracies(self._validation).mean(dim=1).tolist()
        for row, (record, accuracy) in enumerate(zip(self.records, found, strict=True)):
            if record.stopped:
                continue
            if accuracy > max(record.validated.values(), default=-1.0):
                record.state |= {f"best.{name}": value.data[row].clone() for name, value in parameters.items()}
            record.validated[self.arms.step] = accuracy
            scores = list(record.validated.values())
            if len(scores) - scores.index(max(scores)) > patience:
                record.stopped = True
                self.arms.active[row] = False
                for learner in (self.arms.tested, self.arms.learner):
                    for name, value in learner.named_parameters():
                        value.data[row].copy_(record.state[f"best.{name}"])

    def save(self) -> None:
        """Write every arm's file."""
        arms = self.arms
        whole = {f"weights.{name}": value.data for name, value in arms.learner.named_parameters()}
        whole |= {f"{_tested_key(self.world)}.{name}": value.data for name, value in arms.tested.named_parameters()}
        whole |= {f"adam.{name}": value for name, value in arms.optimiser.tensors().items()} | {"numbers": arms.numbers}
        for row, record in enumerate(self.records):
            record.state |= {name: value[row] for name, value in whole.items()}
        for section in arms.sections:
            for row, record in enumerate(self.records[section.rows]):
                parts = {"kept": section.kept, "recent": section.recent, "recent_losses": section.losses}
                record.state |= {name: value[row] for name, value in parts.items()}
        for record in self.records:
            record.final = np.zeros(0)  # of an earlier step
        save_together(self._experiment.folder, self.records)
        self._saved = arms.step
        for record in self.records:
            record.state = {name: value.cpu() for name, value in record.state.items()}

    def _kept(self) -> dict[str, Tensor]:
        """What each policy had kept of the tasks in its arms' pools."""
        found: dict[str, list[Tensor]] = {}
        for record in self.records:
            found.setdefault(record.arm.policy, []).append(record.state["kept"])
        return {policy: torch.stack(kept).to(self.world.device) for policy, kept in found.items()}

    def _load(self) -> None:
        """Bring the arms to where their records are."""
        arms, step = self.arms, self.records[0].step

        def put(into: Tensor, name: str, records: Sequence[Record]) -> None:
            into.copy_(torch.stack([record.state[name] for record in records]))

        for name, value in arms.learner.named_parameters():
            put(value.data, f"weights.{name}", self.records)
        for name, value in arms.tested.named_parameters():
            put(value.data, f"{_tested_key(self.world)}.{name}", self.records)
        put(arms.numbers, "numbers", self.records)
        for section in arms.sections:
            own = self.records[section.rows]
            for into, name in ((section.recent, "recent"), (section.losses, "recent_losses")):
                put(into, name, own)
        names = [name.removeprefix("adam.") for name in self.records[0].state if name.startswith("adam.")]
        moments = {name: torch.stack([record.state[f"adam.{name}"] for record in self.records]) for name in names}
        arms.optimiser.load(moments, step)
        for row, record in enumerate(self.records):
            arms.picked[row, :step] = torch.from_numpy(record.picked)
            arms.losses[row, :step] = torch.from_numpy(record.losses)
            arms.learned[row, :step] = torch.from_numpy(record.learned)
            arms.active[row] = not record.stopped
        arms.step = step


def _tested_key(world: World) -> str:
    """What is tested, by its name in an arm's file: the running means of the weights, or the weights themselves."""
    return "means" if world.settings.average else "weights"


def _test_group(
    experiment: Experiment, records: Sequence[Record], listed: ListedTasks, until: int, advance: Advance, stopping: Stopping
) -> None:
    """The last test from where it stands to before task ``until``, with the weights that did best where they were validated."""
    learner = new_learners(experiment.world, [record.arm for record in records], experiment.learner)
    for name, value in learner.named_parameters():
        kept = [record.state.get(f"best.{name}", record.state[f"{_tested_key(experiment.world)}.{name}"]) for record in records]
        value.data.copy_(torch.stack(kept))
    saved = time.monotonic()
    on_gpu = experiment.world.device.type == "cuda"
    block = max(1 if on_gpu else torch.get_num_threads(), _FINAL_BLOCK["cuda" if on_gpu else "cpu"] // len(records))
    for first in range(len(records[0].final), until, block):
        last = min(first + block, until)
        found = experiment.accuracies(learner, listed, first, last).double().cpu().numpy()
        for record, accuracies in zip(records, found, strict=True):
            record.final = np.concatenate([record.final, accuracies])
        advance((last - first) * len(records), "")
        now, stop = time.monotonic(), stopping()
        if last == until or stop or now - saved > _SAVE_SECONDS:
            save_together(experiment.folder, records)
            saved = now
        if stop and last < until:
            raise Interrupted(f"the last test was interrupted after {last:,} of {len(listed):,} tasks")
