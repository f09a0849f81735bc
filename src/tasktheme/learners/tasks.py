"""Tasks for meta-learners: which classes, and which of their points are labelled and which are to be predicted."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from tasktheme.data.dataset import Dataset
from tasktheme.data.episodes import EpisodeBatch, EpisodeSampler
from tasktheme.data.random import random_bits
from tasktheme.errors import DataError
from tasktheme.learners.base import Points
from tasktheme.learners.settings import LearnerSettings

_MOST_LISTED = 1_000_000
_AUGMENTING = 1900  # stream of random numbers, apart from those of samplers and learners
_SHIFT = 8  # an image moves by up to this part of its size


class PointSource:
    """The images of a data set on a device, channels last, as the networks want them."""

    def __init__(self, dataset: Dataset, device: torch.device) -> None:
        if dataset.unlabelled:
            raise DataError(f"{dataset.name!r} has no labels: a meta-learner needs them")
        if len(dataset.point_shape) != 3:
            raise DataError(f"{dataset.name!r}: meta-learners take images, got data points of shape {dataset.point_shape}")
        self._data = dataset.tensor.to(device).movedim(1, -1).contiguous()
        self._scale = 1.0 / 255.0 if self._data.dtype == torch.uint8 else 1.0

    def __call__(self, batch: EpisodeBatch, ways: int) -> Points:
        """The points of a batch of tasks."""
        return self._points(self._data[batch.rows], batch, ways)

    def augmented(self, batch: EpisodeBatch, ways: int, *, seed: int, tasks: Int64[Tensor, " T"]) -> Points:
        """The same, each image mirrored left to right or not, and moved by up to an eighth of its size, its edge repeated.

        What happens to an image depends on the seed, the task's number and the image alone.
        """
        height, width = self._data.shape[1:3]
        bits = random_bits(seed, _AUGMENTING, tasks.unsqueeze(-1), batch.rows).unsqueeze(-1)
        y = self._moved(bits, height)
        x = self._moved(bits >> 20, width)
        x = torch.where(bits >> 40 & 1 == 1, width - 1 - x, x)
        return self._points(self._data[batch.rows[..., None, None], y.unsqueeze(-1), x.unsqueeze(-2)], batch, ways)

    def _moved(self, bits: Int64[Tensor, "T N 1"], size: int) -> Int64[Tensor, "T N size"]:
        """Where each place along an axis takes its pixel from."""
        most = size // _SHIFT
        places = torch.arange(size, device=bits.device)
        return (places + bits % (1 << 20) % (2 * most + 1) - most).clamp(0, size - 1)

    def _points(self, images: Tensor, batch: EpisodeBatch, ways: int) -> Points:
        return Points(images.movedim(-1, 2).float() * self._scale, batch.labels, ways)


def make_sampler(dataset: Dataset, settings: LearnerSettings, device: torch.device, *, ways: int, seed: int) -> EpisodeSampler:
    """Random tasks of ``ways`` classes, labelled points and queries together."""
    return _sampler(dataset, settings, ways=ways, seed=seed, within_group=settings.within_group, device=device)


def all_classes(dataset: Dataset, ways: int, *, within_group: bool) -> Int64[Tensor, "T W"]:
    """Every choice of ``ways`` classes (of one group), in order."""
    group = torch.as_tensor(dataset.class_group) if within_group else torch.zeros(len(dataset.class_names), dtype=torch.int64)
    sizes = torch.bincount(group)
    count = sum(math.comb(size, ways) for size in sizes.tolist())
    if count == 0:
        raise DataError(f"{dataset.name!r} has too few classes for tasks of {ways}; ask for fewer ways")
    if count > _MOST_LISTED:
        raise DataError(f"{dataset.name!r} has {count:,} tasks of {ways} classes, too many to list; ask for a number of tasks")
    parts = [torch.combinations(torch.nonzero(group == g).flatten(), ways) for g in range(len(sizes))]
    return torch.cat(parts)


def listed_sampler(
    dataset: Dataset, settings: LearnerSettings, classes: Int64[Tensor, "T W"], device: torch.device, *, seed: int
) -> EpisodeSampler:
    """Tasks whose classes are given; a task's points depend on the seed and its number in the list alone."""
    return _sampler(dataset, settings, tasks=classes.numpy(), seed=seed, device=device)


def _sampler(dataset: Dataset, settings: LearnerSettings, **drawn: Any) -> EpisodeSampler:
    try:
        return EpisodeSampler(dataset, shots=settings.shots + settings.queries, **drawn)
    except DataError as error:  # a task's points are a learner's shots and queries
        fewer = f"ask for fewer queries ({settings.queries}) or shots ({settings.shots})"
        raise DataError(str(error).replace("ask for fewer shots", fewer)) from error
