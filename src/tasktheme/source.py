"""The data that a command was pointed at, as its options say it is to be read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasktheme import distributed
from tasktheme.errors import DataError, SettingsError
from tasktheme.options import SHOTS, Part, refuse_given
from tasktheme.untrusted import exists, expand_home

if TYPE_CHECKING:
    from tasktheme.data.dataset import Dataset, DataSplit
    from tasktheme.data.episodes import Episodes, EpisodeStream, Range
    from tasktheme.learners.meta import MetaLearner
    from tasktheme.ptm import PTM


@dataclass(frozen=True)
class Source:
    """The data that a command was pointed at.

    Images become like those that ``model`` and ``trained`` know: of their size unless there is one, grey or in colour, and
    inverted where they are negatives, or where a meta-learner's training inverted data of this name, unless ``invert`` says
    whether. What the trainings held out of data of this name is held out again, unless ``held_out`` says what.
    """

    data: str
    data_dir: Path | None
    size: int | None
    held_out: list[str] | None
    allow_damaged: bool
    quiet: bool
    model: PTM | None = None
    invert: bool | None = None
    trained: Sequence[PTM | MetaLearner | None] = ()

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder or zip of images; a data set that has this name goes first."""
        from tasktheme.data.loading import is_named

        path = expand_home(self.data)
        return not is_named(self.data) and exists(path) and (path.is_dir() or path.suffix.lower() == ".zip")

    def split(self) -> DataSplit:
        """All parts of a labelled data set."""
        return self.split_and_way()[0]

    def split_and_way(self) -> tuple[DataSplit, bool]:
        """All parts of a labelled data set, and whether they were inverted."""
        from tasktheme.data.loading import load_dataset

        with distributed.leader_first():
            split = load_dataset(self.data, data_dir=self.data_dir, split=self._split(), **self._form())
        return (split.inverted(), True) if self._inverts(split.train) else (split, False)

    def part(self, part: Part) -> Dataset:
        """A part of a labelled data set."""
        split = self.split()
        wanted: Dataset | None = getattr(split, part.value)
        if wanted is None:
            raise DataError(f"{split.name!r} has no part 'val'; it has train and test")
        return wanted

    def draw(self, *chosen: Any) -> Episodes | Dataset:
        """The tasks of :meth:`stream`, with the same arguments, all at once."""
        from tasktheme.data.episodes import EpisodeStream

        tasks = self.stream(*chosen)
        return tasks.all() if isinstance(tasks, EpisodeStream) else tasks

    def stream(
        self,
        unlabelled: bool | None,
        part: Part,
        ways: Range | None,
        shots: Range | None,
        number: int | None,
        seed: int,
        tasks_file: Path | None,
        all_combinations: bool,
    ) -> EpisodeStream | Dataset:
        """Tasks: each folder one, or from a part of a labelled data set random ones, those of a file, or all there are.

        The latter are drawn when they are wanted, as there may be millions.
        """
        if self.holds_tasks(unlabelled, tasks_file, all_combinations):
            drawing = {"--ways": ways, "--shots": shots, "-n": number, "--part": None if part is Part.test else part}
            refuse_given(
                drawing,
                f"each folder (or array) of {self.data!r} is one task, so none is drawn; --labelled draws tasks from its classes",
            )
            return self.tasks()
        dataset = self.part(part)
        shots = SHOTS if shots is None else shots
        if all_combinations:
            every = dataset.combinations() if ways is None else dataset.combinations(ways)  # type: ignore[arg-type]  # checked there
            return dataset.stream(shots=shots, n=number, seed=seed, tasks=every)
        try:
            return dataset.stream(ways, shots, number, seed=seed, tasks=tasks_file)
        except DataError as error:  # a listed class may be in another part
            whole = f"{dataset.name!r} has no class"
            if whole not in str(error):
                raise
            raise DataError(str(error).replace(whole, f"the part {part.value!r} (--part) of {whole}")) from error

    def holds_tasks(self, unlabelled: bool | None, tasks_file: Path | None, all_combinations: bool) -> bool:
        """Whether each folder or array is one task, so that none is drawn."""
        listed = all_combinations or tasks_file is not None
        if (unlabelled is True) + all_combinations + (tasks_file is not None) > 1:
            raise SettingsError("--unlabelled, --tasks-file and --all-combinations exclude each other: give one")
        return self.is_folder and not listed if unlabelled is None else unlabelled

    def tasks(self) -> Dataset:
        """Unlabelled tasks."""
        from tasktheme.data.loading import load_tasks

        if self.held_out is not None:
            raise SettingsError(
                f"--held-out goes with classes, but each folder (or array) of {self.data!r} is one task: leave it out"
            )
        with distributed.leader_first():
            tasks = load_tasks(self.data, **self._form())
        return tasks.inverted() if self._inverts(tasks) else tasks

    def _form(self) -> dict[str, Any]:
        """What images become."""
        shapes = [one.point_shape for one in self._models if len(one.point_shape) == 3]
        channels = {shape[0] for shape in shapes}
        if len(channels) > 1:
            raise SettingsError(f"the models given take images of {' and '.join(map(str, sorted(channels)))} channels")
        sides = {shape[1] for shape in shapes if shape[1] == shape[2]}
        if self.size is None and len(sides) > 1:
            raise SettingsError(
                f"the models given take images of different sizes: {' and '.join(map(str, sorted(sides)))} pixels"
            )
        return {
            "size": next(iter(sides), None) if self.size is None else self.size,
            "channels": next(iter(channels), None),
            "allow_damaged": self.allow_damaged,
            "progress": not self.quiet,
        }

    @property
    def _models(self) -> list[PTM | MetaLearner]:
        return [one for one in (self.model, *self.trained) if one is not None]

    def _inverts(self, images: Dataset) -> bool:
        """Whether black and white are to be exchanged; where nobody has said so, a line tells it.

        A task model tells by what it decodes, a meta-learner by how it was trained on data of this name.
        """
        models = self._models
        if self.invert is not None or not models or not self.is_folder:
            return bool(self.invert)
        from tasktheme.data.loading import path_name
        from tasktheme.negatives import are_negatives
        from tasktheme.ptm import PTM

        name = path_name(expand_home(self.data))
        learners = [one for one in models if not isinstance(one, PTM) and one.trained_on.get("data") == name]
        trained = {bool(one.trained_on.get("inverted")) for one in learners}
        themes = [one for one in models if isinstance(one, PTM)]
        if trained == {True}:
            if any(are_negatives(images.inverted(), one) for one in themes):
                raise SettingsError(_at_odds(name, "inverted", "as they are", "a meta-learner trained without --invert"))
            why = "the meta-learner was trained on inverted images, and these"
        elif any(are_negatives(images, one) for one in themes):
            if trained:
                raise SettingsError(_at_odds(name, "as they are", "inverted", "a meta-learner trained with meta-train --invert"))
            why = "the images are negatives of those that the model knows and"
        else:
            return False
        warnings.warn(f"{why} were inverted; --no-invert leaves them as they are", stacklevel=2)
        return True

    def holds_out(self) -> list[str] | None:
        """What is held out, by name or as a fraction: as told, or as the trainings did. None is the default part."""
        from tasktheme.data.loading import is_named, path_name

        if self.held_out is not None or is_named(self.data):
            return self.held_out
        name = path_name(expand_home(self.data))
        found = {_held_out_of(name, one.trained_on) for one in self._models} - {None}
        if len(found) > 1:
            parts = " or ".join(sorted(" and ".join(map(repr, part or ())) or "the default part" for part in found))
            raise SettingsError(
                f"the trainings of the models given held out different parts of {name!r} ({parts}): say which with --held-out"
            )
        return list(found.pop() or ()) or None if found else None

    def _split(self) -> float | list[str] | None:
        held_out = self.holds_out()
        if held_out is not None and len(held_out) == 1:
            with suppress(ValueError):
                if 0.0 < (fraction := float(held_out[0])) < 1.0:  # 7 is the name of a class
                    return fraction
        return held_out


def _at_odds(name: str, learner: str, model: str, other: str) -> str:
    return (
        f"the meta-learner was trained on the images of {name!r} {learner}, but the task model knows such images {model}: "
        f"give {other}, or a task model that fit made of {name!r}; --invert or --no-invert takes one way for both"
    )


def _held_out_of(name: str, about: Mapping[str, Any]) -> tuple[str, ...] | None:
    """What a training held out of the data of that name, nothing for the default part; None where it does not tell."""
    told: tuple[str, ...] | None = None
    for data, held_out in (("data", "held_out"), ("themes_refitted_to", "themes_held_out")):
        if about.get(data) != name or held_out not in about:
            continue
        found = about[held_out]
        if isinstance(found, list) and all(isinstance(part, str) for part in found):
            told = tuple(sorted(found))
        elif told is None:
            told = ()
    return told
