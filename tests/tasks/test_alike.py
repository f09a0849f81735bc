from __future__ import annotations

import numpy as np
import pytest

import tasktheme as tt
from tasktheme.errors import TrainingWarning
from tasktheme.tasks.alike import all_alike


def make(shares: list[list[float]], aspects: int = 1) -> tt.TaskSet:
    gamma = 1.1 + 20.0 * np.array(shares)
    prior = np.full(gamma.shape[1], 1.1)
    return tt.TaskSet(gamma, np.full(len(gamma), 20), np.ones(len(gamma), dtype=np.bool_), prior=prior, aspects=aspects)


def test_sets_are_alike_only_together() -> None:
    first, second = make([[1.0, 0.0]] * 3), make([[0.0, 1.0]])
    assert all_alike(second) is None  # one task
    assert all_alike(first, second) is None
    assert "all 3 tasks are alike" in (all_alike(first) or "")
    assert "all 6 tasks are alike" in (all_alike(first, first) or "")
    assert all_alike(make([[1.0], [1.0]])) is None  # one theme
    assert all_alike(make([[1.0, 1.0], [1.0, 1.0]], aspects=2)) is None  # one of each aspect
    assert all_alike(make([[1.0, 0.0, 0.5, 0.5]] * 2, aspects=2)) is not None
    assert all_alike(first, make([[1.0, 0.0, 0.0]])) is None  # of another model


def test_one_that_differs_after_thousands_is_found() -> None:
    assert all_alike(make([[1.0, 0.0]] * 1500)) is not None
    assert all_alike(make([[1.0, 0.0]] * 1500 + [[0.0, 1.0]])) is None


def test_embed_warns_of_tasks_that_are_all_alike_and_of_negatives() -> None:
    model, generator = tt.PTM.load("omniglot-default", device="cpu"), np.random.default_rng(0)
    light = np.zeros((3, 4, 1, 64, 64), dtype=np.uint8)
    for task in range(3):
        light[task, :, :, 4 : 8 + 20 * task, generator.integers(64, size=3)] = 255
    with pytest.warns(TrainingWarning, match=r"all 3 tasks are alike.*; the images are negatives .*\.inverted\(\)"):
        model.embed(list(255 - light))
    with pytest.warns(TrainingWarning, match="all 2 tasks are alike.* another kind$"):
        model.embed([light[0], light[0]])
    wide = tt.PTM.load("omniglot-wide", device="cpu")  # which tells them apart all the same
    with pytest.warns(TrainingWarning, match="^the images are negatives"):
        wide.embed(list(255 - light))
    with pytest.warns(TrainingWarning, match="^the images are negatives"):
        next(wide.embed_stream(tt.load_tasks(list(255 - light)).classes_as_groups().stream(ways=1, shots=2, n=3)))
    with pytest.warns(TrainingWarning, match="^the images are negatives"):
        wide.refit(tt.load_tasks(list(255 - light)), themes=1, polish_sweeps=1, progress=False)
    assert wide.embed(list(light)).converged.all()
