"""Normalisation layers that know which images belong to one task."""

from __future__ import annotations

from typing import Literal

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
        self.norm = nn.GroupNorm(max(1, channels // _CHANNELS_PER_GROUP), channels)

    def forward(self, x: Float[Tensor, "B H W C"], mask: Bool[Tensor, "T N"]) -> Float[Tensor, "B H W C"]:
        """Normalise each image's groups of channels; the mask does not matter."""
        if torch.compiler.is_compiling():  # torch's own would change the layout; a compiler fuses these steps to one or two
            return normalise_groups(x, self.norm)
        return self.norm(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def normalise_groups(x: Float[Tensor, "B H W C"], norm: nn.GroupNorm) -> Float[Tensor, "B H W C"]:
    """What ``norm`` does, written out for channels that come last."""
    grouped = widened(x).unflatten(-1, (norm.num_groups, -1))
    variance, mean = torch.var_mean(grouped, dim=(1, 2, 4), keepdim=True, correction=0)
    return ((grouped - mean) * (variance + norm.eps).rsqrt()).flatten(-2) * norm.weight + norm.bias


class TaskBatchNorm(nn.Module):
    """Batch normalisation with the statistics of each task's own images, in training and in inference.

    The authors' choice. ``x`` holds the T x N images of the mask one after another; padded ones do not count.
    """

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x: Float[Tensor, "B H W C"], mask: Bool[Tensor, "T N"]) -> Float[Tensor, "B H W C"]:
        """Normalise each channel over the images of each task."""
        grouped = widened(x).unflatten(0, mask.shape)  # (T, N, H, W, C)
        weight = mask[:, :, None, None, None].to(grouped.dtype)
        count = weight.sum(dim=1, keepdim=True).clamp_min(1.0) * (x.shape[1] * x.shape[2])
        mean = (grouped * weight).sum(dim=(1, 2, 3), keepdim=True) / count
        centred = grouped - mean
        variance = (centred.square() * weight).sum(dim=(1, 2, 3), keepdim=True) / count
        normal = (centred * (variance + self.eps).rsqrt()).flatten(0, 1)
        return normal * self.weight + self.bias


def make_norm(kind: Norm, channels: int) -> nn.Module:
    """A normalisation layer for ``channels`` feature maps."""
    if kind == "batch":
        return TaskBatchNorm(channels)
    return ImageGroupNorm(channels)
