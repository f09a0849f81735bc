"""The paper's figures: what it reports, and what the same measures are of our pieces.

Numbers of the paper are those of its text, captions and plotted data; "not reported" where it shows a picture alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasktheme.experiments.lifelong.comparison import mean_of
from tasktheme.learners.build import learner_title
from tasktheme.reproduce.plan import LIFELONG, WORST_CASE, Scale
from tasktheme.selection.build import policy_title

NONE = "not reported"
_TINY = 1e-12  # the least half width that digits are chosen by
# the last test of lifelong learning in induction: accuracy in %, and half its 95 % interval over tasks
FINAL = {
    "maml": {"ptm": (41.36, 0.14), "task2vec": (41.23, 0.14), "worst-case": (40.93, 0.14), "random": (40.44, 0.14)},
    "protonet": {"ptm": (41.12, 0.14), "task2vec": (40.75, 0.14), "worst-case": (40.25, 0.14), "random": (39.64, 0.14)},
    "abml": {"ptm": (41.59, 0.13), "task2vec": (41.33, 0.14), "worst-case": (41.09, 0.14), "random": (40.48, 0.14)},
}
# slope of the regression line in points of accuracy per nat
SLOPES = {
    ("entropy", "omniglot"): -1.447,
    ("entropy", "mini-imagenet"): -4.402,
    ("distance", "omniglot"): -0.0853,
    ("distance", "mini-imagenet"): -0.0501,
}


@dataclass(frozen=True)
class Row:
    """One measure: the paper's number and ours."""

    measure: str
    paper: str
    ours: str


@dataclass(frozen=True)
class Figure:
    """A figure of the paper.

    Attributes:
        name: by which ``--figure`` chooses it; number: the paper's.
        pieces: that it is made of, the one that draws it last.
        data: what it is about in the paper; own: the data in its place here.
        picture: the file in the last piece's folder, or a function that draws it from the folders.
        rows: from the folders of the pieces to the measures.
        partly: whether some of its pieces are enough.
    """

    name: str
    number: str
    title: str
    data: str
    own: str
    pieces: tuple[str, ...]
    picture: str | Callable[[list[Path]], bytes]
    rows: Callable[[list[Path]], list[Row]]
    partly: bool = False


def all_figures(scale: Scale) -> list[Figure]:
    """In the paper's order."""
    first, second = scale.omniglot, scale.mini_imagenet
    figures = [
        Figure(
            "histogram",
            "1",
            "Accuracy differs from task to task",
            "MAML, mini-ImageNet",
            second,
            ("histogram",),
            "accuracy-histogram.png",
            _histogram,
        ),
        Figure(
            "simplex", "2", "Tasks on a simplex of themes", "an example", first, ("matrix", "simplex"), "simplex.png", _simplex
        ),
        Figure("distances", "4", "Distances between tasks", "Omniglot", first, ("matrix",), "distance-matrix.png", _matrix),
    ]
    panels = iter("abcd")
    for x in ("entropy", "distance"):
        for data, paper, own in (("Omniglot", "omniglot", first), ("mini-ImageNet", "mini-imagenet", second)):
            title = "Accuracy against task entropy" if x == "entropy" else "Accuracy against distance from the training tasks"
            name, picture = f"{x}-{paper}", f"{x}-accuracy.png"
            rows = _correlation(f"{x}-accuracy.json", SLOPES[x, paper])
            figures.append(Figure(name, f"5{next(panels)}", title, data, own, (f"{x}-{own}",), picture, rows))
    for setting, panel in (("induction", "6a"), ("transduction", "6b")):
        title = f"Lifelong learning, {setting}"
        figures.append(
            Figure(setting, panel, title, "MAML, mini-ImageNet", second, (f"lifelong-maml-{setting}",), _draw_curves, _curves)
        )
    learners = tuple(f"lifelong-{learner}-{setting}" for learner, setting in LIFELONG if setting == "induction")
    figures.append(
        Figure(
            "bars",
            "6c",
            "Lifelong learning, the last test",
            "induction, mini-ImageNet",
            second,
            learners,
            _draw_bars,
            _bars,
            partly=True,
        )
    )
    if scale.worst_case:
        title = "Lifelong learning with the worst case, fewer steps"
        figures.append(
            Figure("worst-case", "6c", title, "MAML, induction, mini-ImageNet", second, (WORST_CASE,), _draw_bars, _bars)
        )
    return figures


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _lifelong(folder: Path) -> dict[str, Any]:
    return _read(next(folder.glob("*/lifelong.json")))


def _histogram(folders: list[Path]) -> list[Row]:
    found = _read(folders[0] / "accuracy-histogram.json")
    low, high = found["quantiles"]["0"], found["quantiles"]["1"]
    return [
        Row("tasks", "15,504, all of the test classes", f"{found['tasks']:,}"),
        Row("accuracy on a task, from lowest to highest", "20 to 70 %", f"{100 * low:.0f} to {100 * high:.0f} %"),
        Row("mean accuracy", NONE, f"{100 * found['mean']:.2f} ± {100 * found['interval']:.2f} %"),
    ]


def _simplex(folders: list[Path]) -> list[Row]:
    found = _read(folders[0] / "distance-matrix.json")
    interval = found.get("mean entropy interval")  # which earlier versions did not write
    half = "?" if interval is None else f"{(interval[1] - interval[0]) / 2.0:.2f}"
    return [
        Row("themes shown", "3, of an example", "the 3 strongest"),
        Row("mean entropy of a task", NONE, f"{_signed(found['mean entropy'], '.2f')} ± {half} nats, over groups"),
    ]


