"""What the commands take: options that several share, the data they are pointed at, and settings from text."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tasktheme import distributed
from tasktheme.errors import DataError, OutputError, SettingsError
from tasktheme.untrusted import exists, expand_home

if TYPE_CHECKING:
    from tasktheme.data.dataset import Dataset, DataSplit
    from tasktheme.data.episodes import Episodes, EpisodeStream, Range
    from tasktheme.learners.meta import MetaLearner
    from tasktheme.ptm import PTM
    from tasktheme.settings import Settings


_LONGEST_LINE = 1_000  # characters of an error: a name in it may have thousands
_SIDE = 64  # pixels of an image where neither an option nor a model says how many
SHOTS = 20  # data points of each class in a drawn task where nobody says how many
INTERRUPTED = 130  # exit status of a program that SIGINT ended, as shells count


class Part(StrEnum):
    """Which part of a data set."""

    train = "train"
    val = "val"
    test = "test"


class DeviceName(StrEnum):
    """Where to compute."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class PresetName(StrEnum):
    """Named settings."""

    default = "default"
    paper = "paper"


def parse_range(text: str) -> int | tuple[int, int]:
    """A whole number, or a range of two: 5 or 5-20."""
    fewest, dash, most = str(text).partition("-")
    try:
        return (int(fewest), int(most)) if dash and fewest else int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a whole number nor a range like 5-20") from None


def parse_themes(text: str) -> int | str:
    """A whole number, or auto."""
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a whole number nor auto") from None


