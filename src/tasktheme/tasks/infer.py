"""From data points to what a task becomes: its Dirichlet distribution over themes, the model as it is."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tasktheme import distributed
from tasktheme.data.dataset import Dataset
from tasktheme.data.episodes import Episodes
from tasktheme.data.given import count_tasks
from tasktheme.fitted import Fitted
from tasktheme.model.e_step import e_step
from tasktheme.model.themes import Themes
from tasktheme.settings import Settings
from tasktheme.tasks.taskset import TaskSet
from tasktheme.training.batches import embedded_batches
from tasktheme.training.embedding import EmbeddedTasks, SharedPoints
from tasktheme.training.polish import log_likelihoods


def infer_tasks(
    fitted: Fitted,
    settings: Settings,
    source: Dataset | Episodes,
    device: torch.device,
    *,
    points: SharedPoints | None = None,
    progress: bool = False,
) -> TaskSet:
    """Encoder, likelihoods and E-step, a batch of tasks after the other; of several processes each takes some of them."""
    gamma = np.zeros((count_tasks(source), len(fitted.themes.alpha)))
    converged, explained = np.zeros(len(gamma), dtype=np.bool_), np.zeros(len(gamma))
    for which, embedded in embedded_batches(fitted.networks, source, device, progress=progress, points=points):
        log_likelihood = theme_log_likelihood(fitted.themes, embedded)
        found = _posterior(settings, fitted.themes, log_likelihood, embedded.mask)
        gamma[which], converged[which] = found[0].double().cpu().numpy(), found[1].cpu().numpy()
        explained[which] = fitted.themes.explained(log_likelihood, embedded.mask).double().cpu().numpy()
    gamma, converged, explained = distributed.filled(gamma), distributed.filled(converged), distributed.filled(explained)
    if isinstance(source, Episodes):
        sizes = source.batch.mask.sum(dim=1).numpy()
        columns = {"group": source.groups(), "classes": [" ".join(names) for names in source.class_names()]}
    else:
        sizes, columns = source.counts, {"name": list(source.class_names)}
    prior = fitted.themes.alpha.double().cpu().numpy()
    return TaskSet(gamma, sizes, converged, columns, fitted.fingerprint, prior, explained, fitted.themes.aspects)


def theme_log_likelihood(themes: Themes, embedded: EmbeddedTasks) -> Float[Tensor, "T N K"]:
    """E_q(u)[ln N(u; mu_k, Sigma_k)] of each data point."""
    return log_likelihoods(themes, embedded.m.flatten(0, 1), embedded.s.flatten(0, 1)).unflatten(0, embedded.mask.shape)


def _posterior(
    settings: Settings, themes: Themes, log_likelihood: Float[Tensor, "T N K"], mask: Bool[Tensor, "T N"]
) -> tuple[Float[Tensor, "T K"], Bool[Tensor, " T"]]:
    """Gamma and convergence of a batch of tasks."""
    posterior = e_step(
        themes.by_aspect(log_likelihood),
        themes.prior,
        mask.unsqueeze(-2).expand(-1, themes.aspects, -1),
        iterations=settings.embed_iterations,
        tolerance=settings.embed_tolerance,
    )
    return posterior.gamma.flatten(-2), posterior.converged.all(dim=-1)
