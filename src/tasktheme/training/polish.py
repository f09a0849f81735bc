"""Full EM over a fixed set of embedded tasks: the batch form of the same model, with the encoder frozen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from tasktheme import distributed
from tasktheme.model.e_step import e_step
from tasktheme.model.initialise import cluster_moments
from tasktheme.model.m_step import combine, isotropic, moments, pooled, update_alpha
from tasktheme.model.themes import Moments, Themes
from tasktheme.settings import Settings
from tasktheme.training.embedding import EmbeddedTasks

_STARTING_POINTS = 20_000  # embeddings whose clusters the themes start from


def em_sweep(settings: Settings, themes: Themes, batches: Sequence[EmbeddedTasks]) -> Themes:
    """One E-step over all tasks and one full M-step: mu, Sigma and, where it is learned, alpha.

    ``batches`` are the process's share of the tasks; the M-step is over those of all.
    """
    found: Moments | None = None
    gammas = []
    for batch in batches:
        posterior = e_step(
            themes.expected_log_likelihood(batch.m, batch.s),
            themes.alpha,
            batch.mask,
            iterations=settings.e_step_iterations,
        )
        gammas.append(posterior.gamma)
        flat = (part.flatten(0, 1) for part in (batch.m, batch.s, posterior.log_r, batch.mask))
        local = moments(*flat, covariance=settings.covariance)
        found = local if found is None else combine(found, local, first_weight=1.0, second_weight=1.0)
    assert found is not None, "at least one batch"
    found = pooled(found)
    total = Moments(found.n / found.n.sum(), found.mu, found.Sigma)
    if settings.covariance == "isotropic":
        total = isotropic(total)
    alpha = (
        update_alpha(themes.alpha, distributed.gathered(torch.cat(gammas)), 1.0) if settings.learn_concentration else themes.alpha
    )
    return Themes.build(alpha, total, floor=settings.covariance_floor)


def polish(settings: Settings, themes: Themes, batches: Sequence[EmbeddedTasks], sweeps: int) -> Iterator[Themes]:
    """Yield the themes after each of ``sweeps`` full EM sweeps."""
    for _ in range(sweeps):
        themes = em_sweep(settings, themes, batches)
        yield themes


def start_themes(settings: Settings, batches: Sequence[EmbeddedTasks], *, sweeps: int) -> Themes:
    """Themes from clusters of embeddings, then ``sweeps`` full EM sweeps, from clusters to a mixture."""
    m, s = (torch.cat([distributed.gathered(getattr(batch, name)[batch.mask]) for batch in batches]) for name in ("m", "s"))
    some = slice(None, None, -(-len(m) // _STARTING_POINTS))
    found = cluster_moments(m[some], s[some], themes=settings.themes, covariance=settings.covariance, seed=settings.seed)
    distributed.from_leader(vars(found).values())  # processors of unlike kinds may round otherwise
    themes = Themes.build(torch.full_like(found.n, settings.concentration), found, floor=settings.covariance_floor)
    for swept in polish(settings, themes, batches, sweeps):
        themes = swept
    return themes
