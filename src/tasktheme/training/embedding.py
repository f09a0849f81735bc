"""Data points through the encoder, in pieces that fit in memory, without gradients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tasktheme.data.episodes import EpisodeBatch
from tasktheme.nets.build import Encoder

_POINTS_AT_ONCE = {"cpu": 2_048, "cuda": 20_000}  # through the encoder


@dataclass(frozen=True)
class EmbeddedTasks:
    """q(u) of a batch of tasks: N(m, diag(s^2)) for each data point."""

    m: Float[Tensor, "T N D"]
    s: Float[Tensor, "T N D"]
    mask: Bool[Tensor, "T N"]


@torch.no_grad()
def embed_points(encoder: Encoder, data: Tensor) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D"]]:
    """m and s of data points that are embedded one by one (an encoder whose ``independent`` is True)."""
    parts = []
    for piece in data.split(_POINTS_AT_ONCE.get(data.device.type, _POINTS_AT_ONCE["cpu"])):
        mask = torch.ones((1, len(piece)), dtype=torch.bool, device=piece.device)
        parts.append(encoder(piece.unsqueeze(0), mask))
    return torch.cat([m[0] for m, _ in parts]), torch.cat([s[0] for _, s in parts])


@torch.no_grad()
def embed_batch(encoder: Encoder, data: Tensor, batch: EpisodeBatch) -> EmbeddedTasks:
    """m and s of a padded batch of tasks.

    Where an embedding depends on its task (batch norm), each task goes through the encoder as a whole, in one piece.
    """
    if not encoder.independent:
        m, s = encoder(data[batch.rows], batch.mask)
        return EmbeddedTasks(m, s, batch.mask)
    flat_m, flat_s = embed_points(encoder, data[batch.rows[batch.mask]])
    m = flat_m.new_zeros((*batch.mask.shape, flat_m.shape[-1]))
    s = torch.zeros_like(m)
    m[batch.mask], s[batch.mask] = flat_m, flat_s
    return EmbeddedTasks(m, s, batch.mask)
