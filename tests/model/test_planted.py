"""Tasks drawn from the model itself, through the public API: the themes and the mixtures that made them come back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

import tasktheme as tt
from oracles.plain import Array

TASKS, POINTS, THEMES, DIM, CONCENTRATION = 500, 50, 5, 4, 0.7


@dataclass(frozen=True)
class Planted:
    """Truth and estimate, the estimate's themes in the order of the true ones."""

    mu: Array
    Sigma: Array
    mixtures: Array
    spread: float
    found_mu: Array
    found_Sigma: Array
    found_mixtures: Array
    converged: Array


def generate(rng: np.random.Generator) -> tuple[Array, Array, Array, list[Array]]:
    """mu, Sigma, the tasks' mixtures and their data points, by the paper's generative process."""
    mu = 3.0 * rng.normal(size=(THEMES, DIM))
    factor = rng.normal(size=(THEMES, DIM, DIM))
    Sigma = factor @ factor.transpose(0, 2, 1) / DIM + 0.3 * np.eye(DIM)
    mixtures = rng.dirichlet(np.full(THEMES, CONCENTRATION), size=TASKS)
    scale_tril = np.linalg.cholesky(Sigma)
    tasks = []
    for mixture in mixtures:
        z = rng.choice(THEMES, size=POINTS, p=mixture)
        tasks.append(mu[z] + np.einsum("nij,nj->ni", scale_tril[z], rng.normal(size=(POINTS, DIM))))
    return mu, Sigma, mixtures, tasks


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """At this size threads bring nothing, and on a busy machine they wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=range(3), ids="seed{}".format)
def planted(request: pytest.FixtureRequest) -> Planted:
    mu, Sigma, mixtures, tasks = generate(np.random.default_rng(request.param))
    settings = tt.Settings(themes=THEMES, seed=request.param, concentration=CONCENTRATION, polish_tasks=TASKS, polish_sweeps=10)
    model = tt.PTM(settings=settings, device="cpu").fit(tasks, tasks=1000, progress=False)
    embedded = model.embed(tasks)
    _, order = linear_sum_assignment(cdist(mu, model.themes.mu.numpy()))
    return Planted(
        mu,
        Sigma,
        mixtures,
        float(np.concatenate(tasks).std()),
        model.themes.mu.numpy()[order],
        model.themes.moments.Sigma.numpy()[order],
        embedded.mean_mixture()[:, order],
        embedded.converged,
    )


def test_themes_are_recovered(planted: Planted) -> None:
    assert np.abs(planted.found_mu - planted.mu).max() < 0.05 * planted.spread
    assert np.abs(planted.found_Sigma - planted.Sigma).max() < 0.05 * planted.spread**2


def test_mixtures_are_recovered(planted: Planted) -> None:
    for k in range(THEMES):
        assert np.corrcoef(planted.found_mixtures[:, k], planted.mixtures[:, k])[0, 1] > 0.95
    assert planted.converged.all()
