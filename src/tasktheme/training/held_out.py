"""The bound of tasks that were not trained on, term by term."""

from __future__ import annotations

import torch

from tasktheme.data.episodes import EpisodeBatch, Episodes
from tasktheme.data.random import random_normal
from tasktheme.errors import DataError
from tasktheme.model.objective import objective
from tasktheme.model.themes import Themes
from tasktheme.nets.build import Networks
from tasktheme.progress import progress_bar
from tasktheme.settings import Settings
from tasktheme.training.batches import check_points, task_batches

_DECODED = 4  # times fewer data points go through the decoder together
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
    settings: Settings, themes: Themes, networks: Networks, tasks: Episodes, device: torch.device, *, seed: int, progress: bool
) -> dict[str, float]:
    """The terms of :func:`objective`, averaged over the tasks: q(z, pi) from the t half, the bound of the v half.

    In float32; noise depends on the seed and a task's number alone.
    """
    if tasks.fewest_shots() < 2:
        raise DataError("the held-out bound needs tasks of at least two data points of each class: ask for more shots")
    check_points(networks, tasks.dataset)
    data, ways = tasks.dataset.tensor.to(device), tasks.classes.shape[1]
    measured = settings.changed({"precision": "float32", "ways": (ways, ways)})
    total: dict[str, float] = {}
    with progress_bar("bound", len(tasks), show=progress) as advance:
        for which, batch in task_batches(tasks, device, fewer=_DECODED):
            t, v = halves(batch.to(device), ways)
            points, dims = (torch.arange(size, device=device) for size in (v.mask.shape[1], themes.dimensions))
            noise = random_normal(seed, _NOISE, torch.from_numpy(which).to(device)[:, None, None], points[:, None], dims)
            found = objective(measured, themes, networks, data, t, v, noise)
            weight = len(which) / len(tasks)
            total = {name: total.get(name, 0.0) + weight * float(value) for name, value in found.terms.items()}
            advance(len(which), "")
    return total
