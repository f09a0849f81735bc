"""Explicit lists of tasks: which classes each task holds, as a table of class numbers that the sampler reads."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import chain, combinations, zip_longest
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tasktheme.data.checks import as_array
from tasktheme.errors import DataError, MissingDataError
from tasktheme.untrusted import expand_home, shorten

if TYPE_CHECKING:
    from tasktheme.data.dataset import Dataset

TaskList = str | os.PathLike[str] | npt.ArrayLike | Sequence[Sequence[str | int]]
Table = npt.NDArray[np.int64]

_MOST_TASKS = 1_000_000  # of all combinations: beyond, a list is no longer the way to go through them
_NO_CLASS = -1  # fills the rows of tasks with fewer classes than others


def all_combinations(dataset: Dataset, ways: int) -> Table:
    """(T, ways) the classes of every possible task, as numbers in lexicographic order."""
    classes = len(dataset.class_names)
    if not isinstance(ways, int | np.integer) or not 1 <= ways <= classes:
        raise DataError(f"ways must be a whole number from 1 to {classes}, the classes of {dataset.name!r}, got {ways!r}")
    count = comb(classes, ways)
    if count > _MOST_TASKS:
        raise DataError(
            f"{classes} classes of {dataset.name!r} have {count:,} combinations of {ways}, more than {_MOST_TASKS:,}: "
            "draw tasks at random, or select classes or groups first"
        )
    numbers = chain.from_iterable(combinations(range(classes), ways))
    return np.fromiter(numbers, dtype=np.int64, count=count * ways).reshape(count, ways)


def task_table(dataset: Dataset, tasks: TaskList) -> Table:
    """(T, W) the class numbers of each listed task, checked; -1 fills up tasks with fewer classes than others.

    ``tasks`` is such a table, or rows of class names or numbers, or a CSV file: a line for each task, a class in each cell,
    no header. Where a class name is not enough, because two groups have one, it is written "group/class".
    """
    if isinstance(tasks, str | os.PathLike):
        file = expand_home(tasks)
        table = _number_rows(dataset, _read_lines(file), what=f"{str(file)!r}")
    elif hasattr(tasks, "ndim"):
        table = as_array(tasks, what="the list of tasks")
    elif isinstance(tasks, Sequence):
        table = _number_rows(dataset, ((f"task {i}", row) for i, row in enumerate(tasks)), what="the list of tasks")
    else:
        raise DataError(f"expected a list of tasks, each a list of classes, or a CSV file; got {type(tasks).__name__}")
    return _check_table(dataset, table)


def task_names(dataset: Dataset, classes: Iterable[Sequence[int]], *, grouped: bool = True) -> list[str]:
    """The classes of each task in one line, as a list of tasks takes them: where there are groups, "group/class".

    Names alone are those of several classes where groups have names in common; without ``grouped`` it is them.
    """
    names = _full_names(dataset) if grouped and len(dataset.group_names) > 1 else dataset.class_names
    return [" ".join(names[number] for number in row) for row in classes]


def _full_names(dataset: Dataset) -> list[str]:
    return [f"{dataset.group_names[group]}/{name}" for name, group in zip(dataset.class_names, dataset.class_group, strict=True)]


def _read_lines(file: Path) -> Iterator[tuple[str, list[str]]]:
    """The cells of each line that is not blank, and where it stands."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True, skipinitialspace=True)
            for cells in reader:
                names = [name for name in map(str.strip, cells) if name]  # a spreadsheet ends short rows with empty cells
                if names:
                    yield f"{str(file)!r}, line {reader.line_num}", names
    except FileNotFoundError as error:
        raise MissingDataError(f"there is no file {str(file)!r}; it should list the classes of a task on each line") from error
    except OSError as error:
        raise DataError(f"{str(file)!r} cannot be read: {error.strerror}") from error
    except (ValueError, csv.Error) as error:  # bytes that are no text, a path that is no path
        raise DataError(f"{str(file)!r} is not a CSV file of class names: {error}") from error


def _number_rows(dataset: Dataset, rows: Iterable[tuple[str, Any]], *, what: str) -> Table:
    known = _known_names(dataset)
    numbered = []
    for place, row in rows:
        if isinstance(row, str) or not isinstance(row, Sequence | np.ndarray):
            raise DataError(f"{place}: expected a list of classes, got {row!r}")
        if len(row) == 0:
            raise DataError(f"{place}: holds no class; at least one is needed")
        numbered.append([_number(dataset, known, label, place) for label in row])
        if len(set(numbered[-1])) < len(row):
            twice = next(label for i, label in enumerate(numbered[-1]) if label in numbered[-1][:i])
            raise DataError(f"{place}: holds the class {dataset.class_names[twice]!r} twice")
    if not numbered:
        raise DataError(f"{what} holds no task; at least one is needed")
    return np.array(list(zip_longest(*numbered, fillvalue=_NO_CLASS)), dtype=np.int64).T


def _known_names(dataset: Dataset) -> dict[str, list[int]]:
    """The classes that each name may mean: its own name, or "group/class"."""
    known: dict[str, list[int]] = {}
    for number, names in enumerate(zip(dataset.class_names, _full_names(dataset), strict=True)):
        for label in names:
            known.setdefault(label, []).append(number)
    return known


def _number(dataset: Dataset, known: dict[str, list[int]], label: object, place: str) -> int:
    if isinstance(label, int | np.integer):
        if 0 <= label < len(dataset.class_names):
            return int(label)
        raise DataError(f"{place}: {dataset.name!r} has classes 0 to {len(dataset.class_names) - 1}, got {label}")
    if not isinstance(label, str):
        raise DataError(f"{place}: expected the name or number of a class, got {label!r}")
    meant = known.get(label, [])
    if len(meant) == 1:
        return meant[0]
    if meant:
        full = _full_names(dataset)
        raise DataError(f"{place}: {label!r} may be {' or '.join(repr(full[number]) for number in meant[:3])}: write which")
    nearest = get_close_matches(shorten(label), known, n=1, cutoff=0.0)
    raise DataError(f"{place}: {dataset.name!r} has no class {shorten(label)!r}; the nearest is {nearest[0]!r}")


def _check_table(dataset: Dataset, table: npt.NDArray[Any]) -> Table:
    """A table of ours or of the user's own: whole numbers of classes, none twice in a row, filled up at the end only."""
    if table.ndim != 2 or 0 in table.shape or not np.issubdtype(table.dtype, np.integer):
        raise DataError(
            f"the list of tasks: expected whole numbers of shape (tasks, classes), got shape {table.shape} of {table.dtype}"
        )
    classes = len(dataset.class_names)
    in_order = np.sort(table, axis=1)
    bad = {
        f"holds something else than classes 0 to {classes - 1} and -1 to fill up": (table < _NO_CLASS) | (table >= classes),
        "holds a class twice": (in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] != _NO_CLASS),
        "starts with -1; -1 fills up the end of a row": table[:, :1] == _NO_CLASS,
        "has a class behind -1, which fills up the end of a row": (table[:, 1:] != _NO_CLASS) & (table[:, :-1] == _NO_CLASS),
    }
    for message, where in bad.items():
        if where.any():
            raise DataError(f"task {int(where.any(axis=1).argmax())} of the list {message}")
    return np.ascontiguousarray(table, dtype=np.int64)
