"""Normalisation layers that know which images belong to one task."""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tasktheme.nets.precision import widened

Norm = Literal["group", "batch"]
_CHANNELS_PER_GROUP = 8


class ImageGroupNorm(nn.Module):
    """Statistics of one image alone: its embedding does not depend on what else is in its task."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        most = max(1, channels // _CHANNELS_PER_GROUP)
        self.norm = nn.GroupNorm(max(groups for groups in range(1, most + 1) if channels % groups == 0), channels)

    def forward(self, x: Float[Tensor, "B C H W"], mask: Bool[Tensor, "T N"]) -> Float[Tensor, "B C H W"]:
        """Normalise each image's groups of channels; the mask does not matter."""
        if torch.compiler.is_compiling():  # torch's own would change the layout; a compiler fuses these steps to a few
            return normalise_groups(x, self.norm)
        return self.norm(x)


def normalise_groups(x: Float[Tensor, "B C H W"], norm: nn.GroupNorm) -> Float[Tensor, "B C H W"]:
    """What ``norm`` does, written out for channels that come last in memory."""
    layout = (1, len(x), norm.num_groups, norm.num_channels // norm.num_groups)
    share = x.new_full((len(x), 1), 1.0 / layout[-1], dtype=norm.weight.dtype)
    return _Normalise.apply(x, norm.weight, norm.bias, share, layout, -1, norm.eps)  # type: ignore[no-untyped-call]


class TaskBatchNorm(nn.Module):
    """Batch normalisation with the statistics of each task's own images, in training and in inference.

    The authors' choice. ``x`` holds the T x N images of the mask one after another; padded ones do not count.
    """

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x: Float[Tensor, "B C H W"], mask: Bool[Tensor, "T N"]) -> Float[Tensor, "B C H W"]:
        """Normalise each channel over the images of each task."""
        share = mask.to(self.weight.dtype) / mask.sum(dim=-1, keepdim=True).clamp_min(1)
        layout = (*mask.shape, len(self.weight), 1)
        share = share.flatten().unsqueeze(-1)
        return _Normalise.apply(x, self.weight, self.bias, share, layout, 1, self.eps)  # type: ignore[no-untyped-call]


class _Normalise(torch.autograd.Function):
    """Less the mean and divided by the deviation, then scaled and shifted by channel.

    Statistics are of sets of tables (B, C) of each image and channel, laid out as (T, N, G, C / G): along ``dim`` lies a set, in
    which an image counts with its ``share``. Large sums are along pixels alone, in a gradient too, and all others are of such
    tables: a compiler that derives the gradient by itself sums along pixels and images at once, which takes a GPU far longer.
    The gradient has none of its own.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, share: Tensor, layout: tuple[int, ...], dim: int, eps: float
    ) -> Tensor:
        centred = widened(x)
        mean = _total(share * centred.mean(dim=(2, 3)), layout, dim)[:, :, None, None]
        centred = centred - mean
        variance = _total(share * centred.square().mean(dim=(2, 3)), layout, dim)
        inverse = (variance + eps).rsqrt()[:, :, None, None]
        ctx.save_for_backward(x, weight, share, mean, inverse)
        ctx.layout, ctx.dim = layout, dim
        return centred * inverse * weight[:, None, None] + bias[:, None, None]

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, share, mean, inverse = ctx.saved_tensors
        slope, normal = widened(slopes[0]), (widened(x) - mean) * inverse
        of_bias, of_weight = slope.sum(dim=(2, 3)), (slope * normal).sum(dim=(2, 3))
        part = share / (x.shape[2] * x.shape[3])
        shift, tilt = (part * _total(table * weight, ctx.layout, ctx.dim) for table in (of_bias, of_weight))
        own = (slope * weight[:, None, None] - shift[:, :, None, None] - normal * tilt[:, :, None, None]) * inverse
        return own.to(x.dtype), of_weight.sum(dim=0), of_bias.sum(dim=0), None, None, None, None


def _total(table: Float[Tensor, "B C"], layout: tuple[int, ...], dim: int) -> Float[Tensor, "B C"]:
    """For each number, the sum of those in its set."""
    return table.reshape(layout).sum(dim=dim, keepdim=True).expand(layout).reshape(table.shape)


def make_norm(kind: Norm, channels: int) -> nn.Module:
    """A normalisation layer for ``channels`` feature maps."""
    if kind == "batch":
        return TaskBatchNorm(channels)
    return ImageGroupNorm(channels)
