"""The bi-level objective of one mini-batch: q(z, pi) from the t half, the loss and the themes' news from the v half."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tasktheme.data.episodes import EpisodeBatch
from tasktheme.maths import gaussian
from tasktheme.model.bound import lda_bound, log_class_probability
from tasktheme.model.e_step import e_step, responsibilities
from tasktheme.model.m_step import moments
from tasktheme.model.themes import Moments, Themes
from tasktheme.nets.build import Networks
from tasktheme.settings import Settings


@dataclass(frozen=True)
class Objective:
    """loss: to be minimised. terms: each term of the bound per data point, averaged over tasks, and the accuracy.

    evidence: what the themes learn from the mini-batch.
    """

    loss: Tensor
    terms: dict[str, Tensor]
    evidence: Evidence


@dataclass(frozen=True)
class Evidence:
    """Embeddings and responsibilities of the v half, and the tasks' posteriors gamma; without gradients.

    Of several aspects K is all their themes, and D all dimensions, which are dealt out in turn.
    """

    m: Float[Tensor, "T N D"]
    s: Float[Tensor, "T N D"]
    log_r: Float[Tensor, "T N K"]
    mask: Bool[Tensor, "T N"]
    gamma: Float[Tensor, "T K"]

    def of_aspect(self, aspect: int, aspects: int) -> Evidence:
        """What the themes of one aspect learn."""
        m, s = (part[..., aspect::aspects] for part in (self.m, self.s))
        log_r, gamma = (part.chunk(aspects, dim=-1)[aspect] for part in (self.log_r, self.gamma))
        return Evidence(m, s, log_r, self.mask, gamma)

    def moments(self, settings: Settings) -> Moments:
        """Per task where the settings update on local parameters, else of the whole mini-batch."""
        parts = [self.m, self.s, self.log_r, self.mask]
        if settings.update == "statistics":
            parts = [part.flatten(0, 1) for part in parts]
        return moments(*parts, covariance=settings.covariance)


def objective(
    settings: Settings,
    themes: Themes,
    networks: Networks,
    data: Tensor,
    t: EpisodeBatch,
    v: EpisodeBatch,
    noise: Tensor,
) -> Objective:
    """L(u^(v), q*(z, pi)) of Eq. (9), with q* the maximiser on the t half, for a batch of tasks.

    ``noise`` (T, N, D) is standard normal: it draws u of the v half for the reconstruction.
    """
    encoder, decoder = networks.encoder, networks.decoder
    labelled = settings.classification_weight > 0.0 and decoder is not None
    if settings.validation_responsibilities == "reused":  # row by row: a row without a partner in the t half drops out
        v = EpisodeBatch(v.rows, v.labels, v.mask & t.mask)
    x_v = data[v.rows]
    with networks.products(settings.precision):
        with torch.set_grad_enabled(labelled and torch.is_grad_enabled()):
            m_t, s_t = encoder(data[t.rows], t.mask)
        m_v, s_v = encoder(x_v, v.mask)

    t_mask, v_mask = (half.mask.unsqueeze(1).expand(-1, themes.aspects, -1) for half in (t, v))
    with torch.no_grad():
        likelihood_t = themes.by_aspect(themes.expected_log_likelihood(m_t, s_t))
        posterior = e_step(likelihood_t, themes.prior, t_mask, iterations=settings.e_step_iterations)
    log_likelihood = themes.by_aspect(themes.expected_log_likelihood(m_v, s_v))
    if settings.validation_responsibilities == "reused":
        log_r = posterior.log_r
    else:  # the exact maximiser over r given gamma, so no gradient flows through it (envelope theorem)
        log_r = responsibilities(log_likelihood.detach(), posterior.gamma)

    points = v.mask.sum(dim=-1).clamp_min(1)
    lda = lda_bound(log_likelihood, log_r, posterior.gamma, themes.prior, v_mask)
    bound = lda.total().sum(dim=1) / points
    terms = {name: value.sum(dim=1) / points for name, value in vars(lda).items()}  # of each task, all aspects together
    if decoder is None:
        loss = -bound.mean()
    else:
        entropy_u = _mean_over_points(gaussian.diagonal_entropy(s_v), v.mask, points)
        with networks.products(settings.precision):
            density = decoder.log_prob(m_v + s_v * noise, x_v, v.mask)
        ln_p_x = _mean_over_points(density, v.mask, points)
        weighted = settings.bound_weight * (bound + entropy_u) + ln_p_x
        loss = -weighted.mean() / decoder.dimensions
        terms |= {"entropy_u": entropy_u, "ln_p_x": ln_p_x}
    if labelled:
        log_p = log_class_probability(m_t, t.labels, t.mask, m_v, ways=settings.ways[1], squared=settings.squared_distance)
        ln_p_y = _mean_over_points(log_p.gather(-1, v.labels.unsqueeze(-1)).squeeze(-1), v.mask, points)
        right = (log_p.argmax(dim=-1) == v.labels).to(log_p.dtype)
        loss = loss - settings.classification_weight * ln_p_y.mean()
        terms |= {"ln_p_y": ln_p_y, "accuracy": _mean_over_points(right, v.mask, points)}

    of_all_themes = log_r.movedim(1, 2).flatten(2)
    evidence = Evidence(m_v.detach(), s_v.detach(), of_all_themes, v.mask, posterior.gamma.flatten(1))
    means = torch.stack(list(terms.values())).detach().mean(dim=-1)
    return Objective(loss, dict(zip(terms, means.unbind(), strict=True)), evidence)


def _mean_over_points(value: Tensor, mask: Tensor, points: Tensor) -> Tensor:
    return torch.where(mask, value, torch.zeros_like(value)).sum(dim=-1) / points
