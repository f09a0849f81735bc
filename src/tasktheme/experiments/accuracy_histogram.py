"""The paper's first figure: how much a meta-learner's accuracy differs from task to task."""

from __future__ import annotations

from typing import Any

import numpy as np

from tasktheme.learners.testing import Accuracies

_LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def histogram_summary(accuracies: Accuracies) -> dict[str, Any]:
    """Mean, interval and quantiles of the accuracy over tasks, ready for JSON."""
    return {
        "experiment": "accuracy-histogram",
        **accuracies.about,
        "tasks": len(accuracies),
        "mean": accuracies.mean,
        "interval": accuracies.interval,
        "standard deviation": float(accuracies.accuracy.std(ddof=1)) if len(accuracies) > 1 else 0.0,
        "quantiles": {f"{level:g}": float(np.quantile(accuracies.accuracy, level)) for level in _LEVELS},
    }