Data = Annotated[
    str,
    typer.Argument(
        help="glyphs, omniglot, mini-imagenet, a folder or zip of images (class/image or group/class/image), or an .npz file.",
        metavar="DATA",
        show_default=False,
    ),
]
DataDir = Annotated[
    Path | None, typer.Option(help="Where omniglot and mini-imagenet lie; else TASKTHEME_DATA, else the cache folder.")
]
Size = Annotated[int, typer.Option(help="Side in pixels that images are resized to.")]
HeldOut = Annotated[
    list[str] | None,
    typer.Option(help="What is held out of your own data: a fraction, or a group or class by name; may be repeated."),
]
KnownHeldOut = Annotated[
    list[str] | None,
    typer.Option(
        "--held-out",
        help="What is held out of your own data: a fraction, or a group or class by name; may be repeated.",
        show_default="what its training held out of data of this name, else a quarter",
    ),
]
AllowDamaged = Annotated[bool, typer.Option("--allow-damaged", help="Leave out images that cannot be read.")]
Change = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change any one setting; may be repeated.")]
Unlabelled = Annotated[bool, typer.Option("--unlabelled", help="DATA is a folder of folders, each one a task.")]
EachFolderATask = Annotated[
    bool | None,
    typer.Option(
        "--unlabelled/--labelled",
        help="Each sub-folder (or array) of DATA is one task, or tasks are drawn from its classes.",
        show_default="unlabelled for a folder or zip",
    ),
]
ModelsSize = Annotated[int | None, typer.Option(help="Side in pixels that images are resized to.", show_default="the model's")]
Invert = Annotated[
    bool | None,
    typer.Option(
        "--invert/--no-invert",
        help="Exchange black and white.",
        show_default="where a folder's images are mostly white and the model's mostly black, or the other way round",
    ),
]
Model = Annotated[
    Path,
    typer.Argument(
        help="A saved model folder, or the name of a model that `tasktheme models` lists.", metavar="MODEL", show_default=False
    ),
]
Device = Annotated[DeviceName, typer.Option(help="Where to compute; auto takes a GPU if there is one.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.", min=0)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no tables.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an interrupted training of the same name.")]
CheckpointEvery = Annotated[
    float, typer.Option(help="Seconds between two savings of the state.", metavar="SECONDS", min=0.0, show_default="20")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the output if it exists.")]
Ways = Annotated[
    Any, typer.Option(parser=parse_range, metavar="N|N-M", help="Classes in a task, or a range like 5-20.", show_default="5")
]
Shots = Annotated[
    Any,
    typer.Option(
        parser=parse_range,
        metavar="N|N-M",
        help="Data points of each class in a task, or a range like 1-10.",
        show_default=str(SHOTS),
    ),
]
Number = Annotated[
    int | None, typer.Option("-n", "--number", help="How many tasks to draw.", show_default="100, or all that are listed")
]
TasksFile = Annotated[
    Path | None,
    typer.Option(help="A CSV file: each line the classes of a task, by name or group/name. Replaces random tasks."),
]
AllCombinations = Annotated[bool, typer.Option("--all-combinations", help="Every task of so many ways. Replaces random tasks.")]
PartOf = Annotated[Part, typer.Option(help="Which part of the data set.")]


@dataclass(frozen=True)
class Source:
    """The data that a command was pointed at.

    With a ``model`` image files become like those that it knows: of its size unless there is one, grey or in colour, and
    inverted where they are negatives, unless ``invert`` says whether. What the training of ``model`` or ``learner`` held out of
    data of this name is held out again, unless ``held_out`` says what.
    """

    data: str
    data_dir: Path | None
    size: int | None
    held_out: list[str] | None
    allow_damaged: bool
    quiet: bool
    model: PTM | None = None
    invert: bool | None = None
    learner: MetaLearner | None = None

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder or zip of images; a data set that has this name goes first."""
        from tasktheme.data.loading import is_named

        path = expand_home(self.data)
        return not is_named(self.data) and exists(path) and (path.is_dir() or path.suffix.lower() == ".zip")

    def split(self) -> DataSplit:
        """All parts of a labelled data set."""
        from tasktheme.data.loading import load_dataset

        with distributed.leader_first():
            split = load_dataset(self.data, data_dir=self.data_dir, split=self._split(), **self._form())
        if not self._inverts(split.train):
            return split
        parts = {name: getattr(split, name) for name in ("train", "test", "val")}
        return replace(split, **{name: part.inverted() for name, part in parts.items() if part is not None})

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
            if given := [option for option, value in drawing.items() if value is not None]:
                raise SettingsError(
                    f"{' and '.join(given)}: each folder (or array) of {self.data!r} is one task, so none is drawn; "
                    "--labelled draws tasks from its classes"
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
        known = self.model.point_shape if self.model is not None else ()
        channels, side = (known[0], known[-1]) if len(known) == 3 else (None, _SIDE)
        size = side if self.size is None else self.size
        return {"size": size, "channels": channels, "allow_damaged": self.allow_damaged, "progress": not self.quiet}

    def _inverts(self, images: Dataset) -> bool:
        """Whether black and white are to be exchanged; where nobody has said so, a line tells it."""
        if self.invert is not None or self.model is None or not self.is_folder:
            return bool(self.invert)
        from tasktheme.negatives import are_negatives

        if found := are_negatives(images, self.model):
            line = "the images are negatives of those that the model knows and were inverted; --no-invert leaves them as they are"
            warnings.warn(line, stacklevel=2)
        return found

    def _split(self) -> float | list[str] | None:
        held_out = self._held_out_before() if self.held_out is None else self.held_out
        if held_out is not None and len(held_out) == 1:
            with suppress(ValueError):
                if 0.0 < (fraction := float(held_out[0])) < 1.0:  # 7 is the name of a class
                    return fraction
        return held_out

    def _held_out_before(self) -> list[str] | None:
        """What was held out of data of this name in a training, as the model or learner tells."""
        from tasktheme.data.loading import is_named, path_name

        trained = self.model or self.learner
        if trained is None or is_named(self.data):
            return None
        about, name = trained.trained_on, path_name(expand_home(self.data))
        for data, held_out in (("themes_refitted_to", "themes_held_out"), ("data", "held_out")):
            found = about.get(held_out)
            if about.get(data) == name and isinstance(found, list) and all(isinstance(part, str) for part in found):
                return found
        return None


def find_checkpoint(out: Path, *, resume: bool, overwrite: bool) -> Path:
    """Where a run that writes the folder ``out`` keeps its state; OutputError where either is in the way."""
    from tasktheme.storage import check_output
    from tasktheme.training.checkpoint_file import read_checkpoint

    if not out.name:  # "", "." and "/"
        raise OutputError(f"{str(out)!r} cannot be a model's folder: give the folder a name of its own")
    checkpoint = out.with_name(f"{out.name}.checkpoint")
    kept = checkpoint.exists()
    if kept and not (resume or distributed.restarted()):
        raise OutputError(f"{str(checkpoint)!r} keeps an interrupted training: go on with --resume, or delete it")
    # a run that was killed after it wrote ``out``, before it removed its state, finds its own work there
    own = kept and out.exists() and bool(read_checkpoint(checkpoint)[1].get("finished"))
    check_output(out, overwrite=overwrite or own)
    return checkpoint


def save_result(made: PTM | MetaLearner, out: Path, checkpoint: Path, *, overwrite: bool, kind: str) -> None:
    """Write the folder ``out``, then remove the state that led to it."""
    from tasktheme.storage import holds_model
    from tasktheme.training.checkpoint_file import remove_checkpoint

    try:
        made.save(out, overwrite=overwrite or holds_model(out, made.fingerprint, kind=kind))
    except OutputError as error:
        if not checkpoint.exists():
            raise
        raise OutputError(f"{error}; {str(checkpoint)!r} keeps the training: go on with --resume") from error
    remove_checkpoint(checkpoint)


def leave(message: str, code: int) -> NoReturn:
    """End the program with one line, of one process."""
    line = " ".join(message.split())
    if distributed.speaks():
        typer.echo(f"tasktheme: {line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + ' ...'}", err=True)
    sys.exit(code)


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """OutputError where an output exists and may not be replaced, or where its folder does not exist."""
    try:
        there = path.exists()
    except OSError as error:
        raise OutputError(f"{str(path)!r} cannot be written: {error.strerror}") from error
    if there and not overwrite:
        raise OutputError(f"{str(path)!r} exists already; choose another name, or --overwrite")
    if there and path.is_dir():
        raise OutputError(f"{str(path)!r} is a folder, and no file to write to")
    if not exists(path.absolute().parent) or not path.absolute().parent.is_dir():
        raise OutputError(f"{str(path)!r} cannot be written: its folder does not exist")


def counted(count: int, noun: str) -> str:
    """'1 task', '1,000 tasks'."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def print_table(message: object) -> None:
    """A table or a line to standard output; names from data are text, never markup."""
    from rich.console import Console

    Console(markup=False, highlight=False).print(message)


def parse_settings(preset: PresetName | None, file: Path | None, changes: list[str], options: dict[str, Any]) -> Settings:
    """Settings from a preset, a TOML file, NAME=VALUE texts and options, each winning over those before it."""
    from tasktheme.settings import Settings

    name = None if preset is None else preset.value
    base = Settings.preset(name or "default") if file is None else Settings.from_toml(file, preset=name)
    return base.changed(parse_changes(changes) | {key: value for key, value in options.items() if value is not None})


def parse_changes(changes: list[str]) -> dict[str, Any]:
    """NAME=VALUE texts as a dictionary; a value is read as TOML, or else as a bare word."""
    import tomllib

    parsed: dict[str, Any] = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals:
            raise SettingsError(f"--set takes NAME=VALUE, got {change!r}")
        try:
            parsed[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            parsed[key.strip()] = text.strip()  # a bare word: --set norm=batch
    return parsed
