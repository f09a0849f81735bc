"""How well one labelled data point of each class tells a task's classes apart, by distance of embeddings."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from tasktheme.data.random import random_bits

_LABELLED = 2000  # stream of the choice of labelled points, apart from the sampler's streams
_DRAWS = 20


def prototype_accuracy(
    points: Float[Tensor, "T N D"],
    labels: Int64[Tensor, "T N"],
    mask: Bool[Tensor, "T N"],
    *,
    seed: int = 0,
    draws: int = _DRAWS,
) -> Float64[Tensor, " T"]:
    """1-shot accuracy of each task: a random point of each class is labelled, all others go to the nearest labelled one.

    Euclidean distance, mean over ``draws`` choices of the labelled points; NaN where a task has no other points.
    """
    apart = torch.cdist(points.double(), points.double(), compute_mode="donot_use_mm_for_euclid_dist")
    classes = torch.arange(int(labels.max()) + 1, device=labels.device)
    member = (labels.unsqueeze(1) == classes[:, None]) & mask.unsqueeze(1)  # (T, C, N)
    empty = ~member.any(dim=-1)
    task, place = (torch.arange(size, device=labels.device) for size in mask.shape)
    right = torch.zeros(len(mask), dtype=torch.float64, device=labels.device)
    for draw in range(draws):
        keys = random_bits(seed, _LABELLED, torch.full_like(task, draw).unsqueeze(-1), task.unsqueeze(-1), place)  # (T, N)
        chosen = keys.unsqueeze(1).masked_fill(~member, torch.iinfo(torch.int64).max).argmin(dim=-1)  # (T, C)
        to_labelled = apart.gather(1, chosen.unsqueeze(-1).expand(-1, -1, len(place)))  # (T, C, N)
        nearest = to_labelled.masked_fill(empty.unsqueeze(-1), torch.inf).argmin(dim=1)
        query = _without(mask, chosen, ~empty)
        right += ((nearest == labels) & query).sum(dim=1).double() / query.sum(dim=1)  # 0 / 0 is NaN
    return right / draws


def _without(mask: Tensor, chosen: Tensor, wanted: Tensor) -> Tensor:
    """The mask without the chosen places, as far as those are wanted."""
    labelled = torch.zeros_like(mask, dtype=torch.int64).scatter_add(1, chosen, wanted.long())
    return mask & (labelled == 0)
