"""How precisely the networks multiply: in float32, or in bfloat16 with all sums, norms and outputs in float32."""

from __future__ import annotations

import torch
from torch import Tensor


def bfloat16_products(device: torch.device, *, enabled: bool) -> torch.autocast:
    """A context in which convolutions and matrix products take bfloat16; without effect where not ``enabled``."""
    # torch would keep each weight's bfloat16 copy until the context ends: a recorded step must not hold on to them
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)


def rounded(x: Tensor) -> Tensor:
    """``x`` as a product would take it here: bfloat16 within :func:`bfloat16_products`."""
    return x.bfloat16() if torch.is_autocast_enabled(x.device.type) else x


def widened(x: Tensor) -> Tensor:
    """bfloat16 as float32; other types pass."""
    return x.float() if x.dtype == torch.bfloat16 else x
