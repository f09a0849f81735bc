"""The commands of meta-learners and experiments."""

from __future__ import annotations

import json
import re
import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tasktheme import distributed
from tasktheme.errors import DataError, Interrupted, SettingsError
from tasktheme.options import (
    INTERRUPTED,
    AllowDamaged,
    Change,
    CheckpointEvery,
    Data,
    DataDir,
    Device,
    DeviceName,
    HeldOut,
    Invert,
    KnownHeldOut,
    KnownSize,
    Overwrite,
    Part,
    PartOf,
    Quiet,
    Resume,
    Seed,
    Size,
    find_checkpoint,
    leave,
    parse_changes,
    refuse_existing,
    save_result,
)
from tasktheme.plot_commands import check_picture, save_picture
from tasktheme.settings import CHECKPOINT_SECONDS
from tasktheme.source import Source
from tasktheme.task_tables import check_out

if TYPE_CHECKING:
    from tasktheme.data.dataset import DataSplit
    from tasktheme.learners.meta import MetaLearner
    from tasktheme.ptm import PTM

Kept = TypeVar("Kept", "PTM", "MetaLearner")


class LearnerName(StrEnum):
    """Meta-learners."""

    maml = "maml"
    protonet = "protonet"
    abml = "abml"


class ExperimentName(StrEnum):
    """Figures of the paper that one function makes."""

    entropy_accuracy = "entropy-accuracy"
    distance_accuracy = "distance-accuracy"
    accuracy_histogram = "accuracy-histogram"


Run = Annotated[Path, typer.Argument(help="A folder that meta-train wrote.", metavar="RUN", show_default=False)]


