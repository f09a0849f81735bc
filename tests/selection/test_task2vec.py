from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine
from torch import Tensor

from oracles.learners import make_learner
from oracles.selection import exact_fisher, make_tasks, sampled_fisher
from tasktheme.errors import SettingsError
from tasktheme.learners import testing
from tasktheme.learners.base import Noise, Points
from tasktheme.learners.maml import MAML
from tasktheme.selection import task2vec
from tasktheme.selection.base import Now, Pool, Tasks
from tasktheme.selection.task2vec import Task2Vec, distances, draw_labels, draw_signs, fisher_embedding


def make_probe() -> MAML:
    probe = make_learner("maml")
    assert isinstance(probe, MAML)
    with torch.no_grad():
        probe.weights["head"].mul_(30.0)  # predictions with an opinion
    return probe


PROBE = make_probe()


def test_embedding_is_that_of_a_loop_over_tasks_samples_and_points() -> None:
    tasks, samples = make_tasks(3), 4
    found = Task2Vec(PROBE, samples=samples, seed=2).describe(tasks)
    assert found.shape == (3, 2 * (4 + 4))  # two modules of four filters: convolution and norm
    assert tasks.support is not None
    noise = Noise(2, tasks.numbers)
    log_p = PROBE.predict(PROBE.adapt(tasks.support, noise), tasks.x, noise).detach()
    labels = [draw_labels(log_p, tasks.numbers, seed=2, sample=s) for s in range(samples)]
    for task in range(3):
        drawn = [sample[task].argmax(dim=-1).tolist() for sample in labels]
        torch.testing.assert_close(found[task], sampled_fisher(PROBE, tasks, task, drawn))


@pytest.mark.usefixtures("two_threads")
def test_threads_share_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, policy, sizes = make_tasks(5), Task2Vec(PROBE, samples=2, seed=2), []

    def embed(probe: MAML, part: Tasks, **options: Any) -> Tensor:
        sizes.append((len(part), torch.get_num_threads()))
        return fisher_embedding(probe, part, **options)

    monkeypatch.setattr(task2vec, "fisher_embedding", embed)
    found = policy.describe(tasks)
    assert sorted(sizes) == [(2, 1), (3, 1)]
    torch.set_num_threads(1)
    torch.testing.assert_close(found, policy.describe(tasks))
    torch.set_num_threads(2)


@pytest.mark.parametrize("by", ["labels", "signs"])
def test_many_samples_approach_the_exact_fisher_information(by: str) -> None:
    one, copies = make_tasks(1, seed=4), 500
    assert one.support is not None
    assert one.query is not None

    def repeat(points: Points) -> Points:
        return Points(points.x.expand(copies, *points.x.shape[1:]), points.y.expand(copies, -1), points.ways)

    many = Tasks(torch.arange(copies), repeat(one.support), repeat(one.query))  # the numbers differ, and so do the labels
    found = Task2Vec(PROBE, samples=4, by=by).describe(many)
    error = found.std(dim=0) / copies**0.5
    assert bool(((found.mean(dim=0) - exact_fisher(PROBE, one, 0)).abs() <= 4.5 * error).all())
    norms = found.sum(dim=1)
    assert norms.std() / copies**0.5 < 0.02 * norms.mean()  # else the test could not tell


def test_labels_follow_the_predictions() -> None:
    log_p = torch.tensor([0.7, 0.0, 0.25, 0.05]).log().expand(400, 25, 4)
    drawn = draw_labels(log_p, torch.arange(400), seed=0, sample=0)
    assert torch.equal(drawn.sum(dim=-1), torch.ones(400, 25))
    share = drawn.mean(dim=(0, 1))
    torch.testing.assert_close(share, log_p[0, 0].exp(), atol=0.02, rtol=0.0)
    assert share[1] == 0.0
    assert not torch.equal(drawn, draw_labels(log_p, torch.arange(400), seed=0, sample=1))
    assert not torch.equal(drawn, draw_labels(log_p, torch.arange(400), seed=1, sample=0))


def test_signs_are_fair_and_independent() -> None:
    log_p = torch.tensor([0.7, 0.25, 0.05]).log().expand(400, 25, 3)
    signs = draw_signs(log_p, torch.arange(400), seed=0, sample=0) / (log_p / 2.0).exp()
    torch.testing.assert_close(signs.abs(), torch.ones(400, 25, 3))
    flat = signs.view(400, 75)
    products = flat.T @ flat / 400.0 - torch.eye(75)
    assert float(products.abs().max()) < 0.25  # five deviations
    assert float(signs.mean().abs()) < 0.03


@pytest.mark.parametrize("by", ["labels", "signs"])
def test_batched_is_one_at_a_time(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, tasks = Task2Vec(PROBE, samples=2, by=by), make_tasks(4)
    together = policy.describe(tasks)
    torch.testing.assert_close(together, torch.cat([policy.describe(tasks[i : i + 1]) for i in range(4)]))
    monkeypatch.setitem(testing._NUMBERS_AT_ONCE, "cpu", 1)
    torch.testing.assert_close(together, policy.describe(tasks))
    assert not together.requires_grad


def test_labels_of_queries_are_not_looked_at() -> None:
    tasks = make_tasks(2)
    assert tasks.query is not None
    shuffled = dataclasses.replace(tasks, query=Points(tasks.query.x, tasks.query.y.flip(1), tasks.query.ways))
    policy = Task2Vec(PROBE, samples=2)
    assert torch.equal(policy.describe(tasks), policy.describe(shuffled))


def kept(tasks: int, *, seed: int) -> torch.Tensor:
    return torch.rand((tasks, 6), generator=torch.Generator().manual_seed(seed), dtype=torch.float64).pow(4.0)


def test_distances_are_cosines_of_normalised_embeddings() -> None:
    first, second = kept(4, seed=0), kept(3, seed=1)
    second[2] = first[1]
    expected = [[cosine(a / (a + b), b / (a + b)) for b in second.numpy()] for a in first.numpy()]
    np.testing.assert_allclose(distances(first, second), expected, atol=1e-12)
    assert float(distances(torch.zeros(1, 3), torch.zeros(1, 3))) == 1.0  # nothing is known: neither near nor a NaN


def test_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Task2Vec(PROBE)
    pool, targets = Pool(Tasks(torch.arange(4)), kept(4, seed=0)), Pool(Tasks(torch.arange(3)), kept(3, seed=1))
    torch.testing.assert_close(policy.scores(pool, None, Now()), torch.linalg.vector_norm(pool.kept, ord=1, dim=1))
    near = policy.scores(pool, targets, Now())
    torch.testing.assert_close(near, -distances(pool.kept, targets.kept).mean(dim=1))
    monkeypatch.setattr("tasktheme.selection.task2vec._NUMBERS_AT_ONCE", 1)
    torch.testing.assert_close(near, policy.scores(pool, targets, Now()))


def test_the_probe_is_a_maml() -> None:
    with pytest.raises(SettingsError, match="'protonet'"):
        Task2Vec(make_learner("protonet"))
    with pytest.raises(SettingsError, match="at least 1, got 0"):
        Task2Vec(PROBE, samples=0)
    with pytest.raises(SettingsError, match="labels, signs, got 'guess'"):
        Task2Vec(PROBE, by="guess")
