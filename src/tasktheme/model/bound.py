"""The evidence lower bound of a task, term by term (Appendix A)."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from tasktheme.maths import dirichlet


@dataclass(frozen=True)
class LdaBound:
    """The terms of E_q(u)[L_LDA], Eq. (6), each summed over a task's data points. Their sum is the bound."""

    ln_p_u: Float[Tensor, "*T"]
    ln_p_z: Float[Tensor, "*T"]
    ln_p_pi: Float[Tensor, "*T"]
    entropy_z: Float[Tensor, "*T"]
    entropy_pi: Float[Tensor, "*T"]

    def total(self) -> Float[Tensor, "*T"]:
        """L_LDA of each task."""
        return torch.stack([getattr(self, field.name) for field in fields(self)]).sum(dim=0)


def lda_bound(
    log_likelihood: Float[Tensor, "*T N K"],
    log_r: Float[Tensor, "*T N K"],
    gamma: Float[Tensor, "*T K"],
    alpha: Float[Tensor, "... K"],
    mask: Bool[Tensor, "*T N"],
) -> LdaBound:
    """Every term of E_q(u) E_q(z, pi)[...] for q(z) = Categorical(r), q(pi) = Dirichlet(gamma)."""
    r = log_r.exp() * mask.unsqueeze(-1)
    return LdaBound(
        ln_p_u=(r * log_likelihood).sum(dim=(-2, -1)),
        ln_p_z=(r.sum(dim=-2) * dirichlet.expected_log(gamma)).sum(dim=-1),
        ln_p_pi=dirichlet.expected_log_density(gamma, alpha),
        entropy_z=-(r * log_r).sum(dim=(-2, -1)),
        entropy_pi=dirichlet.entropy(gamma),
    )


def log_class_probability(
    t_embedding: Float[Tensor, "T Nt D"],
    t_labels: Int64[Tensor, "T Nt"],
    t_mask: Bool[Tensor, "T Nt"],
    v_embedding: Float[Tensor, "T Nv D"],
    *,
    ways: int,
    squared: bool,
) -> Float[Tensor, "T Nv C"]:
    """ln p(y | u) over the classes of each task: soft-max of negative distances to the class means of the t half.

    A prototypical network (Snell et al., 2017). The authors take the Euclidean distance (``squared=False``). A class
    without a data point in the t half gets probability zero.
    """
    classes = torch.arange(ways, device=t_labels.device)
    membership = ((t_labels.unsqueeze(-1) == classes) & t_mask.unsqueeze(-1)).to(t_embedding.dtype)  # (T, Nt, C)
    counts = membership.sum(dim=-2)  # (T, C)
    prototypes = (membership.mT @ t_embedding) / counts.clamp_min(1.0).unsqueeze(-1)
    difference = v_embedding.unsqueeze(-2) - prototypes.unsqueeze(-3)
    distance = difference.square().sum(dim=-1)
    if not squared:
        distance = (distance + torch.finfo(distance.dtype).eps).sqrt()  # the root's slope is infinite at 0
    distance = distance.masked_fill((counts == 0.0).unsqueeze(-2), torch.inf)
    return torch.log_softmax(-distance, dim=-1)
