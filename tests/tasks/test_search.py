"""Search against brute force in float64, where float32 alone would rank wrongly too."""

from __future__ import annotations

import numpy as np
import pytest

import tasktheme as tt
from tasktheme.errors import DataError
from tasktheme.tasks import search
from tasktheme.tasks.distances import Direction

DIRECTIONS: tuple[Direction, ...] = ("forward", "reverse", "symmetric")


def make(count: int, themes: int = 4, seed: int = 0, points: float = 12.0, near: float | None = None) -> tt.TaskSet:
    """Tasks of about so many data points; with ``near``, all alike but for so much."""
    rng = np.random.default_rng(seed)
    gamma = 1.1 + points * rng.dirichlet(np.full(themes, 0.7), size=count)
    if near is not None:
        gamma = gamma[:1] * (1.0 + near * rng.random(gamma.shape))
    return tt.TaskSet(gamma, np.ones(count, dtype=np.int64), np.ones(count, dtype=np.bool_), {}, "m")


def brute_force(query: tt.TaskSet, reference: tt.TaskSet, k: int, direction: Direction) -> tuple[np.ndarray, np.ndarray]:
    """The whole matrix, sorted; the smallest distances by a form without cancellation."""
    distances = query.kl(reference, direction=direction)
    if query is reference:
        np.fill_diagonal(distances, np.inf)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(distances, order, axis=1)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("references", "k"), [(1, 1), (5, 3), (127, 4), (128, 4), (129, 129), (700, 5), (3000, 40)])
def test_search_is_brute_force(direction: Direction, references: int, k: int) -> None:
    query, reference = make(9, seed=1), make(references, seed=2)
    found = query.nearest(reference, k=k, direction=direction)
    indices, distances = brute_force(query, reference, k, direction)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(found.distances, distances, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("k", [1, 7])
def test_a_task_is_not_its_own_neighbour(direction: Direction, k: int) -> None:
    tasks = make(600, seed=3)
    found = tasks.nearest(tasks, k=k, direction=direction)
    np.testing.assert_array_equal(found.indices, brute_force(tasks, tasks, k, direction)[0])


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("points", "spread"), [(1e4, 1e-3), (1e6, 1e-5), (50.0, 1e-4)])
def test_ranking_is_exact_where_float32_cannot_tell_tasks_apart(direction: Direction, points: float, spread: float) -> None:
    far, crowd = make(500, seed=5, points=points), make(2500, seed=6, points=points, near=spread)
    reference = tt.TaskSet.concatenate([far, crowd])
    query = crowd[::500]
    found = query.nearest(reference, k=20, direction=direction)
    expected = paired(query, reference, direction)
    order = np.argsort(expected, axis=1, kind="stable")[:, :20]
    np.testing.assert_allclose(found.distances, np.take_along_axis(expected, order, axis=1), rtol=1e-9)
    np.testing.assert_array_equal(found.indices, order)
    alone = (query.concentration.astype(np.float32) @ reference.concentration.astype(np.float32).T).argsort(axis=1)[:, :20]
    assert (alone != order).any()


def paired(query: tt.TaskSet, reference: tt.TaskSet, direction: Direction) -> np.ndarray:
    """All distances pair by pair, without a matrix product."""
    import torch

    from tasktheme.maths import dirichlet

    a = torch.from_numpy(np.repeat(query.concentration, len(reference), axis=0))
    b = torch.from_numpy(np.tile(reference.concentration, (len(query), 1)))
    forward, reverse = dirichlet.paired_kl(a, b), dirichlet.paired_kl(b, a)
    chosen = {"forward": forward, "reverse": reverse, "symmetric": (forward + reverse) / 2.0}[direction]
    return chosen.numpy().reshape(len(query), len(reference))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_float32_products_stay_within_their_bound(direction: Direction) -> None:
    query, reference = make(20, themes=9, seed=1, points=300.0), make(1000, themes=9, seed=2, points=300.0)
    index = search.Index(reference.concentration, direction)
    left = index._left(query.concentration)
    exact = left @ index._right[:, :1000].astype(np.float64)
    constant = paired(query, reference, direction) * (2.0 if direction == "symmetric" else 1.0) - exact
    np.testing.assert_allclose(constant, constant[:, :1].repeat(1000, axis=1), atol=2e-4)  # the right side is in float32
    error = np.abs(left.astype(np.float32) @ index._right[:, :1000] - exact)
    assert (error <= index._rounding(left)[:, None]).all()


def test_equal_references_are_found_in_their_order() -> None:
    reference = tt.TaskSet.concatenate([make(300, seed=1), make(1, seed=2)[[0] * 400], make(300, seed=3)])
    found = make(1, seed=2).nearest(reference, k=400)
    np.testing.assert_array_equal(found.indices[0], np.arange(300, 700))
    assert (found.distances == 0.0).all()


@pytest.mark.parametrize("name", ["_PRODUCTS", "_MINIMA", "_PREPARED", "_CANDIDATES"])
def test_blocks_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    query, reference = make(11, seed=1), make(900, seed=2)
    whole = query.nearest(reference, k=6)
    monkeypatch.setattr(search, name, 20)
    again = query.nearest(make(900, seed=2), k=6)
    np.testing.assert_array_equal(again.indices, whole.indices)
    np.testing.assert_array_equal(again.distances, whole.distances)


def test_the_whole_matrix_is_never_held(monkeypatch: pytest.MonkeyPatch) -> None:
    import tracemalloc

    monkeypatch.setattr(search, "_MINIMA", 1 << 14)
    query, reference = make(2000, themes=3, seed=1), make(20_000, themes=3, seed=2)
    reference.nearest(reference[:1], k=1)
    tracemalloc.start()
    query.nearest(reference, k=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2000 * 20_000 * 4 / 4


def test_the_reference_is_prepared_once_for_each_direction() -> None:
    query, reference = make(2, seed=1), make(50)
    query.nearest(reference)
    prepared = reference._index("forward")._right
    query.nearest(reference)
    assert reference._index("forward")._right is prepared
    assert set(reference._indexes) == {"forward"}


def test_a_direction_is_one_of_three() -> None:
    with pytest.raises(DataError, match="forward, reverse, symmetric, got 'back'"):
        make(2).nearest(make(9), direction="back")  # type: ignore[arg-type]
