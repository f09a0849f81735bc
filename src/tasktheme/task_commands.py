"""The commands that read tasks: distances, nearest, novelty, summary. They print a table, or write one, or pipe one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasktheme import distributed
from tasktheme.errors import DataError, OutputError
from tasktheme.options import (
    DataDir,
    DeviceName,
    Overwrite,
    Part,
    print_table,
    refuse_existing,
    refuse_given,
)
from tasktheme.source import Source
from tasktheme.task_tables import (
    Resized,
    TableOut,
    Tasks,
    check_out,
    deliver,
    labels,
    load_file,
    pipe_csv,
    warn_of_collapse,
    warn_of_sizes,
)
from tasktheme.untrusted import exists

if TYPE_CHECKING:
    import pyarrow as pa

    from tasktheme.tasks.distances import Floats
    from tasktheme.tasks.taskset import TaskSet


class DirectionName(StrEnum):
    """Which way KL is read."""

    forward = "forward"
    reverse = "reverse"
    symmetric = "symmetric"


class DistanceName(StrEnum):
    """The distances between tasks."""

    kl = "kl"
    reverse_kl = "reverse-kl"
    symmetric_kl = "symmetric-kl"
    hellinger = "hellinger"
    jensen_shannon = "jensen-shannon"
    earth_mover = "earth-mover"


_TOP = 3  # themes of a task that are written where nobody says how many

Known = Annotated[Path, typer.Argument(help="Known tasks.", metavar="KNOWN", show_default=False)]
Direction = Annotated[
    DirectionName, typer.Option(help="forward is KL[query || known], reverse KL[known || query], or their mean.")
]


def distances(
    tasks: Tasks,
    others: Annotated[Path | None, typer.Argument(help="Tasks to compare with; the same if left out.", metavar="OTHERS")] = None,
    kind: Annotated[DistanceName, typer.Option(help="Which distance.")] = DistanceName.kl,
    model: Annotated[Path | None, typer.Option(help="Model folder: earth-mover needs the distances of its themes.")] = None,
    resized: Resized = None,
    out: Annotated[Path | None, typer.Option(help="Write all distances: .npy, .csv or .parquet.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Distance from each task of TASKS to each of OTHERS; KL[i || j] is what is lost when task i is read as task j.

    In a pipe, all distances are printed as CSV. Tables have the tasks' names, where they have any; .npy has the numbers alone.

    Examples: `tasktheme distances tasks.parquet`, `tasktheme distances tasks.parquet old.parquet --out kl.csv`,
    `tasktheme distances tasks.parquet --kind earth-mover --model my-model`
    """
    from tasktheme.report.tables import distance_table

    if out is not None:
        if out.suffix.lower() not in (".npy", ".csv", ".parquet"):
            raise OutputError(f"{str(out)!r}: distances are written as .npy, .csv or .parquet")
        refuse_existing(out, overwrite=overwrite)
    if kind is not DistanceName.earth_mover:
        refuse_given({"--model": model}, "this goes with --kind earth-mover: leave it out")
    first, second = _load_pair(tasks, others if others is not None else tasks, resized)
    warn_of_sizes(first, second)
    matrix = _matrix(first, second, kind, model)
    if out is not None:
        _write_matrix(matrix, first, second, out)
        typer.echo(f"wrote {out}: {matrix.shape[0]:,} x {matrix.shape[1]:,} distances")
    elif sys.stdout.isatty():
        print_table(distance_table(first, second, matrix, kind=kind.value))
    else:
        pipe_csv(_matrix_table(matrix, first, second), names=_are_named(first, second))


def nearest(
    known: Known,
    query: Annotated[Path, typer.Argument(help="Tasks whose neighbours are wanted.", metavar="QUERY", show_default=False)],
    k: Annotated[int | None, typer.Option("-k", help="Neighbours of each task.", show_default="5, or all")] = None,
    direction: Direction = DirectionName.forward,
    resized: Resized = None,
    out: TableOut = None,
    overwrite: Overwrite = False,
) -> None:
    """For each task of QUERY, the nearest of KNOWN by KL. In one file, a task is not its own neighbour.

    In a pipe, a CSV line for each neighbour.

    Example: `tasktheme nearest known.parquet new.parquet -k 3`
    """
    import numpy as np

    from tasktheme.report.tables import nearest_table

    check_out(out, overwrite=overwrite)
    asked, reference = _load_pair(query, known, resized)
    found = asked.nearest(reference, k=k, direction=direction.value)
    if distributed.done_here():
        return
    warn_of_sizes(asked, reference)
    each = found.indices.shape[1]
    number, neighbour = np.repeat(np.arange(len(asked)), each), found.indices.reshape(-1)
    rows = {
        "task": number,
        **labels(asked.columns, number),
        "rank": np.tile(np.arange(1, each + 1), len(asked)),
        "neighbour": neighbour,
        **labels(reference.columns, neighbour, prefix="neighbour_"),
        "distance": found.distances.reshape(-1),
    }
    deliver(rows, out, lambda: nearest_table(asked, reference, found))


