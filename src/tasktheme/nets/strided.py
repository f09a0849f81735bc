"""4x4 convolutions of stride 2 and their transposes.

With few channels a GPU's convolutions starve. In compiled code, where gathering is cheap, the images' patches become
rows of a matrix there, and the convolution one product. Gathering patches and adding them up are each other's transposes.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from tasktheme.nets.precision import rounded

_FEW_CHANNELS = 32  # below, products of patches were the faster on an H200


def _starves(channels: int, x: Tensor) -> bool:
    return channels < _FEW_CHANNELS and x.is_cuda and torch.compiler.is_compiling()


class Halving(nn.Conv2d):
    """A 4x4 convolution with stride 2 and a border of one pixel: half the height and width."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 4, stride=2, padding=1, bias=False)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B E h w"]:
        """The convolution, by products where a GPU's own would starve."""
        return self.by_products(x) if _starves(self.in_channels, x) else super().forward(x)

    def by_products(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B E h w"]:
        """The convolution as one matrix product."""
        patches = _Patches.apply(rounded(x).permute(0, 2, 3, 1))  # type: ignore[no-untyped-call]
        return (patches @ self.weight.permute(2, 3, 1, 0).flatten(0, 2)).permute(0, 3, 1, 2)


class Doubling(nn.ConvTranspose2d):
    """The transpose of :class:`Halving`: twice the height and width."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 4, stride=2, padding=1, bias=False)

    def forward(self, x: Float[Tensor, "B E h w"]) -> Float[Tensor, "B C H W"]:  # type: ignore[override]
        """The convolution, by products where a GPU's own would starve."""
        return self.by_products(x) if _starves(self.out_channels, x) else super().forward(x)

    def by_products(self, x: Float[Tensor, "B E h w"]) -> Float[Tensor, "B C H W"]:
        """The convolution as one matrix product."""
        patches = x.permute(0, 2, 3, 1) @ self.weight.permute(0, 2, 3, 1).flatten(1)
        return _Overlay.apply(patches).permute(0, 3, 1, 2)  # type: ignore[no-untyped-call]


class _Patches(torch.autograd.Function):
    """(B, H, W, C) to (B, h, w, 16 C): the 4x4 pixels around each second pixel, zeros beyond the border."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        patches = F.pad(x, (0, 0, 1, 1, 1, 1)).unfold(1, 4, 2).unfold(2, 4, 2)  # (B, h, w, C, 4, 4), a view
        return patches.permute(0, 1, 2, 4, 5, 3).flatten(3)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        return _Overlay.apply(*slopes)  # type: ignore[no-untyped-call]


class _Overlay(torch.autograd.Function):
    """(B, h, w, 16 C) to (B, H, W, C): each patch added in its place, what falls beyond the border dropped."""

    @staticmethod
    def forward(ctx: Any, patches: Tensor) -> Tensor:
        # each pixel lies in four patches: in the upper or lower, left or right half of each
        halves = patches.unflatten(3, (2, 2, 2, 2, -1)).permute(3, 5, 0, 1, 4, 2, 6, 7)  # (2, 2, B, h, 2, w, 2, C)
        total = sum(
            F.pad(halves[lower, right], (0, 0, 0, 0, right, 1 - right, 0, 0, lower, 1 - lower))
            for lower in (0, 1)
            for right in (0, 1)
        )
        assert isinstance(total, Tensor)  # (B, h + 1, 2, w + 1, 2, C)
        return total.flatten(3, 4).flatten(1, 2)[:, 1:-1, 1:-1]

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        return _Patches.apply(*slopes)  # type: ignore[no-untyped-call]
