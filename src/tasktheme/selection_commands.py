"""The command that says which task to learn next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasktheme.errors import DataError, SettingsError
from tasktheme.options import (
    DataDir,
    Device,
    DeviceName,
    Invert,
    KnownHeldOut,
    Overwrite,
    Part,
    Quiet,
    counted,
    refuse_given,
)
from tasktheme.source import Source
from tasktheme.task_tables import Resized, TableOut, check_out, deliver, labels, load_file, warn_of_collapse

if TYPE_CHECKING:
    from tasktheme.learners.meta import MetaLearner
    from tasktheme.ptm import PTM
    from tasktheme.selection.base import Tasks
    from tasktheme.tasks.taskset import TaskSet


_PICKS, _POOL, _TARGETS = 10, 200, 100  # where nobody says how many


class PolicyName(StrEnum):
    """Selection policies."""

    ptm = "ptm"
    task2vec = "task2vec"
    worst_case = "worst-case"
    random = "random"
    predicted = "predicted"
    diverse = "diverse"


def select(
    pool: Annotated[
        str,
        typer.Argument(
            help="Tasks that embed wrote (or - for a pipe), or DATA to draw tasks with images from.",
            metavar="POOL",
            show_default=False,
        ),
    ],
    policy: Annotated[PolicyName, typer.Option(help="How to choose.")] = PolicyName.ptm,
    targets: Annotated[
        str | None,
        typer.Option(help="Tasks to do well on: a task file, or DATA whose test part they are drawn from.", metavar="TASKS"),
    ] = None,
    k: Annotated[int | None, typer.Option("-k", help="How many tasks, best first.", show_default="10, or all")] = None,
    learner: Annotated[
        Path | None, typer.Option(help="Of DATA: a folder that meta-train wrote; for task2vec the probe, a maml.", metavar="RUN")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="Of DATA: a folder that fit wrote, where the policy needs themes.")] = None,
    number: Annotated[
        int | None, typer.Option("-n", "--number", help="Of DATA: tasks in the pool.", min=1, show_default=str(_POOL))
    ] = None,
    target_number: Annotated[int | None, typer.Option(help="Of DATA: target tasks.", min=1, show_default=str(_TARGETS))] = None,
    part: Annotated[Part | None, typer.Option(help="Of DATA: which part.", show_default=Part.train.value)] = None,
    resized: Resized = None,
    recent: Annotated[
        list[Path] | None,
        typer.Option(
            help="Tasks picked before, latest last, which are left out; diverse looks at the last of them. --out writes such a "
            "file of the new picks alone, so give all of them: may be repeated."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0)] = 0,
    step: Annotated[int, typer.Option(help="Picks made before; random then picks anew.", min=0)] = 0,
    device: Device = DeviceName.auto,
    data_dir: DataDir = None,
    invert: Invert = None,
    held_out: KnownHeldOut = None,
    out: TableOut = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Rank the tasks of a pool by which to learn next, and say why. In a pipe, a CSV line for each.

    Without targets the learner is to do well on any task, with them on these. `ptm` and `diverse` look at a file of tasks;
    `worst-case`, `task2vec` and `predicted` at images: POOL is then DATA, with `--learner` (`predicted` also `--model`).
    `random` takes either. Tasks of different sizes are brought to the smallest, or to `--resized`. Picks of a file of tasks
    are written as such a file, with rank, score and reason, for `--recent` and every command that takes tasks.

    Examples: `tasktheme select tasks.parquet -k 10`, `tasktheme select tasks.parquet --targets mine.parquet`,
    `tasktheme select mini-imagenet --policy worst-case --learner run -n 200`
    """
    import numpy as np

    from tasktheme.report.tables import selection_table
    from tasktheme.selection.build import POLICIES
    from tasktheme.selection.select import not_picked
    from tasktheme.selection.select import select as choose

    check_out(out, overwrite=overwrite)
    from_files = [_is_file_of_tasks(path) for path in (pool, targets) if path is not None]
    if any(from_files) != all(from_files):
        raise DataError("POOL and --targets must both be files of tasks, or both DATA to draw tasks from")
    if all(from_files):
        if "support" in (needs := POLICIES[policy.value].needs):
            models = "--learner RUN" + (" and --model MODEL" if "gamma" in needs else "")
            why = f"--policy {policy.value} looks at images, and {pool!r}, a file of tasks, has none"
            raise DataError(f"{why}: give DATA in its place, with {models}")
        drawing = {"-n": number, "--target-number": target_number, "--part": part, "--held-out": held_out, "--data-dir": data_dir}
        refuse_given(
            {"--learner": learner, "--model": model, **drawing, "--invert/--no-invert": invert},
            "this goes with DATA, but POOL is a file of tasks: leave it out",
        )
        whole = load_file(Path(pool))
        own = whole if resized is None else whole.resized(resized)
        aims, last = _load(targets, resized), _load_all(recent, resized)
        warn_of_collapse(own)
        columns, size = own.columns, len(own)
        picks = min(_PICKS, max(1, int(not_picked(own, last).sum()))) if k is None else k
        found = choose(own, policy.value, picks, targets=aims, recent=last, seed=seed, step=step)
    else:
        refuse_given({"--resized": resized, "--recent": recent}, "this goes with a file of tasks, but POOL is none: leave it out")
        if targets is None:
            refuse_given({"--target-number": target_number}, "there are no targets: name their DATA with --targets")
        trained, themes = _load_models(pool, learner, model, device.value)
        used = "gamma" in POLICIES[policy.value].needs
        draw = partial(_draw, trained, themes, used, data_dir=data_dir, invert=invert, held_out=held_out, quiet=quiet)
        tasks, columns = draw(pool, part or Part.train, number or _POOL, seed)
        goals = None if targets is None else draw(targets, Part.test, target_number or _TARGETS, seed + 1)[0]
        size = len(tasks)
        picks = min(_PICKS, size) if k is None else k
        found = choose(tasks, policy.value, picks, targets=goals, learner=trained, seed=seed, step=step, progress=not quiet)
    rows: dict[str, Any] = {
        "rank": np.arange(1, len(found) + 1),
        "task": found.indices,
        **labels(columns, found.indices),
        "score": found.scores,
        "reason": list(found.reasons),
    }
    if out is not None and all(from_files):
        whole[found.indices].with_columns(**rows).save(out, overwrite=overwrite)
        typer.echo(f"wrote {out}: {counted(len(found), 'task')}")
        return
    deliver(rows, out, lambda: selection_table(found, columns, size))


