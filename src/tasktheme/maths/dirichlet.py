"""Closed forms for Dirichlet distributions, batched over leading dimensions.

Symbols as in the paper: ``alpha`` and ``gamma`` are concentrations of shape (..., K).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def expected_log(gamma: Float[Tensor, "*B K"]) -> Float[Tensor, "*B K"]:
    """E[ln pi_k] under Dirichlet(gamma): digamma(gamma_k) - digamma(sum_j gamma_j), Appendix A (ln pi tilde)."""
    return torch.digamma(gamma) - torch.digamma(gamma.sum(dim=-1, keepdim=True))


def log_normaliser(gamma: Float[Tensor, "*B K"]) -> Float[Tensor, "*B"]:
    """ln B(gamma) = sum_k ln Gamma(gamma_k) - ln Gamma(sum_k gamma_k), the log multivariate beta function."""
    return torch.lgamma(gamma).sum(dim=-1) - torch.lgamma(gamma.sum(dim=-1))


def expected_log_density(gamma: Float[Tensor, "*B K"], alpha: Float[Tensor, "*#B K"]) -> Float[Tensor, "*B"]:
    """E_q[ln Dirichlet(pi; alpha)] with q = Dirichlet(gamma): Appendix A, the term of p(pi | alpha)."""
    return ((alpha - 1.0) * expected_log(gamma)).sum(dim=-1) - log_normaliser(alpha)


def entropy(gamma: Float[Tensor, "*B K"]) -> Float[Tensor, "*B"]:
    """Differential entropy of Dirichlet(gamma), the paper's task uncertainty; nats, may be negative."""
    return -expected_log_density(gamma, gamma)


def kl_divergence(gamma: Float[Tensor, "T1 K"], other: Float[Tensor, "T2 K"]) -> Float[Tensor, "T1 T2"]:
    """KL[Dirichlet(gamma_i) || Dirichlet(other_j)] for all pairs, as one matrix product.

    Rounding can leave values of the order of the machine precision times the terms of the product, of either sign; they are
    cut off at zero. Use float64 where small distances matter.
    """
    left, right = kl_factors(gamma, other)
    return (left @ right.mT).clamp_min(0.0)


def kl_factors(
    gamma: Float[Tensor, "T1 *A K"], other: Float[Tensor, "T2 *A K"]
) -> tuple[Float[Tensor, "T1 *A K+2"], Float[Tensor, "T2 *A K+2"]]:
    """The two sides of the product that is KL, row by row.

    KL = (gamma_i . g_i - ln B(gamma_i)) + ln B(other_j) - other_j . g_i   with g_i = E[ln pi] under gamma_i.
    """
    g = expected_log(gamma)
    own = (gamma * g).sum(dim=-1, keepdim=True) - log_normaliser(gamma)[..., None]
    left = torch.cat([-g, torch.ones_like(own), own], dim=-1)
    right = torch.cat([other, log_normaliser(other)[..., None], torch.ones_like(other[..., :1])], dim=-1)
    return left, right


def paired_kl(gamma: Float[Tensor, "*B K"], other: Float[Tensor, "*B K"]) -> Float[Tensor, "*B"]:
    """KL[Dirichlet(gamma_i) || Dirichlet(other_i)] of pairs: ln B(other) - ln B(gamma) - (other - gamma) . g.

    This is the Bregman divergence of ln B, whose gradient is g. It is exactly 0 where the two are equal.
    """
    slope = ((other - gamma) * expected_log(gamma)).sum(dim=-1)
    kl = (log_normaliser(other) - log_normaliser(gamma) - slope).clamp_min(0.0)
    return torch.where((gamma == other).all(dim=-1), 0.0, kl)


def hellinger(gamma: Float[Tensor, "T1 *A K"], other: Float[Tensor, "T2 *A K"]) -> Float[Tensor, "T1 T2 *A"]:
    """Hellinger distance in [0, 1] between Dirichlet(gamma_i) and Dirichlet(other_j), for all pairs.

    H^2 = 1 - B((gamma_i + other_j) / 2) / sqrt(B(gamma_i) B(other_j)).
    """
    between = log_normaliser((gamma[:, None] + other) / 2.0)
    ends = (log_normaliser(gamma)[:, None] + log_normaliser(other)) / 2.0
    return (-torch.expm1(between - ends)).clamp_min(0.0).sqrt()


def newton_step(alpha: Float[Tensor, " K"], mean_expected_log: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
    """H^-1 g of the bound with respect to alpha, per task (Appendix B, maximum likelihood for alpha).

    ``mean_expected_log`` is the mean over tasks of E[ln pi] under q; the number of tasks cancels. The Hessian is a
    diagonal plus a constant, so its inverse costs K (Minka, 2000). In float64: for large alpha the two nearly cancel.
    """
    if alpha.shape[-1] == 1:
        return torch.zeros_like(alpha)  # a mixture of one theme is certain: the bound does not depend on alpha
    kind, alpha, mean_expected_log = alpha.dtype, alpha.double(), mean_expected_log.double()
    total = alpha.sum(dim=-1, keepdim=True)
    g = torch.digamma(total) - torch.digamma(alpha) + mean_expected_log
    q = -torch.polygamma(1, alpha)
    a = torch.polygamma(1, total)
    b = (g / q).sum(dim=-1, keepdim=True) / (1.0 / a + (1.0 / q).sum(dim=-1, keepdim=True))
    return ((g - b) / q).to(kind)
