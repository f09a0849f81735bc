"""All pictures, one function each. They read results and return a matplotlib figure; they never train.

Save one with ``figure.savefig("map.png", dpi=200)`` or ``figure.savefig("map.pdf")``; a notebook shows it by itself.
"""

from tasktheme.report.distance_plots import distance_matrix, task_map
from tasktheme.report.evaluation_plots import evaluation_figure
from tasktheme.report.learner_plots import accuracy_histogram, correlation_diagram
from tasktheme.report.lifelong_plots import lifelong_figure
from tasktheme.report.model_plots import theme_gallery, training_curves
from tasktheme.report.simplex_plot import simplex
from tasktheme.report.task_plots import entropy_histogram, mixture_intervals, mixtures

__all__ = [
    "accuracy_histogram",
    "correlation_diagram",
    "distance_matrix",
    "entropy_histogram",
    "evaluation_figure",
    "lifelong_figure",
    "mixture_intervals",
    "mixtures",
    "simplex",
    "task_map",
    "theme_gallery",
    "training_curves",
]
