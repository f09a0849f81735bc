"""Signs that a training has failed, though all its numbers are finite: themes or embeddings that say nothing.

And one that it will take too long.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tasktheme.errors import TrainingWarning
from tasktheme.settings import Settings
from tasktheme.training.compiler import first_line
from tasktheme.training.embedding import EmbeddedTasks, TaskPoints

_LARGEST_SHARE = 0.9  # of all data points in one theme
_LEAST_INFORMATION = 1.0  # nats that an embedding can say about its data point: below, not three points can be told apart

_MOST_FEATURES = 1000  # whose covariances are quick to factorise
_WIDEST = 300.0  # deviations of a middling feature in that of the widest
_SPREAD_POINTS = 10_000  # data points that these are measured on


def warn_of_wide_themes(dim: int) -> None:
    """Warn where full covariances of so many features, which no encoder makes fewer, take very long."""
    if dim > _MOST_FEATURES:
        _warn(
            f"full covariances of {dim:,} features are slow, and need more data points than features: try covariance=diagonal, "
            "or encoder=vector, which learns a smaller embedding"
        )


def warn_of_units(x: npt.NDArray[Any]) -> None:
    """Warn where a feature, used as it is, varies so much more than most that it alone decides (docs/model.md)."""
    some = x[:: max(1, len(x) // _SPREAD_POINTS)].astype(np.float64)
    spread = some.std(axis=0)
    spread = np.sort(spread[spread > 1e-12 * np.abs(some).max(axis=0, initial=0.0)])  # one that never changes says nothing
    if len(spread) and spread[-1] > _WIDEST * (usual := spread[(len(spread) - 1) // 2]):
        _warn(
            f"one feature varies {spread[-1] / usual:,.0f} times as much as most: themes will see little else; "
            "set standardise=true, which divides each feature by its standard deviation"
        )


def warn_of_few_points(fitted: TaskPoints) -> None:
    """Warn where the number of themes is chosen by fewer data points than one full covariance has numbers (docs/results.md)."""
    points, dim = fitted.distinct, fitted.m.shape[1]
    numbers = dim * (dim + 1) // 2
    if points < numbers:
        _warn(
            f"the number of themes is chosen by {points:,} data points, fewer than the {numbers:,} numbers of a full covariance: "
            "it may come out too small, and about as many themes as there are kinds of tasks is a better start"
        )


def warn_of_compiler(fault: Exception) -> None:
    """Say that torch failed to compile the step."""
    _warn(f"torch cannot compile this training's step ({first_line(fault)}): it goes on without, and more slowly")


def warn_of_unused(lost: Bool[Tensor, " K"], settings: Settings) -> None:
    """Warn of themes that own next to nothing and were left alone."""
    count = int(lost.sum())
    if count:
        remedy = "unused_themes='revive'" if settings.unused_themes == "keep" else "a final EM (polish_sweeps), which drops them"
        remedies = "fewer themes, or fewer aspects" if settings.aspects > 1 else f"{remedy}, or fewer themes"
        are = "is" if count == 1 else "are"
        _warn(f"{count} of {len(lost)} themes {are} unused, next to no data point is theirs: try {remedies}")


def warn_of_themes(*shares: Float[Tensor, " K"]) -> bool:
    """Warn, and return True, where one theme has nearly all data points; of several aspects, in any of them."""
    largest = [float(share.max()) for share in shares if len(share) > 1]
    collapsed = [share for share in largest if share > _LARGEST_SHARE]
    if not collapsed:
        return False
    one = f"one of {len(shares[0])} has {100 * max(collapsed):.0f} % of the data points"
    if len(shares) == 1:
        remedies = "with update='statistics' and initialisation='mixture' (the default), or with fewer themes"
        _warn(f"the themes have collapsed: {one}, so tasks look alike; train on more tasks, {remedies}")
    else:
        _warn(f"the themes of {len(collapsed)} of {len(shares)} aspects have collapsed, {one}: try fewer aspects")
    return True


def warn_of_dropped(lost: Bool[Tensor, " K"]) -> None:
    """Say that themes without data were dropped."""
    count = int(lost.sum())
    _warn(
        f"{count} of {len(lost)} themes had next to no data points and {'was' if count == 1 else 'were'} dropped; "
        "unused_themes='keep' keeps them"
    )


def warn_of_embedding(tasks: Sequence[EmbeddedTasks], settings: Settings) -> bool:
    """Warn, and return True, where the encoder ignores the data: posterior collapse."""
    found = information(tasks)
    if found >= _LEAST_INFORMATION:
        return False
    remedies = ["on more tasks"]
    remedies += ["in smaller mini-batches (batch_tasks=5)"] * (settings.batch_tasks > 5)
    remedies += ["with network_start=data"] * (settings.network_start != "data")
    _warn(
        f"the embedding has collapsed: it says at most {found:.2f} nats about a data point, so task distances mean little; "
        f"train {' or '.join(remedies)}"
    )
    return True


def information(tasks: Sequence[EmbeddedTasks]) -> float:
    """The most that u can say about its data point, in nats: the sum over dimensions of ln(1 + var(m) / mean(s^2)) / 2.

    The capacity of a channel with Gaussian noise, 0 where m is the same for all points; infinite where q(u) is certain.
    """
    m = torch.cat([batch.m[batch.mask] for batch in tasks]).double()
    noise = torch.cat([batch.s[batch.mask] for batch in tasks]).double().square().mean(dim=0)
    signal = m.var(dim=0, correction=0)
    nothing = signal <= torch.finfo(torch.float32).eps * m.square().mean(dim=0)  # rounding
    ratio = (signal / noise).masked_fill(nothing, 0.0)
    return float(0.5 * ratio.log1p().sum())


def _warn(line: str) -> None:
    warnings.warn(line, TrainingWarning, stacklevel=3)
