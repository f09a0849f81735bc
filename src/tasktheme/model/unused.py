"""Themes that own next to nothing: which they are, and how one comes back to life as half of the largest."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tasktheme.model.m_step import isotropic
from tasktheme.model.themes import Covariance, Moments

_UNUSED = 0.1  # of the share that a theme would have if all were alike
_HALF_MEAN = math.sqrt(2.0 / math.pi)  # of the half of a standard normal on one side of its mean


def unused(share: Float[Tensor, " K"]) -> Bool[Tensor, " K"]:
    """Which themes have less than a tenth of 1 / K of the data points."""
    return share < _UNUSED / len(share)


def revive(found: Moments, *, covariance: Covariance) -> Moments:
    """Each unused theme becomes one half of the theme that is then the largest, cut through its mean across its widest axis.

    The halves have the moments of the two halves of a Gaussian, so together they are the theme that was cut, and the mass that
    the unused theme still had.
    """
    n, mu, Sigma = found.n.clone(), found.mu.clone(), found.Sigma.clone()
    for theme in unused(n / n.sum()).nonzero().flatten().tolist():
        largest = int(n.argmax())
        axis, variance = _widest(Sigma[largest])
        step = _HALF_MEAN * variance.sqrt() * axis
        mu[theme], mu[largest] = mu[largest] + step, mu[largest] - step
        Sigma[largest] -= step.square() if Sigma.ndim == 2 else torch.outer(step, step)
        Sigma[theme] = Sigma[largest]
        n[theme] = n[largest] = 0.5 * (n[theme] + n[largest])
    halved = Moments(n, mu, Sigma)
    return isotropic(halved) if covariance == "isotropic" else halved


def _widest(Sigma: Float[Tensor, " *DD"]) -> tuple[Float[Tensor, " D"], Float[Tensor, ""]]:
    """The direction of the largest variance, and that variance; of several alike the first."""
    if Sigma.ndim == 1:
        place = Sigma.argmax()
        return torch.nn.functional.one_hot(place, len(Sigma)).to(Sigma), Sigma[place]
    variances, axes = torch.linalg.eigh(Sigma)
    axis = axes[:, -1]
    return axis * torch.where(axis[axis.abs().argmax()] < 0.0, -1.0, 1.0), variances[-1]  # one sign on any machine
