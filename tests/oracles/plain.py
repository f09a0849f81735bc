"""Slow, obvious versions of the model, from its definitions: float64 numpy, one task at a time, loops, dense covariances."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import torch
from scipy import special, stats

Array = npt.NDArray[np.float64]


def dense(Sigma: Array) -> Array:
    """(K, D, D) covariances, from themselves or from (K, D) variances."""
    return Sigma if Sigma.ndim == 3 else np.array([np.diag(variances) for variances in Sigma])


def restrict(Sigma: Array, covariance: str) -> Array:
    """(K, D, D) covariances as the named structure keeps them: whole, their diagonal, or its average."""
    if covariance == "full":
        return Sigma
    diagonal = np.array([np.diag(one) for one in Sigma])
    return diagonal if covariance == "diagonal" else np.array([np.full(len(one), one.mean()) for one in diagonal])


def expected_log_likelihood(m: Array, s: Array, mu: Array, Sigma: Array) -> Array:
    """(N, K) E[ln N(u; mu_k, Sigma_k)] with u ~ N(m, diag(s^2)): the mean of the log density over points around m.

    A log Gaussian density is quadratic in u, so its mean over the 2 D points m +- sqrt(D) s_d e_d is exact.
    """
    points, dim = m.shape
    result = np.empty((points, len(mu)))
    for k, covariance in enumerate(dense(Sigma)):
        theme = stats.multivariate_normal(mu[k], covariance)
        for n in range(points):
            steps = np.sqrt(dim) * np.diag(s[n])
            result[n, k] = np.mean(theme.logpdf(np.concatenate([m[n] + steps, m[n] - steps])))
    return result


def expected_log_mixture(gamma: Array) -> Array:
    """(K,) E[ln pi_k] under Dirichlet(gamma)."""
    return np.array([special.digamma(value) - special.digamma(sum(gamma)) for value in gamma])


def dirichlet_kl(gamma: Array, other: Array) -> float:
    """KL between two Dirichlet distributions, by torch's own distributions."""
    first, second = (torch.distributions.Dirichlet(torch.as_tensor(value)) for value in (gamma, other))
    return float(torch.distributions.kl_divergence(first, second))


def responsibilities(log_likelihood: Array, gamma: Array) -> Array:
    """(N, K) r of one task, each data point normalised by itself."""
    ln_pi = expected_log_mixture(gamma)
    r = np.empty_like(log_likelihood)
    for n, row in enumerate(log_likelihood):
        r[n] = [1.0 / sum(np.exp(row[j] + ln_pi[j] - row[k] - ln_pi[k]) for j in range(len(gamma))) for k in range(len(gamma))]
    return r


def e_step(log_likelihood: Array, alpha: Array, iterations: int) -> tuple[Array, Array]:
    """r and gamma of one task after some iterations from gamma = alpha + N / K."""
    points, themes = log_likelihood.shape
    gamma = alpha + points / themes
    r = np.empty_like(log_likelihood)
    for _ in range(iterations):
        r = responsibilities(log_likelihood, gamma)
        gamma = np.array([alpha[k] + sum(r[n, k] for n in range(points)) for k in range(themes)])
    return r, gamma


def m_step(m: Array, s: Array, r: Array) -> tuple[Array, Array, Array]:
    """Mass, mean and full covariance of each theme over the data points given."""
    themes, dim = r.shape[1], m.shape[1]
    mass, mu, Sigma = np.zeros(themes), np.zeros((themes, dim)), np.zeros((themes, dim, dim))
    for k in range(themes):
        mass[k] = sum(r[n, k] for n in range(len(m)))
        mu[k] = sum(r[n, k] * m[n] for n in range(len(m))) / mass[k]
        spread = [np.outer(m[n] - mu[k], m[n] - mu[k]) + np.diag(s[n] ** 2) for n in range(len(m))]
        Sigma[k] = sum(r[n, k] * spread[n] for n in range(len(m))) / mass[k]
    return mass, mu, Sigma


def bound_terms(log_likelihood: Array, r: Array, gamma: Array, alpha: Array) -> dict[str, float]:
    """Every term of one task's LDA bound, by name."""
    entropy_pi = float(stats.dirichlet(gamma).entropy())
    ln_pi = expected_log_mixture(gamma)
    pairs = list(itertools.product(range(len(r)), range(len(gamma))))
    return {
        "ln_p_u": sum(r[n, k] * log_likelihood[n, k] for n, k in pairs),
        "ln_p_z": sum(r[n, k] * ln_pi[k] for n, k in pairs),
        "ln_p_pi": -entropy_pi - dirichlet_kl(gamma, alpha),
        "entropy_z": sum(float(stats.entropy(row)) for row in r),
        "entropy_pi": entropy_pi,
    }


def log_evidence(u: Array, mu: Array, Sigma: Array, alpha: Array) -> float:
    """ln p(u) of one task with certain embeddings: the sum over all K^N assignments z, each p(z) drawn as from Polya's urn."""
    themes = [stats.multivariate_normal(*theme) for theme in zip(mu, Sigma, strict=True)]
    density = [[theme.pdf(point) for theme in themes] for point in u]
    evidence = 0.0
    for z in itertools.product(range(len(alpha)), repeat=len(u)):
        urn, joint = alpha.copy(), 1.0
        for n, k in enumerate(z):
            joint *= urn[k] / urn.sum() * density[n][k]
            urn[k] += 1.0
        evidence += joint
    return float(np.log(evidence))


def log_class_probability(t: Array, t_labels: npt.NDArray[np.int64], v: Array, ways: int, *, squared: bool) -> Array:
    """(Nv, C) ln p(y | u) of one task; a class that is not in the t half has probability zero."""
    result = np.full((len(v), ways), -np.inf)
    present = [c for c in range(ways) if c in t_labels]
    for n, point in enumerate(v):
        distance = [np.linalg.norm(point - t[t_labels == c].mean(axis=0)) for c in present]
        result[n, present] = special.log_softmax([-(d**2) if squared else -d for d in distance])
    return result
