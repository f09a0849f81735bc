"""Monte Carlo estimates straight from the definitions, and when a closed form agrees with one."""

from __future__ import annotations

import numpy as np
from scipy import stats

from oracles.plain import Array

_STANDARD_ERRORS = 5.0  # a correct value is further away about once in two million comparisons; seeds are fixed besides


def agrees(value: float, samples: Array) -> bool:
    """Whether ``value`` is the samples' mean to within their standard error, and that error tells anything at all."""
    error = samples.std() / np.sqrt(len(samples))
    assert error < 0.05 * max(1.0, abs(value)), "too few samples to judge"
    return bool(abs(value - samples.mean()) < _STANDARD_ERRORS * error)


def bound_samples(
    rng: np.random.Generator, u: Array, mu: Array, Sigma: Array, r: Array, gamma: Array, alpha: Array
) -> dict[str, Array]:
    """Samples of each term of one task's bound under q(u) q(z) q(pi), for samples ``u`` of shape (samples, N, D)."""
    samples, points, _ = u.shape
    pi = rng.dirichlet(gamma, size=samples)
    z = np.stack([rng.choice(len(gamma), size=samples, p=row) for row in r], axis=1)
    density = np.stack([stats.multivariate_normal(mu[k], Sigma[k]).logpdf(u) for k in range(len(gamma))], axis=-1)
    ln_pi = np.log(pi)
    return {
        "ln_p_u": np.take_along_axis(density, z[:, :, None], axis=2).sum(axis=(1, 2)),
        "ln_p_z": np.take_along_axis(ln_pi, z, axis=1).sum(axis=1),
        "ln_p_pi": stats.dirichlet(alpha).logpdf(pi.T),
        "entropy_z": -sum(np.log(r[n, z[:, n]]) for n in range(points)),
        "entropy_pi": -stats.dirichlet(gamma).logpdf(pi.T),
    }
