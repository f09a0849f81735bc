"""The M-step: themes from responsibilities (Appendix B), and its online forms (the paper's online update)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from tasktheme import distributed
from tasktheme.maths import dirichlet
from tasktheme.model.themes import Covariance, Moments

_LARGEST_SHRINK = 0.9  # a Newton step may take at most this part of any alpha_k, so that alpha stays positive
_NOTHING = 1e-30  # mass of a theme that owns nothing anywhere: its local means then count alike


def moments(
    m: Float[Tensor, "*B N D"],
    s: Float[Tensor, "*B N D"],
    log_r: Float[Tensor, "*B N K"],
    mask: Bool[Tensor, "*B N"] | None = None,
    *,
    covariance: Covariance,
) -> Moments:
    """Mean and covariance of each theme over the N data points of each batch entry (Appendix B: mu_k and Sigma_k).

    The responsibilities, or their sums over the tasks that a data point is in (:func:`log_sum_over_tasks`), are normalised
    over data points in log space, so a theme that owns almost nothing still has a finite local mean; its mass n tells how
    little that mean is worth.
    """
    if mask is not None:
        log_r = log_r.masked_fill(~mask.unsqueeze(-1), -torch.inf)
    n = log_r.exp().sum(dim=-2)
    weight = torch.softmax(log_r, dim=-2)  # (..., N, K), sums to one over the data points
    mu = weight.mT @ m
    spread = weight.mT @ s.square()  # (..., K, D), the encoder's own uncertainty
    centred = (m.unsqueeze(-3) - mu.unsqueeze(-2)) * weight.mT.sqrt().unsqueeze(-1)  # (..., K, N, D)
    if covariance == "full":
        return Moments(n, mu, centred.mT @ centred + torch.diag_embed(spread))
    found = Moments(n, mu, centred.square().sum(dim=-2) + spread)
    return isotropic(found) if covariance == "isotropic" else found


def log_sum_over_tasks(
    log_r: Float[Tensor, "T N K"], place: Int64[Tensor, "T N"], mask: Bool[Tensor, "T N"], *, points: int
) -> Float[Tensor, "U K"]:
    """ln of the sum of r over the tasks that each of U = ``points`` data points is in, at its ``place`` in each of them.

    The M-step is linear in r: with these sums it needs a shared data point once. They are taken as parts of each theme's mass,
    so that a theme that owns almost nothing does not vanish.
    """
    log_r = log_r.masked_fill(~mask.unsqueeze(-1), -torch.inf).flatten(0, 1)
    mass = torch.logsumexp(log_r, dim=0)
    part = (log_r - mass).exp()
    # in the order of the tasks on a CPU; in any order, and so to rounding only, on a GPU
    total = part.new_zeros((points, part.shape[-1])).index_add_(0, place.flatten(), part)
    return total.log() + mass


def combine(first: Moments, second: Moments, *, first_weight: Tensor | float, second_weight: Tensor | float) -> Moments:
    """The moments of two sets of data points together, each set's mass scaled by its weight.

    Equal to adding the weighted sums of r, r m and r (m m' + diag s^2) and normalising, without their cancellation.
    """
    n_first, n_second = first_weight * first.n, second_weight * second.n
    n = n_first + n_second
    part = (n_second / n.clamp_min(torch.finfo(n.dtype).tiny)).unsqueeze(-1)  # 0 for a theme with no mass at all
    step = second.mu - first.mu
    mu = first.mu + part * step
    if first.Sigma.ndim == first.mu.ndim:
        between = step.square()
    else:
        between = step.unsqueeze(-1) * step.unsqueeze(-2)
        part = part.unsqueeze(-1)
    Sigma = (1.0 - part) * first.Sigma + part * second.Sigma + part * (1.0 - part) * between
    return Moments(n, mu, Sigma)


def pooled(own: Moments) -> Moments:
    """The moments of all processes' data points together, from the process's own ones.

    First the masses and the sums of r m are added up, then the covariances around the common means: the same as
    :func:`combine`, for any number of parts at once.
    """
    if distributed.world() == 1:
        return own
    mass = own.n.clamp_min(_NOTHING)
    n, total = distributed.summed([mass, mass.unsqueeze(-1) * own.mu])
    mu = total / n.unsqueeze(-1)
    part, step = (mass / n).unsqueeze(-1), own.mu - mu
    if own.Sigma.ndim == own.mu.ndim:
        between = step.square()
    else:
        between = step.unsqueeze(-1) * step.unsqueeze(-2)
        part = part.unsqueeze(-1)
    [Sigma] = distributed.summed([part * (own.Sigma + between)])
    return Moments(n, mu, Sigma)


def pooled_over_tasks(local: Moments, weight: float) -> Moments:
    """Moments of single tasks, with a leading task dimension, replaced by their mean over all processes' tasks.

    ``weight`` is the process's part of all tasks.
    """
    if distributed.world() == 1:
        return local
    parts = distributed.summed([part.mean(dim=0, keepdim=True) for part in (local.n, local.mu, local.Sigma)], weight)
    return Moments(*parts)


def isotropic(value: Moments) -> Moments:
    """Average the variances over dimensions: combining isotropic moments adds the spread of their means unevenly."""
    return Moments(value.n, value.mu, value.Sigma.mean(dim=-1, keepdim=True).expand_as(value.Sigma).clone())


def shrunk(found: Moments, weight: float) -> Moments:
    """Covariances that maximise the bound plus the log-density of an inverse-Wishart prior around what they have in common.

    Sigma_k becomes the average of itself and of the mean covariance of data points inside their themes, the latter counting as
    ``weight`` times all data points (docs/decisions.md, "Covariances with a prior").
    """
    share = found.n / found.n.sum(dim=-1, keepdim=True)
    common = torch.tensordot(share, found.Sigma, dims=1)
    part = weight / (weight + share)
    return Moments(found.n, found.mu, torch.lerp(found.Sigma, common, part.view(-1, *[1] * common.ndim)))


def online_statistics(old: Moments, batch: Moments, rho: Tensor | float, *, covariance: Covariance) -> Moments:
    """Online EM on sufficient statistics (Cappe & Moulines, 2009): a theme moves by what it owns of the batch.

    See docs/decisions.md, "Sufficient statistics instead of local parameters". With rho = 1 and all tasks in the batch
    this is the full M-step.
    """
    share = Moments(batch.n / batch.n.sum(dim=-1, keepdim=True), batch.mu, batch.Sigma)
    updated = combine(old, share, first_weight=1.0 - rho, second_weight=rho)
    return isotropic(updated) if covariance == "isotropic" else updated


def online_parameters(old: Moments, local: Moments, rho: Tensor | float) -> Moments:
    """The paper's mini-batch update: the mean over tasks of the tasks' own mu and Sigma, all with equal weight.

    ``local`` has a leading task dimension. The mass is tracked alike, for reports only.
    """
    n = local.n.sum(dim=0)
    n = (1.0 - rho) * old.n + rho * n / n.sum(dim=-1, keepdim=True)
    mu = (1.0 - rho) * old.mu + rho * local.mu.mean(dim=0)
    Sigma = (1.0 - rho) * old.Sigma + rho * local.Sigma.mean(dim=0)
    return Moments(n, mu, Sigma)


def update_alpha(alpha: Float[Tensor, " K"], gamma: Float[Tensor, "T K"], rho: Tensor | float) -> Float[Tensor, " K"]:
    """alpha - rho H^-1 g (the paper's online update), the step shortened where it would take alpha_k near zero."""
    step = rho * dirichlet.newton_step(alpha, dirichlet.expected_log(gamma).mean(dim=0))
    room = torch.where(step > 0.0, _LARGEST_SHRINK * alpha / step.clamp_min(torch.finfo(step.dtype).tiny), torch.inf)
    return alpha - step * room.min().clamp_max(1.0)
