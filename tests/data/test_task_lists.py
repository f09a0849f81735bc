"""Lists of tasks: all combinations, names in CSV files and in memory, and what is said of bad ones."""

from __future__ import annotations

from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasktheme.data.dataset import Dataset
from tasktheme.data.task_lists import task_names, task_table
from tasktheme.errors import DataError, MissingDataError


def make(classes: int) -> Dataset:
    return Dataset.from_arrays(np.zeros((classes, 1)), [f"c{i:03}" for i in range(classes)], name="made")


def animals() -> Dataset:
    """Classes in order: farm/cat, farm/cow, pets/cat, pets/dog."""
    return Dataset.from_arrays(np.zeros((4, 1)), ["cat", "cow", "cat", "dog"], ["farm", "farm", "pets", "pets"], name="animals")


@given(classes=st.integers(1, 12), data=st.data())
def test_all_combinations_once_each_in_order(classes: int, data: st.DataObject) -> None:
    ways = data.draw(st.integers(1, classes))
    table = make(classes).combinations(ways)
    assert table.shape == (comb(classes, ways), ways)
    rows = [tuple(row) for row in table.tolist()]
    assert rows == sorted(set(rows))
    assert all(0 <= a < b < classes for row in rows for a, b in combinations(row, 2))


def test_there_are_15504_tasks_of_5_out_of_20() -> None:
    table = make(20).combinations()
    assert table.shape == (15_504, 5)
    assert (np.bincount(table.flatten()) == comb(19, 4)).all()


@pytest.mark.parametrize(
    ("classes", "ways", "message"),
    [
        (64, 5, "64 classes of 'made' have 7,624,512 combinations of 5, more than 1,000,000: draw tasks at random"),
        (500, 250, "more than 1,000,000"),
        (4, 5, "ways must be a whole number from 1 to 4, the classes of 'made', got 5"),
        (4, 0, "got 0"),
        (4, (2, 3), r"got \(2, 3\)"),
    ],
)
def test_absurd_combinations_are_refused(classes: int, ways: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make(classes).combinations(ways)


@pytest.mark.parametrize(
    "text",
    [
        "cow,dog\nfarm/cat,dog,pets/cat\n",
        "\ufeffcow,dog\r\n\r\nfarm/cat,dog,pets/cat\r\n",
        ' cow , "dog",,\nfarm/cat,dog,pets/cat',
    ],
)
def test_a_csv_file_names_the_classes_of_each_task(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tasks.csv"
    file.write_text(text, encoding="utf-8", newline="")
    for source in (file, str(file)):
        assert task_table(animals(), source).tolist() == [[1, 3, -1], [0, 3, 2]]


@pytest.mark.parametrize(
    "tasks",
    [
        [["cow", "dog"], ["farm/cat", "dog", "pets/cat"]],
        [(1, 3), (0, "dog", np.int64(2))],
        [np.array(["cow", "dog"]), np.array([0, 3, 2])],
        np.array([[1, 3, -1], [0, 3, 2]], dtype=np.int32),
        torch.tensor([[1, 3, -1], [0, 3, 2]]),
    ],
)
def test_names_numbers_and_tables_are_one(tasks: Any) -> None:
    table = task_table(animals(), tasks)
    assert table.dtype == np.int64
    assert table.tolist() == [[1, 3, -1], [0, 3, 2]]


def test_a_task_is_named_by_groups_too_where_there_are_several() -> None:
    """Two groups may have a class of one name; the names are read as a list of tasks."""
    assert task_names(animals(), [[1, 3], [0, 2]]) == ["farm/cow pets/dog", "farm/cat pets/cat"]
    assert task_names(animals(), [[0, 2]], grouped=False) == ["cat cat"]
    assert task_names(make(3), [[0, 2]]) == ["c000 c002"]
    assert task_table(animals(), [name.split() for name in task_names(animals(), [[0, 3], [2, 1]])]).tolist() == [[0, 3], [2, 1]]


@given(st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True), min_size=1, max_size=6))
def test_what_is_listed_comes_back(tasks: list[list[int]]) -> None:
    data = make(8)
    for listed in (
        tasks,
        [[data.class_names[c] for c in task] for task in tasks],
        [[f"made/c{c:03}" for c in task] for task in tasks],
    ):
        table = task_table(data, listed)
        assert [[c for c in row if c != -1] for row in table.tolist()] == tasks
        assert table.shape[1] == max(map(len, tasks))
    assert np.array_equal(task_table(data, table), table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cow,dog\n\ncow,dgo\n", r"tasks\.csv', line 3: 'animals' has no class 'dgo'; the nearest is 'dog'$"),
        ("task,class\n", r"line 1: 'animals' has no class 'task'; the nearest is "),
        ("cow;dog\n", r"no class 'cow;dog'"),
        ("cat,dog\n", r"line 1: 'cat' may be 'farm/cat' or 'pets/cat': write which$"),
        ("dog,cow,pets/dog\n", r"line 1: holds the class 'dog' twice$"),
        ("", r"tasks\.csv' holds no task; at least one is needed$"),
        ("\n ,\n", r"tasks\.csv' holds no task"),
        ('"cow,dog\n', r"tasks\.csv' is not a CSV file of class names"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "tasks.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        task_table(animals(), file)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_lists(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"no file .*none\.csv"):
        task_table(animals(), tmp_path / "none.csv")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        task_table(animals(), tmp_path)
    (tmp_path / "picture.csv").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(DataError, match=r"picture\.csv' is not a CSV file"):
        task_table(animals(), tmp_path / "picture.csv")


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([], "the list of tasks holds no task"),
        ([["cow"], []], "task 1: holds no class"),
        (["cow", "dog"], "task 0: expected a list of classes, got 'cow'"),
        ([[0, 4]], "task 0: 'animals' has classes 0 to 3, got 4"),
        ([[0, -1]], "got -1"),
        ([[0, 1.5]], "task 0: expected the name or number of a class, got 1.5"),
        ([[2, "pets/cat"]], "task 0: holds the class 'cat' twice"),
        (np.array([[0, 1], [2, 4]]), "task 1 of the list holds something else than classes 0 to 3"),
        (np.array([[0, 1], [2, -2]]), "task 1 of the list holds something else"),
        (np.array([[0, 1, 2], [3, 0, 3]]), "task 1 of the list holds a class twice"),
        (np.array([[0, 1], [-1, -1]]), "task 1 of the list starts with -1"),
        (np.array([[0, 1, 2], [0, -1, 2]]), "task 1 of the list has a class behind -1"),
        (np.array([[0.0, 1.0]]), r"expected whole numbers of shape \(tasks, classes\), got shape \(1, 2\) of float64"),
        (np.array([0, 1]), r"got shape \(2,\)"),
        (np.zeros((0, 5), dtype=np.int64), r"got shape \(0, 5\)"),
        (7, "expected a list of tasks.*got int"),
    ],
)
def test_bad_lists_are_told(tasks: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        task_table(animals(), tasks)


def test_rows_may_be_filled_up_more_than_once() -> None:
    assert task_table(animals(), np.array([[0, -1, -1], [0, 1, 2]])).tolist() == [[0, -1, -1], [0, 1, 2]]
