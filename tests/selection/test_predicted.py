from __future__ import annotations

import numpy as np
import pytest
import torch

from oracles.learners import make_learner
from oracles.selection import make_gamma, make_tasks
from tasktheme.errors import DataError, SettingsError
from tasktheme.selection import predicted
from tasktheme.selection.base import Now, Pool, Tasks, standardised
from tasktheme.selection.predicted import Predicted, features, predict_losses
from tasktheme.selection.ptm import mean_kl
from tasktheme.selection.worst_case import learner_losses

LEARNER = make_learner("maml")


def plant(monkeypatch: pytest.MonkeyPatch, gamma: torch.Tensor, *, noise: float) -> torch.Tensor:
    """Make the learner's loss on each task, by its number, linear in the logarithm of a theme's share, plus noise."""
    share = (gamma / gamma.sum(dim=1, keepdim=True)).log()
    losses = 1.0 + 0.3 * (share[:, 0] - share[:, 2])
    losses = losses + noise * torch.randn(len(gamma), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    monkeypatch.setattr(predicted, "learner_losses", lambda learner, tasks, **_: losses[tasks.numbers])
    return losses


def planted_pool(gamma: torch.Tensor) -> Pool:
    return Pool(Tasks(torch.arange(len(gamma)), gamma=gamma), gamma)


def test_the_hardest_tasks_are_found_by_looking_at_a_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    gamma = make_gamma(200)
    losses = plant(monkeypatch, gamma, noise=0.05)
    worst = set(losses.topk(20).indices.tolist())
    hits = [
        int(Predicted(looks=20).scores(planted_pool(gamma), None, Now(step=step, learner=LEARNER)).argmax()) in worst
        for step in range(20)
    ]
    assert sum(hits) >= 19  # chance is 2; the worst of 20 random ones is among them 18 times


def test_the_last_picks_teach_too(monkeypatch: pytest.MonkeyPatch) -> None:
    gamma = make_gamma(200)
    losses = plant(monkeypatch, gamma, noise=0.05)
    pool, now = planted_pool(gamma), Now(learner=LEARNER)
    few = Predicted(looks=1).scores(pool, None, now)
    remembered = Now(learner=LEARNER, recent=gamma[100:], losses=losses[100:] + 0.5)  # the learner has improved since
    many = Predicted(looks=1).scores(pool, None, remembered)
    assert np.corrcoef(many, losses)[0, 1] > 0.95
    assert len(few.unique()) == 1  # a single loss says nothing about others


def test_what_was_seen_is_not_predicted() -> None:
    tasks = make_tasks(6)
    policy = Predicted(looks=6)
    scores = policy.scores(policy.enter(tasks), None, Now(learner=LEARNER))
    torch.testing.assert_close(scores, learner_losses(LEARNER, tasks, seed=0))


def test_old_and_fresh_losses_may_lie_apart() -> None:
    gamma, more = make_gamma(60), make_gamma(80, seed=1)

    def truth(values: torch.Tensor) -> torch.Tensor:
        return (values / values.sum(dim=1, keepdim=True)).log()[:, 1]

    rows = torch.arange(20)
    found = predict_losses(features(gamma[None]), rows, truth(gamma)[rows], features(more[None]), truth(more) + 10.0)
    assert float((found - truth(gamma)).abs().max()) < 0.3


def test_with_targets_near_tasks_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    gamma, targets = make_gamma(30), make_gamma(4, seed=5)
    losses = plant(monkeypatch, gamma, noise=0.0)
    scores = Predicted(looks=30).scores(planted_pool(gamma), planted_pool(targets), Now(learner=LEARNER))
    torch.testing.assert_close(scores, standardised(losses) - standardised(mean_kl(targets, gamma)))


def test_features_do_not_depend_on_the_order_of_tasks_and_sum_to_zero() -> None:
    gamma = make_gamma(5)[None]
    found = features(gamma)
    assert found.shape == (5, 5)
    np.testing.assert_allclose(found[:, :4].sum(axis=1), 0.0, atol=1e-12)
    np.testing.assert_array_equal(features(gamma.flip(1)), found[::-1])


def test_features_of_several_aspects_are_theirs_with_one_entropy() -> None:
    gamma = torch.stack([make_gamma(5), make_gamma(5, seed=1)])
    found, parts = features(gamma), [features(part[None]) for part in gamma]
    np.testing.assert_allclose(found[:, :8], np.concatenate([part[:, :4] for part in parts], axis=1))
    np.testing.assert_allclose(found[:, 8], sum(part[:, 4] for part in parts))


def test_losses_are_predicted_from_all_aspects(monkeypatch: pytest.MonkeyPatch) -> None:
    gamma = make_gamma(200)  # whose first and third theme tell the loss
    both = torch.cat([make_gamma(200, seed=1), gamma], dim=1)
    losses = plant(monkeypatch, gamma, noise=0.05)
    pool = Pool(Tasks(torch.arange(200), gamma=both, aspects=2), both)
    now = Now(learner=LEARNER, recent=both[100:], losses=losses[100:])
    found = Predicted(looks=30).scores(pool, None, now)
    assert np.corrcoef(found, losses)[0, 1] > 0.95
    rows = (found == losses).nonzero().squeeze(1)
    assert 30 <= len(rows) < 40  # as seen on these, predicted elsewhere
    every = features(pool.by_aspect())
    np.testing.assert_allclose(found, predict_losses(every, rows, losses[rows], every[100:], losses[100:]), rtol=1e-6)
    targets = Pool(Tasks(torch.arange(3), gamma=both[:3], aspects=2), both[:3])
    apart = mean_kl(both[:3, :4], both[:, :4]) + mean_kl(both[:3, 4:], both[:, 4:])
    aimed = Predicted(looks=30).scores(pool, targets, now)
    torch.testing.assert_close(aimed, standardised(found) - standardised(apart))


def test_bad_settings_and_no_learner() -> None:
    with pytest.raises(SettingsError, match="got 0 and 200"):
        Predicted(looks=0)
    with pytest.raises(DataError, match="'predicted' looks at the current meta-learner"):
        Predicted().scores(Predicted().enter(make_tasks(2)), None, Now())
