"""Pictures of the lifelong experiment as the paper draws them: accuracy while learning, and the last test as bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tasktheme.experiments.lifelong.results import ORDER, policy_order
from tasktheme.learners.build import learner_title
from tasktheme.report.style import COLOURS, FAINT, INK, SMALL, new_figure, styled
from tasktheme.selection.build import policy_title

_PERCENT = FuncFormatter(lambda value, _: f"{100 * value:g} %")
_LINES = ("-", "-.", "--", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2)))

Result = Mapping[str, Any]


@styled
def lifelong_figure(results: Sequence[Result], *, curves: bool = True, bars: bool = True) -> Figure:
    """Curves of the first learner in each setting, then the last tests of all: the paper's three panels, where there are data.

    ``curves`` or ``bars`` may be left out, not both.
    """
    first = results[0]["learner"]
    tested = [result for result in results if bars and any("final" in policy for policy in result["policies"].values())]
    drawn = [result for result in results if curves and result["learner"] == first and (_has_curve(result) or not tested)]
    policies = sorted({policy for result in results for policy in result["policies"]}, key=policy_order)
    places = {policy: i for i, policy in enumerate(dict.fromkeys((*ORDER, *policies)))}  # the same in every picture
    look = {policy: (COLOURS[places[policy] % len(COLOURS)], _LINES[places[policy] % len(_LINES)]) for policy in policies}
    panels = len(drawn) + bool(tested)
    figure = new_figure(2.6, width=2.75 * max(panels, 2))
    axes = figure.subplots(1, panels, squeeze=False)[0]
    for panel, result in zip(axes, drawn, strict=False):
        _draw_curves(panel, result, look)
    if tested:
        _draw_bars(axes[-1], sorted(tested, key=lambda result: str(result["setting"])), look)
    handles = [
        axes[0].plot([], [], color=colour, linestyle=line, linewidth=1.6, label=policy_title(policy))[0]
        for policy, (colour, line) in look.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _draw_curves(axes: Axes, result: Result, look: Mapping[str, tuple[str, Any]]) -> None:
    """The smoothed mean over seeds of each policy; the single seeds, smoothed, faint behind it."""
    unit = 1000 if max(max(policy["steps"]) for policy in result["policies"].values()) >= 2000 else 1
    for name, policy in result["policies"].items():
        (colour, line), steps = look[name], np.array(policy["curve"]["steps"]) / unit
        smooth = np.array(policy["curve"]["smoothed"]).reshape(len(policy["seeds"]), len(steps))
        dot = "o" if len(steps) == 1 else None  # a single test makes no line
        if len(smooth) > 1:
            axes.plot(steps, smooth.T, color=colour, linewidth=0.5, alpha=0.35, marker=dot, markersize=2)
        axes.plot(steps, smooth.mean(axis=0), color=colour, linestyle=line, linewidth=1.6, marker=dot, markersize=4)
    seeds = max(len(policy["seeds"]) for policy in result["policies"].values())
    axes.set_xlabel(f"training tasks{' (thousands)' if unit > 1 else ''}")
    axes.set_ylabel(f"accuracy, smoothed by {result['smoothing']:g}")
    axes.yaxis.set_major_formatter(_PERCENT)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_title(
        f"{learner_title(result['learner'])}, {result['setting']}: {result['test_tasks']} test tasks, {_counted(seeds)}",
        loc="left",
        fontsize=SMALL,
        color=FAINT,
    )


def _draw_bars(axes: Axes, results: Sequence[Result], look: Mapping[str, tuple[str, Any]]) -> None:
    """A group for each experiment: means, their 95 % intervals over tasks, and a dot for each seed."""
    width = 0.8 / len(look)
    seen, pale = [], False
    for group, result in enumerate(results):
        usual = _usual_test(result)
        for place, (name, (colour, _)) in enumerate(look.items()):
            final = result["policies"].get(name, {}).get("final")
            if final is None:
                continue
            x = group + (place - (len(look) - 1) / 2) * width
            other = (final.get("steps"), final.get("tasks")) != usual
            pale = pale or other
            axes.bar(x, final["mean"], width=0.92 * width, color=colour, alpha=0.35 if other else None)
            axes.errorbar(x, final["mean"], yerr=final["over_tasks"] or 0.0, color=INK, linewidth=0.9, capsize=1.5)
            by_seed = final.get("by_seed") or final["seeds"]  # as earlier results called it
            axes.scatter([x] * len(by_seed), by_seed, s=5, color="white", edgecolors=INK, linewidths=0.5, zorder=3)
            spread = final["over_tasks"] or 0.0
            seen += [*by_seed, final["mean"] - spread, final["mean"] + spread]
    room = 0.15 * (max(seen) - min(seen)) or 0.01
    axes.set_ylim(max(0.0, min(seen) - 2.0 * room), max(seen) + room)  # differences are small beside the accuracies
    axes.set_xticks(range(len(results)), [_bar_label(result) for result in results], fontsize=SMALL - (len(results) > 3))
    axes.yaxis.set_major_formatter(_PERCENT)
    axes.set_ylabel("accuracy")
    counts = sorted({_usual_test(result)[1] or result["final tasks"] for result in results})  # the latter of earlier results
    words = f"last test, {' or '.join(f'{count:,}' for count in counts)} tasks\nwhiskers: over tasks, dots: seeds"
    axes.set_title(words + "\npale: after other steps, or on other tasks" * pale, loc="left", fontsize=SMALL, color=FAINT)


def _bar_label(result: Result) -> str:
    steps, _ = _usual_test(result)
    lines = [learner_title(result["learner"]), *([] if result["setting"] == "induction" else ["transduction"])]
    return "\n".join([*lines, *([] if steps is None else [f"{steps:,}\nsteps"])])


def _has_curve(result: Result) -> bool:
    return any(policy["curve"]["steps"] for policy in result["policies"].values())


def _usual_test(result: Result) -> tuple[int | None, int | None]:
    """The steps and the tasks of most of the last tests, and of the longest among equals; earlier results do not say."""
    finals = [policy["final"] for policy in result["policies"].values() if "final" in policy]
    tests = Counter((final.get("steps"), final.get("tasks")) for final in finals)
    return max(tests, key=lambda test: (tests[test], test[0] or 0, test[1] or 0))


def _counted(seeds: int) -> str:
    return f"{seeds} seed{'' if seeds == 1 else 's'}"
