"""The continuous Bernoulli distribution (Loaiza-Ganem & Cunningham, 2019), from logits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

_SMALL_LOGIT = 1e-2  # below this the series is exact to float64 rounding of ln(l / tanh(l / 2)) up to order l^6


def log_normaliser(logits: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """ln C(lambda), the constant that makes the binary cross-entropy a density on [0, 1].

    C(lambda) = 2 artanh(1 - 2 lambda) / (1 - 2 lambda) becomes l / tanh(l / 2) in the logit l, which has a removable
    singularity at l = 0 (lambda = 0.5); a series takes over there: ln C = ln 2 + l^2 / 12 - 7 l^4 / 1440 + O(l^6).
    """
    small = logits.abs() < _SMALL_LOGIT
    safe = torch.where(small, torch.ones_like(logits), logits)  # keeps the gradient of the unused branch finite
    square = logits.square()
    series = 0.6931471805599453 + square / 12.0 - 7.0 * square.square() / 1440.0
    return torch.where(small, series, (safe / torch.tanh(0.5 * safe)).log())


def log_prob(x: Float[Tensor, "*B"], logits: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """ln p(x | logits) for x in [0, 1]."""
    return x * logits - F.softplus(logits) + log_normaliser(logits)


def mean(logits: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """E[x], which is not lambda: sigmoid(l) - d ln C / dl = 1 / (1 - exp(-l)) - 1 / l; 1/2 + l / 12 - l^3 / 720 near 0."""
    small = logits.abs() < _SMALL_LOGIT
    size = torch.where(small, torch.ones_like(logits), logits.abs())  # E[x | -l] = 1 - E[x | l]: no exponential overflows
    above = -1.0 / torch.expm1(-size) - 1.0 / size
    series = 0.5 + logits / 12.0 - logits**3 / 720.0
    return torch.where(small, series, torch.where(logits > 0.0, above, 1.0 - above))
