"""Meta-training: mini-batches of tasks, validation, early stopping, checkpoints that resume to the same bits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from tasktheme import distributed
from tasktheme.data.dataset import Dataset
from tasktheme.errors import DataError, Interrupted, ModelFileError, SettingsError, TrainingError
from tasktheme.learners.base import Learner, Noise, Points, precision
from tasktheme.learners.tasks import PointSource, make_sampler
from tasktheme.learners.testing import random_classes, task_accuracies, tasks_at_once
from tasktheme.learners.threads import each_piece
from tasktheme.learners.whole_step import WholeStep, adapted_accuracy, meta_gradients
from tasktheme.progress import Advance, progress_bar
from tasktheme.settings import CHECKPOINT_SECONDS
from tasktheme.training.checkpoint import data_identity, differences, load_optimiser, optimiser_tensors
from tasktheme.training.checkpoint_file import read_checkpoint, write_checkpoint
from tasktheme.training.graph import CapturedStep
from tasktheme.training.interrupt import stop_requests
from tasktheme.training.running import RunningMeans

_KIND = "tasktheme meta-training"
_RECORDS = 100  # rows of history kept of one training
_SHOW_SECONDS = 0.2  # between movements of the progress bar
_READ_SECONDS = 2.0  # between two readings of the running means for it
_VALIDATION_SEED = 1  # added to the training's: validation tasks are the same all along


@dataclass
class MetaTrainer:
    """The state of one meta-training; it changes in place, so that a GPU can replay the step.

    Randomness depends on the seed and the step alone, so the state at a step decides all that follows.
    """

    learner: Learner
    dataset: Dataset
    steps: int
    device: torch.device
    validation: Dataset | None = None
    compiled: bool = False
    checkpoint_every: float = CHECKPOINT_SECONDS
    step: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    validations: list[tuple[int, float]] = field(default_factory=list)  # (step, accuracy)
    best: dict[str, Tensor] = field(default_factory=dict)  # the weights of the best validation

    def __post_init__(self) -> None:
        settings = self.settings = self.learner.settings
        if settings.patience and self.validation is None:
            raise SettingsError("early stopping (patience) needs validation classes, and this data set has none")
        self.learner.to(self.device)
        self.points = PointSource(self.dataset, self.device)
        ways, classes = settings.training_ways, len(self.dataset.class_names)
        make_sampler(self.dataset, settings, self.device, ways=settings.ways, seed=settings.seed)  # too few to be tested with?
        if classes < ways:
            raise DataError(
                f"{self.dataset.name!r} has {classes} classes, but training tasks ask for {ways} ways; set train_ways to fewer"
            )
        self.sampler = make_sampler(self.dataset, settings, self.device, ways=ways, seed=settings.seed)
        if self.validation is not None:
            self._listed = random_classes(self.validation, settings, settings.validation_tasks, seed=self._validation_seed)
        on_gpu = self.device.type == "cuda"
        rate = torch.tensor(settings.learning_rate, device=self.device) if on_gpu else settings.learning_rate
        self.optimiser = torch.optim.Adam(
            self.learner.parameters(), lr=rate, weight_decay=settings.weight_decay, capturable=on_gpu
        )
        own, self._weight = distributed.share_of_batch(settings.batch_tasks)
        self.places = torch.arange(settings.batch_tasks, device=self.device)[own]
        distributed.from_leader(self.learner.state_dict().values())
        points = ways * (settings.shots + settings.queries)
        self._at_once = settings.batch_tasks if on_gpu else tasks_at_once(self.learner, points, self.device)
        self.running = RunningMeans()
        self._whole = WholeStep(meta_gradients) if self.compiled else None
        self._tester = WholeStep(adapted_accuracy) if self.compiled else None
        self._counter = torch.zeros((), dtype=torch.int64, device=self.device)  # the step, where the device sees it
        self._captured: Callable[[], None] | None = None

    @property
    def _validation_seed(self) -> int:
        return (self.settings.seed + _VALIDATION_SEED) % 2**32

    @property
    def stopped(self) -> bool:
        """Whether the last validations were no better than one before them."""
        scores = [accuracy for _, accuracy in self.validations]
        return 0 < self.settings.patience < len(scores) - scores.index(max(scores)) if scores else False

    @property
    def finished(self) -> bool:
        """Whether nothing is left to train."""
        return self.step == self.steps or self.stopped

    def run(self, *, progress: bool = True, checkpoint: Callable[[], None] | None = None) -> None:
        """Train from the current step to the end, then take the weights of the best validation.

        ``checkpoint`` is called now and then, only while all is finite, and before an interrupt ends the run.
        """
        distributed.check_same_step(self.step)
        total, done = (steps * self.settings.batch_tasks for steps in (self.steps, self.step))
        with (
            precision(self.settings),
            stop_requests() as stopping,
            progress_bar(f"meta-training {self.learner.name}", total, done=done, show=progress) as advance,
        ):
            self._run_steps(advance, stopping, checkpoint)
        if self.best:
            self.learner.load_state_dict(self.best)

    def _run_steps(self, advance: Advance, stopping: Callable[[], bool], checkpoint: Callable[[], None] | None) -> None:
        batch = self.settings.batch_tasks
        record_every = max(1, self.steps // _RECORDS)
        validate_every = max(1, self.settings.validate_every // batch)
        saved = shown = read = time.monotonic()
        shown_step, note = self.step, ""
        while not self.finished:
            self.train_step()
            now, last = time.monotonic(), self.step == self.steps
            stop, overdue = distributed.anywhere(stopping(), now - saved >= self.checkpoint_every)
            recording = self.step % record_every == 0 or last
            due = checkpoint is not None and (last or stop or overdue)
            if recording or due or now - read > _READ_SECONDS:
                row, read = self._means(), now
                note = f"accuracy {100 * row['accuracy']:.1f} %" + self._validation_note()
                if recording:
                    self.history.append(row)
                    self.running.clear()
            if self.validation is not None and (self.step % validate_every == 0 or last):
                self._validate()
            if checkpoint is not None and (due or self.finished):
                checkpoint()
                saved = now
            if now - shown > _SHOW_SECONDS or last:
                advance((self.step - shown_step) * batch, note)
                shown, shown_step = now, self.step
            if stop and not self.finished:
                raise Interrupted(f"meta-training was interrupted after {self.step * batch:,} of {self.steps * batch:,} tasks")

    def train_step(self) -> None:
        """One mini-batch; on a GPU, after the first few, the replay of one recorded mini-batch."""
        if self._captured is None:
            self._counter.fill_(self.step)
            recorded = self.device.type == "cuda" and distributed.world() == 1
            self._captured = CapturedStep(self._step_on_device) if recorded else self._step_on_device
        self._set_rate()
        self._captured()
        self.step += 1

    def _set_rate(self) -> None:
        """The step size of Adam at this step, without waiting for the device."""
        part = 0.5 * (1.0 + math.cos(math.pi * self.step / self.steps)) if self.settings.anneal else 1.0
        rate = self.settings.learning_rate * part
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _step_on_device(self) -> None:
        """Draw tasks, adapt to all of them, and step along the meta-gradient; never waits for the device."""
        settings = self.settings
        loss, accuracy, *slopes = self._gradients(self._counter * settings.batch_tasks + self.places)
        for parameter, slope in zip(self.learner.parameters(), slopes, strict=True):
            parameter.grad = slope
        distributed.sum_gradients(self.learner.parameters(), self._weight)
        norm = nn.utils.clip_grad_norm_(self.learner.parameters(), settings.gradient_clip)
        self.optimiser.step()
        mean_loss, accuracy = distributed.summed([loss, accuracy], self._weight)
        self.running.add({"loss": mean_loss, "accuracy": accuracy, "gradient_norm": norm.detach()})
        self._counter += 1

    def _gradients(self, tasks: Int64[Tensor, " T"]) -> tuple[Tensor, ...]:
        """Loss and accuracy, means over the tasks, and the loss's gradients; on a CPU from pieces of the mini-batch."""
        if self._whole is not None:
            return self._whole(self.learner, *self._draw(tasks), self.settings.seed, tasks)

        def share(piece: Int64[Tensor, " t"]) -> tuple[Tensor, ...]:
            found = meta_gradients(self.learner, *self._draw(piece), Noise(self.settings.seed, piece))
            return found if len(piece) == len(tasks) else tuple(len(piece) / len(tasks) * part for part in found)

        return tuple(reduce(add, parts) for parts in zip(*each_piece(share, tasks, self._at_once), strict=True))

    def _draw(self, tasks: Int64[Tensor, " T"]) -> tuple[Points, Points]:
        """Labelled points and queries of the tasks of these numbers."""
        settings = self.settings
        support, query = self.sampler.draw(tasks, settings.shots, settings.queries)
        take = partial(self.points.augmented, seed=settings.seed, tasks=tasks) if settings.augment else self.points
        return take(support, settings.training_ways), take(query, settings.training_ways)

    def _validate(self) -> None:
        assert self.validation is not None
        found = task_accuracies(self.learner, self.validation, self._listed, seed=self._validation_seed, compiled=self._tester)
        accuracy = float(found.mean())
        if not self.validations or accuracy > max(score for _, score in self.validations):
            self.best = {name: value.detach().clone() for name, value in self.learner.state_dict().items()}
        self.validations.append((self.step, accuracy))

    def _validation_note(self) -> str:
        if not self.validations:
            return ""
        return f"  validation {100 * self.validations[-1][1]:.1f} %, best {100 * max(v for _, v in self.validations):.1f} %"

    def _means(self) -> dict[str, float]:
        """The means since the last row of the history; an error if one is not finite."""
        row = {"tasks": float(self.step * self.settings.batch_tasks), **self.running.read()}
        bad = [name for name, value in row.items() if not math.isfinite(value)]
        if bad:
            raise TrainingError(
                f"meta-training stopped before task {int(row['tasks']):,}: {', '.join(bad)} not finite; try a smaller "
                "learning_rate or inner_rate"
            )
        return row


