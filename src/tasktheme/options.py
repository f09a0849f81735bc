"""What the commands take: options that several share, and settings from text."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tasktheme import distributed
from tasktheme.errors import OutputError, SettingsError

if TYPE_CHECKING:
    from tasktheme.learners.meta import MetaLearner
    from tasktheme.ptm import PTM
    from tasktheme.settings import Settings


_LONGEST_LINE = 1_000  # characters of an error: a name in it may have thousands
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
Size = Annotated[
    int | None,
    typer.Option(help="Side in pixels that images are resized to.", show_default="64, and arrays as they are"),
]
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
Change = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change any one setting (tasktheme settings); may be repeated."),
]
Unlabelled = Annotated[bool, typer.Option("--unlabelled", help="DATA is a folder of folders, each one a task.")]
Turned = Annotated[
    bool,
    typer.Option("--turned", help="Learn from turned and mirrored images too: eight times as many groups."),
]
EachFolderATask = Annotated[
    bool | None,
    typer.Option(
        "--unlabelled/--labelled",
        help="Each sub-folder (or array) of DATA is one task, or tasks are drawn from its classes.",
        show_default="unlabelled for a folder or zip",
    ),
]
ModelsSize = Annotated[int | None, typer.Option(help="Side in pixels that images are resized to.", show_default="the model's")]
KnownSize = Annotated[
    int | None, typer.Option("--size", help="Side in pixels that images are resized to.", show_default="the models', else 64")
]
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
    """End the program with one line, of one process; where standard error is lost, with the status alone."""
    line = " ".join(message.split())
    if distributed.speaks():
        remark(line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + " ...")
    sys.exit(code)


def remark(line: str) -> None:
    """A line to standard error; where that is lost the work goes on without."""
    with suppress(OSError):
        typer.echo(f"tasktheme: {line}", err=True)


_made: list[Path] = []  # folders for outputs, inner ones first


@contextmanager
def made_folders() -> Iterator[None]:
    """Folders that are made for outputs are removed where an error leaves them empty."""
    _made.clear()
    try:
        yield
    except BaseException:
        for folder in _made:
            with suppress(OSError):  # it is not empty
                folder.rmdir()
        raise


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """OutputError where an output exists and may not be replaced; its folder is made where it is missing."""
    from tasktheme.files import check_free, make_folder
    from tasktheme.untrusted import exists

    try:
        there = path.exists()
    except OSError as error:
        raise OutputError(f"{str(path)!r} cannot be written: {error.strerror}") from error
    check_free(path, overwrite=overwrite)
    if there and path.is_dir():
        raise OutputError(f"{str(path)!r} is a folder, and no file to write to")
    _made.extend(folder for folder in path.absolute().parents if not exists(folder))
    make_folder(path.absolute().parent)


def refuse_given(options: Mapping[str, Any], why: str) -> None:
    """SettingsError that names those of some options that were given, where they would do nothing."""
    if given := [option for option, value in options.items() if value is not None]:
        raise SettingsError(f"{' and '.join(given)}: {why}")


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
