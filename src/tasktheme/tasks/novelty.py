"""How unlike all known tasks a task is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasktheme.tasks.distances import Floats


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


def percentile_of(distances: Floats, usual: Floats) -> Floats:
    """The share of ``usual`` below each distance, ties counting half, from 0 to 100."""
    ordered = np.sort(usual)
    below = np.searchsorted(ordered, distances, side="left") + np.searchsorted(ordered, distances, side="right")
    percentile: Floats = 50.0 * below / len(ordered)
    return percentile
