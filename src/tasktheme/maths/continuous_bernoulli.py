"""The continuous Bernoulli distribution (Loaiza-Ganem & Cunningham, 2019), from logits.

p(x | l) = C(lambda) lambda^x (1 - lambda)^(1 - x) on [0, 1] with l = ln(lambda / (1 - lambda)). In the logit it is an
exponential family, p(x | l) = exp(x l - A(l)), whose normalising constant is C(lambda) = exp(ln(1 + e^l) - A(l)).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

_FARTHEST_LOGIT = 100.0  # whose mean is 0.01 or 0.99: a start farther out would leave no slope to come back by
_HALVINGS = 60  # of an interval: to the last digit of a double
_SMALL_LOGIT = 0.1  # below this the mean's series is exact to 1e-13, and its closed form loses digits in float32


def log_partition(logits: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """A(l) = ln of the integral of exp(l x) over [0, 1] = max(l, 0) + ln((1 - exp(-|l|)) / |l|).

    Accurate at l = 0 (lambda = 0.5) and far out: expm1 loses no digits, and nothing overflows.
    """
    return _log_partition_of_size(logits) + logits.clamp_min(0.0)


def _log_partition_of_size(logits: Tensor) -> Tensor:
    """A(-|l|) = ln((1 - exp(-|l|)) / |l|), at most 0."""
    below = logits.abs().clamp_min_(torch.finfo(logits.dtype).tiny).neg_()  # -|l|, in place: a pass over all pixels each
    if torch.compiler.is_compiling() and below.device.type == "cpu":
        return _slope_from_zero(below).log_()
    return torch.expm1(below).div_(below).log_()


def _slope_from_zero(below: Tensor) -> Tensor:
    """(exp(l) - 1) / l for l < 0 without expm1, of which torch's compiler makes exp(l) - 1 on a CPU: 0 near l = 0.

    pytorch/pytorch#189803. Divided by the logarithm of the rounded exponential, the rounding cancels (Kahan).
    """
    power = below.exp()
    slope = (power - 1.0) / torch.where(power > 0.5, power.log(), below)  # smaller powers lose nothing, and may be 0
    return torch.where(power < 1.0, slope, torch.ones_like(slope))


def log_prob(x: Float[Tensor, "*B"], logits: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """ln p(x | logits) = x l - A(l) for x in [0, 1]; with a first derivative in the logits only.

    The slope x - E[x] is put in by hand: autograd's would take three times the passes over the pixels, and lose digits
    near l = 0.
    """
    fixed = logits.detach()
    # x l - max(l, 0) first: both are large far out, and their difference is exact at x = 0 and x = 1
    value = (x * fixed).sub_(fixed.clamp_min(0.0)).sub_(_log_partition_of_size(fixed))
    if not (torch.is_grad_enabled() and logits.requires_grad):
        return value
    return torch.addcmul(value, x - mean(fixed), logits - fixed)  # the value, with the slope


def mean(logits: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """E[x] = A'(l) = 1/2 + 1 / (2 tanh(l / 2)) - 1 / l, which is not lambda; a series takes over near l = 0."""
    square = logits.square()
    series = logits * (1.0 / 12.0 - square * (1.0 / 720.0 - square / 30240.0))
    small = square < _SMALL_LOGIT**2
    large = torch.where(small, torch.ones_like(logits), logits)
    return 0.5 + torch.where(small, series, 0.5 / (0.5 * large).tanh() - large.reciprocal())


def logit_of_mean(value: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """The logit l with E[x] = ``value``, the maximum likelihood of one logit for many x; by halving, as A' only rises."""
    low, high = torch.full_like(value, -_FARTHEST_LOGIT), torch.full_like(value, _FARTHEST_LOGIT)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        below = mean(middle) < value
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return 0.5 * (low + high)