def meta_train(
    learner: Annotated[LearnerName, typer.Argument(help="Which meta-learner.", metavar="LEARNER", show_default=False)],
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the trained meta-learner.", show_default=False)],
    tasks: Annotated[int, typer.Option(help="Training tasks to draw.", min=1)] = 100_000,
    ways: Annotated[int | None, typer.Option(help="Classes in a task.", show_default="5")] = None,
    shots: Annotated[int | None, typer.Option(help="Labelled points of each class.", show_default="1")] = None,
    queries: Annotated[int | None, typer.Option(help="Points of each class to predict.", show_default="15")] = None,
    patience: Annotated[
        int | None, typer.Option(help="Stop early after so many validations without a better one.", show_default="never")
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(help="L2 on all weights.", show_default="0")] = None,
    change: Change = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.", min=0, show_default="0")] = None,
    device: Device = DeviceName.auto,
    resume: Resume = False,
    checkpoint_every: CheckpointEvery = CHECKPOINT_SECONDS,
    compiled: Annotated[bool, typer.Option("--compile", help="Compile the step first (for long trainings on a GPU).")] = False,
    data_dir: DataDir = None,
    size: Size = None,
    invert: Annotated[bool, typer.Option("--invert", help="Exchange black and white, as for a task model of negatives.")] = False,
    held_out: HeldOut = None,
    allow_damaged: AllowDamaged = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Train a meta-learner on tasks drawn from a data set's training classes, validated on its validation classes.

    Ctrl-C stops between two steps and keeps the state; the same command with `--resume` goes on.

    Examples: `tasktheme meta-train maml mini-imagenet --out run`,
    `tasktheme meta-train protonet glyphs --out run --tasks 2000 --set filters=32`
    """
    from tasktheme.learners.build import find_learner
    from tasktheme.learners.meta import MetaLearner
    from tasktheme.storage import LEARNER

    options = {
        "ways": ways,
        "shots": shots,
        "queries": queries,
        "patience": patience,
        "weight_decay": weight_decay,
        "seed": seed,
    }
    changes = parse_changes(change or []) | {name: value for name, value in options.items() if value is not None}
    made = MetaLearner(learner.value, settings=find_learner(learner.value).Settings().changed(changes), device=device.value)
    checkpoint = find_checkpoint(out, resume=resume, overwrite=overwrite)
    split = Source(data, data_dir, size, held_out, allow_damaged, quiet, invert=invert).split()
    try:
        made.fit(
            split,
            tasks,
            progress=not quiet,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            resume=resume,
            compiled=compiled,
        )
    except Interrupted as stop:
        leave(f"{str(stop).split(';')[0]}; run the same command with --resume to go on", INTERRUPTED)
    except DataError as error:
        raise of_parts(error, split) from error
    if distributed.done_here():
        return
    made.trained_on |= {"held_out": held_out, "inverted": invert}
    save_result(made, out, checkpoint, overwrite=overwrite, kind=LEARNER)
    if not quiet:
        typer.echo(f"wrote {out}: {made!r}")
        if made.validations:
            step, accuracy = max(made.validations, key=lambda pair: pair[1])
            typer.echo(f"best validation {100 * accuracy:.2f} % after {step * made.settings.batch_tasks:,} tasks")
        typer.echo(f"next:  tasktheme meta-test {shlex.join([str(out), data])} --tasks 600")


def meta_test(
    run: Run,
    data: Data,
    tasks: Annotated[str, typer.Option(help="How many random tasks, or 'all' choices of classes.", metavar="all|N")] = "600",
    out: Annotated[Path | None, typer.Option(help="Parquet file for the accuracy on each task.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Histogram of the accuracies: .png, .pdf or .svg.")] = None,
    part: PartOf = Part.test,
    seed: Seed = 1,
    device: Device = DeviceName.auto,
    compiled: Annotated[bool, typer.Option("--compile", help="Compile the test first (for many tasks on a GPU).")] = False,
    data_dir: DataDir = None,
    size: Annotated[
        int | None, typer.Option(help="Side in pixels that images are resized to.", show_default="the learner's")
    ] = None,
    invert: Annotated[
        bool | None,
        typer.Option("--invert/--no-invert", help="Exchange black and white.", show_default="as its training on this folder did"),
    ] = None,
    held_out: KnownHeldOut = None,
    allow_damaged: AllowDamaged = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Test a meta-learner: the accuracy on each of many tasks of classes it never saw, and their mean.

    Examples: `tasktheme meta-test run mini-imagenet --tasks all --out accuracy.parquet --picture histogram.png`
    """
    from tasktheme.learners.meta import MetaLearner
    from tasktheme.report.learner_plots import accuracy_histogram

    check_out(out, ".parquet", overwrite=overwrite)
    if picture is not None:
        check_picture(picture, overwrite=overwrite)
    loaded = MetaLearner.load(run, device=device.value)
    dataset = Source(data, data_dir, size, held_out, allow_damaged, quiet, None, invert, [loaded]).part(part)
    found = loaded.test(dataset, _count(tasks), seed=seed, progress=not quiet, compiled=compiled)
    if distributed.done_here():
        return
    if out is not None:
        found.save(out, overwrite=overwrite)
    if picture is not None:
        save_picture(accuracy_histogram(found), picture, quiet=quiet)
    typer.echo(f"accuracy {found!r}")


def experiment(
    context: typer.Context,
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the numbers (.json) and the picture (.png).")] = Path("experiments"),
    learner: Annotated[Path | None, typer.Option(help="A folder that meta-train wrote; trained into OUT if left out.")] = None,
    model: Annotated[Path | None, typer.Option(help="A folder that fit wrote; trained into OUT if left out.")] = None,
    tasks: Annotated[
        str | None,
        typer.Option(help="Test tasks.", metavar="all|N", show_default="all, or 10000 where there are over 20,000"),
    ] = None,
    accuracies: Annotated[
        Path | None, typer.Option(help="What meta-test --out wrote for this learner, instead of another test.")
    ] = None,
    training_tasks: Annotated[int, typer.Option(help="Training tasks that distances are measured to.", min=1)] = 10_000,
    learner_tasks: Annotated[int, typer.Option(help="Tasks that MAML is trained on, where it must be.", min=1)] = 100_000,
    model_tasks: Annotated[int, typer.Option(help="Tasks that the task model is trained on, where it must be.", min=1)] = 60_000,
    seed: Seed = 1,
    device: Device = DeviceName.auto,
    data_dir: DataDir = None,
    size: KnownSize = None,
    invert: Invert = None,
    held_out: KnownHeldOut = None,
    allow_damaged: AllowDamaged = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce a figure of the paper: accuracy against task entropy or distance, or the histogram of accuracies.

    What is not given is trained first and kept in OUT as `learner` and `model`, where the next experiment finds it; a
    training that was interrupted goes on.

    Examples: `tasktheme experiment entropy-accuracy mini-imagenet --learner run --model model`,
    `tasktheme experiment accuracy-histogram glyphs --out results`
    """
    from tasktheme.experiments.accuracy_histogram import histogram_summary
    from tasktheme.experiments.distance_accuracy import distance_accuracy
    from tasktheme.experiments.entropy_accuracy import entropy_accuracy
    from tasktheme.experiments.tested import known_test, run_test
    from tasktheme.files import write_file
    from tasktheme.learners.meta import MetaLearner
    from tasktheme.learners.testing import Accuracies
    from tasktheme.ptm import PTM
    from tasktheme.report.learner_plots import accuracy_histogram, correlation_diagram

    name = ExperimentName(context.info_name or "")  # one function, a command for each figure
    numbers, picture = (out / f"{name.value}.{ending}" for ending in ("json", "png"))
    wanted = None if tasks is None else _count(tasks)
    if accuracies is not None and (tasks is not None or learner is None):
        raise SettingsError("--accuracies names the tasks that were tested, and goes with --learner but not with --tasks")
    known = None if accuracies is None else Accuracies.load(accuracies)
    for path in (numbers, picture):
        refuse_existing(path, overwrite=overwrite)
    needs_model = name != ExperimentName.accuracy_histogram
    themes = _known(PTM, model, out / "model", device.value) if needs_model else None
    trained = _known(MetaLearner, learner, out / "learner", device.value)
    source = Source(data, data_dir, size, held_out, allow_damaged, quiet, None, invert, (themes, trained))
    split, inverted = source.split_and_way()
    about = {"held_out": source.holds_out(), "inverted": inverted}
    try:
        if needs_model and themes is None:
            themes = _keep(PTM(device=device.value), out / "model", about, split.train, model_tasks, quiet=quiet)
        if trained is None:
            learning = MetaLearner("maml", device=device.value)
            trained = _keep(learning, out / "learner", about, split, learner_tasks, quiet=quiet)
    except Interrupted as stop:
        leave(f"{str(stop).split(';')[0]}; run the same command again to go on", INTERRUPTED)
    if known is not None:
        tested = known_test(trained, split.test, known)
    else:
        tested = run_test(trained, split.test, wanted, seed=seed, progress=not quiet)
    if themes is None:
        result, figure = histogram_summary(tested.accuracies), accuracy_histogram(tested.accuracies)
    else:
        diagram = (
            entropy_accuracy(tested, themes, progress=not quiet)
            if name == ExperimentName.entropy_accuracy
            else distance_accuracy(tested, themes, split.train, training_tasks=training_tasks, progress=not quiet)
        )
        result, figure = diagram.as_dict(), correlation_diagram(diagram)
    if distributed.done_here():
        return
    write_file(numbers, (json.dumps(result, indent=1) + "\n").encode())
    save_picture(figure, picture, quiet=True)
    if not quiet:
        typer.echo(f"accuracy {tested.accuracies!r}")
        if themes is not None:
            for _, _, found in diagram.panels:
                low, high = found.spearman_interval
                typer.echo(f"{found.tasks:,} tasks: Spearman {found.spearman:.3f} ({low:.3f} to {high:.3f})")
        typer.echo(f"wrote {numbers} and {picture}")


def of_parts(error: DataError, split: DataSplit) -> DataError:
    """The same about too few classes for a task: they are those of a part, and a setting or what is held out can change."""
    asked = re.search(r" has \d+ class(?:es)?, but tasks ask for (\d+) ways$", str(error))
    if asked is None:
        return error
    train, test = len(split.train.class_names), len(split.test.class_names)
    if min(train, test) >= 2:
        advice = f"ask for fewer (--set ways={min(train, test)}), or change what is held out (--held-out)"
    elif train + test >= 4:
        advice = "hold out 2 or more of them and keep as many (--held-out), with --set ways=2"
    else:
        advice = "tasks of 2 ways (--set ways=2) need 2 classes in either part (--held-out), so 4 in all"
    return DataError(
        f"{split.name!r} has too few classes for tasks of {asked[1]} ways: {train} to train on, {test} held out; {advice}"
    )


def _known(kind: type[Kept], given: Path | None, own: Path, device: str) -> Kept | None:
    """What was given, or what an earlier experiment trained; None where there is neither."""
    if given is None and not own.exists():
        return None
    if given is None:
        _forget(own)
    return kind.load(given or own, device=device)


def _keep(untrained: Kept, own: Path, about: dict[str, Any], data: Any, tasks: int, *, quiet: bool) -> Kept:
    """Train it, and write it to its folder, with what is to be known about its data."""
    untrained.fit(data, tasks, progress=not quiet, checkpoint=_checkpoint(own), resume=True)
    untrained.trained_on |= about
    if distributed.leads():
        untrained.save(own)
    _forget(own)
    return type(untrained).load(own, device=str(untrained.device))


def _checkpoint(own: Path) -> Path:
    return own.with_name(f"{own.name}.checkpoint")


def _forget(own: Path) -> None:
    """Remove the state of a training whose result is written; all processes find that afterwards."""
    from tasktheme.training.checkpoint_file import remove_checkpoint

    if distributed.leads():
        remove_checkpoint(_checkpoint(own))
    distributed.wait_for_all()


def _count(tasks: str) -> int | str:
    if tasks == "all":
        return tasks
    try:
        return int(tasks)
    except ValueError:
        raise SettingsError(f"--tasks takes a number or 'all', got {tasks!r}") from None
