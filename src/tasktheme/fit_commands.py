"""The commands that make a model: fit, and refit, which leaves the encoder as it is."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasktheme import distributed
from tasktheme.errors import DataError, Interrupted
from tasktheme.options import (
    INTERRUPTED,
    SHOTS,
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
    Model,
    ModelsSize,
    Overwrite,
    Part,
    PresetName,
    Quiet,
    Resume,
    Size,
    Turned,
    Unlabelled,
    find_checkpoint,
    leave,
    parse_changes,
    parse_settings,
    parse_themes,
    save_result,
)
from tasktheme.settings import CHECKPOINT_SECONDS
from tasktheme.source import Source

if TYPE_CHECKING:
    from tasktheme.data.dataset import Dataset

_ASPECTS = "Parts of the embedding, each with K themes of its own: mostly tells tasks apart better."


def fit(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the trained model.", show_default=False)],
    tasks: Annotated[int, typer.Option(help="Training tasks to draw.", min=1)] = 20_000,
    themes: Annotated[
        Any,
        typer.Option(
            parser=parse_themes,
            metavar="N|auto",
            help="Number of task-themes K, of each aspect, or auto to choose it.",
            show_default="8",
        ),
    ] = None,
    aspects: Annotated[int | None, typer.Option(help=_ASPECTS, show_default="1")] = None,
    latent_dim: Annotated[int | None, typer.Option(help="Dimension of the embedding D.", show_default="64")] = None,
    preset: Annotated[PresetName | None, typer.Option(help="Settings to start from.", show_default="default")] = None,
    settings: Annotated[Path | None, typer.Option(help="A TOML file of settings; options win over it.")] = None,
    change: Change = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.", min=0, show_default="0")] = None,
    device: Device = DeviceName.auto,
    resume: Resume = False,
    checkpoint_every: CheckpointEvery = CHECKPOINT_SECONDS,
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="Compile the step first (default: in long trainings on a GPU).")
    ] = None,
    unlabelled: Unlabelled = False,
    turned: Turned = False,
    data_dir: DataDir = None,
    size: Size = None,
    held_out: HeldOut = None,
    allow_damaged: AllowDamaged = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Train a model on tasks drawn from a data set's training part.

    Ctrl-C stops between two steps and keeps the state; the same command with `--resume` goes on. Several processes or machines
    share the work: `torchrun --nproc-per-node 4 -m tasktheme fit ...`

    Examples: `tasktheme fit glyphs --out glyphs-model --tasks 20000`,
    `tasktheme fit glyphs --out wide --themes 16 --aspects 8`
    """
    from tasktheme.ptm import PTM
    from tasktheme.storage import MODEL
    from tasktheme.training.compiler import is_compiled

    options = {"themes": themes, "aspects": aspects, "latent_dim": latent_dim, "seed": seed}
    chosen = parse_settings(preset, settings, change or [], options)
    checkpoint = find_checkpoint(out, resume=resume, overwrite=overwrite)
    model = PTM(settings=chosen, device=device.value)
    compiled = is_compiled(compiled, model.device, tasks)  # now: an error, and torch's compilers get ready beside the decoding
    source = Source(data, data_dir, size, held_out, allow_damaged, quiet)
    split = None if unlabelled else source.split()
    dataset = source.tasks() if split is None else split.train
    dataset = dataset.turned() if turned else dataset
    try:
        model.fit(
            dataset,
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
        raise _of_settings(error) from error
    if distributed.done_here():
        return
    model.trained_on |= {"held_out": held_out, "unlabelled": unlabelled, "allow_damaged": allow_damaged}
    model.trained_on["turned"] = turned
    save_result(model, out, checkpoint, overwrite=overwrite, kind=MODEL)
    if not quiet:
        if model.choice is not None:
            typer.echo(f"chose {model.choice}")
        typer.echo(f"wrote {out}: {model!r}")
        look, embedding = _next(shlex.join([str(out), data]), source, None if split is None else split.test)
        typer.echo(f"next:  tasktheme {look}   or   tasktheme {embedding}")


def refit(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the model with new themes.", show_default=False)],
    themes: Annotated[
        Any,
        typer.Option(
            parser=parse_themes,
            metavar="N|auto",
            help="Number of task-themes K, of each aspect.",
            show_default="that of the model",
        ),
    ] = None,
    aspects: Annotated[int | None, typer.Option(help=_ASPECTS, show_default="that of the model")] = None,
    change: Change = None,
    unlabelled: Unlabelled = False,
    turned: Turned = False,
    data_dir: DataDir = None,
    size: ModelsSize = None,
    invert: Invert = None,
    held_out: KnownHeldOut = None,
    allow_damaged: AllowDamaged = False,
    device: Device = DeviceName.auto,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Fit new themes to a data set's training part, with a model's encoder as it is: a minute or two, no training.

    For another number of themes, or for your own data where its images are like those that the encoder knows. Several aspects,
    parts of the embedding with themes of their own, tell tasks apart best. With --unlabelled the themes are of the very tasks in
    DATA; where these are all that you compare, add --set polish_start=tasks.

    Examples: `tasktheme refit omniglot-default omniglot --themes 16 --aspects 8 --out fine`,
    `tasktheme refit omniglot-default tasks/ --unlabelled --themes 32 --set polish_start=tasks --out own`
    """
    from tasktheme.ptm import PTM
    from tasktheme.storage import check_output

    check_output(out, overwrite=overwrite)
    options = {"themes": themes, "aspects": aspects}
    changes = parse_changes(change or []) | {name: value for name, value in options.items() if value is not None}
    loaded = PTM.load(model, device=device.value)
    source = Source(data, data_dir, size, held_out, allow_damaged, quiet, loaded, invert)
    dataset = source.tasks() if unlabelled else source.part(Part.train)
    dataset = dataset.turned() if turned else dataset
    try:
        found = loaded.refit(dataset, progress=not quiet, **changes)
    except Interrupted:
        leave("refit was interrupted and keeps no state: run it again", INTERRUPTED)
    except DataError as error:
        raise _of_settings(error) from error
    if distributed.done_here():
        return
    found.trained_on |= {"themes_held_out": held_out, "themes_turned": turned}
    found.save(out, overwrite=overwrite)
    if not quiet:
        if found.choice is not None:
            typer.echo(f"chose {found.choice}")
        typer.echo(f"wrote {out}: {found!r}")


def _next(named: str, source: Source, test: Dataset | None) -> tuple[str, str]:
    """Commands that look at a new model, with the options that its held-out part needs; None where tasks have no labels."""
    import numpy as np

    from tasktheme.data.dataset import WAYS

    if test is None:
        drawn, measure = " --unlabelled", None
    else:
        fewest, smallest = int(test.counts.min()), int(np.bincount(test.class_group).min())
        if len(test.group_names) == 1 or smallest <= WAYS:  # no choice of classes: tasks of all their points would be one task
            fewest = max(1, fewest // 2)
        shots = f" --shots {fewest}" if fewest < SHOTS else ""
        ways = f" --ways {smallest}" if smallest < WAYS else ""
        drawn = "" if source.is_folder else ways + shots  # each folder is a task
        measure = f"evaluate {named}{ways if len(test.group_names) > 1 else ''}{shots}" if len(test.counts) > 1 else None
    return measure or f"explore {named}{drawn} --out atlas.html", f"embed {named}{drawn} --out tasks.parquet"


def _of_settings(error: DataError) -> DataError:
    """The same about too few images or classes for the default tasks: here their size is a setting."""
    smaller = str(error).replace("ask for fewer shots", "ask for fewer, such as --set t_shots=3 --set v_shots=3")
    fewer = "ask for fewer, such as --set 'ways=[2,5]'"
    if " has 1 class, " in smaller:
        fewer = "ask for tasks of one class, --set ways=1, or keep more classes of it: add some, or hold out others (--held-out)"
    return DataError(smaller.replace("ask for fewer ways, or mix groups", fewer))