def _matrix(folders: list[Path]) -> list[Row]:
    found = _read(folders[0] / "distance-matrix.json")
    low, high = found["auc interval"]
    each = found["tasks"] // found["groups"]
    return [
        Row("tasks", "50, 5 of each alphabet", f"{found['tasks']}, {each} of each group"),
        Row("a pair of one group is nearer than one of two (AUC)", NONE, f"{found['auc']:.3f} ({low:.3f} to {high:.3f})"),
        Row("nearest task is of the same group", NONE, f"{100 * found['nearest is of the same group']:.0f} %"),
    ]


def _correlation(file: str, slope: float) -> Callable[[list[Path]], list[Row]]:
    def rows(folders: list[Path]) -> list[Row]:
        found = _read(folders[-1] / file)
        few, every = found["as in the paper"], found["all tasks"]
        paper = f"{_signed(slope, '.3g')} points per nat, no interval"
        return [
            Row("slope", paper, f"{_slope(few)} points per nat"),
            Row("tasks", "100", f"{few['tasks']}"),
            Row("Spearman's rank correlation", NONE, _spearman(few)),
            Row(f"slope, {every['tasks']:,} tasks", NONE, f"{_slope(every)} points per nat"),
            Row(f"Spearman's, {every['tasks']:,} tasks", NONE, _spearman(every)),
        ]

    return rows


def _slope(found: Mapping[str, Any]) -> str:
    """With two digits of half the interval's width: more would say nothing."""
    ends = [100 * end for end in found["slope_interval"]]
    decimals = max(0, 1 - math.floor(math.log10(max((ends[1] - ends[0]) / 2.0, _TINY))))
    slope, low, high = (_signed(value, f".{decimals}f") for value in (100 * found["slope"], *ends))
    return f"{slope} ({low} to {high})"


def _spearman(found: Mapping[str, Any]) -> str:
    low, high = (_signed(end, ".2f") for end in found["spearman_interval"])
    return f"{_signed(found['spearman'], '.2f')} ({low} to {high})"


def _curves(folders: list[Path]) -> list[Row]:
    """The smoothed accuracy at the end of each curve: mean over seeds, and half its 95 % interval over seeds."""
    found = _lifelong(folders[-1])
    policies = {name: policy for name, policy in found["policies"].items() if policy["curve"]["steps"]}
    ends = {name: np.array(policy["curve"]["smoothed"])[:, -1:] for name, policy in policies.items()}
    steps = max(policy["curve"]["steps"][-1] for policy in policies.values())
    order = sorted(ends, key=lambda name: -float(ends[name].mean()))
    rows = [
        Row("training tasks", "300,000", f"{steps:,}"),
        Row("weights tested", "the last", _weights(found)),
        Row("pool, test tasks", "200, 100", f"{found['pool']}, {found['test_tasks']}"),
        Row("order", "PTM; Task2Vec, Worst case; Random", ", ".join(policy_title(name) for name in order)),
    ]
    for name in dict.fromkeys((*FINAL["maml"], *ends)):  # the paper's, and what was added by hand
        ours = "not run"
        if name in ends:
            mean = mean_of(ends[name])
            ours = f"{100 * mean.mean:.2f} {_half(mean.over_seeds)} %, over seeds"
        rows.append(Row(f"{policy_title(name)}, at the end", NONE, ours))
    return rows


def _weights(found: Mapping[str, Any]) -> str:
    """Which weights of a lifelong experiment's learners were tested."""
    average = found.get("average", 0)
    return f"their mean over about {average:,} steps" if average else "the last"


def _bars(folders: list[Path]) -> list[Row]:
    rows = []
    for folder in folders:
        found = _lifelong(folder)
        learner = found["learner"]
        tests = [policy["final"] for policy in found["policies"].values() if "final" in policy]
        ours = ", ".join(sorted({f"{final['steps']:,} steps, {final['tasks']:,} tasks" for final in tests})) or "not tested"
        rows.append(Row(f"{learner_title(learner)}, trained and tested on", "300,000 steps, 15,504 tasks", ours))
        rows.append(Row(f"{learner_title(learner)}, weights tested", "the last", _weights(found)))
        for policy, (mean, half) in FINAL[learner].items():
            final = found["policies"].get(policy, {}).get("final")
            ours = "not tested" if final is None else f"{100 * final['mean']:.2f} {_half(final['over_tasks'])} %"
            rows.append(Row(f"{learner_title(learner)}, {policy_title(policy)}", f"{mean:.2f} ± {half:.2f} %", ours))
        for pair in found["comparisons"]:
            if pair["first"] == "ptm" and pair["second"] in FINAL[learner]:
                measure = f"{learner_title(learner)}, PTM less {policy_title(pair['second'])}"
                paper = FINAL[learner]["ptm"][0] - FINAL[learner][pair["second"]][0]
                ours = f"{_signed(100 * pair['mean'], '+.2f')} {_half(pair['over_seeds'])} points, over seeds"
                rows.append(Row(measure, f"{_signed(paper, '+.2f')} points, one run", ours))
    return rows


def _draw_curves(folders: list[Path]) -> bytes:
    from tasktheme.report.lifelong_plots import lifelong_figure
    from tasktheme.report.pictures import png_bytes

    return png_bytes(lifelong_figure([_lifelong(folders[-1])], bars=False))


def _draw_bars(folders: list[Path]) -> bytes:
    from tasktheme.report.lifelong_plots import lifelong_figure
    from tasktheme.report.pictures import png_bytes

    return png_bytes(lifelong_figure([_lifelong(folder) for folder in folders], curves=False))


def _half(width: float | None) -> str:
    return "± ?" if width is None else f"± {100 * width:.2f}"


def _signed(value: float, form: str) -> str:
    text = f"{value:{form}}"
    return f"{0.0:{form}}" if float(text) == 0.0 else text.replace("-", "\N{MINUS SIGN}")  # no minus zero
