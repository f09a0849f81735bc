"""The continuous Bernoulli distribution (Loaiza-Ganem & Cunningham, 2019), from logits.

p(x | l) = C(lambda) lambda^x (1 - lambda)^(1 - x) on [0, 1] with l = ln(lambda / (1 - lambda)). In the logit it is an
exponential family, p(x | l) = exp(x l - A(l)), whose normalising constant is C(lambda) = exp(ln(1 + e^l) - A(l)).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

_SMALL_LOGIT = 0.1  # below this the mean's series is exact to 1e-13, and its closed form loses digits in float32


def log_partition(logits: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """A(l) = ln of the integral of exp(l x) over [0, 1] = max(l, 0) + ln((1 - exp(-|l|)) / |l|).

    Accurate at l = 0 (lambda = 0.5) and far out: expm1 loses no digits, and nothing overflows.
    """
    return _log_partition_of_size(logits) + logits.clamp_min(0.0)


def _log_partition_of_size(logits: Tensor) -> Tensor:
    """A(-|l|) = ln((1 - exp(-|l|)) / |l|), at most 0."""
    size = logits.abs().clamp_min_(torch.finfo(logits.dtype).tiny)
    return torch.expm1(-size).div_(size).neg_().log_()


def log_prob(x: Float[Tensor, "*B"], logits: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """ln p(x | logits) = x l - A(l) for x in [0, 1], with first derivatives only.

    A(l) gets its slope E[x] in closed form: autograd's would take three times the passes over the pixels, and lose
    digits near l = 0.
    """
    fixed = logits.detach()
    # x l - max(l, 0) first: both are large far out, and their difference is exact at x = 0 and x = 1
    value = x * logits - fixed.clamp_min(0.0) - _log_partition_of_size(fixed)
    if torch.is_grad_enabled() and logits.requires_grad:
        value = value - mean(fixed) * (logits - fixed)  # adds nothing but the slope
    return value


def mean(logits: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """E[x] = A'(l) = 1 / (1 - exp(-l)) - 1 / l, which is not lambda; a series takes over near l = 0."""
    small = logits.abs() < _SMALL_LOGIT
    size = torch.where(small, torch.ones_like(logits), logits.abs())  # E[x | -l] = 1 - E[x | l]: no exponential overflows
    above = -1.0 / torch.expm1(-size) - 1.0 / size
    square = logits.square()
    series = 0.5 + logits * (1.0 / 12.0 - square * (1.0 / 720.0 - square / 30240.0))
    return torch.where(small, series, torch.where(logits > 0.0, above, 1.0 - above))
