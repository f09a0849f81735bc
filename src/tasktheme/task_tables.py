"""What the commands about tasks share: tasks from a file or a pipe, tables to a file, a terminal or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasktheme import distributed
from tasktheme.options import counted, print_table, refuse_existing, remark

if TYPE_CHECKING:
    import pyarrow as pa

    from tasktheme.tasks.taskset import TaskSet

_MANY = 10**9  # data points, more than any task has
_LARGER = 2  # times another's data points: 15 % of usual tasks were then beyond novelty's 95th percentile (4 times: 62 %)

Tasks = Annotated[
    Path,
    typer.Argument(help="Tasks that embed wrote (.parquet, .csv, .npz), or - for a pipe.", metavar="TASKS", show_default=False),
]
Resized = Annotated[
    int | None,
    typer.Option("--resized", metavar="N", min=1, help="Compare as if each task had N data points: by content, not by size."),
]
TableOut = Annotated[Path | None, typer.Option(help="Write a table: .parquet, .csv or .npz.")]


def load_file(path: Path) -> TaskSet:
    """The tasks of a file, or - for those of a pipe."""
    from tasktheme.tasks.files import parse_tasks
    from tasktheme.tasks.taskset import TaskSet

    return TaskSet.load(path) if str(path) != "-" else TaskSet(**parse_tasks(sys.stdin.buffer.read(), "standard input"))


def warn_of_collapse(*sets: TaskSet) -> None:
    """A line to standard error where all tasks that were loaded are alike; of tasks that are embedded ``PTM.embed`` tells it."""
    from tasktheme.tasks.alike import all_alike

    if distributed.leads() and (line := all_alike(*sets)) is not None:
        remark(line)


def warn_of_sizes(*sets: TaskSet) -> None:
    """A line to standard error where some tasks are so much larger than others that a distance tells sizes, not contents."""
    low = max(1, min(int(tasks.sizes.min(initial=_MANY)) for tasks in sets))
    high = max(int(tasks.sizes.max(initial=0)) for tasks in sets)
    if high >= _LARGER * low:
        remark(
            f"the tasks have {low:,} to {high:,} data points, and larger ones are further from all others; "
            f"--resized {low} compares what they are made of"
        )


def labels(columns: Mapping[str, Sequence[Any]], rows: Any, *, prefix: str = "") -> dict[str, list[Any]]:
    """Name and group of some tasks, as far as they have them."""
    found = {column: columns[column] for column in ("name", "group") if column in columns}
    return {f"{prefix}{column}": [values[i] for i in rows] for column, values in found.items()}


def check_out(out: Path | None, *endings: str, overwrite: bool) -> None:
    """OutputError where a table, or a file with one of these endings, cannot be written so."""
    from tasktheme.tasks.files import ENDINGS, check_ending

    if out is not None:
        check_ending(out, endings or ENDINGS)
        refuse_existing(out, overwrite=overwrite)


def deliver(rows: dict[str, Any], out: Path | None, shown: Any) -> None:
    """A table to a file, or to a terminal as ``shown()`` makes it, or as CSV into a pipe."""
    from tasktheme.tasks.files import make_table, write_table

    if out is None and sys.stdout.isatty():
        print_table(shown())
        return
    table = make_table(rows)
    if out is None:
        pipe_csv(table)
        return
    write_table(table, out)
    typer.echo(f"wrote {out}: {counted(table.num_rows, 'row')}")


def pipe_csv(table: pa.Table, *, names: bool = True) -> None:
    """A table to standard output as CSV."""
    from tasktheme.tasks.files import csv_bytes

    typer.echo(csv_bytes(table, names=names).decode(), nl=False)
