"""Tasks that a fitted model is shown, through its encoder batch by batch: as many data points together as suit the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from tasktheme import distributed
from tasktheme.data.dataset import Dataset
from tasktheme.data.episodes import EpisodeBatch, Episodes, EpisodeStream, whole_tasks
from tasktheme.data.given import count_tasks
from tasktheme.errors import DataError
from tasktheme.nets.build import Networks
from tasktheme.progress import progress_bar
from tasktheme.training.embedding import EmbeddedTasks, SharedPoints, embed_batch

_POINTS_IN_BATCH = {"cpu": 10_000, "cuda": 100_000}  # data points, padding included, that are embedded together
_SHARED = 2  # tasks that an average data point is in, for which it pays to embed each point once

Places = npt.NDArray[np.int64]


def check_points(networks: Networks, dataset: Dataset) -> None:
    """DataError unless the data points are of the shape that the networks were trained on."""
    if dataset.point_shape != networks.point_shape:
        hint = ""
        if len(dataset.point_shape) == len(networks.point_shape) == 3:
            channels, side, _ = networks.point_shape
            hint = f"; image files are brought to it where they are loaded: size={side}, channels={channels}"
        whose = ""
        if dataset.unlabelled and dataset.class_names != ("0",):  # a single array has no name
            others = len(dataset.class_names) - 1  # which are of the same shape, or there would be no data set
            more = f" and {others:,} other{'s' if others > 1 else ''}" if others else ""
            whose = f"task {dataset.class_names[0]!r}{more}: "
        raise DataError(f"{whose}this model embeds data points of shape {networks.point_shape}, got {dataset.point_shape}{hint}")


def task_batches(tasks: Episodes | Dataset, device: torch.device, *, fewer: int = 1) -> Iterator[tuple[Places, EpisodeBatch]]:
    """Batches of as many data points as suit the device, or ``fewer`` times fewer, with the tasks' places."""
    points = _POINTS_IN_BATCH.get(device.type, _POINTS_IN_BATCH["cpu"]) // fewer
    if isinstance(tasks, Dataset):
        yield from whole_tasks(tasks, points=points)
        return
    size = max(1, points // tasks.batch.rows.shape[1])
    for start, batch in zip(range(0, len(tasks), size), tasks.batches(size), strict=True):
        yield np.arange(start, start + len(batch.rows)), batch


def embedded_batches(
    networks: Networks,
    tasks: Episodes | Dataset,
    device: torch.device,
    *,
    progress: bool,
    points: SharedPoints | None = None,
) -> Iterator[tuple[Places, EmbeddedTasks]]:
    """Batches of tasks through the encoder, with the tasks' places; of several processes each takes every other batch.

    ``points`` are those of the episodes' data set where they are embedded already.
    """
    dataset = tasks.dataset if isinstance(tasks, Episodes) else tasks
    check_points(networks, dataset)
    data = dataset.tensor.to(device)
    embed: Callable[[EpisodeBatch], EmbeddedTasks] = partial(embed_batch, networks.encoder, data)
    if points is not None:
        embed = points.batch
    elif isinstance(tasks, Episodes) and networks.encoder.independent:
        rows = tasks.batch.rows[tasks.batch.mask]
        distinct = rows.unique().to(device)
        if _SHARED * len(distinct) <= len(rows):
            with progress_bar("embedding data points", len(distinct), show=progress) as advance:
                embed = SharedPoints(networks.encoder, data, distinct, advance).batch
    with progress_bar("embedding", count_tasks(tasks), show=progress) as advance:
        for number, (which, batch) in enumerate(task_batches(tasks, device)):
            if number % distributed.world() == distributed.rank():
                yield which, embed(batch.to(device))
            advance(len(which), "")


def stream_points(networks: Networks, tasks: EpisodeStream, device: torch.device, *, progress: bool) -> SharedPoints | None:
    """All data points of a stream's data set, embedded, where that pays and an embedding does not depend on its task."""
    check_points(networks, tasks.dataset)
    if not networks.encoder.independent or _SHARED * len(tasks.dataset) > len(tasks) * tasks.points_of_task:
        return None
    rows = torch.arange(len(tasks.dataset), device=device)
    with progress_bar("embedding data points", len(rows), show=progress) as advance:
        return SharedPoints(networks.encoder, tasks.dataset.tensor.to(device), rows, advance)
