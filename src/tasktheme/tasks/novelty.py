"""How unlike all known tasks a task is."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tasktheme.errors import TrainingWarning
from tasktheme.tasks.distances import Floats

_FAR, _NATS = 5.0, 20.0  # quartile ranges below the lower quartile, and nats: an outlier is further than both


@dataclass(frozen=True, eq=False)
class Novelty:
    """How unlike the known tasks each task is; all (T,).

    Attributes:
        percentile: from 0 to 100, the share of known tasks that lie nearer to their nearest other known task than this
            one to its nearest: 99 is as far out as the most unusual hundredth of the known.
        distances: KL to the nearest known task.
        indices: which that is.
        misfit: how much worse the themes explain a task than any of the known (``log_likelihood``), in nats for each data point,
            0 where they do not; None where that is not known of both.
    """

    percentile: Floats
    distances: Floats
    indices: npt.NDArray[np.int64]
    misfit: Floats | None = None


def warn_of_outlier(log_likelihood: Floats, columns: Mapping[str, Sequence[Any]]) -> None:
    """Warn where the least explained of the known tasks stands so far apart that no new one will be less explained."""
    low, high = np.quantile(log_likelihood, [0.25, 0.75])
    worst = int(log_likelihood.argmin())
    below = float(low - log_likelihood[worst])
    if below > max(_FAR * float(high - low), _NATS):
        name = f"{columns['name'][worst]!r}" if "name" in columns else f"no. {worst}"
        warnings.warn(
            f"the known task {name} is explained worse than most, by {below:,.0f} nats a data point: while it is there, misfit "
            "tells of nothing that is explained better; leave it out if it should not be among the known",
            TrainingWarning,
            stacklevel=3,
        )


def percentile_of(distances: Floats, usual: Floats) -> Floats:
    """The share of ``usual`` below each distance, ties counting half, from 0 to 100."""
    ordered = np.sort(usual)
    below = np.searchsorted(ordered, distances, side="left") + np.searchsorted(ordered, distances, side="right")
    percentile: Floats = 50.0 * below / len(ordered)
    return percentile
