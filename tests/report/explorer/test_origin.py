"""Which data points a task holds, and that only its own are shown."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tasktheme as tt
from tasktheme.errors import DataError
from tasktheme.report.explorer.origin import check_origin, sample_rows, text


def test_samples_are_of_the_task_and_every_class_comes_before_a_second_image(drawings: tt.Dataset) -> None:
    episodes = drawings.episodes(ways=(2, 3), shots=4, n=20, seed=5)
    found = sample_rows(episodes, 10)
    assert found.shape == (20, 10)
    for i in range(20):
        rows = [row for row in found[i].tolist() if row >= 0]
        own = episodes.batch.rows[i][episodes.batch.mask[i]].tolist()
        assert len(rows) == len(set(rows)) == min(10, len(own))
        assert set(rows) <= set(own)
        ways = int(episodes.class_mask[i].sum())
        classes = np.searchsorted(drawings.starts, rows[:ways], side="right") - 1
        assert sorted(classes) == sorted(episodes.classes[i][episodes.class_mask[i]].tolist())


def test_samples_of_unlabelled_tasks_are_spread_over_them() -> None:
    tasks = tt.Dataset.from_tasks([np.zeros((n, 2)) for n in (1, 3, 4, 40)])
    assert sample_rows(tasks, 4).tolist() == [[0, -1, -1, -1], [1, 2, 3, -1], [4, 5, 6, 7], [8, 18, 28, 38]]


def test_tasks_are_matched_with_where_they_came_from(model: tt.PTM, drawings: tt.Dataset) -> None:
    episodes = drawings.episodes(ways=3, shots=4, n=12, seed=3)
    tasks = model.embed(episodes)
    check_origin(tasks, episodes)
    listed = tasks.with_columns(classes=[list(names) for names in episodes.class_names()])
    check_origin(listed, episodes)
    for other in (
        drawings.episodes(ways=3, shots=4, n=12, seed=4),
        drawings.episodes(ways=3, shots=3, n=12, seed=3),
        drawings.episodes(ways=3, shots=4, n=13, seed=3),
        tt.Dataset.from_tasks([drawings.x[:12]] * 11),
    ):
        with pytest.raises(DataError, match="repeat the options"):
            check_origin(tasks, other)


def test_unlabelled_tasks_are_matched_by_name(model: tt.PTM, drawings: tt.Dataset) -> None:
    source = tt.Dataset.from_tasks([drawings.x[:3], drawings.x[3:8]], names=["ann", "bob"])
    tasks = model.embed(source)
    check_origin(tasks, source)
    with pytest.raises(DataError, match="repeat the options"):
        check_origin(tasks, dataclasses.replace(source, class_names=("bob", "ann")))


def test_any_value_is_one_line_of_text() -> None:
    values = [None, 3, "a\n b", ["x", "y z"], ("x", None), np.float64(1.5)]
    assert [text(value) for value in values] == ["", "3", "a b", "x y z", "x ", "1.5"]
