"""The E-step: a task's responsibilities r and Dirichlet posterior gamma, given the themes (Algorithm 1, Appendix B)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tasktheme.maths import dirichlet

_FEW_THEMES = 16  # below so many torch's soft-max along the last axis is up to ten times slower on a CPU than along another


@dataclass(frozen=True)
class TaskPosterior:
    """q(z) and q(pi) of a batch of tasks, and which of them met the tolerance (none, where there was none).

    Padded data points have no meaning in log_r: use the mask.
    """

    log_r: Float[Tensor, "*T N K"]
    gamma: Float[Tensor, "*T K"]
    converged: Bool[Tensor, "*T"]
    iterations: int


def responsibilities(log_likelihood: Float[Tensor, "*T N K"], gamma: Float[Tensor, "*T K"]) -> Float[Tensor, "*T N K"]:
    """ln r_ink, normalised over themes: ln r proportional to E[ln N(u; mu_k, Sigma_k)] + E[ln pi_k]."""
    weighted = log_likelihood + dirichlet.expected_log(gamma).unsqueeze(-2)
    if weighted.device.type == "cpu" and weighted.shape[-1] < _FEW_THEMES:
        return torch.log_softmax(weighted.mT.contiguous(), dim=-2).mT.contiguous()
    return torch.log_softmax(weighted, dim=-1)


def e_step(
    log_likelihood: Float[Tensor, "*T N K"],
    alpha: Float[Tensor, "... K"],
    mask: Bool[Tensor, "*T N"],
    *,
    iterations: int,
    tolerance: float | None = None,
) -> TaskPosterior:
    """Alternate r and gamma = alpha + sum_n r from gamma = alpha + N / K.

    A task stops when its mean change in gamma is below ``tolerance``, at the latest after ``iterations``; what becomes
    of it does not depend on the other tasks of the batch. With ``tolerance=None`` all iterations run and nothing is
    read back from the device. Returned is the last gamma with the r that it counts.
    """
    weight = mask.unsqueeze(-1).to(log_likelihood.dtype)
    gamma = alpha + weight.sum(dim=-2) / alpha.shape[-1]
    log_r = responsibilities(log_likelihood, gamma)
    converged = torch.zeros_like(mask[..., 0])
    done = 0
    while True:
        updated = alpha + (log_r.exp() * weight).sum(dim=-2)
        done += 1
        if tolerance is not None:
            converged = (updated - gamma).abs().mean(dim=-1) < tolerance
        gamma = updated
        if done >= iterations or (tolerance is not None and bool(converged.all())):
            return TaskPosterior(log_r, gamma, converged, done)
        again = responsibilities(log_likelihood, gamma)
        log_r = again if tolerance is None else torch.where(converged[..., None, None], log_r, again)  # keeps gamma too
