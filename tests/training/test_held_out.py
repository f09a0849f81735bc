from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import tasktheme as tt
from oracles.small import SMALL, small_images, small_vectors
from tasktheme.errors import DataError
from tasktheme.model.bound import lda_bound
from tasktheme.model.e_step import e_step, responsibilities
from tasktheme.training.held_out import halves

TERMS = {"ln_p_u", "ln_p_z", "ln_p_pi", "entropy_z", "entropy_pi"}


@pytest.fixture(scope="module")
def model() -> tt.PTM:
    return tt.PTM(settings=SMALL, device="cpu").fit(small_images(), tasks=40, progress=False)


def test_halves_are_disjoint_and_alike() -> None:
    batch = small_images().episodes(ways=(2, 3), shots=(3, 5), n=6, seed=2).batch
    t, v = halves(batch, 3)
    assert t.mask.shape == v.mask.shape == (6, 6)
    for i in range(6):
        first, second, every = (set(part.rows[i][part.mask[i]].tolist()) for part in (t, v, batch))
        assert not first & second
        assert first | second <= every
        for label in range(3):
            counts = [int(((part.labels[i] == label) & part.mask[i]).sum()) for part in (t, v)]
            assert counts[0] - counts[1] in (0, 1)


def test_a_class_of_one_point_has_no_second_half(model: tt.PTM) -> None:
    tasks = small_images().episodes(ways=2, shots=(1, 6), n=20, seed=1)
    with pytest.raises(DataError, match="at least two data points of each class"):
        model.held_out_bound(tasks)
    assert tt.evaluate(model, small_images(), n=20, ways=2, shots=(1, 6)).bound is None
    assert tt.evaluate(model, small_images(), n=20, ways=2, shots=(2, 6)).bound is not None


def test_bound_is_the_sum_of_its_terms_whatever_is_measured_together(model: tt.PTM, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = small_images().episodes(ways=3, shots=6, n=7, seed=1)
    found = model.held_out_bound(tasks, seed=5)
    assert set(found) == {"bound", "ln_p_x", "entropy_u", *TERMS}
    assert found["bound"] == pytest.approx(sum(value for name, value in found.items() if name != "bound"))
    monkeypatch.setattr("tasktheme.training.batches._POINTS_IN_BATCH", {"cpu": 4 * 2 * 18})
    assert model.held_out_bound(tasks, seed=5) == pytest.approx(found, rel=1e-5)
    assert model.held_out_bound(tasks, seed=6)["ln_p_x"] != found["ln_p_x"]


@pytest.mark.parametrize("aspects", [1, 3])
def test_terms_are_those_of_inference_on_one_half_and_the_bound_on_the_other(aspects: int) -> None:
    data = small_vectors()
    settings = dataclasses.replace(SMALL, e_step_iterations=7, aspects=aspects)
    model = tt.PTM(settings=settings, device="cpu").fit(data, tasks=40, progress=False)
    tasks = data.episodes(ways=2, shots=4, n=3, seed=1)
    expected = dict.fromkeys(TERMS, 0.0)
    for i in range(3):
        rows = tasks.batch.rows[i].numpy().reshape(2, 4)
        t, v = (
            torch.from_numpy(model.theme_log_likelihood(data.x[half.ravel()]))[None] for half in (rows[:, ::2], rows[:, 1::2])
        )
        mask = torch.ones(1, 4, dtype=torch.bool)
        for own_t, own_v, alpha in zip(*(part.chunk(aspects, dim=-1) for part in (t, v, model.themes.alpha)), strict=True):
            gamma = e_step(own_t, alpha, mask, iterations=7).gamma
            for name, value in vars(lda_bound(own_v, responsibilities(own_v, gamma), gamma, alpha, mask)).items():
                expected[name] += float(value) / 4 / 3
    found = model.held_out_bound(tasks)
    assert found.pop("bound") == pytest.approx(sum(expected.values()), rel=1e-4)
    assert found == pytest.approx(expected, rel=1e-4)


def test_labelled_models_measure_classes_outside_the_sum() -> None:
    settings = dataclasses.replace(SMALL, classification_weight=1.0)
    model = tt.PTM(settings=settings, device="cpu").fit(small_images(), tasks=40, progress=False)
    found = model.held_out_bound(small_images().episodes(ways=4, shots=4, n=5))  # more classes than in training
    inside = [value for name, value in found.items() if name not in ("bound", "ln_p_y", "accuracy")]
    assert found["bound"] == pytest.approx(np.sum(inside))
    assert 0.0 <= found["accuracy"] <= 1.0


def test_one_shot_has_no_other_half(model: tt.PTM) -> None:
    with pytest.raises(DataError, match="at least two data points of each class"):
        model.held_out_bound(small_images().episodes(ways=3, shots=1, n=2))
