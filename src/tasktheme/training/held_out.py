"""The bound of tasks that were not trained on, term by term."""

from __future__ import annotations

import torch
from torch import Tensor

from tasktheme.data.episodes import EpisodeBatch
from tasktheme.data.random import random_normal
from tasktheme.model.objective import objective
from tasktheme.model.themes import Themes
from tasktheme.nets.build import Networks
from tasktheme.settings import Settings

_NOISE = 3000  # stream of the reparameterisation noise, apart from that of the training


def halves(batch: EpisodeBatch, ways: int) -> tuple[EpisodeBatch, EpisodeBatch]:
    """The t and v halves of tasks whose ``ways`` classes follow each other: of each class every other data point.

    A class has as many in both, or one more in t; of the largest classes, where their number is odd, the last is left out.
    """
    parts = [part.unflatten(1, (ways, -1)) for part in (batch.rows, batch.labels, batch.mask)]
    even = parts[0].shape[-1] // 2 * 2
    t, v = (EpisodeBatch(*(part[..., first:even:2].flatten(1) for part in parts)) for first in (0, 1))
    return t, v


@torch.no_grad()
def held_out_terms(
    settings: Settings, themes: Themes, networks: Networks, data: Tensor, batch: EpisodeBatch, *, ways: int, first: int, seed: int
) -> dict[str, float]:
    """The terms of :func:`objective` for tasks number ``first`` and on: q(z, pi) from the t half, the bound of the v half.

    In float32, averaged over the tasks; noise depends on the seed and a task's number alone.
    """
    t, v = halves(batch, ways)
    tasks, points = v.mask.shape
    device = data.device
    places = [torch.arange(size, device=device) for size in (tasks, points, themes.mu.shape[1])]
    noise = random_normal(seed, _NOISE, places[0][:, None, None] + first, places[1][:, None], places[2])
    measured = settings.changed({"precision": "float32", "ways": (ways, ways)})
    found = objective(measured, themes, networks, data, t, v, noise)
    return {name: float(value) for name, value in found.terms.items()}
