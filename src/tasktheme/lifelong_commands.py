"""The command of the lifelong experiment."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tasktheme import distributed
from tasktheme.errors import DataError, Interrupted, SettingsError
from tasktheme.learner_commands import LearnerName, of_parts
from tasktheme.options import (
    INTERRUPTED,
    AllowDamaged,
    Change,
    Data,
    DataDir,
    Device,
    DeviceName,
    Invert,
    KnownHeldOut,
    KnownSize,
    Quiet,
    counted,
    leave,
    parse_changes,
)
from tasktheme.source import Source


class SettingName(StrEnum):
    """What a policy aims at."""

    induction = "induction"
    transduction = "transduction"


def lifelong(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for all arms, results and pictures; what is there goes on.")] = Path(
        "lifelong"
    ),
    learner: Annotated[LearnerName, typer.Option(help="Which meta-learner.")] = LearnerName.maml,
    setting: Annotated[SettingName, typer.Option(help="Any future task, or the test tasks.")] = SettingName.induction,
    policies: Annotated[
        str, typer.Option(help="Which policies, with commas: ptm, task2vec, worst-case, random, predicted, diverse.")
    ] = "ptm,task2vec,worst-case,random",
    seeds: Annotated[int, typer.Option(help="Runs of each policy.", min=1)] = 3,
    steps: Annotated[int, typer.Option(help="Tasks that each run learns from.", min=1)] = 10_000,
    model: Annotated[Path | None, typer.Option(help="A folder that fit wrote, for policies by the task model.")] = None,
    probe: Annotated[Path | None, typer.Option(help="A folder that meta-train maml wrote, for task2vec.")] = None,
    tasks: Annotated[
        str | None,
        typer.Option(help="Tasks of the last test.", metavar="all|N", show_default="all, or 10000 where there are over 20,000"),
    ] = None,
    smoothing: Annotated[float, typer.Option(help="Weight of the moving average in curves.")] = 0.98,
    change: Change = None,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Compile updates and tests first: minutes; for long runs on a GPU.")
    ] = False,
    device: Device = DeviceName.auto,
    data_dir: DataDir = None,
    size: KnownSize = None,
    invert: Invert = None,
    held_out: KnownHeldOut = None,
    allow_damaged: AllowDamaged = False,
    quiet: Quiet = False,
) -> None:
    """Lifelong learning: from a pool of tasks, each policy picks the next to learn, for many steps; which learns best?

    All policies and seeds start alike, meet the same tasks and run side by side. Ctrl-C keeps every run; the same command
    goes on, one with more steps, seeds or other policies adds to what is there. `--set` changes a setting of the
    experiment (pool, evaluate_every, test_tasks, skip) or of the learner (inner_rate, weight_decay, patience, ...).

    Examples: `tasktheme experiment lifelong glyphs --policies random,worst-case --steps 500 --set pool=20`,
    `tasktheme experiment lifelong mini-imagenet --model model --probe run --policies ptm,task2vec,random --steps 20000`
    """
    from tasktheme.experiments.lifelong.lifelong import plan_lifelong, read_results, run_lifelong
    from tasktheme.files import write_file
    from tasktheme.learners.meta import MetaLearner
    from tasktheme.ptm import PTM
    from tasktheme.report.lifelong_plots import lifelong_figure
    from tasktheme.report.pictures import png_bytes

    if distributed.world() > 1:
        raise SettingsError("experiment lifelong is the work of one process, all arms at once: start it without torchrun")
    changes = parse_changes(change or [])
    names = [name.strip() for name in policies.split(",") if name.strip()]
    final: int | str | None = tasks
    if tasks is not None and tasks != "all":
        if not tasks.isdecimal():
            raise SettingsError(f"--tasks takes a number or 'all', got {tasks!r}")
        final = int(tasks)
    themes = None if model is None else PTM.load(model, device=device.value)
    trained = None if probe is None else MetaLearner.load(probe, device=device.value)
    plan_lifelong(learner.value, setting.value, names, themes, trained, changes)  # an error now, not after the decoding
    split = Source(data, data_dir, size, held_out, allow_damaged, quiet, None, invert, (themes, trained)).split()
    try:
        result = run_lifelong(
            split,
            out,
            learner=learner.value,
            setting=setting.value,
            policies=names,
            seeds=seeds,
            steps=steps,
            model=themes,
            probe=trained,
            final_tasks=final,
            smoothing=smoothing,
            device=device.value,
            progress=not quiet,
            changes=changes,
            compiled=compiled,
        )
    except Interrupted as stop:
        leave(f"{stop}; run the same command again to go on", INTERRUPTED)
    except DataError as error:
        raise of_parts(error, split) from error
    picture = out / "lifelong.png"
    write_file(picture, png_bytes(lifelong_figure(read_results(out))))
    if not quiet:
        for line in _lines(result):
            typer.echo(line)
        typer.echo(f"wrote {out / f'{learner.value}-{setting.value}'} and {picture}")


def _lines(result: dict[str, Any]) -> list[str]:
    """Each policy's last test, and the differences between them."""
    lines = []
    for name, policy in result["policies"].items():
        if "final" in policy:
            final, cost = policy["final"], sum(policy["milliseconds_per_step"]) / len(policy["seeds"])
            seeds = "" if final["over_seeds"] is None else f", +- {_points(final['over_seeds'])} over seeds"
            lines.append(
                f"{name}: {100 * final['mean']:.2f} % +- {_points(final['over_tasks'])} over tasks{seeds}; "
                f"after {counted(final['steps'], 'step')}{_left_out(policy)}, on {counted(final['tasks'], 'task')}; "
                f"{cost:.1f} ms a step"
            )
    return lines + [
        f"{pair['first']} less {pair['second']}: {100 * pair['mean']:+.2f} points, "
        f"+- {_points(pair['over_tasks'])} over tasks, +- {_points(pair['over_seeds'])} over seeds{_all_pairs(pair)}; "
        f"{100 * pair['tasks_in_common']:.0f} % of their tasks are the same"
        for pair in result["comparisons"]
    ]


def _all_pairs(pair: dict[str, Any]) -> str:
    """The interval for looking at all pairs, where it is another."""
    wide = pair["over_seeds_all_pairs"]
    return "" if wide == pair["over_seeds"] else f" (+- {_points(wide)} to read all pairs)"


def _left_out(policy: dict[str, Any]) -> str:
    """How many picks taught nothing, and how many runs ended early, where the remedies for overfitting are on."""
    skipped, stopped = sum(policy["skipped"]), sum(policy["stopped"])
    words = f" ({skipped:,} of {sum(policy['steps']):,} picks not learned from" if skipped else ""
    return words and words + (f", {stopped} of {counted(len(policy['seeds']), 'run')} stopped early)" if stopped else ")")


def _points(half_width: float | None) -> str:
    return "?" if half_width is None else f"{100 * half_width:.2f}"
