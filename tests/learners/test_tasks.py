from __future__ import annotations

import numpy as np
import torch

from oracles.small import small_images
from tasktheme.data.episodes import EpisodeSampler
from tasktheme.learners.tasks import PointSource

CPU = torch.device("cpu")


def test_augmented_images_are_mirrored_and_moved_by_up_to_an_eighth_each_way_alike_often() -> None:
    data, tasks = small_images(), torch.arange(200)
    source = PointSource(data, CPU)
    batch = EpisodeSampler(data, ways=3, shots=4, seed=0, device=CPU).draw(tasks)[0]
    found = source.augmented(batch, 3, seed=0, tasks=tasks)
    assert found.y.equal(batch.labels)
    seen = np.zeros((2, 5, 5), dtype=int)
    for row, image in zip(batch.rows.flatten().tolist(), found.x.flatten(0, 1), strict=True):
        drawn = data.x[row, 0] / 255.0
        ways = np.array([[np.pad(side, 2, mode="edge")[i : i + 16, j : j + 16] for i in range(5) for j in range(5)]
                         for side in (drawn, drawn[:, ::-1])]).reshape(2, 5, 5, 16, 16)  # fmt: skip
        alike = np.isclose(ways, image[0].numpy(), atol=1e-6).all(axis=(-2, -1))
        assert alike.sum() == 1
        seen += alike
    expected = seen.sum() / seen.size
    assert ((seen - expected) ** 2 / expected).sum() < 95  # chi-square with 49 degrees of freedom: once in 10,000


def test_what_happens_to_an_image_depends_on_seed_and_task() -> None:
    data, tasks = small_images(), torch.arange(6)
    source = PointSource(data, CPU)
    batch = EpisodeSampler(data, ways=3, shots=4, seed=0, device=CPU).draw(tasks)[0]
    first = source.augmented(batch, 3, seed=0, tasks=tasks).x
    assert first.equal(source.augmented(batch, 3, seed=0, tasks=tasks).x)
    assert not first.equal(source.augmented(batch, 3, seed=1, tasks=tasks).x)
    assert not first.equal(source.augmented(batch, 3, seed=0, tasks=tasks + 6).x)
