"""The positive scale of q(u) from an unbounded output."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

_SMALLEST_LOG_SCALE, _LARGEST_LOG_SCALE = -6.0, 3.0  # e^-6 = 0.0025 to e^3 = 20: wider than any trained encoder uses


def split_scale(output: Float[Tensor, "*B E"]) -> tuple[Float[Tensor, "*B D"], Float[Tensor, "*B D"]]:
    """Split the last layer's output in halves: the mean m, and the scale s through an exponential kept in bounds."""
    m, log_s = output.chunk(2, dim=-1)
    return m, log_s.clamp(_SMALLEST_LOG_SCALE, _LARGEST_LOG_SCALE).exp()
