"""The diagrams' tasks: the number of each, and its accuracy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Dirichlet, kl_divergence

import tasktheme as tt
from oracles.small import TOLD_APART, small_images
from tasktheme.errors import DataError
from tasktheme.experiments import tested as testing
from tasktheme.experiments.distance_accuracy import distance_accuracy
from tasktheme.experiments.entropy_accuracy import entropy_accuracy
from tasktheme.report.learner_plots import correlation_diagram


@pytest.fixture(scope="module")
def model() -> tt.PTM:
    return tt.PTM(settings=TOLD_APART, device="cpu").fit(small_images(), 16, progress=False)


@pytest.fixture(scope="module")
def after_test() -> testing.Tested:
    learner = tt.MetaLearner("protonet", device="cpu", ways=3, queries=3, filters=4, modules=3, train_ways=3)
    return testing.run_test(learner.fit(small_images(), 4, progress=False), small_images(seed=1), 12, seed=5)


def test_accuracies_are_known_by_the_classes_of_their_tasks(after_test: testing.Tested) -> None:
    """With their groups where there are any; earlier versions wrote the classes alone."""
    learner, data, found = after_test.learner, after_test.dataset, after_test.accuracies
    names = [[(data.group_names[data.class_group[c]], data.class_names[c]) for c in row] for row in after_test.classes.tolist()]
    assert found.columns["classes"] == [" ".join("/".join(pair) for pair in row) for row in names]
    earlier = {"classes": [" ".join(name for _, name in row) for row in names]}
    for columns in (found.columns, earlier):
        assert testing.known_test(learner, data, replace(found, columns=columns)).classes.equal(after_test.classes)
    with pytest.raises(DataError, match="of other tasks than this data set has"):
        testing.known_test(learner, data, replace(found, columns={"classes": found.columns["classes"][::-1]}))


def mixtures(model: tt.PTM, data: tt.Dataset, drawn: tt.Episodes) -> np.ndarray:
    """Gamma of tasks, each embedded as a plain array."""
    return model.embed([data.x[rows] for rows in drawn.batch.rows.numpy()]).concentration


def test_entropies_are_those_of_the_tested_tasks(model: tt.PTM, after_test: testing.Tested) -> None:
    found = entropy_accuracy(after_test, model)
    gamma = mixtures(model, after_test.dataset, after_test.episodes())
    np.testing.assert_allclose(found.x, [stats.dirichlet(row).entropy() for row in gamma], rtol=1e-5)
    [(x, accuracy, correlation)] = found.panels  # no more than in the paper: shown once
    assert (x is found.x, accuracy is found.accuracy, correlation is found.all) == (True, True, True)
    assert [axes.get_ylabel() for axes in correlation_diagram(found).axes] == ["accuracy on a task"]
    np.testing.assert_array_equal(found.accuracy, after_test.learner.test(after_test.dataset, 12, seed=5).accuracy)


def test_distances_are_from_the_tested_task_to_the_training_tasks(model: tt.PTM, after_test: testing.Tested) -> None:
    training = small_images()
    found = distance_accuracy(after_test, model, training, training_tasks=9)
    drawn = training.episodes(ways=3, shots=4, n=9, seed=5, within_group=False)
    asked, known = (
        Dirichlet(torch.tensor(mixtures(model, data, tasks)))
        for data, tasks in ((after_test.dataset, after_test.episodes()), (training, drawn))
    )
    for task, distance in enumerate(found.x):
        one = Dirichlet(asked.concentration[task].expand(9, -1))
        assert distance == pytest.approx(kl_divergence(one, known).mean().item(), rel=1e-4)