def novelty(
    known: Known,
    query: Annotated[Path, typer.Argument(help="Tasks that may be new.", metavar="QUERY", show_default=False)],
    direction: Direction = DirectionName.forward,
    resized: Resized = None,
    out: TableOut = None,
    overwrite: Overwrite = False,
) -> None:
    """How unlike all KNOWN tasks each of QUERY is: its distance to the nearest, as a percentile of what is usual among KNOWN.

    A task much larger than all known is far from them whatever it is made of: bring all to one size with `--resized`.

    Distances compare mixtures of themes. What is of no theme at all may have the mixture of a known task: its misfit tells, by
    how many nats for each data point the themes explain it worse than any of KNOWN. A few nats say little where the model was
    fitted to KNOWN; tens say another kind.

    Examples: `tasktheme novelty known.parquet new.parquet`, `tasktheme novelty known.parquet new.parquet --resized 20`
    """
    import numpy as np

    from tasktheme.report.tables import novelty_table

    check_out(out, overwrite=overwrite)
    asked, reference = _load_pair(query, known, resized)
    warn_of_sizes(asked, reference)
    found = asked.novelty(reference, direction=direction.value)
    number = np.arange(len(asked))
    rows = {
        "task": number,
        **labels(asked.columns, number),
        "percentile": found.percentile,
        **({} if found.misfit is None else {"misfit": found.misfit}),
        "distance": found.distances,
        "nearest": found.indices,
        **labels(reference.columns, found.indices, prefix="nearest_"),
    }
    deliver(rows, out, lambda: novelty_table(asked, reference, found))


def summary(
    tasks: Annotated[
        Path,
        typer.Argument(
            help="Tasks that embed wrote, - for a pipe, or a MODEL, by folder or name.", metavar="TASKS|MODEL", show_default=False
        ),
    ],
    data: Annotated[str | None, typer.Argument(help="Of a model: the data that its themes are told by.", metavar="DATA")] = None,
    part: Annotated[Part | None, typer.Option(help="Which part of DATA.", show_default=Part.test.value)] = None,
    data_dir: DataDir = None,
    top: Annotated[
        int | None, typer.Option(help="Strongest themes of each task that are written.", min=1, show_default=str(_TOP))
    ] = None,
    resized: Resized = None,
    out: TableOut = None,
    overwrite: Overwrite = False,
) -> None:
    """What tasks are made of: on a terminal an overview; written or piped, a row for each with size, entropy and top themes.

    A column of the tasks' own that has the name of one of these, such as entropy, is written as entropy_given.

    Of a model's folder and DATA: what each theme is made of, its share, classes, groups and most typical rows of DATA.

    Examples: `tasktheme summary tasks.parquet`, `tasktheme embed my-model my_folder/ | tasktheme summary -`,
    `tasktheme summary glyphs-model glyphs`
    """
    import numpy as np

    from tasktheme.bundled import bundled_models
    from tasktheme.report.tables import summary_table

    check_out(out, overwrite=overwrite)
    if tasks.is_dir() if exists(tasks) else str(tasks) in bundled_models():
        refuse_given({"--top": top, "--resized": resized}, f"this goes with tasks, but {str(tasks)!r} is a model: leave it out")
        _summarise_model(tasks, data, part or Part.test, data_dir, out)
        return
    if data is not None:
        raise DataError(f"DATA goes with a model's folder, but {str(tasks)!r} is none: leave it out")
    refuse_given({"--part": part, "--data-dir": data_dir}, "this goes with a model and DATA: leave it out")
    loaded = _load(tasks, resized)
    themes = loaded.top_themes(min(top or _TOP, loaded.concentration.shape[1]))
    share = np.take_along_axis(loaded.mean_mixture(), themes, axis=1)
    task = {"task": np.arange(len(loaded))}
    found: dict[str, Any] = {"size": loaded.sizes, "converged": loaded.converged, "entropy": loaded.entropy()}
    for place in range(themes.shape[1]):
        found |= {f"theme_{place + 1}": themes[:, place], f"share_{place + 1}": share[:, place]}
    deliver(task | _beside(task | found, loaded.columns) | found, out, lambda: summary_table(loaded))


