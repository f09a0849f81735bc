"""Closed forms for Gaussian themes, batched over data points, with q(u) = N(m, diag(s^2)).

A theme's covariance is given by its ``whitening``: (K, D, D) inverse Cholesky factors L^-1 for full covariances, or
(K, D) inverse standard deviations for diagonal ones.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

_LOG_2PI = math.log(2.0 * math.pi)


def whitening(scale_tril: Float[Tensor, "K *DD"]) -> Float[Tensor, "K *DD"]:
    """L^-1 for lower triangular factors L of full covariances, 1 / scale for standard deviations."""
    if scale_tril.ndim == 2:
        return scale_tril.reciprocal()
    identity = torch.eye(scale_tril.shape[-1], dtype=scale_tril.dtype, device=scale_tril.device)
    return torch.linalg.solve_triangular(scale_tril, identity.expand_as(scale_tril), upper=False)


def expected_log_likelihood(
    m: Float[Tensor, "*N D"],
    s: Float[Tensor, "*N D"],
    mu: Float[Tensor, "K D"],
    whitening: Float[Tensor, "K *DD"],
) -> Float[Tensor, "*N K"]:
    """E_q(u)[ln N(u; mu_k, Sigma_k)] = -1/2 tr(Sigma_k^-1 diag(s^2)) + ln N(m; mu_k, Sigma_k), Appendix A.

    q(u) is diagonal, so the trace needs only the diagonal of Sigma_k^-1: N K D work. Whitening by the Cholesky factor
    does the rest as one product. Nothing of shape (N, K, D, D) is built.
    """
    if whitening.ndim == 2:
        quadratic, log_det = _diagonal_quadratic(m, s, mu, whitening)
    else:
        quadratic, log_det = _full_quadratic(m, s, mu, whitening)
    return log_det - 0.5 * (quadratic + m.shape[-1] * _LOG_2PI)


def _full_quadratic(m: Tensor, s: Tensor, mu: Tensor, whitening: Tensor) -> tuple[Tensor, Tensor]:
    themes, dim = mu.shape
    origin = mu.mean(dim=0)  # subtracting the themes' centre first keeps a common offset from cancelling
    offset = (whitening @ (mu - origin).unsqueeze(-1)).squeeze(-1)  # (K, D), L^-1 (mu - origin)
    whitened = ((m - origin) @ whitening.reshape(themes * dim, dim).mT).unflatten(-1, (themes, dim)) - offset
    precision_diagonal = whitening.square().sum(dim=-2)  # (K, D), the diagonal of Sigma^-1
    quadratic = whitened.square().sum(dim=-1) + s.square() @ precision_diagonal.mT
    return quadratic, whitening.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)


def _diagonal_quadratic(m: Tensor, s: Tensor, mu: Tensor, whitening: Tensor) -> tuple[Tensor, Tensor]:
    whitened = (m.unsqueeze(-2) - mu) * whitening  # (..., K, D); expanding the square would be one product, but cancels
    quadratic = whitened.square().sum(dim=-1) + s.square() @ whitening.square().mT
    return quadratic, whitening.log().sum(dim=-1)


def diagonal_entropy(s: Float[Tensor, "*N D"]) -> Float[Tensor, "*N"]:
    """Entropy of q(u) = N(m, diag(s^2)): sum_d (ln s_d + (1 + ln 2 pi) / 2), the term -E[ln q(u)] of Eq. (4)."""
    return s.log().sum(dim=-1) + 0.5 * s.shape[-1] * (1.0 + _LOG_2PI)


def wasserstein(mu: Float[Tensor, "K D"], factor: Float[Tensor, "K *DD"]) -> Float[Tensor, "K K"]:
    """2-Wasserstein distance between all pairs of Gaussians N(mu_k, Sigma_k); exactly 0 from each to itself.

    ``factor`` is any (K, D, R) with Sigma = F F', such as Cholesky factors, or (K, D) standard deviations.
    W^2 = |mu_i - mu_j|^2 + tr(Sigma_i) + tr(Sigma_j) - 2 tr((Sigma_i^1/2 Sigma_j Sigma_i^1/2)^1/2), and the last trace is
    the sum of the singular values of F_i' F_j: no square root of a matrix is needed.
    """
    means = (mu[:, None] - mu).square().sum(dim=-1)
    if factor.ndim == 2:
        return (means + (factor[:, None] - factor).square().sum(dim=-1)).sqrt()
    trace = factor.square().sum(dim=(-2, -1))
    shared = torch.zeros_like(means)
    for k in range(len(mu) - 1):  # each pair once
        shared[k, k + 1 :] = torch.linalg.svdvals(factor[k].mT @ factor[k + 1 :]).sum(dim=-1)
    spread = (trace[:, None] + trace) - 2.0 * (shared + shared.mT)
    return (means + spread).clamp_min(0.0).sqrt().fill_diagonal_(0.0)
