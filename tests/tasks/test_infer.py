from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import tasktheme as tt
from oracles.small import SMALL, small_images
from tasktheme.model.e_step import TaskPosterior, e_step
from tasktheme.training import polish


@pytest.mark.parametrize("aspects", [1, 5])
def test_likelihoods_in_pieces_are_those_of_all_points_at_once(aspects: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_images()
    model = tt.PTM(settings=SMALL, device="cpu").fit(data, 8, progress=False).refit(data, aspects=aspects, progress=False)
    episodes = data.episodes(ways=(2, 3), shots=(1, 4), n=6, seed=1)
    whole = model.embed(episodes)
    seen: list[int] = []
    theirs = type(model.themes).expected_log_likelihood
    monkeypatch.setattr(
        type(model.themes), "expected_log_likelihood", lambda self, m, s: seen.append(len(m)) or theirs(self, m, s)
    )
    monkeypatch.setitem(polish._NUMBERS_AT_ONCE, "cpu", 7 * model.themes.mu.numel())
    pieces = model.embed(episodes)
    assert max(seen) == 7 < sum(seen)
    np.testing.assert_allclose(pieces.concentration, whole.concentration, rtol=1e-5)
    np.testing.assert_allclose(pieces.log_likelihood, whole.log_likelihood, rtol=1e-5)


def test_a_task_has_converged_where_all_its_aspects_have(monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_images()
    model = tt.PTM(settings=SMALL, device="cpu").fit(data, 8, progress=False).refit(data, aspects=5, progress=False)

    def first_task_of_second_aspect_fails(*arguments: Any, **more: Any) -> TaskPosterior:
        found = e_step(*arguments, **more)
        converged = found.converged.fill_(True)
        converged[0, 1] = False
        return dataclasses.replace(found, converged=converged)

    monkeypatch.setattr("tasktheme.tasks.infer.e_step", first_task_of_second_aspect_fails)
    assert model.embed(data.episodes(ways=2, shots=2, n=3)).converged.tolist() == [False, True, True]
