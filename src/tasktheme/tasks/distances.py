"""Distances between tasks, all pairs at once: each takes (T1, K) and (T2, K) Dirichlet parameters and gives (T1, T2).

Of several aspects a row holds one Dirichlet distribution after the other, each of K / aspects parameters.
Whatever the formula, a task is at distance exactly 0 from an equal one: rounding does not part them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import rel_entr
from threadpoolctl import ThreadpoolController

from tasktheme.errors import DataError, SettingsError
from tasktheme.maths import dirichlet

if TYPE_CHECKING:
    from collections.abc import Callable

Floats = npt.NDArray[np.float64]
Direction = Literal["forward", "reverse", "symmetric"]

_BLOCK = 1 << 22  # numbers of the (rows, T2, K) arrays that some distances need at once


def check_direction(direction: str) -> None:
    """DataError unless it is one of the three."""
    if direction not in get_args(Direction):
        raise DataError(f"direction must be one of {', '.join(get_args(Direction))}, got {direction!r}")


def kl(gamma: Floats, other: Floats, direction: Direction = "forward", *, aspects: int = 1) -> Floats:
    """KL[i || j], "reverse" KL[j || i], or "symmetric" their mean, in nats."""
    check_direction(direction)
    if direction == "reverse":
        return np.ascontiguousarray(kl(other, gamma, aspects=aspects).T)
    if direction == "symmetric":
        return (kl(gamma, other, aspects=aspects) + kl(other, gamma, aspects=aspects).T) / 2.0
    left, right = (part.flatten(1) for part in dirichlet.kl_factors(by_aspect(gamma, aspects), by_aspect(other, aspects)))
    with one_blas_thread():
        distances: Floats = left.numpy() @ right.numpy().T  # numpy takes large pages for it: faster than torch here
    torch.from_numpy(distances).clamp_min_(0.0)
    return _with_zeros(distances, gamma, other)


def hellinger(gamma: Floats, other: Floats, *, aspects: int = 1) -> Floats:
    """Hellinger distance between the Dirichlet distributions, in [0, 1]; of several aspects the root mean square of theirs.

    That of the product of many distributions would be 1 for almost any two tasks.
    """
    second = by_aspect(other, aspects)

    def rows_to_all(rows: Floats) -> Floats:
        distance: Floats = dirichlet.hellinger(by_aspect(rows, aspects), second).square().mean(dim=-1).sqrt().numpy()
        return distance

    return _by_rows(gamma, other, rows_to_all)


def jensen_shannon(gamma: Floats, other: Floats, *, aspects: int = 1) -> Floats:
    """Square root of the Jensen-Shannon divergence of the mean mixtures, in [0, sqrt(ln 2)]: a metric.

    Between the Dirichlet distributions themselves there is no closed form. Of the means only, it does not see how certain
    a task is. Of several aspects the root mean square of theirs.
    """
    second = mean_mixture(other, aspects=aspects)

    def rows_to_all(rows: Floats) -> Floats:
        first = mean_mixture(rows, aspects=aspects)[:, None]
        middle = (first + second) / 2.0
        divergence = (rel_entr(first, middle) + rel_entr(second, middle)).sum(axis=-1) / 2.0
        distance: Floats = np.sqrt(np.maximum(divergence / aspects, 0.0))
        return distance

    return _by_rows(gamma, other, rows_to_all)


def earth_mover(gamma: Floats, other: Floats, ground: npt.ArrayLike, *, aspects: int = 1) -> Floats:
    """Earth mover's distance of the mean mixtures: the least work that turns one into the other.

    ``ground`` (K, K) is the cost of moving all of a task from one theme to another. Nothing moves between aspects; of several
    the root mean square of their distances.
    """
    cost, themes, each = np.asarray(ground, dtype=np.float64), gamma.shape[1], np.arange(aspects)
    square = cost.shape == (themes, themes)
    own = cost.reshape(aspects, themes // aspects, aspects, -1)[each, :, each] if square else cost
    if not square or not (np.isfinite(own).all() and (own >= 0.0).all()):
        raise DataError(f"the ground cost must be ({themes}, {themes}) numbers of at least 0, a row for each theme")
    first, second = (np.swapaxes(parts(mean_mixture(tasks, aspects=aspects), aspects), 0, 1) for tasks in (gamma, other))
    work = [_least_work(*of_aspect, same=gamma is other) for of_aspect in zip(first, second, own, strict=True)]
    return _with_zeros(np.sqrt(np.mean(np.square(work), axis=0)), gamma, other)


def _least_work(first: Floats, second: Floats, cost: Floats, *, same: bool) -> Floats:
    """(T, T') the work between mixtures of one aspect; ``same`` where both are of the same tasks."""
    transport = _load_transport()
    first, second, cost = map(np.ascontiguousarray, (first, second, cost))
    work = np.empty((len(first), len(second)))
    same = same and bool((cost == cost.T).all())
    for i, mixture in enumerate(first):  # the solver takes one problem at a time
        for j in range(i if same else 0, len(second)):
            work[i, j] = transport.emd2(mixture, second[j], cost, check_marginals=False)
        if same:
            work[i:, i] = work[i, i:]
    return np.maximum(work, 0.0)


def one_blas_thread() -> AbstractContextManager[Any]:
    """Keep numpy's products on one thread: ours are so thin that threads would mostly wait for each other."""
    return _blas().limit(limits=1)


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def mean_mixture(gamma: Floats, *, aspects: int = 1) -> Floats:
    """(T, K) expected share of each theme among those of its aspect."""
    each = parts(gamma, aspects)
    mixture: Floats = (each / each.sum(axis=-1, keepdims=True)).reshape(gamma.shape)
    return mixture


def parts(values: Floats, aspects: int) -> Floats:
    """(T, aspects, K / aspects) of (T, K) values."""
    return values.reshape(len(values), aspects, values.shape[1] // aspects)


def by_aspect(gamma: Floats, aspects: int) -> torch.Tensor:
    """(T, aspects, K / aspects) the parameters of each Dirichlet distribution."""
    return tensor(parts(gamma, aspects))


def tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """A tensor of the same numbers; torch has no read-only ones, so these are copied."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _load_transport() -> Any:
    import importlib

    try:
        return importlib.import_module("ot")
    except ImportError as error:
        raise SettingsError("the earth mover's distance needs pip install 'tasktheme[transport]'") from error


def _by_rows(gamma: Floats, other: Floats, distance: Callable[[Floats], Floats]) -> Floats:
    """A distance that needs (rows, T2, K) numbers, some rows at a time."""
    distances = np.empty((len(gamma), len(other)))
    for rows in _row_blocks(len(gamma), other.size):
        distances[rows] = distance(gamma[rows])
    return _with_zeros(distances, gamma, other)


def _row_blocks(count: int, each: int) -> Iterator[slice]:
    step = max(1, _BLOCK // max(1, each))
    for start in range(0, count, step):
        yield slice(start, start + step)


def _with_zeros(distances: Floats, gamma: Floats, other: Floats) -> Floats:
    """The same with an exact 0 for each pair of equal tasks; pairs are found by a sum of bits and then compared."""
    keys, other_keys = _key(gamma), _key(other)
    order = np.argsort(other_keys, kind="stable")
    first = np.searchsorted(other_keys[order], keys)
    known = np.flatnonzero(first < len(order))
    while len(known := known[other_keys[order[first[known]]] == keys[known]]):  # often never, once for tasks against themselves
        j = order[first[known]]
        equal = (gamma[known] == other[j]).all(axis=1)
        distances[known[equal], j[equal]] = 0.0
        first += 1  # the same task may occur several times
        known = known[first[known] < len(order)]
    return distances


def _key(gamma: Floats) -> npt.NDArray[np.uint64]:
    """The same number for equal rows, mostly different ones for others."""
    bits = np.ascontiguousarray(gamma).view(np.uint64)
    odd = np.arange(1, gamma.shape[1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1)
    key: npt.NDArray[np.uint64] = bits @ odd
    return key
