"""The command line: parse, call, print."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from tasktheme import __version__, distributed
from tasktheme.errors import Interrupted, LostProcess, SettingsError, TaskThemeError, TrainingError, out_of_memory
from tasktheme.fit_commands import fit, refit
from tasktheme.learner_commands import ExperimentName, experiment, meta_test, meta_train
from tasktheme.lifelong_commands import lifelong
from tasktheme.model_commands import distance_matrix, embed, evaluate, explore, models
from tasktheme.options import (
    INTERRUPTED,
    Device,
    DeviceName,
    Overwrite,
    Quiet,
    Seed,
    leave,
    made_folders,
    print_table,
    refuse_existing,
    remark,
)
from tasktheme.plot_commands import plot_app
from tasktheme.reproduce_commands import reproduce
from tasktheme.selection_commands import select
from tasktheme.settings_commands import settings
from tasktheme.task_commands import distances, nearest, novelty, summary

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
_SHARED = ("fit", "refit", "embed", "nearest", "meta-train", "meta-test", "experiment")  # what several processes can do together

_AS_OPTIONS = {  # what errors of the library advise, as the command line has it
    "fit again with resume": "run it again with --resume",
    "(allow_damaged)": "(--allow-damaged)",
    "ask for fewer ways, or mix groups": "ask for fewer ways",  # no option mixes them
}


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tasktheme {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    _state["debug"] = debug
    if distributed.world() > 1 and context.invoked_subcommand not in _SHARED:
        raise SettingsError(f"{context.invoked_subcommand} is the work of one process: start it without torchrun")


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
    from tasktheme.files import check_free

    check_free(out, overwrite=overwrite)
    try:
        run_demo(out, seed=seed, device=device.value, progress=not quiet, say=_silent if quiet else print_table)
    except Interrupted as stop:
        leave(f"{stop}; the demo keeps no state: run it again", INTERRUPTED)


for _command in (fit, refit, embed, distances, nearest, novelty, summary, select, evaluate, explore, models, settings):
    app.command()(_command)
app.command("meta-train")(meta_train)
app.command("meta-test")(meta_test)
experiments = typer.Typer(no_args_is_help=True, help="Reproduce a figure of the paper, or its lifelong learning.")
for _figure in ExperimentName:
    experiments.command(_figure.value)(experiment)
experiments.command("distance-matrix")(distance_matrix)
experiments.command()(lifelong)
app.add_typer(experiments, name="experiment")
app.add_typer(plot_app, name="plot")
app.command()(reproduce)


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
        refuse_existing(out, overwrite=overwrite)
    result = measure_speed(device=device.value, seconds=seconds, progress=not quiet)
    if out is not None:
        write_file(out, (json.dumps(result, indent=1) + "\n").encode())
    if not quiet:
        print_table(speed_table(result))


def main() -> None:
    """Run the command line; bad input exits with 2, a failure with 1, an interrupt with 130, each with one line."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning  # one line, without the place in our code
        try:
            with distributed.joined():
                _run()
        except LostProcess as error:  # they did not even find each other
            leave(str(error), 1)


def _run() -> NoReturn:
    try:
        with made_folders():
            code = app(standalone_mode=False)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left must not fail when Python ends
        sys.exit(0)
    except (typer.Abort, KeyboardInterrupt):
        leave("interrupted", INTERRUPTED)
    except TaskThemeError as error:
        if _state["debug"]:
            raise
        line = str(error)
        for words, option in _AS_OPTIONS.items():
            line = line.replace(words, option)
        leave(line, 1 if isinstance(error, TrainingError | LostProcess) else 2)
    except Exception as error:
        explain = getattr(error, "format_message", None)  # an error of the command line itself
        if callable(explain):
            if not explain():  # a command with nothing after it has shown its help
                sys.exit(2)
            line = explain().replace(": Value error, ", ": ")  # a validator's words
            leave(f"{line} (tasktheme --help shows what there is)", 2)
        if _state["debug"]:
            raise
        if isinstance(error, OSError) and error.filename is not None:  # a path that cannot be asked for: too long, no access
            leave(f"{str(error.filename)!r}: {error.strerror}", 2)
        if (full := out_of_memory(error)) is not None:
            leave(full, 1)
        leave(f"unexpected {type(error).__name__}: {error} (tasktheme --debug ... shows where)", 1)
    if code == INTERRUPTED:  # typer's word for Ctrl-C
        leave("interrupted", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _silent(message: object) -> None:
    """Say nothing."""


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    if distributed.leads():
        remark(" ".join(str(message).split()))
