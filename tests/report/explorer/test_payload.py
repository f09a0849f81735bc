"""What the page knows is what the task set says."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

import tasktheme as tt
from tasktheme.report.explorer import images
from tasktheme.report.explorer.payload import LEVEL, build_payload


def unpacked(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype=kind)


def sheet(uri: str) -> np.ndarray:
    head, body = uri.split(",")
    assert head == "data:image/webp;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(body))).convert("L"))


def tile(payload: dict, number: int) -> np.ndarray:
    pictures = payload["images"]
    of_sheet, side, columns = pictures["columns"] ** 2, pictures["tile"], pictures["columns"]
    y, x = divmod(number % of_sheet, columns)
    return sheet(pictures["sheets"][number // of_sheet])[y * side : (y + 1) * side, x * side : (x + 1) * side]


def test_numbers_survive_packing(model: tt.PTM, tasks: tt.TaskSet) -> None:
    payload = build_payload(model, tasks, None)
    shape = tasks.concentration.shape
    assert (payload["tasks"], payload["themes"]) == shape
    np.testing.assert_array_equal(
        unpacked(payload["concentration"], "<f4").reshape(shape), tasks.concentration.astype(np.float32)
    )
    for name, wanted in zip(("low", "high"), tasks.interval(LEVEL), strict=True):
        np.testing.assert_allclose(unpacked(payload[name], "<u2").reshape(shape) / 65_535, wanted, atol=1e-5)
    np.testing.assert_allclose(unpacked(payload["entropy"], "<f4"), tasks.entropy(), rtol=1e-6)
    np.testing.assert_array_equal(unpacked(payload["sizes"], "<u4"), tasks.sizes)
    groups = [payload["groups"][g] for g in unpacked(payload["group"], "<i4")]
    assert groups == list(tasks.columns["group"])
    assert payload["columns"]["classes"] == list(tasks.columns["classes"])
    assert sum(payload["share"]) == pytest.approx(1.0, abs=1e-4)


def test_resized_tasks_keep_their_own_number_of_data_points(model: tt.PTM, tasks: tt.TaskSet) -> None:
    small, plain = build_payload(model, tasks, None, resized=3), build_payload(model, tasks, None)
    wanted = tasks.resized(3)
    found = unpacked(small["concentration"], "<f4").reshape(wanted.concentration.shape)
    np.testing.assert_array_equal(found, wanted.concentration.astype(np.float32))
    np.testing.assert_allclose(unpacked(small["entropy"], "<f4"), wanted.entropy(), rtol=1e-6)
    assert small["sizes"] == plain["sizes"]
    assert (small["resized"], plain["resized"]) == (3, None)
    assert small["place"] == build_payload(model, wanted, None)["place"] != plain["place"]


def test_tasks_show_their_own_images(model: tt.PTM, drawings: tt.Dataset) -> None:
    episodes = drawings.episodes(ways=3, shots=4, n=12, seed=3)
    payload = build_payload(model, model.embed(episodes), episodes)
    samples = unpacked(payload["images"]["samples"], "<i4").reshape(12, images.OF_TASK)
    label = unpacked(payload["images"]["label"], "<i4")
    for i in (0, 7):
        names = [payload["images"]["labels"][label[t - payload["images"]["means"]]] for t in samples[i]]
        assert names[:3] == [" ".join(name.split()) for name in episodes.class_names()[i]]  # each class before a second image
        seen = {tile(payload, t).astype(int).tobytes() for t in samples[i]}
        assert len(seen) == images.OF_TASK
        own = drawings.x[episodes.batch.rows[i].numpy()][:, 0].astype(int)
        for t in samples[i]:  # drawn dark on light, each pixel three by three
            shown = 255 - tile(payload, t)[1::3, 1::3].astype(int)
            assert np.abs(own - shown).mean(axis=(1, 2)).min() < 12


def test_typical_images_belong_to_their_theme(model: tt.PTM, drawings: tt.Dataset) -> None:
    episodes = drawings.episodes(ways=3, shots=4, n=5, seed=3)
    payload = build_payload(model, model.embed(episodes), episodes)
    typical = unpacked(payload["images"]["typical"], "<i4").reshape(3, images.OF_THEME)
    assert payload["images"]["means"] == 3
    assert (typical[typical >= 0] >= 3).all()
    assert len(set(typical[typical >= 0])) == (typical >= 0).sum()  # an image is typical of one theme


def test_without_data_there_are_only_means_and_of_vectors_nothing(model: tt.PTM, tasks: tt.TaskSet, vector_model: tt.PTM) -> None:
    pictures = build_payload(model, tasks, None)["images"]
    assert (pictures["means"], pictures["samples"], len(pictures["sheets"])) == (3, None, 1)
    vectors = vector_model.embed([np.zeros((3, 4)), np.ones((2, 4))])
    payload = build_payload(vector_model, vectors, None)
    assert payload["images"] is None
    assert payload["groups"] == []


def test_the_images_keep_to_their_budget(model: tt.PTM, drawings: tt.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    unlabelled = tt.Dataset.from_tasks([drawings.x[i : i + 3] for i in range(0, 60, 3)])
    monkeypatch.setattr(images, "MOST_IMAGES", 50)
    monkeypatch.setattr(images, "typical_rows", lambda *_: [np.arange(5)] * 3)
    pictures = build_payload(model, model.embed(unlabelled), unlabelled)["images"]
    samples = unpacked(pictures["samples"], "<i4").reshape(20, images.OF_TASK)
    assert samples.max() == 3 + 50 - 1
    assert (samples[:, 0] >= 0).all()  # the first image of every task before any third one
    assert 0 < (samples[:, 2] >= 0).sum() < 20
    assert (samples[:, 3:] == -1).all()
