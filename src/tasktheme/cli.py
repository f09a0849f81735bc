"""The command line: parse, call, print."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from tasktheme import __version__
from tasktheme.errors import Interrupted, OutputError, SettingsError, TaskThemeError, TrainingError
from tasktheme.options import (
    AllCombinations,
    AllowDamaged,
    Data,
    DataDir,
    Device,
    DeviceName,
    HeldOut,
    Model,
    Number,
    Overwrite,
    Part,
    PartOf,
    PresetName,
    Quiet,
    Seed,
    Shots,
    Size,
    Source,
    TasksFile,
    Unlabelled,
    Ways,
    parse_settings,
)

app: typer.Typer = typer.Typer(
    name="tasktheme",
    help="Which learning tasks are alike, which are hard, and which to learn next.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_state = {"debug": False}
_INTERRUPTED = 130  # exit status of a program that SIGINT ended, as shells count


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tasktheme {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    _state["debug"] = debug


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model, the tasks, the pictures and the report.")] = Path("demo"),
    seed: Seed = 0,
    device: Device = DeviceName.auto,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Train on writing systems, embed tasks from scripts never seen, and show what came out.

    Example: `tasktheme demo --out demo`
    """
    from tasktheme.demo import run_demo

    if out.exists() and not overwrite:
        raise OutputError(f"{str(out)!r} exists already; choose another name, or --overwrite")
    try:
        run_demo(out, seed=seed, device=device.value, progress=not quiet, say=_silent if quiet else _print)
    except Interrupted as stop:
        _leave(f"{stop}; the demo keeps no state: run it again", _INTERRUPTED)


@app.command()
def fit(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the trained model.", show_default=False)],
    tasks: Annotated[int, typer.Option(help="Training tasks to draw.", min=1)] = 20_000,
    themes: Annotated[int | None, typer.Option(help="Number of task-themes K.", show_default="8")] = None,
    latent_dim: Annotated[int | None, typer.Option(help="Dimension of the embedding D.", show_default="64")] = None,
    preset: Annotated[PresetName | None, typer.Option(help="Settings to start from.", show_default="default")] = None,
    settings: Annotated[Path | None, typer.Option(help="A TOML file of settings; options win over it.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change any one setting; may be repeated.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.", min=0, show_default="0")] = None,
    device: Device = DeviceName.auto,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted training of the same name.")] = False,
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="Compile the step first (default: in long trainings on a GPU).")
    ] = None,
    unlabelled: Unlabelled = False,
    data_dir: DataDir = None,
    size: Size = 64,
    held_out: HeldOut = None,
    allow_damaged: AllowDamaged = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Train a model on tasks drawn from a data set's training part.

    Ctrl-C stops between two steps and keeps the state; the same command with `--resume` goes on.

    Examples: `tasktheme fit glyphs --out glyphs-model --tasks 20000`,
    `tasktheme fit glyphs --out wide --themes 32 --set covariance=diagonal`
    """
    from tasktheme.ptm import PTM
    from tasktheme.storage import check_output

    chosen = parse_settings(preset, settings, change or [], {"themes": themes, "latent_dim": latent_dim, "seed": seed})
    check_output(out, overwrite=overwrite)
    checkpoint = out.with_name(f"{out.name}.checkpoint")
    if checkpoint.exists() and not resume:
        raise OutputError(f"{str(checkpoint)!r} keeps an interrupted training: go on with --resume, or delete it")
    source = Source(data, data_dir, size, held_out, allow_damaged, quiet)
    dataset = source.tasks() if unlabelled else source.part(Part.train)
    model = PTM(settings=chosen, device=device.value)
    try:
        model.fit(dataset, tasks=tasks, progress=not quiet, checkpoint=checkpoint, resume=resume, compiled=compiled)
    except Interrupted as stop:
        _leave(f"{str(stop).split(';')[0]}; run the same command with --resume to go on", _INTERRUPTED)
    model.trained_on |= {"size": size, "held_out": held_out, "unlabelled": unlabelled, "allow_damaged": allow_damaged}
    model.save(out, overwrite=overwrite)
    checkpoint.unlink(missing_ok=True)
    if not quiet:
        typer.echo(f"wrote {out}: {model!r}")
        typer.echo(f"next:  tasktheme evaluate {out} {data}   or   tasktheme embed {out} {data} --out tasks.parquet")


@app.command()
def embed(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option(help="Parquet file for the tasks.", show_default=False)],
    part: PartOf = Part.test,
    ways: Ways = None,
    shots: Shots = 20,
    number: Number = None,
    tasks_file: TasksFile = None,
    all_combinations: AllCombinations = False,
    seed: Seed = 1,
    unlabelled: Unlabelled = False,
    data_dir: DataDir = None,
    size: Size = 64,
    held_out: HeldOut = None,
    allow_damaged: AllowDamaged = False,
    device: Device = DeviceName.auto,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Draw tasks from a data set and write what they become: a Dirichlet distribution over themes each.

    Examples: `tasktheme embed glyphs-model glyphs --out tasks.parquet -n 100`,
    `tasktheme embed my-model my_folder/ --unlabelled --out tasks.parquet`,
    `tasktheme embed my-model mini-imagenet --all-combinations --ways 5 --shots 16 --out tasks.parquet`
    """
    from tasktheme.ptm import PTM
    from tasktheme.report.tables import task_table

    if unlabelled + all_combinations + (tasks_file is not None) > 1:
        raise SettingsError("--unlabelled, --tasks-file and --all-combinations exclude each other: give one")
    _refuse_existing(out, overwrite=overwrite)
    loaded = PTM.load(model, device=device.value)
    source = Source(data, data_dir, size, held_out, allow_damaged, quiet)
    wanted = source.tasks() if unlabelled else source.episodes(part, ways, shots, number, seed, tasks_file, all_combinations)
    tasks = loaded.embed(wanted, progress=not quiet)
    tasks.save(out, overwrite=overwrite)
    if not quiet:
        _print(task_table(tasks, most=12))
        typer.echo(f"wrote {out}: {len(tasks):,} tasks")


