"""Our numbers beside the paper's, from files with known ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tasktheme.reproduce.figures import all_figures
from tasktheme.reproduce.plan import SCALES

FIGURES = {figure.name: figure for figure in all_figures(SCALES["paper"])}


def rows(name: str, folder: Path, file: str, content: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """By measure, the paper's number and ours, with plain minus signs."""
    (folder / file).parent.mkdir(parents=True)
    (folder / file).write_text(json.dumps(content))
    minus = str.maketrans("\N{MINUS SIGN}", "-")
    return {row.measure: (row.paper.translate(minus), row.ours.translate(minus)) for row in FIGURES[name].rows([folder])}


@pytest.mark.parametrize(
    ("name", "paper"),
    [
        ("entropy-omniglot", "-1.45"),
        ("entropy-mini-imagenet", "-4.4"),
        ("distance-omniglot", "-0.0853"),
        ("distance-mini-imagenet", "-0.0501"),
    ],
)
def test_slopes_are_in_points_of_accuracy(name: str, paper: str, tmp_path: Path) -> None:
    few = {"tasks": 100, "slope": -0.0123, "slope_interval": [-0.02, 0.0042], "spearman": -0.5, "spearman_interval": [-0.7, 0.1]}
    content = {"as in the paper": few, "all tasks": few | {"tasks": 15_504, "slope": 0.03}}
    found = rows(name, tmp_path / name, f"{name.split('-')[0]}-accuracy.json", content)
    assert found["slope"] == (f"{paper} points per nat, no interval", "-1.2 (-2.0 to 0.4) points per nat")
    assert found["slope, 15,504 tasks"][1] == "3.0 (-2.0 to 0.4) points per nat"
    assert found["Spearman's rank correlation"][1] == "-0.50 (-0.70 to 0.10)"


def test_the_mean_entropy_has_the_interval_that_was_stored(tmp_path: Path) -> None:
    content = {"tasks": 50, "mean entropy": -1.234, "standard deviation of entropy": 9.0, "mean entropy interval": [-1.5, -0.968]}
    found = rows("simplex", tmp_path / "a", "distance-matrix.json", content)
    assert found["mean entropy of a task"] == ("not reported", "-1.23 ± 0.27 nats, over groups")
    del content["mean entropy interval"]
    found = rows("simplex", tmp_path / "b", "distance-matrix.json", content)
    assert found["mean entropy of a task"][1] == "-1.23 ± ? nats, over groups"


def test_lifelong_policies_are_ordered_and_tested_by_name(tmp_path: Path) -> None:
    def policy(*ends: float) -> dict[str, Any]:
        final = {"mean": ends[0], "over_tasks": 0.0014, "over_seeds": 0.02, "steps": 1000, "tasks": 15_504}
        return {"curve": {"steps": [500, 1000], "smoothed": [[0.9, end] for end in ends]}, "final": final}

    content = {
        "learner": "maml",
        "average": 1000,
        "pool": 200,
        "test_tasks": 100,
        "policies": {"ptm": policy(0.40, 0.42), "random": policy(0.44, 0.44), "diverse": policy(0.3, 0.3)},
        "comparisons": [
            {"first": "ptm", "second": "worst-case", "mean": -0.00001, "over_seeds": 0.01},
            {"first": "ptm", "second": "random", "mean": -0.03, "over_seeds": 0.01},
            {"first": "worst-case", "second": "random", "mean": 0.1, "over_seeds": 0.01},
            {"first": "ptm", "second": "diverse", "mean": 0.1, "over_seeds": 0.01},  # added by hand, not in the paper
        ],
    }
    curves = rows("induction", tmp_path / "a" / "lifelong-maml-induction", "maml-induction/lifelong.json", content)
    assert curves["order"][1] == "Random, PTM, Diverse"
    assert curves["weights tested"] == ("the last", "their mean over about 1,000 steps")
    ends = {measure: ours for measure, (_, ours) in curves.items() if measure.endswith("at the end")}
    assert [ends[f"{title}, at the end"] for title in ("Task2Vec", "Worst case")] == ["not run", "not run"]
    assert len(ends) == 5  # the paper's policies, and what was added by hand
    assert curves["training tasks"][1] == "1,000"
    assert curves["PTM, at the end"][1] == "41.00 ± 12.71 %, over seeds"  # Student's, of two seeds
    bars = rows("bars", tmp_path / "b" / "lifelong-maml-induction", "maml-induction/lifelong.json", content)
    assert bars["MAML, trained and tested on"] == ("300,000 steps, 15,504 tasks", "1,000 steps, 15,504 tasks")
    assert bars["MAML, weights tested"] == ("the last", "their mean over about 1,000 steps")
    assert bars["MAML, PTM"] == ("41.36 ± 0.14 %", "40.00 ± 0.14 %")
    assert bars["MAML, Random"] == ("40.44 ± 0.14 %", "44.00 ± 0.14 %")
    assert bars["MAML, Task2Vec"][1] == "not tested"
    assert bars["MAML, PTM less Worst case"] == ("+0.43 points, one run", "+0.00 ± 1.00 points, over seeds")  # no minus zero
    assert not any("Worst case less" in measure for measure in bars)
    assert bars["MAML, PTM less Random"] == ("+0.92 points, one run", "-3.00 ± 1.00 points, over seeds")
    last = rows("bars", tmp_path / "c" / "lifelong-maml-induction", "maml-induction/lifelong.json", content | {"average": 0})
    assert last["MAML, weights tested"] == ("the last", "the last")
