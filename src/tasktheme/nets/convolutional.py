"""The paper's encoder and decoder of images: 4x4 convolutions with stride 2, mirrored."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tasktheme.errors import SettingsError
from tasktheme.maths import continuous_bernoulli
from tasktheme.nets.norm import Norm, make_norm
from tasktheme.nets.precision import bfloat16_products, widened
from tasktheme.nets.scale import split_scale
from tasktheme.nets.strided import Doubling, Halving

_SLOPE = 0.01  # of the leaky rectifier, as in the paper


def to_unit(x: Tensor) -> Tensor:
    """uint8 pixels as numbers in [0, 1]; real numbers pass."""
    return x.float().div_(255.0) if x.dtype == torch.uint8 else x


def _smallest_map(point_shape: Sequence[int], filters: Sequence[int]) -> tuple[int, int]:
    _, height, width = point_shape
    factor = 2 ** len(filters)
    if height % factor or width % factor:
        fitting = max(m for m in range(len(filters)) if not (height % 2**m or width % 2**m))
        fewer = f", or change the setting: filters=[{','.join(map(str, filters[:fitting]))}]" if fitting else ""
        raise SettingsError(
            f"images of {height}x{width} do not divide by {factor}, as {len(filters)} modules of stride 2 need; "
            f"load them with size={-(-max(height, width) // factor) * factor}{fewer}"
        )
    return height // factor, width // factor


class ConvolutionalEncoder(nn.Module):
    """q(u | x): modules of convolution, norm and leaky rectifier, then a linear layer to mean and scale."""

    def __init__(self, point_shape: Sequence[int], filters: Sequence[int], latent_dim: int, norm: Norm) -> None:
        super().__init__()
        height, width = _smallest_map(point_shape, filters)
        channels = [point_shape[0], *filters]
        self.convolutions = nn.ModuleList(Halving(a, b) for a, b in pairwise(channels))
        self.norms = nn.ModuleList(make_norm(norm, c) for c in filters)
        self.head = nn.Linear(filters[-1] * height * width, 2 * latent_dim)
        self.independent = norm == "group"

    def forward(self, x: Tensor, mask: Bool[Tensor, "T N"]) -> tuple[Float[Tensor, "T N D"], Float[Tensor, "T N D"]]:
        """m and s of q(u) for T x N images; padded ones give values without meaning."""
        h = to_unit(x).flatten(0, 1)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            h = F.leaky_relu(norm(convolution(h), mask), _SLOPE, inplace=True)
        with bfloat16_products(h.device, enabled=False):  # the embedding itself is never rounded
            output = self.head(widened(h).flatten(1))
        return split_scale(output.unflatten(0, mask.shape))


class ConvolutionalDecoder(nn.Module):
    """p(x | u): the encoder mirrored, with a continuous Bernoulli likelihood for each pixel."""

    def __init__(self, point_shape: Sequence[int], filters: Sequence[int], latent_dim: int, norm: Norm) -> None:
        super().__init__()
        self._map = (filters[-1], *_smallest_map(point_shape, filters))
        self.dimensions = int(torch.Size(point_shape).numel())
        self.stem = nn.Linear(latent_dim, int(torch.Size(self._map).numel()))
        channels = [*reversed(filters), point_shape[0]]
        self.convolutions = nn.ModuleList(Doubling(a, b) for a, b in pairwise(channels))
        self.bias = nn.Parameter(torch.zeros(point_shape[0]))
        self.norms = nn.ModuleList(make_norm(norm, c) for c in channels[:-1])

    def logits(self, u: Float[Tensor, "T N D"], mask: Bool[Tensor, "T N"]) -> Float[Tensor, "B C H W"]:
        """Logits of the pixels of the T x N images, one after another."""
        h = self.stem(u).flatten(0, 1).unflatten(1, self._map)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            h = convolution(F.leaky_relu(norm(h, mask), _SLOPE, inplace=True))
        return widened(h) + self.bias[:, None, None]

    def start_at(self, x: Tensor) -> None:
        """The mean of each channel of ``x`` as the first image that this decodes."""
        mean = to_unit(x).double().mean(dim=(0, 2, 3))
        self.bias.copy_(continuous_bernoulli.logit_of_mean(mean))

    def log_prob(self, u: Float[Tensor, "T N D"], x: Tensor, mask: Bool[Tensor, "T N"]) -> Float[Tensor, "T N"]:
        """ln p(x | u) of each image, summed over its pixels."""
        density = continuous_bernoulli.log_prob(to_unit(x).flatten(0, 1), self.logits(u, mask))
        return density.sum(dim=(1, 2, 3)).unflatten(0, mask.shape)

    def mean(self, u: Float[Tensor, "T N D"], mask: Bool[Tensor, "T N"]) -> Float[Tensor, "T N C H W"]:
        """E[x | u], for pictures."""
        return continuous_bernoulli.mean(self.logits(u, mask)).unflatten(0, mask.shape)
