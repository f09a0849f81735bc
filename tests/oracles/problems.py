"""Small random models with batches of embedded tasks, and the hypothesis settings that all property tests share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from oracles import plain
from oracles.plain import Array
from tasktheme.model.themes import Covariance, Moments, Themes

COVARIANCES: tuple[Covariance, ...] = ("full", "diagonal", "isotropic")
_PADDING = 50.0  # held by padded data points: far out, so that a forgotten mask shows

few = settings(max_examples=25, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)
covariances = st.sampled_from(COVARIANCES)


@dataclass(frozen=True)
class Problem:
    """T tasks embedded as N(m, diag(s^2)), padded to one size, and themes to read them with; all float64."""

    m: Tensor
    s: Tensor
    mask: Tensor
    mu: Tensor
    Sigma: Tensor
    alpha: Tensor

    def themes(self, *, floor: float = 0.0) -> Themes:
        moments = Moments(torch.full_like(self.alpha, 1.0 / len(self.alpha)), self.mu, self.Sigma)
        return Themes.build(self.alpha, moments, floor=floor)

    def log_likelihood(self) -> Tensor:
        """(T, N, K), padded data points included."""
        return self.themes().expected_log_likelihood(self.m, self.s)

    def tasks(self) -> Iterator[tuple[Array, Array]]:
        """m and s of each task without its padding."""
        for m, s, mask in zip(self.m, self.s, self.mask, strict=True):
            yield m[mask].numpy(), s[mask].numpy()

    def plain_log_likelihood(self) -> list[Array]:
        """(N_i, K) for each task, by the slow version."""
        mu, Sigma = self.mu.numpy(), self.Sigma.numpy()
        return [plain.expected_log_likelihood(m, s, mu, Sigma) for m, s in self.tasks()]

    def alone(self, task: int) -> Problem:
        """One task without its padding, as a batch of its own."""
        rows = self.mask[task]
        m, s, mask = (part[task][rows].unsqueeze(0) for part in (self.m, self.s, self.mask))
        return Problem(m, s, mask, self.mu, self.Sigma, self.alpha)


def make_problem(
    seed: int, covariance: Covariance = "full", *, sizes: Sequence[int] = (6, 3, 5), themes: int = 3, dim: int = 2
) -> Problem:
    """A random problem with tasks of the given sizes, whose data points lie around the themes."""
    rng = np.random.default_rng(seed)
    mask = np.arange(max(sizes)) < np.array(sizes)[:, None]
    factor = rng.normal(size=(themes, dim, dim))
    Sigma = plain.restrict(factor @ factor.transpose(0, 2, 1) / dim + 0.3 * np.eye(dim), covariance)
    mu = 2.0 * rng.normal(size=(themes, dim))
    m = mu[rng.integers(themes, size=mask.shape)] + rng.normal(size=(*mask.shape, dim))
    s = rng.uniform(0.1, 0.7, size=m.shape)
    m[~mask], s[~mask] = _PADDING, _PADDING
    alpha = rng.uniform(0.4, 2.0, size=themes)
    return Problem(*(torch.from_numpy(part) for part in (m, s, mask, mu, Sigma, alpha)))
