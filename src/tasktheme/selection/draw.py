"""Pools of tasks with their images, drawn from a data set for a meta-learner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Int64
from torch import Tensor

from tasktheme.data.dataset import Dataset
from tasktheme.errors import DataError
from tasktheme.learners.meta import MetaLearner
from tasktheme.learners.tasks import PointSource, listed_sampler
from tasktheme.learners.testing import listed_classes, listed_episodes
from tasktheme.selection.base import Tasks

if TYPE_CHECKING:
    from tasktheme.ptm import PTM


def draw_tasks(data: Dataset, learner: MetaLearner, n: int | str = 200, *, seed: int = 1, model: PTM | None = None) -> Tasks:
    """``n`` random tasks, or "all", as the learner takes them, with labelled points and queries: those that its test would use.

    With a task model each also gets its distribution over themes, inferred from all its points.
    """
    return draw_with_classes(data, learner, n, seed=seed, model=model)[0]


def draw_with_classes(
    data: Dataset, learner: MetaLearner, n: int | str, *, seed: int, model: PTM | None = None
) -> tuple[Tasks, Int64[Tensor, "T W"]]:
    """:func:`draw_tasks`, and the classes of each task."""
    if data.point_shape != learner.learner.point_shape:
        raise DataError(f"this learner takes images of shape {learner.learner.point_shape}, got {data.point_shape}")
    settings = learner.settings
    classes = listed_classes(data, settings, n, seed=seed)
    numbers = torch.arange(len(classes), device=learner.device)
    halves = listed_sampler(data, settings, classes, learner.device, seed=seed).draw(numbers, settings.shots, settings.queries)
    points = PointSource(data, learner.device)
    support, query = (points(half, settings.ways) for half in halves)
    if model is None:
        return Tasks(numbers, support, query), classes
    embedded = model.embed(listed_episodes(data, settings, classes, seed=seed))
    gamma = torch.tensor(embedded.concentration, device=learner.device)
    return Tasks(numbers, support, query, gamma, embedded.aspects), classes
