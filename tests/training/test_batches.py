"""Batches of tasks: each task once, at its place, and embedded as if it were alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tasktheme as tt
from oracles.small import SMALL, small_images
from tasktheme.training import batches


@pytest.mark.parametrize("points", [1, 50, 10_000])
@pytest.mark.parametrize("drawn", [True, False])
def test_each_task_is_in_one_batch_at_its_place(drawn: bool, points: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_POINTS_IN_BATCH", {"cpu": points})
    if drawn:
        tasks = small_images().episodes(ways=(2, 3), shots=(1, 4), n=11, seed=1)
        expected = [rows[mask] for rows, mask in zip(tasks.batch.rows, tasks.batch.mask, strict=True)]
    else:
        sizes = [3, 17, 1, 8, 17, 2]
        tasks = tt.Dataset.from_tasks([np.zeros((size, 2)) for size in sizes])
        expected = list(torch.arange(sum(sizes)).split(sizes))
    found = list(batches.task_batches(tasks, torch.device("cpu")))
    assert sorted(np.concatenate([which for which, _ in found])) == list(range(len(expected)))
    for which, batch in found:
        assert len(which) == 1 or batch.mask.numel() <= points
        for place, rows, mask in zip(which, batch.rows, batch.mask, strict=True):
            assert torch.equal(rows[mask], expected[place])
    halved = list(batches.task_batches(tasks, torch.device("cpu"), fewer=2))
    assert len(found) < len(halved) if points == 50 else len(found) == len(halved)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_tasks_that_share_points_are_embedded_like_each_alone(norm: str) -> None:
    data = small_images()
    model = tt.PTM(settings=SMALL.changed({"norm": norm})).fit(data, tasks=20, progress=False)
    episodes = data.episodes(tasks=data.select_groups(data.group_names[:1]).combinations(2), shots=(2, 4), n=40)
    rows = episodes.batch.rows[episodes.batch.mask]
    assert len(rows) > 2 * len(rows.unique())  # so that each is embedded once
    alone = np.concatenate([model.embed(episodes[i]).concentration for i in range(len(episodes))])
    np.testing.assert_allclose(model.embed(episodes).concentration, alone, rtol=1e-4)
    means = np.concatenate([model.mean_embedding(episodes[i]) for i in range(len(episodes))])
    np.testing.assert_allclose(model.mean_embedding(episodes), means, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_a_task_is_embedded_alike_alone_and_among_others_of_any_size(norm: str) -> None:
    data = small_images()
    model = tt.PTM(settings=SMALL.changed({"norm": norm})).fit(data, tasks=20, progress=False)
    tasks = [data.x[:1], data.x[3:20], data.x[20:24], data.x[:40]]
    together = model.embed(tasks).concentration
    alone = np.concatenate([model.embed([task]).concentration for task in tasks])
    np.testing.assert_allclose(together, alone, rtol=1e-4)
    assert model.embed(tasks).sizes.tolist() == [1, 17, 4, 40]
