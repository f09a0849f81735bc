"""The whole command, from the first piece to the page."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tasktheme as tt
from tasktheme.reproduce.figures import FINAL, all_figures
from tasktheme.reproduce.plan import Scale, make_plan


def test_the_whole_paper(run, instant: Scale, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, said, err = run("reproduce", "--out", out, "--device", "cpu", "-q")
    assert code == 0, err
    assert said == ""
    page, numbers = (out / "reproduce.html").read_text(), json.loads((out / "reproduce.json").read_text())
    figures, plan = all_figures(instant), make_plan(instant)
    assert page.count("data:image/png;base64,iVBOR") == len(figures)
    assert "Not made yet" not in page
    assert not re.findall(r"<script|https?://|style=", page)
    for figure, shown in zip(figures, numbers["figures"], strict=True):
        assert f'id="{figure.name}"' in page
        assert shown["rows"]
        assert shlex.split(shown["command"])[-2:] == ["--figure", figure.name]
        for row in shown["rows"]:
            assert row["paper"]
            assert not re.search(r"nan|None", row["ours"])
    shown = next(shown for shown in numbers["figures"] if shown["name"] == "bars")
    bars = {row["measure"]: row["paper"] for row in shown["rows"]}
    assert bars["ABML, PTM"] == "41.59 ± 0.13 %"
    assert bars["ProtoNet, PTM less Random"] == "+1.48 points, one run"
    assert len(bars) == 3 * (len(FINAL["maml"]) + 3)
    assert [piece["state"] for piece in numbers["pieces"]] == ["done"] * len(plan)
    assert all(piece["seconds"] > 0.0 for piece in numbers["pieces"])

    # each piece's printed command repeats it alone
    command = next(piece["command"] for piece in numbers["pieces"] if piece["name"] == "matrix")
    before = (out / "matrix" / "distance-matrix.json").read_text()
    code, _, err = run(*shlex.split(command)[1:], "--device", "cpu", "-q")
    assert code == 0, err
    assert (out / "matrix" / "distance-matrix.json").read_text() == before

    code, said, _ = run("reproduce", "--out", out, "--device", "cpu")
    assert code == 0
    assert said.count("done before") == len(plan)


def test_one_figure_then_a_failure(run, instant: Scale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    code, said, err = run("reproduce", "--out", out, "--figure", "simplex", "--device", "cpu")
    assert code == 0, err
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == ["matrix", "model-omniglot", "simplex"]
    page = (out / "reproduce.html").read_text()
    assert page.count("Not made yet") == len(all_figures(instant)) - 2  # the simplex and the distances it is drawn from
    code, said, _ = run("reproduce", "--out", out, "--list")
    assert code == 0
    assert said.count(" done ") == 3
    assert all(f" {piece.name} " in said for piece in make_plan(instant))  # whole, as --only takes them

    monkeypatch.setattr("tasktheme.experiments.accuracy_histogram.histogram_summary", lambda _: 1 / 0)
    chosen = ["--only", "maml-mini-imagenet", "--only", "histogram", "--only", "simplex"]
    code, said, err = run("reproduce", "--out", out, *chosen, "--device", "cpu")
    assert code == 1
    assert "histogram: failed: division by zero" in said
    assert "simplex: done before" in said
    assert err.endswith("the others are done\n")
    assert "histogram failed: division by zero" in (out / "reproduce.html").read_text()  # where its figure would be

    monkeypatch.setattr("tasktheme.learners.meta.MetaLearner.fit", lambda *_, **__: 1 / 0)
    assert run("reproduce", "--out", out, "--figure", "entropy-omniglot", "--device", "cpu")[0] == 1
    shown = {shown["name"]: shown["failed"] for shown in json.loads((out / "reproduce.json").read_text())["figures"]}
    assert shown["entropy-omniglot"] == shown["distance-omniglot"] == ["maml-omniglot failed: division by zero"]  # an input
    assert shown["simplex"] == []


def test_a_figure_without_its_picture_is_an_error(run, instant: Scale, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("reproduce", "--out", out, "--figure", "simplex", "--device", "cpu", "-q")[0] == 0
    (out / "matrix" / "distance-matrix.png").unlink()
    code, _, err = run("reproduce", "--out", out, "--figure", "simplex", "--device", "cpu", "-q")
    assert code != 0
    assert "distance-matrix.png" in err


def test_an_interrupt_of_a_short_piece_is_no_failure(
    run, instant: Scale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tasktheme.experiments.distance_matrix.distance_matrix", interrupted)
    code, said, err = run("reproduce", "--out", tmp_path / "out", "--figure", "simplex", "--device", "cpu")
    assert code == 130
    assert "failed" not in said
    assert err.endswith("matrix was interrupted and keeps its state; run the same command again to go on\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--figure nine", "no figure 'nine'"),
        ("--only nine", "no piece 'nine'"),
        ("--only matrix --figure distances", "give one of them"),
        ("--scale huge", "huge"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(run, tmp_path: Path, words: str, expected: str) -> None:
    code, _, err = run("reproduce", "--out", tmp_path / "out", *words.split())
    assert code == 2
    assert expected in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_time_that_is_over_leaves_the_rest_for_the_same_command(run, instant: Scale, tmp_path: Path) -> None:
    code, _, err = run("reproduce", "--out", tmp_path / "out", "--minutes", 0, "-q")
    assert code == 130
    assert "run the same command again" in err
    assert (tmp_path / "out" / "reproduce.html").exists()


def test_another_scale_does_not_replace_what_is_there(run, instant: Scale, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("reproduce", "--out", out, "--minutes", 0, "-q")[0] == 130
    code, _, err = run("reproduce", "--scale", "small", "--out", out, "--minutes", 0, "-q")
    assert (code, err.count("\n")) == (2, 1)
    assert "holds the scale 'tiny'" in err
    assert "add --scale tiny, or choose another --out" in err
    assert '"scale": "tiny"' in (out / "reproduce.json").read_text()


def test_a_folder_keeps_its_scale_from_the_first_moment(
    run, instant: Scale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        sys.exit(137)

    monkeypatch.setattr("tasktheme.reproduce.run.run_pieces", killed)
    assert run("reproduce", "--out", tmp_path / "out", "-q")[0] == 137
    code, _, err = run("reproduce", "--scale", "small", "--out", tmp_path / "out", "-q")
    assert code == 2
    assert "holds the scale 'tiny'" in err


def test_a_piece_of_its_own_process_takes_no_module_from_the_working_folder(
    run, instant: Scale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def side_by_side(_: object, __: object, command: Callable[[str], list[str]], *___: object, **____: object) -> bool:
        commands.append(command("matrix"))
        return True

    monkeypatch.setattr("tasktheme.reproduce.jobs.run_side_by_side", side_by_side)
    assert run("reproduce", "--out", tmp_path / "out", "--jobs", 2, "-q")[0] == 0
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    python = commands[0][: commands[0].index("tasktheme") + 1]
    found = subprocess.run([*python, "--version"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, f"tasktheme {tt.__version__}\n"), found.stderr
