"""The picture of an evaluation: the model's distance beside its rivals, and entropy against accuracy."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from tasktheme.evaluation import RIVALS, Evaluation
from tasktheme.evaluation.retrieval import roc
from tasktheme.report.style import COLOURS, FAINT, INK, SMALL, new_figure, number, styled


@styled
def evaluation_figure(result: Evaluation) -> Figure:
    """AUC of every distance as bars; below, the curves of the model and the best rivals, and entropy against accuracy."""
    details = result.details
    words = {"kl": "KL of the model"}
    colours = {"kl": COLOURS[1]}
    for (place, names), colour in zip(RIVALS.items(), (COLOURS[0], COLOURS[2]), strict=True):
        words |= {name: f"{text}, {place}" for name, text in names.items() if name in result.rivals}
        colours |= dict.fromkeys(names, colour)
    auc = {name: result.auc if name == "kl" else result.rivals[name].auc for name in words}
    figure = new_figure(2.5 + 0.19 * len(words))
    top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=[0.4 + 0.19 * len(words), 1.9]).flatten()

    bars = top.add_subplot()
    rows = np.arange(len(words))
    bars.barh(rows, list(auc.values()), color=[colours[name] for name in words], height=0.7)
    for row, value in enumerate(auc.values()):
        bars.text(value + 0.004, row, f"{value:.3f}", va="center", fontsize=SMALL)
    bars.set_yticks(rows, list(words.values()))
    bars.set_xlim(min(0.5, *auc.values()), 1.05)
    bars.set_xticks([0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    bars.invert_yaxis()
    bars.set_title(
        f"AUC of same group, {result.tasks:,} tasks of {result.groups} groups; 0.5 is chance", loc="left", fontsize=SMALL
    )

    curve, dots = bottom.subplots(1, 2)
    best = [
        "kl",
        *(max(there, key=lambda name: auc[name]) for names in RIVALS.values() if (there := [n for n in names if n in auc])),
    ]
    for name in best:
        curve.plot(*roc(details.distances[name], details.group), color=colours[name], linewidth=1.3)
    curve.plot([0.0, 1.0], [0.0, 1.0], color=FAINT, linewidth=0.6, linestyle=":")
    curve.set_xlabel("share of pairs of two groups")
    curve.set_ylabel("share of pairs of one group")
    curve.set_title("the model and the best of each kind of rival", loc="left", fontsize=SMALL)  # in the bars' colours

    dots.set_xlabel("entropy of a task, nats")
    dots.set_ylabel("1-shot accuracy")
    if result.entropy_accuracy is None:
        dots.text(
            0.5, 0.5, "tasks of one shot have no accuracy", ha="center", transform=dots.transAxes, fontsize=SMALL, color=FAINT
        )
        return figure
    dots.scatter(details.entropy, details.accuracy, s=7.0, color=COLOURS[0], alpha=0.6, linewidths=0.0)
    low, high = (number(end, ".2f") for end in result.entropy_accuracy["interval"])
    rho = number(result.entropy_accuracy["spearman"], ".2f")
    dots.set_title(f"Spearman {rho} ({low} to {high})", loc="left", fontsize=SMALL, color=INK)
    return figure
