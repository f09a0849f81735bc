"""Exact search for the nearest tasks among very many: a matrix product in float32, the last step in float64.

KL between Dirichlets is the Bregman divergence of ln B, so around any centre c (three-point identity)

    KL[a || b] = KL[a || c] + KL[c || b] - (g(a) - g(c)) . (b - c),     g = E[ln pi]:

for a given task a, an inner product of a vector of a with a vector of b, and so with a and b exchanged, and so for the sum
of both. The reference's vectors are prepared once. A query then

1. takes the smallest float32 product of each group of neighbouring references, never keeping the products themselves;
2. keeps the groups, and in them the tasks, that rounding cannot rule out: with e a bound on the rounding of a product, the
   k-th smallest group minimum m gives k tasks at most m + e away, so that one of the k nearest has a product of at most m + 2 e;
3. computes these few distances in float64 and sorts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from tasktheme.maths import dirichlet
from tasktheme.tasks.distances import Direction, Floats, check_direction, one_blas_thread, tensor

Singles = npt.NDArray[np.float32]

_GROUP = 128  # references whose products are reduced to their minimum
_PRODUCTS = 1 << 17  # float32 products at once: they stay in the processor's cache
_MINIMA = 1 << 24  # group minima at once
_PREPARED = 1 << 18  # references prepared at once
_CANDIDATES = 1 << 22  # products and distances looked at again at once


@dataclass(frozen=True, eq=False)
class Nearest:
    """The k nearest reference tasks of each query, nearest first: indices and KL distances, both (queries, k)."""

    indices: npt.NDArray[np.int64]
    distances: Floats


@dataclass(frozen=True, eq=False)
class Index:
    """Reference tasks ``gamma`` (T, K) prepared for search in one direction.

    Forward is KL[query || reference], reverse KL[reference || query], symmetric their mean.
    """

    gamma: Floats
    direction: Direction
    aspects: int = 1

    def __post_init__(self) -> None:
        check_direction(self.direction)

    def nearest(self, query: Floats, k: int, *, numbers: npt.NDArray[np.int64] | None = None) -> Nearest:
        """The k nearest references of each query (Q, K); where ``numbers`` (Q,) say which references these are, others only."""
        itself = numbers is not None
        indices = np.empty((len(query), k), dtype=np.int64)
        distances = np.empty((len(query), k))
        left = self._left(query)
        slack = self._rounding(left)
        left32 = left.astype(np.float32)
        for rows in _blocks(len(query), max(1, _MINIMA // self._groups)):
            minima = self._minima(left32[rows])
            kth = min(k + itself, self._groups) - 1
            limit = np.partition(minima, kth, axis=1)[:, kth] + 2.0 * slack[rows]
            if k + itself > self._groups:
                limit[:] = np.inf  # fewer groups than neighbours: everything is looked at
            wanted = minima <= limit[:, None]
            for part in _runs(wanted.sum(axis=1), max(1, _CANDIDATES // _GROUP)):
                own = np.arange(rows.start + part.start, rows.start + part.stop)
                i, j = self._candidates(left32[own], wanted[part], limit[part])
                i = own[i]
                if numbers is not None:
                    other = numbers[i] != j
                    i, j = i[other], j[other]
                found = self._distances(query, i, j)
                order = np.lexsort((found, i))  # stable: of equal distances the lower reference first
                first = np.searchsorted(i[order], own)  # where each query's candidates begin
                best = order[first[:, None] + np.arange(k)]
                indices[own], distances[own] = j[best], found[best]
        return Nearest(indices, distances)

    @cached_property
    def _centre(self) -> torch.Tensor:
        return tensor(self.gamma.mean(axis=0, keepdims=True))

    @cached_property
    def _groups(self) -> int:
        return -(-len(self.gamma) // _GROUP)

    @cached_property
    def _right(self) -> Singles:
        """(M, T) the reference's vectors, padded to whole groups with references that are infinitely far."""
        rows = {"forward": 1, "reverse": 1, "symmetric": 2}[self.direction] * self.gamma.shape[1] + 1
        right = np.zeros((rows, self._groups * _GROUP), dtype=np.float32)
        right[-1, len(self.gamma) :] = np.inf
        c = self._centre
        g_c = self._expected_log(c)
        for part in _blocks(len(self.gamma), _PREPARED):
            b = tensor(self.gamma[part])
            parts = []
            if self.direction != "reverse":
                parts.append(b - c)
            if self.direction != "forward":
                parts.append(self._expected_log(b) - g_c)
            if self.direction == "forward":
                parts.append(self._paired_kl(c.expand_as(b), b)[:, None])
            elif self.direction == "reverse":
                parts.append(self._paired_kl(b, c.expand_as(b))[:, None])
            else:
                parts.append((parts[0] * parts[1]).sum(dim=1, keepdim=True))
            right[:, part] = torch.cat(parts, dim=1).numpy().T
        return right

    @cached_property
    def _largest(self) -> Floats:
        """(M,) the largest absolute value of each row of the reference's vectors."""
        own = self._right[:, : len(self.gamma)]
        return np.maximum(own.max(axis=1), -own.min(axis=1)).astype(np.float64)

    def _left(self, query: Floats) -> Floats:
        """(Q, M) the vectors whose products with the reference's rank it; symmetric distances are doubled."""
        a, c = tensor(query), self._centre
        parts = []
        if self.direction != "reverse":
            parts.append(self._expected_log(c) - self._expected_log(a))
        if self.direction != "forward":
            parts.append(c - a)
        parts.append(torch.ones_like(a[:, :1]))
        left: Floats = torch.cat(parts, dim=1).numpy()
        return left

    def _rounding(self, left: Floats) -> Floats:
        """(Q,) bound on the error of a product: a rounding for each number, product and sum."""
        terms = left.shape[1] + 3.0
        bound: Floats = 1.01 * terms * 2.0**-24 * (np.abs(left) @ self._largest)
        return bound

    def _minima(self, left: Singles) -> Singles:
        """(Q, groups) the smallest product of each group."""
        right = self._right
        minima = np.empty((len(left), self._groups), dtype=np.float32)
        step = max(1, _PRODUCTS // (_GROUP * len(left)))

        def fill(share: slice) -> None:
            for groups in _blocks(share.stop, step, share.start):
                products = left @ right[:, groups.start * _GROUP : groups.stop * _GROUP]
                np.minimum.reduce(products.reshape(len(left), -1, _GROUP), axis=2, out=minima[:, groups])

        shares = list(_blocks(self._groups, max(step, -(-self._groups // torch.get_num_threads()))))
        with one_blas_thread(), ThreadPoolExecutor(len(shares)) as pool:  # a share for each thread, none waits for another
            list(pool.map(fill, shares))
        return minima

    def _candidates(
        self, left: Singles, wanted: npt.NDArray[np.bool_], limit: Singles | Floats
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(query, reference) pairs of the wanted groups (Q, groups) whose product is within the limit (Q,)."""
        i, group = np.nonzero(wanted)
        blocks = self._right.reshape(len(self._right), self._groups, _GROUP)
        products = np.zeros((len(i), _GROUP), dtype=np.float32)
        for row, factor in zip(blocks, left.T, strict=True):
            products += row[group] * factor[i, None]
        near, place = np.nonzero((products <= limit[i, None]) & np.isfinite(products))
        return i[near], group[near] * _GROUP + place

    def _distances(self, query: Floats, i: npt.NDArray[np.int64], j: npt.NDArray[np.int64]) -> Floats:
        """The exact distances of pairs."""
        distances = np.empty(len(i))
        for part in _blocks(len(i), max(1, _CANDIDATES // query.shape[1])):
            a, b = tensor(query[i[part]]), tensor(self.gamma[j[part]])
            if self.direction == "forward":
                found = self._paired_kl(a, b)
            elif self.direction == "reverse":
                found = self._paired_kl(b, a)
            else:
                found = (self._paired_kl(a, b) + self._paired_kl(b, a)) / 2.0
            distances[part] = found.numpy()
        return distances

    def _expected_log(self, gamma: torch.Tensor) -> torch.Tensor:
        return dirichlet.expected_log(gamma.unflatten(1, (self.aspects, -1))).flatten(1)

    def _paired_kl(self, gamma: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        parts = (each.unflatten(1, (self.aspects, -1)) for each in (gamma, other))
        return dirichlet.paired_kl(*parts).sum(dim=-1)


def _blocks(stop: int, step: int, start: int = 0) -> Iterator[slice]:
    for begin in range(start, stop, step):
        yield slice(begin, min(begin + step, stop))


def _runs(counts: npt.NDArray[np.int64], most: int) -> Iterator[slice]:
    """Consecutive queries with at most so many candidates together, one query at least."""
    start, total = 0, 0
    for stop, count in enumerate(counts.tolist()):
        if total and total + count > most:
            yield slice(start, stop)
            start, total = stop, 0
        total += count
    yield slice(start, len(counts))
