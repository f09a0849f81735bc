"""Pictures of meta-learners: how accuracy differs from task to task, and what it goes with."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tasktheme.evaluation.correlation import Correlation, Floats
from tasktheme.experiments.diagram import Diagram
from tasktheme.learners.build import learner_title
from tasktheme.learners.testing import Accuracies
from tasktheme.report.style import COLOURS, FAINT, SMALL, new_figure, number, styled

_PERCENT = FuncFormatter(lambda value, _: f"{100 * value:.0f} %")


@styled
def accuracy_histogram(accuracies: Accuracies) -> Figure:
    """How many tasks a meta-learner learns how well, with the mean: the paper's first figure."""
    figure = new_figure(2.2)
    axes = figure.add_subplot()
    queries = accuracies.about["ways"] * accuracies.about["queries"]  # an accuracy is a whole number of these
    step = max(1, round(queries / 25)) / queries
    low, high = float(accuracies.accuracy.min()), float(accuracies.accuracy.max())
    edges = np.arange(np.floor(low / step) * step - step / 2, high + step, step)
    axes.hist(accuracies.accuracy, bins=edges.tolist(), color=FAINT, edgecolor="white", linewidth=0.4)
    axes.axvline(accuracies.mean, color=COLOURS[1], linewidth=1.2)
    about = accuracies.about
    axes.set_title(
        f"{learner_title(about['learner'])} on {len(accuracies):,} {about['ways']}-way {about['shots']}-shot tasks "
        f"of {about['data']}: "
        f"{100 * accuracies.mean:.2f} ± {100 * accuracies.interval:.2f} %, tasks from {100 * low:.0f} to {100 * high:.0f} %",
        loc="left",
        fontsize=SMALL,
        color=FAINT,
    )
    axes.set_xlabel("accuracy on a task")
    axes.set_ylabel("tasks")
    axes.xaxis.set_major_formatter(_PERCENT)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    return figure


@styled
def correlation_diagram(diagram: Diagram) -> Figure:
    """Accuracy against a number of each task: as many tasks as in the paper at the left, all of them at the right.

    Where there are no more than in the paper, one picture shows them all.
    Line and band are mean and one standard deviation of the Bayesian ridge regression.
    """
    figure = new_figure(2.7)
    panels = diagram.panels
    [row] = figure.subplots(1, len(panels), sharey=True, squeeze=False)
    for axes, (x, accuracy, found) in zip(row, panels, strict=True):
        _draw(axes, x, accuracy, found)
    row[0].set_ylabel("accuracy on a task")
    row[0].yaxis.set_major_formatter(_PERCENT)
    figure.supxlabel(diagram.label, fontsize=8.0)
    return figure


def _draw(axes: Axes, x: Floats, accuracy: Floats, found: Correlation) -> None:
    many = len(x) > 1000
    size, strength = (1.5, 0.15) if many else (9.0, 0.7)
    axes.scatter(x, accuracy, s=size, color=COLOURS[0], alpha=strength, linewidths=0.0, rasterized=many)
    line, mean, std = (np.asarray(found.line[part]) for part in ("x", "mean", "std"))
    axes.plot(line, mean, color=COLOURS[1], linewidth=1.4)
    axes.fill_between(line, mean - std, mean + std, color=COLOURS[1], alpha=0.2, linewidth=0.0)
    low, high = (number(100 * end, ".2g") for end in found.slope_interval)
    rho = ", ".join(number(end, ".2f") for end in found.spearman_interval)
    axes.set_title(
        f"{found.tasks:,} tasks: Spearman {number(found.spearman, '.2f')} ({rho})\n"
        f"slope {number(100 * found.slope, '.2g')} ({low}, {high}) points",
        loc="left",
        fontsize=SMALL,
        color=FAINT,
    )
