from __future__ import annotations

import torch

from oracles.learners import make_learner, make_points
from oracles.meta import plain_features
from tasktheme.learners.base import Noise, Points


def test_predictions_are_those_of_a_plain_loop() -> None:
    learner, query = make_learner("protonet"), make_points(2, 4, seed=1)
    support = make_points(2, 3)
    uneven = Points(support.x, support.y.clone(), 3)
    uneven.y[:, :2] = 2  # classes of unlike size
    ours = learner.predict(learner.adapt(uneven, Noise(0, torch.arange(2))), query.x, Noise(0, torch.arange(2)))
    for task in range(2):
        embedded = plain_features(learner.weights, torch.cat([uneven.x[task], query.x[task]]))
        own, asked = embedded[: len(uneven.x[task])], embedded[len(uneven.x[task]) :]
        for n, point in enumerate(asked):
            distances = []
            for label in range(3):
                members = [own[i] for i in range(len(own)) if uneven.y[task, i] == label]
                distances.append(((point - sum(members) / len(members)) ** 2).sum())
            torch.testing.assert_close(ours[task, n], torch.log_softmax(-torch.stack(distances), dim=0))


def test_training_tasks_may_have_more_classes() -> None:
    learner = make_learner("protonet")
    assert learner.settings.training_ways == 4
    losses, log_p = learner.meta_loss(make_points(2, 1, ways=4), make_points(2, 2, ways=4, seed=1), Noise(0, torch.arange(2)))
    assert log_p.shape == (2, 8, 4)
    assert losses.shape == (2,)
