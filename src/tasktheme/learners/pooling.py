"""Statistics and 2x2 maxima of feature maps, with gradients written out: they take one pass where composed ones take six.

Maps are (tasks, points, height, width, channels). torch's own pooling remembers where a maximum was by its place in the map,
and puts a gradient back there by scattering. A compiler can fuse neither with what comes before and after, so a step that is
traced for one (``whole_step.py``) gets the same by comparisons of the four neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

Statistics = Float[Tensor, "T 1 1 1 C"]


def pool(y: Float[Tensor, "T N H W C"]) -> tuple[Statistics, Statistics, Float[Tensor, "T N h w C"]]:
    """Mean and variance of each task's channels, at least in float32, and the 2x2 maxima.

    The first of equal neighbours is the maximum; a last odd row or column takes part in the statistics alone.
    """
    by = _COMPARING if get_proxy_mode() is not None else _LIBRARY
    mean, variance, pooled, _ = _Pool.apply(y.contiguous(), by)  # type: ignore[no-untyped-call]
    return mean, variance, pooled


def joined(parts: Sequence[tuple[Tensor, Tensor, Tensor]]) -> tuple[Statistics, Statistics, Float[Tensor, "T N h w C"]]:
    """What :func:`pool` gives of all points, from what it gave of some of them each."""
    if len(parts) == 1:
        return parts[0]
    means, variances, pooled = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
    share = means.new_tensor([part.shape[1] / pooled.shape[1] for *_, part in parts])[:, None, None, None]
    mean = (share * means).sum(dim=1, keepdim=True)
    return mean, (share * (variances + (means - mean).square())).sum(dim=1, keepdim=True), pooled


@dataclass(frozen=True)
class _Maxima:
    """One way to compute 2x2 maxima, on tensors without gradients; what ``places`` holds is its own business."""

    find: Callable[[Tensor], tuple[Tensor, Tensor]]
    """(pooled, places) of a map."""
    add: Callable[[Tensor, Tensor, Tensor], Tensor]
    """(spread, pooled, places): spread with the pooled values added at their places; it may change spread itself."""
    take: Callable[[Tensor, Tensor], Tensor]
    """(map, places): the values at the places."""
    mean_square: Callable[[Tensor, torch.dtype], Tensor]
    """Mean of the squares over all but tasks and channels."""


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, by: _Maxima) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        dtype = torch.promote_types(y.dtype, torch.float32)
        mean = y.mean(dim=(1, 2, 3), keepdim=True, dtype=dtype)
        variance = (by.mean_square(y, dtype) - mean.square()).clamp_min(0.0)
        pooled, places = by.find(y)
        ctx.save_for_backward(y, mean, places)
        ctx.mark_non_differentiable(places)
        ctx.by = by
        return mean, variance, pooled, places

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        y, mean, places = ctx.saved_tensors
        dmean, dvariance, dpooled, _ = gradients
        part = mean.numel() / y.numel()
        slope = (2.0 * part) * dvariance
        spread = _Spread.apply(y, part * dmean - slope * mean, slope, dpooled, places, ctx.by)  # type: ignore[no-untyped-call]
        return spread, None


class _Spread(torch.autograd.Function):
    """shift + slope y over the whole map, and the pooled values added where their maxima were found."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, shift: Tensor, slope: Tensor, pooled: Tensor, places: Tensor, by: _Maxima) -> Tensor:
        ctx.save_for_backward(y, slope, places)
        ctx.by = by
        return by.add(torch.addcmul(shift.to(y.dtype), slope.to(y.dtype), y), pooled, places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None, None]:
        (y, slope, places), [d] = ctx.saved_tensors, gradients
        dshift = d.sum(dim=(1, 2, 3), keepdim=True, dtype=slope.dtype)
        dslope = (d * y).sum(dim=(1, 2, 3), keepdim=True, dtype=slope.dtype)
        return d * slope.to(d.dtype), dshift, dslope, ctx.by.take(d, places), None, None


# By torch's own kernels: places are numbers of pixels.
def _library_find(y: Tensor) -> tuple[Tensor, Tensor]:
    images = y.flatten(0, 1).permute(0, 3, 1, 2)
    found = F.max_pool2d(images, 2, return_indices=True)
    pooled, places = (part.permute(0, 2, 3, 1).unflatten(0, y.shape[:2]) for part in found)
    return pooled, places


def _library_add(spread: Tensor, pooled: Tensor, places: Tensor) -> Tensor:
    flat = spread.view(*spread.shape[:2], -1, spread.shape[-1])  # a view, or an error: a copy would lose what is added to it
    flat.scatter_add_(2, places.flatten(2, 3), pooled.flatten(2, 3))
    return spread


def _library_take(whole: Tensor, places: Tensor) -> Tensor:
    return whole.flatten(2, 3).gather(2, places.flatten(2, 3)).view(places.shape)


def _library_mean_square(y: Tensor, dtype: torch.dtype) -> Tensor:
    if y.is_cuda:  # one pass; on a CPU torch's norm over these axes is slower than squaring the map
        norm = torch.linalg.vector_norm(y, dim=(1, 2, 3), keepdim=True, dtype=dtype)
        return norm.square() * (norm.numel() / y.numel())
    return y.square().mean(dim=(1, 2, 3), keepdim=True, dtype=dtype)


# By comparisons alone: places are 0 to 3, row by row within each 2x2 block.
def _comparing_find(y: Tensor) -> tuple[Tensor, Tensor]:
    a, b, c, d = _neighbours(y)
    upper, lower = torch.maximum(a, b), torch.maximum(c, d)
    places = torch.where(lower > upper, (d > c).to(torch.uint8) + 2, (b > a).to(torch.uint8))
    return torch.maximum(upper, lower), places


def _comparing_add(spread: Tensor, pooled: Tensor, places: Tensor) -> Tensor:
    """Each pixel compares its own place within the block with the block's."""
    height, width = spread.shape[2:4]
    row, column = (torch.arange(2, dtype=torch.uint8, device=spread.device) for _ in range(2))
    own = (2 * row)[:, None, None, None] + column[:, None]  # (2, 1, 2, 1), beside (h, 2, w, 2, channels)
    block = (slice(None), slice(None), slice(None), None, slice(None), None)
    added = torch.where(places[block] == own, pooled[block], 0.0).flatten(2, 3).flatten(3, 4)
    odd = (0, 0, 0, width % 2, 0, height % 2)
    return spread + (F.pad(added, odd) if any(odd) else added)


def _comparing_take(whole: Tensor, places: Tensor) -> Tensor:
    a, b, c, d = _neighbours(whole)
    return torch.where(places < 2, torch.where(places == 0, a, b), torch.where(places == 2, c, d))


def _comparing_mean_square(y: Tensor, dtype: torch.dtype) -> Tensor:
    return y.to(dtype).square().mean(dim=(1, 2, 3), keepdim=True)


def _neighbours(y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The four pixels of each 2x2 block."""
    height, width = (side // 2 * 2 for side in y.shape[2:4])
    upper, lower = (y[:, :, i:height:2] for i in range(2))
    return upper[:, :, :, 0:width:2], upper[:, :, :, 1:width:2], lower[:, :, :, 0:width:2], lower[:, :, :, 1:width:2]


_LIBRARY = _Maxima(_library_find, _library_add, _library_take, _library_mean_square)
_COMPARING = _Maxima(_comparing_find, _comparing_add, _comparing_take, _comparing_mean_square)
