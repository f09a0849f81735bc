"""Where the themes start: a standard normal for the warm-up, clusters of embeddings, or the paper's random start."""

from __future__ import annotations

import warnings

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from tasktheme.errors import DataError
from tasktheme.model.m_step import moments
from tasktheme.model.themes import Covariance, Moments

_RANDOM_SPREAD = 0.01  # the authors' start: mu = 0.01 eps, Sigma = 2 I
_RANDOM_VARIANCE = 2.0
STARTS = 10  # k-means has poor local optima: the best of a few starts is kept


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


def cluster_moments(
    m: Float[Tensor, "N D"], s: Float[Tensor, "N D"], *, themes: int, covariance: Covariance, seed: int, starts: int = STARTS
) -> Moments:
    """Themes at the centres of k-means clusters, all with the average covariance inside the clusters.

    The start of a mixture: EM sweeps tell the covariances apart. A covariance of its own for each cluster would let
    small clusters, singular in high dimensions, keep out everything else.
    """
    certain = torch.nn.functional.one_hot(clusters(m, themes=themes, seed=seed, starts=starts), themes).to(m.dtype)
    return alike(moments(m, s, certain.log(), covariance=covariance))


def clusters(x: Float[Tensor, "N D"], *, themes: int, seed: int, starts: int = STARTS) -> Int64[Tensor, " N"]:
    """The k-means cluster of each row, the best of ``starts``; no cluster is empty."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    if len(x) < themes:
        raise DataError(f"{themes} themes need at least as many data points to start from, got {len(x)}")
    # from three threads on sklearn adds up their parts in any order, and a run would not repeat to the bit; one is as fast
    with warnings.catch_warnings(), threadpool_limits(limits=1):
        warnings.simplefilter("ignore", ConvergenceWarning)  # too few distinct points: an error of our own, below
        means = KMeans(themes, n_init=starts, random_state=seed).fit(x.cpu().numpy())
    labels = torch.from_numpy(means.labels_).long().to(x.device)
    found_clusters = len(labels.unique())
    if found_clusters < themes:
        raise DataError(f"{themes} themes need at least as many distinct data points to start from, got {found_clusters}")
    return labels


def alike(found: Moments) -> Moments:
    """The same shares and means, each theme with the average covariance inside the themes."""
    share = found.n / found.n.sum()
    pooled = torch.tensordot(share, found.Sigma, dims=1)
    return Moments(share, found.mu, pooled.expand_as(found.Sigma).contiguous())