@app.command()
def distances(
    tasks: Annotated[Path, typer.Argument(help="Tasks that embed wrote.", metavar="TASKS", show_default=False)],
    others: Annotated[Path | None, typer.Argument(help="Tasks to compare with; the same if left out.", metavar="OTHERS")] = None,
    out: Annotated[Path | None, typer.Option(help="Write all distances to a .csv or .npy file.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """KL distance from each task of TASKS to each of OTHERS: what is lost when the first is read as the second.

    Examples: `tasktheme distances tasks.parquet`, `tasktheme distances tasks.parquet old.parquet --out kl.csv`
    """
    import numpy as np

    from tasktheme.report.tables import distance_table
    from tasktheme.tasks.taskset import TaskSet

    first = TaskSet.load(tasks)
    second = first if others is None or others.resolve() == tasks.resolve() else TaskSet.load(others)
    matrix = first.kl(second)
    if out is None:
        _print(distance_table(first, second, matrix))
        return
    if out.suffix not in (".csv", ".npy"):
        raise OutputError(f"{str(out)!r}: distances are written as .csv or .npy")
    _refuse_existing(out, overwrite=overwrite)
    try:
        if out.suffix == ".npy":
            np.save(out, matrix, allow_pickle=False)
        else:
            np.savetxt(out, matrix, delimiter=",", fmt="%.6g")
    except OSError as error:
        raise OutputError(f"cannot write {str(out)!r}: {error.strerror or error}") from error
    typer.echo(f"wrote {out}: {matrix.shape[0]:,} x {matrix.shape[1]:,} distances")


@app.command()
def nearest(
    tasks: Annotated[Path, typer.Argument(help="Known tasks.", metavar="TASKS", show_default=False)],
    query: Annotated[Path, typer.Argument(help="Tasks whose neighbours are wanted.", metavar="QUERY", show_default=False)],
    k: Annotated[int, typer.Option("-k", help="Neighbours of each task.")] = 5,
) -> None:
    """For each task of QUERY, the nearest of TASKS by KL[query || task]. In one file, a task is not its own neighbour.

    Example: `tasktheme nearest known.parquet new.parquet -k 3`
    """
    from tasktheme.report.tables import nearest_table
    from tasktheme.tasks.taskset import TaskSet

    known = TaskSet.load(tasks)
    asked = known if query.resolve() == tasks.resolve() else TaskSet.load(query)
    _print(nearest_table(asked, known, asked.nearest(known, k=k)))


@app.command()
def evaluate(
    model: Model,
    data: Data,
    part: PartOf = Part.test,
    ways: Ways = None,
    shots: Shots = 20,
    number: Annotated[
        int | None, typer.Option("-n", "--number", help="How many tasks to draw.", show_default="200, or all listed")
    ] = None,
    tasks_file: TasksFile = None,
    seed: Seed = 1,
    data_dir: DataDir = None,
    size: Size = 64,
    held_out: HeldOut = None,
    allow_damaged: AllowDamaged = False,
    device: Device = DeviceName.auto,
    out: Annotated[Path | None, typer.Option(help="Write the measures as JSON.")] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Measure how well task distances find tasks of the same group (script, alphabet, domain).

    Example: `tasktheme evaluate glyphs-model glyphs`
    """
    from tasktheme.evaluation import evaluate as run_evaluation
    from tasktheme.files import write_file
    from tasktheme.ptm import PTM
    from tasktheme.report.tables import evaluation_table

    if out is not None:
        _refuse_existing(out, overwrite=overwrite)
    loaded = PTM.load(model, device=device.value)
    dataset = Source(data, data_dir, size, held_out, allow_damaged, quiet).part(part)
    result = run_evaluation(loaded, dataset, ways=ways, shots=shots, n=number, seed=seed, tasks=tasks_file, progress=not quiet)
    if out is not None:
        write_file(out, (json.dumps(result.as_dict(), indent=1) + "\n").encode())
    if not quiet:
        _print(evaluation_table(result))


@app.command()
def bench(
    out: Annotated[Path | None, typer.Option(help="Write the measurements as JSON.")] = None,
    seconds: Annotated[float, typer.Option(help="Time for each measurement.", min=0.1)] = 5.0,
    device: Device = DeviceName.auto,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Measure how fast this machine trains and embeds, beside a plain reference in the same run.

    Example: `tasktheme bench --out bench.json`
    """
    from tasktheme.bench.speed import measure_speed
    from tasktheme.files import write_file
    from tasktheme.report.tables import speed_table

    if out is not None:
        _refuse_existing(out, overwrite=overwrite)
    result = measure_speed(device=device.value, seconds=seconds, progress=not quiet)
    if out is not None:
        write_file(out, (json.dumps(result, indent=1) + "\n").encode())
    if not quiet:
        _print(speed_table(result))


def main() -> None:
    """Run the command line; bad input exits with 2, a failure with 1, an interrupt with 130, each with one line."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning  # one line, without the place in our code
        _run()


def _run() -> NoReturn:
    try:
        code = app(standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        _leave("interrupted", _INTERRUPTED)
    except TaskThemeError as error:
        if _state["debug"]:
            raise
        _leave(
            str(error).replace("fit again with resume", "run it again with --resume"),
            1 if isinstance(error, TrainingError) else 2,
        )
    except Exception as error:
        explain = getattr(error, "format_message", None)  # an error of the command line itself
        if callable(explain):
            _leave(f"{explain()} (tasktheme --help shows what there is)", 2)
        if _state["debug"]:
            raise
        _leave(f"unexpected {type(error).__name__}: {error} (tasktheme --debug ... shows where)", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _leave(message: str, code: int) -> NoReturn:
    typer.echo(f"tasktheme: {' '.join(message.split())}", err=True)
    sys.exit(code)


def _silent(message: object) -> None:
    """Say nothing."""


def _print(message: object) -> None:
    from rich.console import Console

    Console(markup=False, highlight=False).print(message)  # names from data are text, never markup


def _refuse_existing(path: Path, *, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise OutputError(f"{str(path)!r} exists already; choose another name, or --overwrite")
    if not path.absolute().parent.is_dir():
        raise OutputError(f"{str(path)!r} cannot be written: its folder does not exist")


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"tasktheme: {' '.join(str(message).split())}", err=True)


from tasktheme import cli_learners  # noqa: E402, F401  (its commands register themselves)
