from __future__ import annotations

import numpy as np
import pytest
import torch

from tasktheme.data.random import random_bits
from tasktheme.evaluation.prototypes import prototype_accuracy

LABELS = torch.tensor([[0, 0, 0, 1, 1, 1, 2, 2, 2], [0, 0, 0, 1, 1, 1, 0, 0, 0]])
MASK = torch.tensor([[True] * 9, [True, True, True, True, True, False, False, False, False]])  # the second has two classes


def test_accuracy_is_that_of_a_plain_loop() -> None:
    points = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 9, 3))) + 0.8 * LABELS[..., None]
    found = prototype_accuracy(points, LABELS, MASK, seed=3, draws=6)
    for task in range(2):
        valid = [i for i in range(9) if MASK[task, i]]
        shares = []
        for draw in range(6):
            keys = [int(random_bits(3, 2000, torch.tensor(draw), torch.tensor(task), torch.tensor(i))) for i in range(9)]
            labelled = {}
            for c in sorted({int(LABELS[task, i]) for i in valid}):
                labelled[c] = min((i for i in valid if LABELS[task, i] == c), key=lambda i: keys[i])
            queries = [i for i in valid if i not in labelled.values()]
            right = 0
            for i in queries:
                nearest = min(labelled, key=lambda c: float((points[task, i] - points[task, labelled[c]]).norm()))
                right += nearest == int(LABELS[task, i])
            shares.append(right / len(queries))
        assert float(found[task]) == pytest.approx(np.mean(shares), abs=1e-12)
    assert 0.3 < float(found[0]) < 1.0  # neither chance nor certain


def test_labelled_points_are_drawn_evenly_and_differ_by_seed() -> None:
    """Of a class of three points one is an outlier: whoever labels it gets the others wrong."""
    points = torch.tensor([[[0.0], [0.0], [10.0], [4.0]]]).double()
    labels, mask = torch.tensor([[0, 0, 0, 1]]), torch.ones(1, 4, dtype=torch.bool)
    # the outlier labelled: both others go to the other class; else one of the two queries is right
    assert float(prototype_accuracy(points, labels, mask, draws=3000)[0]) == pytest.approx(1 / 3, abs=0.03)
    few = {float(prototype_accuracy(points, labels, mask, seed=seed, draws=4)[0]) for seed in range(8)}
    assert len(few) > 1


def test_tasks_without_queries_have_no_accuracy() -> None:
    labels = torch.tensor([[0, 1]])
    assert prototype_accuracy(torch.randn(1, 2, 3), labels, torch.ones(1, 2, dtype=torch.bool)).isnan().all()
