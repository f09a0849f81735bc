"""Places on the map: what scaling keeps, and that many tasks are placed as well as few."""

from __future__ import annotations

import numpy as np
import pytest

import tasktheme as tt
from tasktheme.report import places


def made_up(groups: int, each: int) -> tt.TaskSet:
    rng = np.random.default_rng(0)
    centres = 1.0 + 40.0 * rng.dirichlet(np.full(6, 0.2), groups)
    gamma = np.repeat(centres, each, axis=0) * rng.uniform(0.9, 1.1, (groups * each, 6))
    return tt.TaskSet(gamma, np.full(len(gamma), 40), np.ones(len(gamma), dtype=np.bool_), {}, "made up")


def stress(tasks: tt.TaskSet, place: np.ndarray) -> float:
    """Kruskal's, by plain loops over all pairs."""
    kl = tasks.kl(tasks)
    wanted, missed = 0.0, 0.0
    for i in range(len(tasks)):
        for j in range(len(tasks)):
            distance = ((kl[i, j] + kl[j, i]) / 2.0) ** 0.5
            missed += (distance - float(np.hypot(*(place[i] - place[j])))) ** 2
            wanted += distance**2
    return (missed / wanted) ** 0.5


def test_tasks_placed_among_landmarks_fit_nearly_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = made_up(groups=6, each=20)
    whole, said = places.place_tasks(tasks)
    assert said == pytest.approx(stress(tasks, whole), rel=1e-6)
    monkeypatch.setattr(places, "_LANDMARKS", 40)
    monkeypatch.setattr(places, "_BLOCK", 1000)  # several blocks
    placed, _ = places.place_tasks(tasks)
    assert stress(tasks, placed) < said + 0.05
    shuffled = np.random.default_rng(1).permutation(placed)
    assert stress(tasks, shuffled) > 3.0 * stress(tasks, placed)


def test_equal_tasks_and_single_tasks_have_finite_places(monkeypatch: pytest.MonkeyPatch) -> None:
    same = made_up(groups=1, each=1)[[0] * 30]
    monkeypatch.setattr(places, "_LANDMARKS", 5)
    place, said = places.place_tasks(same)
    assert np.abs(place - place[0]).max() < 1e-6
    assert said == 0.0
    assert places.place_tasks(same[:1])[0].shape == (1, 2)
