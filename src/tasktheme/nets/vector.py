"""Encoders and a decoder for data points that are vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tasktheme.nets.scale import split_scale

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


class Standardise(nn.Module):
    """Shift and scale each feature by the training data's mean and standard deviation, which travel with the model."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Float[Tensor, " F"], scale: Float[Tensor, " F"]) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def forward(self, x: Float[Tensor, "*B F"]) -> Float[Tensor, "*B F"]:
        """Standard units."""
        return (x - self.mean) / self.scale


class IdentityEncoder(nn.Module):
    """u = x with certainty, perhaps in standard units, for features that are already good: the model becomes Gaussian LDA."""

    independent = True

    def __init__(self, standardise: Standardise | None = None) -> None:
        super().__init__()
        self.standardise = standardise

    def forward(
        self, x: Float[Tensor, "T N D"], mask: Bool[Tensor, "T N"]
    ) -> tuple[Float[Tensor, "T N D"], Float[Tensor, "T N D"]]:
        """m = x and s = 0."""
        m = x if self.standardise is None else self.standardise(x)
        return m, torch.zeros_like(m)


class VectorEncoder(nn.Module):
    """q(u | x) for vectors: hidden layers with layer norm and leaky rectifier, then mean and scale."""

    independent = True

    def __init__(self, standardise: Standardise, hidden: Sequence[int], latent_dim: int) -> None:
        super().__init__()
        self.standardise = standardise
        self.layers = _layers([len(standardise.mean), *hidden], 2 * latent_dim)

    @property
    def head(self) -> nn.Linear:
        """The layer that gives mean and scale."""
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        return last

    def forward(
        self, x: Float[Tensor, "T N F"], mask: Bool[Tensor, "T N"]
    ) -> tuple[Float[Tensor, "T N D"], Float[Tensor, "T N D"]]:
        """m and s of q(u) for T x N data points."""
        return split_scale(self.layers(self.standardise(x)))


class VectorDecoder(nn.Module):
    """p(x | u) for vectors: the encoder mirrored, a Gaussian of unit variance for each standardised feature."""

    def __init__(self, standardise: Standardise, hidden: Sequence[int], latent_dim: int) -> None:
        super().__init__()
        self.standardise = standardise
        self.dimensions = len(standardise.mean)
        self.layers = _layers([latent_dim, *reversed(hidden)], self.dimensions)

    def start_at(self, x: Tensor) -> None:
        """Nothing to do: the mean of standardised features is 0, which is near what random weights decode."""

    def log_prob(self, u: Float[Tensor, "T N D"], x: Float[Tensor, "T N F"], mask: Bool[Tensor, "T N"]) -> Float[Tensor, "T N"]:
        """ln p(x | u) of each data point in standardised units, summed over features."""
        error = self.standardise(x) - self.layers(u)
        return -(0.5 * error.square() + _HALF_LOG_2PI).sum(dim=-1)

    def mean(self, u: Float[Tensor, "T N D"], mask: Bool[Tensor, "T N"]) -> Float[Tensor, "T N F"]:
        """E[x | u] in the data's own units."""
        return self.layers(u) * self.standardise.scale + self.standardise.mean


def _layers(sizes: Sequence[int], outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.LayerNorm(b), nn.LeakyReLU(0.01)]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))