def _is_file_of_tasks(path: str) -> bool:
    """Whether these are tasks of a file or a pipe; if not, they are DATA, which must be there."""
    from tasktheme.data.loading import existing, is_named
    from tasktheme.tasks.files import is_task_file

    if path == "-" or is_task_file(Path(path)):
        return True
    if not is_named(path):
        existing(path)
    return False


def _load(path: str | Path | None, resized: int | None) -> TaskSet | None:
    if path is None:
        return None
    tasks = load_file(Path(path))
    return tasks if resized is None else tasks.resized(resized)


def _load_all(paths: Sequence[Path] | None, resized: int | None) -> TaskSet | None:
    """The tasks of all files, in order, with the columns that all of them have: a task of the pool is known by these."""
    if not paths:
        return None
    from tasktheme.tasks.taskset import TaskSet

    parts = [part for path in paths if (part := _load(path, resized)) is not None]
    for path, part in zip(paths[1:], parts[1:], strict=True):
        try:
            parts[0].check_same_model(part)
        except DataError as error:
            raise DataError(f"--recent {paths[0]} and {path}: {error}") from error
    joined = TaskSet.concatenate(parts)
    shared = {name: values for name, values in joined.columns.items() if all(name in part.columns for part in parts)}
    return replace(joined, columns=shared)


def _load_models(pool: str, learner: Path | None, model: Path | None, device: str) -> tuple[MetaLearner, PTM | None]:
    from tasktheme.learners.meta import MetaLearner
    from tasktheme.ptm import PTM

    if learner is None:
        raise SettingsError(
            f"{pool!r} is no file of tasks that embed wrote, and tasks drawn from DATA need a meta-learner: "
            "name a folder that meta-train wrote with --learner"
        )
    return MetaLearner.load(learner, device=device), None if model is None else PTM.load(model, device=device)


def _draw(
    learner: MetaLearner,
    model: PTM | None,
    used: bool,  # whether the policy looks at what the model finds
    data: str,
    part: Part,
    number: int,
    seed: int,
    *,
    data_dir: Path | None,
    invert: bool | None,
    held_out: list[str] | None,
    quiet: bool,
) -> tuple[Tasks, Mapping[str, Sequence[Any]]]:
    """Tasks with images, and the classes of each."""
    from tasktheme.data.task_lists import task_names
    from tasktheme.selection.draw import draw_with_classes

    source = Source(data, data_dir, None, held_out, False, quiet, invert=invert, trained=(learner, model))
    dataset = source.part(part)
    tasks, classes = draw_with_classes(dataset, learner, number, seed=seed, model=model if used else None)
    return tasks, {"name": task_names(dataset, classes.tolist())}
