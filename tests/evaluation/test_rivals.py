from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import linalg
from scipy.spatial.distance import pdist

from tasktheme.evaluation import rivals
from tasktheme.evaluation.rivals import frechet_distance, mean_distance, mmd_distance

SIZES = (9, 4, 7, 9)


@pytest.fixture
def tasks() -> list[np.ndarray]:
    """Tasks of several sizes, one smaller than its dimension, far from the origin."""
    rng = np.random.default_rng(0)
    return [50.0 + rng.normal(size=5) + rng.normal(size=(n, 5)) @ rng.normal(size=(5, 5)) for n in SIZES]


def padded(tasks: list[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    points = torch.full((len(tasks), max(SIZES), 5), 1e3, dtype=torch.float64)
    mask = torch.zeros(points.shape[:2], dtype=torch.bool)
    for i, task in enumerate(tasks):
        points[i, : len(task)], mask[i, : len(task)] = torch.from_numpy(task), True
    return points, mask


def test_mean_distance(tasks: list[np.ndarray]) -> None:
    expected = [[np.linalg.norm(a.mean(axis=0) - b.mean(axis=0)) for b in tasks] for a in tasks]
    np.testing.assert_allclose(mean_distance(*padded(tasks)), expected, atol=1e-12)


def test_frechet_distance_is_that_by_matrix_square_roots(tasks: list[np.ndarray]) -> None:
    found = frechet_distance(*padded(tasks)).numpy()
    for i, a in enumerate(tasks):
        for j, b in enumerate(tasks):
            A, B = (np.cov(x.T, bias=True) + 1e-12 * np.eye(5) for x in (a, b))  # the root of a singular matrix is rough
            root = linalg.sqrtm(A)
            spread = np.trace(A + B - 2.0 * linalg.sqrtm(root @ B @ root)).real
            squared = np.sum((a.mean(axis=0) - b.mean(axis=0)) ** 2) + spread
            assert found[i, j] ** 2 == pytest.approx(squared, abs=1e-4)
    assert (np.diag(found) == 0.0).all()


@pytest.mark.parametrize("at_once", [1, 1 << 24])
def test_mmd_is_that_of_a_double_loop(tasks: list[np.ndarray], at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "_NUMBERS_AT_ONCE", at_once)
    found = mmd_distance(*padded(tasks)).numpy()
    apart = np.sort(pdist(np.concatenate(tasks)))
    width = apart[(len(apart) - 1) // 2]

    def kernel(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.mean([[np.exp(-np.sum((x - y) ** 2) / (2.0 * width**2)) for y in b] for x in a]))

    for i, a in enumerate(tasks):
        for j, b in enumerate(tasks):
            squared = kernel(a, a) + kernel(b, b) - 2.0 * kernel(a, b)
            assert found[i, j] ** 2 == pytest.approx(squared, abs=1e-5)
    np.testing.assert_array_equal(found, found.T)
    assert (np.diag(found) == 0.0).all()
