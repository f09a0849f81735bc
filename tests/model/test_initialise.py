"""Where the themes start: the standard normal, the paper's random start, and the clusters of the embeddings."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_info, threadpool_limits
from torch import Tensor

from oracles import plain
from oracles.problems import COVARIANCES
from tasktheme.errors import DataError
from tasktheme.model.initialise import cluster_moments, normal_moments, random_moments
from tasktheme.model.themes import Covariance, Moments

CENTRES = np.array([[0.0, 0.0, 5.0], [6.0, 0.0, 0.0], [-4.0, 4.0, 0.0]])
SIZES = (60, 150, 90)
SPREADS = (0.3, 0.5, 0.8)


def planted(seed: int = 0) -> tuple[list[plain.Array], Tensor]:
    """Three clusters of different size and spread, one by one and shuffled together."""
    rng = np.random.default_rng(seed)
    clusters = [
        centre + spread * rng.normal(size=(size, 3)) for centre, size, spread in zip(CENTRES, SIZES, SPREADS, strict=True)
    ]
    return clusters, torch.from_numpy(rng.permutation(np.concatenate(clusters))).float()


def found_in(m: Tensor, *, s: float = 0.0, covariance: Covariance = "full", seed: int = 0, themes: int = 3) -> Moments:
    return cluster_moments(m, torch.full_like(m, s), themes=themes, covariance=covariance, seed=seed)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_normal_start_is_a_multiple_of_the_identity(covariance: Covariance) -> None:
    mu = torch.arange(8.0).reshape(2, 4)
    found = normal_moments(mu, 1.7, covariance=covariance)
    assert found.n.tolist() == [0.5, 0.5]
    assert torch.equal(found.mu, mu)
    torch.testing.assert_close(torch.from_numpy(plain.dense(found.Sigma.numpy())), 1.7 * torch.eye(4).repeat(2, 1, 1))
    assert found.Sigma.ndim == (3 if covariance == "full" else 2)


def test_random_start_is_the_papers_and_the_generators() -> None:
    first, second, other = (
        random_moments(40, 50, covariance="diagonal", generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first.mu, second.mu)
    assert not torch.equal(first.mu, other.mu)
    assert float(first.mu.std()) == pytest.approx(0.01, rel=0.1)
    assert (first.Sigma == 2.0).all()


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("seed", range(3))
def test_clusters_that_were_planted_are_found(covariance: Covariance, seed: int) -> None:
    clusters, m = planted(seed)
    found = found_in(m, covariance=covariance, seed=seed)
    means = np.array([cluster.mean(axis=0) for cluster in clusters])
    theme, cluster = linear_sum_assignment(cdist(found.mu.numpy(), means))
    np.testing.assert_allclose(found.mu.numpy()[theme], means[cluster], atol=1e-4)
    np.testing.assert_allclose(found.n.numpy()[theme], np.array(SIZES)[cluster] / sum(SIZES), atol=1e-6)


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("s", [0.0, 0.4])
def test_themes_share_the_average_covariance_inside_the_clusters(covariance: Covariance, s: float) -> None:
    clusters, m = planted()
    inside = sum(len(cluster) * np.cov(cluster.T, bias=True) for cluster in clusters) / sum(SIZES) + s**2 * np.eye(3)
    expected = plain.restrict(np.array([inside] * 3), covariance)
    np.testing.assert_allclose(found_in(m, s=s, covariance=covariance).Sigma.numpy(), expected, atol=1e-4)


def test_clusters_depend_on_their_seed_alone() -> None:
    m = torch.rand(300, 4, generator=torch.Generator().manual_seed(0))  # no clusters: starts end in different places
    first, second, other = (found_in(m, seed=seed, themes=9) for seed in (1, 1, 2))
    assert torch.equal(first.mu, second.mu)
    assert not torch.equal(first.mu, other.mu)


def test_as_many_points_as_themes_are_enough() -> None:
    m = torch.tensor([[0.0, 0.0], [1.0, 3.0], [-2.0, 1.0]])
    found = found_in(m)
    np.testing.assert_allclose(np.sort(found.mu.numpy(), axis=0), np.sort(m.numpy(), axis=0), atol=1e-6)
    np.testing.assert_allclose(found.Sigma.numpy(), 0.0, atol=1e-6)


def test_fewer_points_than_themes_is_an_error() -> None:
    with pytest.raises(DataError, match=r"3 themes need at least as many data points.*got 2"):
        found_in(torch.zeros(2, 2))


def test_fewer_distinct_points_than_themes_is_an_error() -> None:
    with pytest.raises(DataError, match=r"3 themes need at least as many distinct data points.*got 2"):
        found_in(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).repeat(10, 1))


def test_clusters_are_found_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more, sklearn's sums depend on which thread ends first."""
    threads: list[int] = []

    def fit(self: KMeans, x: np.ndarray) -> KMeans:
        threads.extend(pool["num_threads"] for pool in threadpool_info())
        return original(self, x)

    original = KMeans.fit
    monkeypatch.setattr(KMeans, "fit", fit)
    m = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    with threadpool_limits(limits=2):
        cluster_moments(m, torch.ones_like(m), themes=2, covariance="full", seed=0)
    assert set(threads) == {1}
