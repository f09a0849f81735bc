"""Random numbers without state: a hash of (seed, stream, counters), the same on every device.

A task is a function of the seed and its number alone, so a run resumes at any task, and a CPU and a GPU draw the same
tasks. The mixing function is the finaliser of SplitMix64 (Steele, Lea & Flood, 2014), in wrapping int64 arithmetic.
Counters are tensors made beforehand: a compiler takes an arange for an index and does not wrap its products.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int64
from torch import Tensor

_64_BITS = (1 << 64) - 1


def _signed(value: int) -> int:
    """The 64 bits of ``value`` read as a signed integer, as torch stores them."""
    value &= _64_BITS
    return value - (1 << 64) if value >= 1 << 63 else value


_GOLDEN = 0x9E3779B97F4A7C15
_STREAM = 0xD1342543DE82EF95
_MULTIPLY = (_signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB))


def _mix(bits: Tensor) -> Tensor:
    for shift, multiplier in ((30, _MULTIPLY[0]), (27, _MULTIPLY[1])):
        bits = (bits ^ _logical_shift(bits, shift)) * multiplier
    return bits ^ _logical_shift(bits, 31)


def _logical_shift(bits: Tensor, shift: int) -> Tensor:
    return (bits >> shift) & ((1 << (64 - shift)) - 1)


def _key(seed: int, stream: int) -> int:
    """A number of its own for each seed and stream: unmixed, the next seed would be the same sequence one task later.

    The mixing of :func:`_mix` on plain integers, so that a compiler sees a constant.
    """
    bits = (seed + 1) * _GOLDEN + stream * _STREAM & _64_BITS
    for shift, multiplier in ((30, _MULTIPLY[0]), (27, _MULTIPLY[1])):
        bits = (bits ^ bits >> shift) * multiplier & _64_BITS
    return _signed(bits ^ bits >> 31)


def random_bits(seed: int, stream: int, *counters: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
    """Uniform integers in [0, 2^63), one for each broadcast combination of the counters."""
    first, *rest = counters
    state = _mix(first * _signed(_GOLDEN) + _key(seed, stream))
    for counter in rest:
        state = _mix(state + counter * _signed(_GOLDEN))
    return _logical_shift(state, 1)


def random_below(seed: int, stream: int, task: Int64[Tensor, "..."], limit: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
    """Uniform integers in [0, limit); the bias of the remainder is below limit / 2^63."""
    return random_bits(seed, stream, task) % limit


def random_order(
    seed: int, stream: int, task: Int64[Tensor, "*B"], size: Int64[Tensor, "*B"], *, slots: Int64[Tensor, " L"], take: int
) -> Int64[Tensor, "*B take"]:
    """The first ``take`` entries of a uniform random order of range(size); where size < take the rest is meaningless.

    ``slots`` is arange(largest size), ``take`` at most that size. Every entry gets a random key; the smallest keys win.
    """
    keys = random_bits(seed, stream, task.unsqueeze(-1), slots)
    keys = keys.masked_fill(slots >= size.unsqueeze(-1), torch.iinfo(torch.int64).max)
    return keys.topk(take, dim=-1, largest=False, sorted=True).indices


def random_normal(seed: int, stream: int, *counters: Int64[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Standard normal numbers, float32, one for each broadcast combination of the counters.

    Box and Muller (1958), from the upper and lower 31 bits of one hash.
    """
    bits = random_bits(seed, stream, *counters)
    radius = (-2.0 * (((bits >> 32).float() + 0.5) * 2.0**-31).log()).sqrt()
    angle = (bits & 0x7FFFFFFF).float() * (2.0 * math.pi * 2.0**-31)
    return radius * angle.cos()


def random_places(seed: int, given: int, count: int) -> npt.NDArray[np.int64]:
    """``count`` of so many ``given`` places, in order; all where there are no more."""
    return np.sort(np.random.default_rng(seed).permutation(given)[:count])
