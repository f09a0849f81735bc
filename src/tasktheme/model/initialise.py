"""Where the themes start: a standard normal for the warm-up, a fitted mixture, or the paper's random start."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tasktheme.errors import DataError
from tasktheme.model.m_step import moments
from tasktheme.model.themes import Covariance, Moments

_RANDOM_SPREAD = 0.01  # the authors' start: mu = 0.01 eps, Sigma = 2 I
_RANDOM_VARIANCE = 2.0
_STARTS = 5  # mixtures have poor local optima: the best of a few starts is kept
_SKLEARN_NAME = {"full": "full", "diagonal": "diag", "isotropic": "spherical"}


def normal_moments(mu: Float[Tensor, "K D"], variance: float, *, covariance: Covariance) -> Moments:
    """Themes of equal share with the given means and covariance ``variance`` times the identity."""
    themes, _ = mu.shape
    Sigma = torch.full_like(mu, variance)
    return Moments(
        n=torch.full_like(mu[:, 0], 1.0 / themes), mu=mu, Sigma=torch.diag_embed(Sigma) if covariance == "full" else Sigma
    )


def random_moments(themes: int, dim: int, *, covariance: Covariance, generator: torch.Generator) -> Moments:
    """The paper's start: nearly identical themes around the origin."""
    mu = _RANDOM_SPREAD * torch.randn((themes, dim), generator=generator)
    return normal_moments(mu, _RANDOM_VARIANCE, covariance=covariance)


def mixture_moments(
    m: Float[Tensor, "N D"], s: Float[Tensor, "N D"], *, themes: int, covariance: Covariance, seed: int, iterations: int = 50
) -> Moments:
    """A Gaussian mixture fitted to embeddings; the final responsibilities give the moments, the spread s included."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    if len(m) < themes:
        raise DataError(f"{themes} themes need at least as many data points to start from, got {len(m)}")
    points = m.double().cpu().numpy()
    mixture = GaussianMixture(
        themes,
        covariance_type=_SKLEARN_NAME[covariance],
        reg_covar=1e-6 * float(np.mean(points.var(axis=0))) + np.finfo(np.float64).tiny,
        max_iter=iterations,
        n_init=_STARTS,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a start only: the training goes on from it
        mixture.fit(points)
    log_r = torch.from_numpy(np.log(mixture.predict_proba(points) + np.finfo(np.float64).tiny)).to(m)
    found = moments(m, s, log_r, torch.ones_like(m[:, 0], dtype=torch.bool), covariance=covariance)
    return Moments(found.n / found.n.sum(), found.mu, found.Sigma)