def _beside(found: Mapping[str, Any], given: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The tasks' own columns; one that is called like a column that was found here gets another name, so that both are kept."""
    names = {name: name for name in given}
    for name in found.keys() & given.keys():
        while names[name] in found or names[name] in given:
            names[name] += "_given"
    return {names[name]: values for name, values in given.items()}


def _summarise_model(model: Path, data: str | None, part: Part, data_dir: Path | None, out: Path | None) -> None:
    from tasktheme.ptm import PTM
    from tasktheme.report.tables import theme_table

    if data is None:
        raise DataError(f"{str(model)!r} is a model: name the data that its themes are told by, such as glyphs")
    loaded = PTM.load(model, device=DeviceName.cpu.value)
    source = Source(data, data_dir, None, None, allow_damaged=False, quiet=True, model=loaded)
    found = loaded.summary(source.part(part))
    rows: dict[str, Any] = {name: [getattr(theme, name) for theme in found] for name in ("theme", "aspect", "share", "decoded")}
    for name in ("classes", "groups"):
        rows[name] = ["; ".join(f"{source} {mass:.3f}" for source, mass in getattr(theme, name)) for theme in found]
    rows["typical"] = [" ".join(map(str, theme.typical)) for theme in found]
    deliver(rows, out, lambda: theme_table(found))


def _load(path: Path, resized: int | None) -> TaskSet:
    tasks = load_file(path)
    return tasks if resized is None else tasks.resized(resized)


def _load_pair(first: Path, second: Path, resized: int | None) -> tuple[TaskSet, TaskSet]:
    """Two task files; one object where both are one file, as a task is then not its own neighbour."""
    loaded = _load(first, resized)
    if first == second or _is_one_file(first, second):
        warn_of_collapse(loaded)
        return loaded, loaded
    others = _load(second, resized)
    warn_of_collapse(loaded, others)
    return loaded, others


def _is_one_file(first: Path, second: Path) -> bool:
    try:
        return first.samefile(second)
    except OSError:  # one of them is not there, which is told where it is read
        return False


def _matrix(first: TaskSet, second: TaskSet, kind: DistanceName, model: Path | None) -> Floats:
    if kind is DistanceName.kl:
        return first.kl(second)
    if kind is DistanceName.reverse_kl:
        return first.kl(second, direction="reverse")
    if kind is not DistanceName.earth_mover:
        return getattr(first, kind.value.replace("-", "_"))(second)
    if model is None:
        raise DataError("earth-mover needs to know how far the themes are apart: name their model with --model")
    from tasktheme.ptm import PTM

    loaded = PTM.load(model, device=DeviceName.cpu.value)
    if loaded.fingerprint != first.fingerprint:
        raise DataError(f"the tasks were not embedded by the model {str(model)!r}")
    return first.earth_mover(second, loaded.theme_distances())


def _matrix_table(matrix: Floats, first: TaskSet, second: TaskSet) -> pa.Table:
    """A row for each task of the first set and a column for each of the second, by name where all have one of their own."""
    from tasktheme.tasks.files import make_table

    rows, columns = (list(map(str, tasks.columns.get("name", []))) for tasks in (first, second))
    if not _are_named(first, second):
        return make_table({str(j): matrix[:, j] for j in range(matrix.shape[1])})
    return make_table({"task": rows} | {name: matrix[:, j] for j, name in enumerate(columns)})


def _are_named(*sets: TaskSet) -> bool:
    """Whether names tell all tasks of each set apart, and could be those of columns beside "task"."""
    return all(len({*map(str, tasks.columns.get("name", []))} - {"task"}) == len(tasks) for tasks in sets)


def _write_matrix(matrix: Floats, first: TaskSet, second: TaskSet, out: Path) -> None:
    import io

    import numpy as np

    from tasktheme.files import write_file
    from tasktheme.tasks.files import csv_bytes, write_table

    ending = out.suffix.lower()
    if ending == ".parquet":
        write_table(_matrix_table(matrix, first, second), out)
    elif ending == ".csv":
        write_file(out, csv_bytes(_matrix_table(matrix, first, second), names=_are_named(first, second)))
    else:
        buffer = io.BytesIO()
        np.save(buffer, matrix, allow_pickle=False)
        write_file(out, buffer.getvalue())
