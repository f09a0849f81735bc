"""Names, places and choices that all pictures share."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.transforms import Bbox

import tasktheme as tt
from tasktheme.errors import DataError
from tasktheme.report import style


def _tasks(groups: list[object]) -> tt.TaskSet:
    count = len(groups)
    return tt.TaskSet(np.ones((count, 2)), np.ones(count, dtype=np.int64), np.ones(count, dtype=np.bool_), {"group": groups})


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        ("Hebrew", "Hebrew"),
        ("אבג", "אבג"),
        ("two\n lines\t", "two lines"),
        ("cost $5 to $6", r"cost \$5 to \$6"),
        ("cat 猫", "cat ?"),
        ("猫", "instead"),
        ("", "instead"),
        ("bell\x07", "bell?"),
        ("x" * 40, "x" * 25 + "…"),
    ],
)
def test_a_name_becomes_what_matplotlib_can_draw(name: str, drawn: str) -> None:
    assert style.drawn_name(name, "instead") == drawn


def test_a_dollar_is_not_mathematics() -> None:
    figure = style.new_figure(1.0)
    text = figure.text(0, 0, style.drawn_name(r"$\nonsense{$", "instead"))
    figure.draw_without_rendering()  # as mathematics this would not parse
    assert text.get_text() == r"\$\nonsense{\$"


def test_groups_in_natural_order_and_tasks_in_their_own() -> None:
    chosen = style.choose(_tasks(["g 10", "g 9", "g 10", "f", "g 9"]), "group", 100)
    assert chosen.names == ("f", "g 9", "g 10")
    assert chosen.rows.tolist() == [3, 1, 4, 0, 2]
    assert chosen.spans() == [(0, 1), (1, 3), (3, 5)]
    assert chosen.noun() == "5 tasks"


def test_few_tasks_of_many_are_spread_over_groups() -> None:
    chosen = style.choose(_tasks(["a"] * 50 + ["b"] * 3 + [None]), "group", 9)
    assert Counter(chosen.tasks.columns["group"]) == {"a": 5, "b": 3, None: 1}
    assert chosen.noun() == "9 of 54 tasks"


def test_without_the_column_tasks_are_spread_in_order() -> None:
    tasks = replace(_tasks(["a"] * 101), columns={})
    chosen = style.choose(tasks, "group", 11)
    assert chosen.names == ()
    assert chosen.rows.tolist() == list(range(0, 101, 10))
    with pytest.raises(DataError, match="no column 'alphabet' to group tasks by: they have no column"):
        style.choose(tasks, "alphabet", 11)
    with pytest.raises(DataError, match=r"no column 'alphabet' .* the columns group"):
        style.choose(_tasks(["a"]), "alphabet", 11)


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(DataError, match="no task"):
        style.choose(_tasks([]), "group", 5)
    with pytest.raises(DataError, match="at least 1"):
        style.choose(_tasks(["a"]), "group", 0)


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=8).map(sorted))
def test_spread_keeps_order_gap_and_bounds(places: list[float]) -> None:
    moved = style.spread(places, 1.0, 0.0, 10.0)
    assert (np.diff(moved) >= 1.0 - 1e-9).all()
    assert moved.min() >= -1e-9
    assert moved.max() <= 10.0 + 1e-9
    if (np.diff(places) >= 1.0).all():
        np.testing.assert_allclose(moved, places, atol=1e-12)


def test_spread_squeezes_what_has_no_room() -> None:
    np.testing.assert_allclose(style.spread(np.full(5, 3.0), 100.0, 0.0, 8.0), [0, 2, 4, 6, 8])


def test_names_are_placed_off_each_other_and_off_the_dots() -> None:
    rng = np.random.default_rng(0)
    anchors, sizes = rng.uniform(200, 300, (6, 2)), np.tile([80.0, 12.0], (6, 1))
    centres = style.place_names(sizes, anchors, anchors, Bbox([[0, 0], [500, 500]]))
    for i in range(6):
        for j in range(i):
            assert (np.abs(centres[i] - centres[j]) >= (80.0, 12.0)).any()
    covered = (np.abs(centres[:, None] - anchors) < (40.0, 6.0)).all(axis=-1)
    assert not covered.any()


def test_names_stay_inside() -> None:
    corner = np.array([[0.0, 0.0]])
    [centre] = style.place_names(np.array([[80.0, 12.0]]), corner, corner, Bbox([[0, 0], [500, 500]]))
    assert centre[0] >= 40.0
    assert centre[1] >= 6.0


def test_numbers_have_a_true_minus_sign_and_zero_none() -> None:
    assert style.number(-1234.56) == "\N{MINUS SIGN}1,234.6"
    assert style.number(-0.01) == "0.0"


def test_text_colours_are_readable_on_white() -> None:
    for colour in style.COLOURS:
        assert style.luminance(style.darkened(colour)) <= 0.4
    assert style.darkened("#332288") == "#332288"
    assert to_rgb("#ffffff") == (1.0, 1.0, 1.0)
    assert style.luminance("#ffffff") == pytest.approx(1.0)


def test_pictures_neither_change_nor_inherit_the_users_settings() -> None:
    @style.styled
    def draw() -> object:
        return matplotlib.rcParams["axes.facecolor"], matplotlib.rcParams["font.size"]

    with matplotlib.rc_context({"axes.facecolor": "black", "font.size": 33.0}):
        before = dict(matplotlib.rcParams)
        assert draw() == ("white", 8.0)
        assert dict(matplotlib.rcParams) == before


def test_pyplot_is_never_used() -> None:
    sources = sorted(Path(style.__file__).parent.glob("*.py"))
    assert len(sources) >= 6
    assert [file.name for file in sources if "pyplot" in file.read_text(encoding="utf-8")] == []
