"""Trainers on small data, sound or with a theme that is lost."""

from __future__ import annotations

import torch

from oracles.small import SMALL, small_vectors
from tasktheme.model.themes import Moments, Themes
from tasktheme.nets.build import Networks
from tasktheme.training.loop import Trainer


def small_trainer(device: str = "cpu", steps: int = 40, **changes: object) -> Trainer:
    """On vectors, without a final EM unless it is asked for."""
    settings, data, where = SMALL.changed({"polish_sweeps": 0, **changes}), small_vectors(), torch.device(device)
    return Trainer(settings, Networks(settings, data.point_shape, where), data, steps, where)


def lose_a_theme(value: Trainer) -> torch.Tensor:
    """Move theme 0 far from all data and take its mass; returns where it is now."""
    old = value.themes
    mu, n = old.mu.clone(), old.moments.n.clone()
    mu[0], n[0] = 1e3, 1e-6
    value.themes.assign(Themes.build(old.alpha, Moments(n / n.sum(), mu, old.moments.Sigma), floor=1e-4))
    return mu[0]
