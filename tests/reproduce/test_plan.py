from __future__ import annotations

from pathlib import Path

import pytest
import typer

from tasktheme.cli import app
from tasktheme.reproduce.figures import all_figures
from tasktheme.reproduce.plan import SCALES, Piece, make_plan, with_inputs

scales = pytest.mark.parametrize("scale", SCALES)


@scales
def test_every_input_is_made_by_an_earlier_piece(scale: str) -> None:
    known: set[str] = set()
    for piece in make_plan(SCALES[scale]):
        assert set(piece.needs) <= known
        assert piece.name not in known
        known.add(piece.name)


@scales
def test_every_command_is_understood_and_writes_into_its_own_folder(scale: str, tmp_path: Path) -> None:
    whole = typer.main.get_command(app)
    for piece in make_plan(SCALES[scale]):
        words, command = piece.words(tmp_path), whole
        while hasattr(command, "commands"):  # a group of commands, such as experiment
            command, words = command.commands[words[0]], words[1:]
        given = command.make_context(piece.name, list(words)).params  # an error where an option or a value is unknown
        own = given["out"]
        assert own == tmp_path / piece.name or own.parent == tmp_path / piece.name


@scales
def test_figures_are_drawn_by_pieces_of_the_plan_and_all_pieces_serve_a_figure(scale: str) -> None:
    plan, figures = make_plan(SCALES[scale]), all_figures(SCALES[scale])
    numbers = dict.fromkeys(figure.number for figure in figures)
    assert list(numbers) == ["1", "2", "4", "5a", "5b", "5c", "5d", "6a", "6b", "6c"]
    assert len({figure.name for figure in figures}) == len(figures)
    drawn = {name for figure in figures for name in figure.pieces}
    assert with_inputs(plan, drawn) == plan


def test_a_figure_runs_with_all_it_needs_and_no_more() -> None:
    plan = make_plan(SCALES["paper"])
    assert [piece.name for piece in with_inputs(plan, {"simplex"})] == ["model-omniglot", "matrix", "simplex"]


def test_tiny_needs_no_data_but_the_embedded() -> None:
    assert not [piece for piece in make_plan(SCALES["tiny"]) if "omniglot" in piece.command or "imagenet" in piece.command]


def test_a_command_names_folders_as_they_are(tmp_path: Path) -> None:
    piece = Piece("b", "plot simplex {a}/tasks.parquet --out {here}/b.png", "b.png")
    out = tmp_path / "with a space"
    assert piece.needs == ("a",)
    assert piece.words(out)[2:] == [f"{out}/a/tasks.parquet", "--out", f"{out}/b/b.png"]
