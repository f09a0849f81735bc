"""The commands that show a trained model tasks: embed, evaluate, explore, experiment distance-matrix; and models."""

from __future__ import annotations

import json
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tasktheme import distributed
from tasktheme.errors import DataError
from tasktheme.options import (
    SHOTS,
    AllCombinations,
    AllowDamaged,
    Data,
    DataDir,
    Device,
    DeviceName,
    EachFolderATask,
    Invert,
    KnownHeldOut,
    Model,
    ModelsSize,
    Number,
    Overwrite,
    Part,
    PartOf,
    Quiet,
    Seed,
    Shots,
    TasksFile,
    Ways,
    counted,
    print_table,
    refuse_existing,
    refuse_given,
)
from tasktheme.plot_commands import check_picture, save_picture
from tasktheme.source import Source
from tasktheme.task_tables import Resized, check_out, load_file, pipe_csv, warn_of_collapse, warn_of_sizes

if TYPE_CHECKING:
    from tasktheme.data.dataset import Dataset
    from tasktheme.data.episodes import Episodes

_MANY = 20_000  # tasks; of more, a Parquet file is written as they come, in memory that does not grow


def embed(
    model: Model,
    data: Data,
    out: Annotated[Path | None, typer.Option(help="Write the tasks: .parquet, .csv or .npz.")] = None,
    part: PartOf = Part.test,
    ways: Ways = None,
    shots: Shots = None,
    number: Number = None,
    tasks_file: TasksFile = None,
    all_combinations: AllCombinations = False,
    seed: Seed = 1,
    unlabelled: EachFolderATask = None,
    data_dir: DataDir = None,
    size: ModelsSize = None,
    invert: Invert = None,
    held_out: KnownHeldOut = None,
    allow_damaged: AllowDamaged = False,
    device: Device = DeviceName.auto,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write what tasks become: a Dirichlet distribution over themes each. In a pipe, a CSV line for each task.

    Of a folder, each sub-folder is one task, with all images in it and below; of a data set, tasks are drawn from the classes
    of a part: any number of them, if they go to a .parquet file. Image files become like those that the model knows: its
    size, grey or in colour, and inverted where they are negatives of them.

    Examples: `tasktheme embed my-model my_folder/ --out tasks.parquet`,
    `tasktheme embed omniglot-default glyphs --out tasks.parquet -n 100`,
    `tasktheme embed my-model mini-imagenet --all-combinations --ways 5 --shots 16 --out tasks.parquet`,
    `tasktheme embed my-model my_folder/ | tasktheme summary -`
    """
    from tasktheme.data.episodes import EpisodeStream
    from tasktheme.ptm import PTM
    from tasktheme.report.tables import task_table
    from tasktheme.tasks.files import check_ending, stream_tasks, whole_table

    if out is not None:
        check_ending(out)
        refuse_existing(out, overwrite=overwrite)
    loaded = PTM.load(model, device=device.value)
    source = Source(data, data_dir, size, held_out, allow_damaged, quiet, loaded, invert)
    wanted = source.stream(unlabelled, part, ways, shots, number, seed, tasks_file, all_combinations)
    if isinstance(wanted, EpisodeStream) and len(wanted) > _MANY and out is not None and out.suffix.lower() == ".parquet":
        parts = loaded.embed_stream(wanted, progress=not quiet)
        first = next(parts)
        if not distributed.leads():
            for _ in parts:  # a share of each part is this process's work
                pass
            return
        stream_tasks(chain([first], parts), out, count=len(wanted))
        if not quiet:
            typer.echo(f"wrote {out}: {counted(len(wanted), 'task')}")
        return
    tasks = loaded.embed(wanted.all() if isinstance(wanted, EpisodeStream) else wanted, progress=not quiet)
    if distributed.done_here():
        return
    if out is None and not sys.stdout.isatty():
        pipe_csv(whole_table(tasks))
        return
    if out is not None:
        tasks.save(out, overwrite=overwrite)
    if not quiet:
        print_table(task_table(tasks, most=12))
        if out is not None:
            typer.echo(f"wrote {out}: {counted(len(tasks), 'task')}")


def evaluate(
    model: Model,
    data: Data,
    part: PartOf = Part.test,
    ways: Ways = None,
    shots: Shots = SHOTS,
    number: Annotated[
        int | None, typer.Option("-n", "--number", help="How many tasks to draw.", show_default="200, or all listed")
    ] = None,
    tasks_file: TasksFile = None,
    seed: Seed = 1,
    data_dir: DataDir = None,
    size: ModelsSize = None,
    invert: Invert = None,
    held_out: KnownHeldOut = None,
    allow_damaged: AllowDamaged = False,
    device: Device = DeviceName.auto,
    rivals: Annotated[
        bool,
        typer.Option("--rivals", help="Compare with other task distances, of the same encoder and of raw data; a minute more."),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the measures as JSON.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw them: .png, .pdf or .svg.")] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Measure how well task distances find tasks of the same group (script, alphabet, domain).

    Where the data set has one group, such as mini-imagenet, each task is of one class, and its class is its group.

    Examples: `tasktheme evaluate glyphs-model glyphs`,
    `tasktheme evaluate glyphs-model glyphs --rivals --out measures.json --picture measures.png`
    """
    from tasktheme.evaluation import evaluate as run_evaluation
    from tasktheme.files import write_file
    from tasktheme.ptm import PTM
    from tasktheme.report.tables import evaluation_table

    check_out(out, ".json", overwrite=overwrite)
    if picture is not None:
        check_picture(picture, overwrite=overwrite)
    loaded = PTM.load(model, device=device.value)
    source = Source(data, data_dir, size, held_out, allow_damaged, quiet, loaded, invert)
    drawn = {"ways": ways, "shots": shots, "n": number, "seed": seed, "tasks": tasks_file}
    train = source.part(Part.train) if rivals else None
    result = run_evaluation(loaded, source.part(part), **drawn, rivals=rivals, train=train, progress=not quiet)
    if out is not None:
        write_file(out, (json.dumps(result.as_dict(), indent=1) + "\n").encode())
    if picture is not None:
        from tasktheme.report.evaluation_plots import evaluation_figure

        save_picture(evaluation_figure(result), picture, quiet=quiet)
    if not quiet:
        print_table(evaluation_table(result))


def explore(
    model: Model,
    tasks: Annotated[
        str,
        typer.Argument(
            help="Tasks that embed wrote (.parquet, .csv, .npz, or - for a pipe), or DATA to draw tasks from.",
            metavar="TASKS",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="HTML file for the page.", show_default=False)],
    data: Annotated[
        str | None, typer.Option(help="Where the tasks of a file came from, to show their images.", metavar="DATA")
    ] = None,
    resized: Resized = None,
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Atlas of tasks",
    part: PartOf = Part.test,
    ways: Ways = None,
    shots: Shots = None,
    number: Number = None,
    tasks_file: TasksFile = None,
    all_combinations: AllCombinations = False,
    seed: Seed = 1,
    unlabelled: EachFolderATask = None,
    data_dir: DataDir = None,
    size: ModelsSize = None,
    invert: Invert = None,
    held_out: KnownHeldOut = None,
    allow_damaged: AllowDamaged = False,
    device: Device = DeviceName.auto,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write one page that opens offline: a map of all tasks, their images, mixtures and neighbours, and the themes.

    Tasks are drawn and embedded as by `embed`, with the same options, or come from its file. With `--data` the file's tasks
    get their images back: repeat the options that `embed` had. Of tasks that differ much in size, `--resized 20` compares what
    they hold, not how much.

    Examples: `tasktheme explore glyphs-model glyphs --out atlas.html -n 500`,
    `tasktheme explore my-model customers/ --out atlas.html`,
    `tasktheme explore glyphs-model tasks.parquet --data glyphs --out atlas.html`
    """
    from tasktheme.ptm import PTM
    from tasktheme.report.explorer import write_explorer
    from tasktheme.tasks.files import is_task_file

    refuse_existing(out, overwrite=overwrite)
    stored = load_file(Path(tasks)) if tasks == "-" or is_task_file(Path(tasks)) else None
    if stored is None and data is not None:
        raise DataError(f"--data says where the tasks of a file came from, but {tasks!r} is no file of tasks: leave it out")
    if stored is not None and data is None:
        drawing = {"--part": None if part is Part.test else part, "--ways": ways, "--shots": shots, "-n": number}
        drawing |= {"--tasks-file": tasks_file, "--all-combinations": all_combinations or None}
        reading = {"--data-dir": data_dir, "--size": size, "--held-out": held_out, "--allow-damaged": allow_damaged or None}
        reading |= {"--unlabelled/--labelled": unlabelled, "--invert/--no-invert": invert}
        refuse_given(drawing | reading, "this goes with DATA, but TASKS is a file of tasks: name their DATA with --data")
    loaded = PTM.load(model, device=device.value)

    def draw() -> Episodes | Dataset:
        source = Source(data or tasks, data_dir, size, held_out, allow_damaged, quiet, loaded, invert)
        n = number if stored is None or source.holds_tasks(unlabelled, tasks_file, all_combinations) else len(stored)
        return source.draw(unlabelled, part, ways, shots, n, seed, tasks_file, all_combinations)

    origin: Episodes | Dataset | None
    if stored is None:
        origin = draw()
        embedded = loaded.embed(origin, progress=not quiet)
    else:
        warn_of_collapse(stored)
        origin, embedded = None if data is None else draw(), stored
    trained = loaded.trained_on
    source = data or ("a pipe" if tasks == "-" else tasks)
    facts = [("Tasks from", source), ("Trained on", f"{trained['tasks']:,} tasks of {trained['data']}")]
    if resized is None:
        warn_of_sizes(embedded)
    write_explorer(out, model=loaded, tasks=embedded, origin=origin, resized=resized, title=title, facts=facts)
    if not quiet:
        typer.echo(f"wrote {out}: {counted(len(embedded), 'task')}, {out.stat().st_size / 1e6:.1f} MB")
        typer.echo(f"open   {out.resolve().as_uri()}")


def models(
    name: Annotated[str | None, typer.Argument(help="Show all about this one.", metavar="NAME", show_default=False)] = None,
) -> None:
    """The trained models that come with tasktheme: wherever MODEL is asked for, their names will do.

    Examples: `tasktheme models`, `tasktheme models omniglot-default`
    """
    from tasktheme.bundled import bundled_models, model_card, model_measures
    from tasktheme.ptm import PTM
    from tasktheme.report.tables import model_table

    if name is not None:
        typer.echo(model_card(name), nl=False)
        return
    known = {found: PTM.load(found, device=DeviceName.cpu.value) for found in bundled_models()}
    print_table(model_table(known, {found: model_measures(found) for found in known}))
    typer.echo("all about one:  tasktheme models NAME")


def distance_matrix(
    data: Data,
    model: Annotated[Path, typer.Option(help="A folder that fit wrote, or a model by name.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for numbers (.json), tasks (.parquet) and picture (.png).")] = Path(
        "experiments"
    ),
    groups: Annotated[int, typer.Option(help="How many groups (alphabets, scripts).")] = 10,
    tasks: Annotated[int, typer.Option(help="Tasks of each group.")] = 5,
    shots: Annotated[int, typer.Option(help="Data points of each class.", min=1)] = 20,
    seed: Seed = 1,
    device: Device = DeviceName.auto,
    data_dir: DataDir = None,
    size: ModelsSize = None,
    invert: Invert = None,
    held_out: KnownHeldOut = None,
    allow_damaged: AllowDamaged = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """The paper's matrix of KL distances: tasks in blocks, each block from one group.

    Example: `tasktheme experiment distance-matrix omniglot --model model`
    """
    from tasktheme.experiments.distance_matrix import distance_matrix as run_matrix
    from tasktheme.files import write_file
    from tasktheme.ptm import PTM
    from tasktheme.report.distance_plots import distance_matrix as draw_matrix

    numbers, table, picture = (out / f"distance-matrix.{ending}" for ending in ("json", "parquet", "png"))
    for path in (numbers, table, picture):
        refuse_existing(path, overwrite=overwrite)
    loaded = PTM.load(model, device=device.value)
    dataset = Source(data, data_dir, size, held_out, allow_damaged, quiet, loaded, invert).part(Part.test)
    found = run_matrix(loaded, dataset, groups=groups, tasks=tasks, shots=shots, seed=seed, progress=not quiet)
    if distributed.done_here():
        return
    found.tasks.save(table, overwrite=True)
    save_picture(draw_matrix(found.tasks), picture, quiet=True)
    write_file(numbers, (json.dumps(found.as_dict(), indent=1) + "\n").encode())
    if not quiet:
        low, high = found.auc_interval
        typer.echo(f"AUC of the same group by KL: {found.found.auc:.3f} ({low:.3f} to {high:.3f})")
        typer.echo(f"wrote {numbers}, {table} and {picture}")