def save_meta_training(trainer: MetaTrainer, path: Path) -> None:
    """Write weights, optimiser, step, history and the best weights so far."""
    tensors = {
        **{f"learner.{name}": value for name, value in trainer.learner.state_dict().items()},
        **{f"best.{name}": value for name, value in trainer.best.items()},
        **optimiser_tensors(trainer.optimiser),
        **trainer.running.tensors(),
    }
    info = {
        "kind": _KIND,
        "identity": _identity(trainer),
        "step": trainer.step,
        "finished": trainer.finished,
        "running": trainer.running.names,
        "history": trainer.history,
        "validations": trainer.validations,
    }
    write_checkpoint(path, tensors, info)


def resume_meta_training(trainer: MetaTrainer, path: Path) -> None:
    """Bring ``trainer`` to the state in the file, which must be of the same meta-training."""
    tensors, info = read_checkpoint(path)
    if info.get("kind") != _KIND:
        raise ModelFileError(f"{str(path)!r} is not a checkpoint of a meta-training")
    if other := differences(info["identity"], _identity(trainer)):
        raise ModelFileError(f"{str(path)!r} belongs to a meta-training with other {other}, and cannot be resumed here")
    trainer.learner.load_state_dict(_under("learner.", tensors))
    trainer.best = {name: value.to(trainer.device) for name, value in _under("best.", tensors).items()}
    load_optimiser(trainer.optimiser, tensors)
    trainer.running.load(tensors, info["running"], trainer.device)
    trainer.step, trainer.history = info["step"], info["history"]
    trainer.validations = [(int(step), float(accuracy)) for step, accuracy in info["validations"]]


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _identity(trainer: MetaTrainer) -> dict[str, Any]:
    """What makes two meta-trainings the same."""
    validation = None if trainer.validation is None else data_identity(trainer.validation)
    settings = trainer.settings.as_dict()
    return {
        "learner": trainer.learner.name,
        "settings": settings,
        "steps": trainer.steps,
        "validation": validation,
        **data_identity(trainer.dataset),
    }
