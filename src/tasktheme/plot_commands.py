"""The pictures of the command line: tasktheme plot KIND ... --out file.png, .pdf or .svg."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tasktheme.errors import OutputError
from tasktheme.options import (
    AllowDamaged,
    Data,
    DataDir,
    DeviceName,
    KnownHeldOut,
    Model,
    Overwrite,
    Part,
    PartOf,
    Unlabelled,
    refuse_existing,
    refuse_given,
)
from tasktheme.source import Source
from tasktheme.task_tables import Resized, Tasks, load_file, warn_of_collapse, warn_of_sizes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tasktheme.tasks.taskset import TaskSet

_ENDINGS = (".png", ".pdf", ".svg")
_DPI = 300  # of a PNG: sharp in print

plot_app = typer.Typer(
    help="Draw tasks or a model: simplex, map, distances, entropy, mixtures, intervals, themes, training.", no_args_is_help=True
)

Out = Annotated[Path, typer.Option(help="The picture: .png, .pdf or .svg.", show_default=False)]
Group = Annotated[str, typer.Option(help="Column by which tasks are grouped.")]
Most = Annotated[int, typer.Option(help="Most tasks drawn; of more, some of each group.", min=1)]


@plot_app.command()
def simplex(
    tasks: Tasks,
    out: Out,
    themes: Annotated[
        str | None, typer.Option(help="Three themes by number, such as 0,3,5.", show_default="the three strongest")
    ] = None,
    group: Group = "group",
    most: Most = 12,
    overwrite: Overwrite = False,
) -> None:
    """Tasks on the triangle of three themes, each with the density of its posterior.

    Example: `tasktheme plot simplex tasks.parquet --themes 0,3,5 --out simplex.pdf`
    """
    from tasktheme.errors import DataError
    from tasktheme.report import plots

    check_picture(out, overwrite=overwrite)
    chosen = None
    if themes is not None:
        try:
            chosen = [int(theme) for theme in themes.split(",")]
        except ValueError as error:
            raise DataError(f"--themes takes three numbers with commas, such as 0,3,5, got {themes!r}") from error
    save_picture(plots.simplex(load_file(tasks), themes=chosen, group=group, most=most), out)


@plot_app.command(name="map")
def task_map(
    tasks: Tasks, out: Out, group: Group = "group", most: Most = 400, resized: Resized = None, overwrite: Overwrite = False
) -> None:
    """Tasks on a plane that keeps their distances as well as a plane can.

    Example: `tasktheme plot map tasks.parquet --out map.png`
    """
    from tasktheme.report import plots

    check_picture(out, overwrite=overwrite)
    save_picture(plots.task_map(_load_to_compare(tasks, resized), group=group, most=most), out)


@plot_app.command()
def distances(
    tasks: Tasks,
    out: Out,
    group: Group = "group",
    clustered: Annotated[
        bool, typer.Option("--clustered", help="Order tasks by likeness, with a tree, instead of by group.")
    ] = False,
    most: Most = 400,
    resized: Resized = None,
    overwrite: Overwrite = False,
) -> None:
    """The KL distances of all pairs of tasks.

    Example: `tasktheme plot distances tasks.parquet --clustered --out distances.pdf`
    """
    from tasktheme.report import plots

    check_picture(out, overwrite=overwrite)
    loaded = _load_to_compare(tasks, resized)
    save_picture(plots.distance_matrix(loaded, group=group, most=most, clustered=clustered), out)


@plot_app.command()
def entropy(tasks: Tasks, out: Out, group: Group = "group", overwrite: Overwrite = False) -> None:
    """How uncertain tasks are: a histogram of their entropies, and a strip of dots for each group.

    Example: `tasktheme plot entropy tasks.parquet --out entropy.png`
    """
    from tasktheme.report import plots

    check_picture(out, overwrite=overwrite)
    save_picture(plots.entropy_histogram(load_file(tasks), group=group), out)


@plot_app.command()
def mixtures(tasks: Tasks, out: Out, group: Group = "group", most: Most = 24, overwrite: Overwrite = False) -> None:
    """What tasks are made of: a bar for each, split by theme.

    Example: `tasktheme plot mixtures tasks.parquet --out mixtures.svg`
    """
    from tasktheme.report import plots

    check_picture(out, overwrite=overwrite)
    save_picture(plots.mixtures(load_file(tasks), group=group, most=most), out)


@plot_app.command()
def intervals(
    tasks: Tasks,
    out: Out,
    group: Group = "group",
    level: Annotated[float, typer.Option(help="Probability inside an interval.")] = 0.9,
    most: Most = 6,
    overwrite: Overwrite = False,
) -> None:
    """The share of each theme in some tasks, with credible intervals: a panel for each task.

    Example: `tasktheme plot intervals tasks.parquet --out intervals.pdf`
    """
    from tasktheme.report import plots

    check_picture(out, overwrite=overwrite)
    save_picture(plots.mixture_intervals(load_file(tasks), group=group, level=level, most=most), out)


@plot_app.command()
def themes(
    model: Model,
    data: Data,
    out: Out,
    part: PartOf = Part.test,
    unlabelled: Unlabelled = False,
    columns: Annotated[int, typer.Option(help="Typical images of each theme.", min=1)] = 8,
    data_dir: DataDir = None,
    held_out: KnownHeldOut = None,
    allow_damaged: AllowDamaged = False,
    overwrite: Overwrite = False,
) -> None:
    """The themes of a model: the decoded mean of each, and the images of DATA that are most typical of it.

    Example: `tasktheme plot themes glyphs-model glyphs --out themes.png`
    """
    from tasktheme.ptm import PTM
    from tasktheme.report import plots

    check_picture(out, overwrite=overwrite)
    loaded = PTM.load(model, device=DeviceName.cpu.value)
    source = Source(data, data_dir, None, held_out, allow_damaged, quiet=True, model=loaded)
    if unlabelled:
        refuse_given({"--part": None if part is Part.test else part}, "data without labels has no parts: leave it out")
    dataset = source.tasks() if unlabelled else source.part(part)
    save_picture(plots.theme_gallery(loaded, dataset, columns=columns), out)


@plot_app.command()
def training(model: Model, out: Out, overwrite: Overwrite = False) -> None:
    """How a model's training went: the loss and each term of the bound.

    Example: `tasktheme plot training glyphs-model --out training.png`
    """
    from tasktheme.ptm import PTM
    from tasktheme.report import plots

    check_picture(out, overwrite=overwrite)
    save_picture(plots.training_curves(PTM.load(model, device=DeviceName.cpu.value).history), out)


def _load_to_compare(path: Path, resized: int | None) -> TaskSet:
    """Tasks whose distances are drawn; a line tells where these mean nothing, or sizes alone."""
    loaded = load_file(path)
    tasks = loaded if resized is None else loaded.resized(resized)
    warn_of_collapse(tasks)
    warn_of_sizes(tasks)
    return tasks


def check_picture(out: Path, *, overwrite: bool) -> None:
    """OutputError unless a picture can be written there."""
    if out.suffix.lower() not in _ENDINGS:
        raise OutputError(f"{str(out)!r}: pictures are written as .png, .pdf or .svg")
    refuse_existing(out, overwrite=overwrite)


def save_picture(figure: Figure, out: Path, *, quiet: bool = False) -> None:
    """Write a picture by its ending, the same bytes each time."""
    import matplotlib as mpl

    from tasktheme.files import write_file

    buffer = io.BytesIO()
    kind = out.suffix.lower()[1:]
    undated = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}[kind]
    with mpl.rc_context({"svg.hashsalt": "tasktheme", "pdf.fonttype": 42}):  # the same bytes each time; text stays text
        figure.savefig(buffer, format=kind, dpi=_DPI, facecolor="white", metadata=undated)
    write_file(out, buffer.getvalue())
    if not quiet:
        typer.echo(f"wrote {out}")
