"""Trainings that end with finite numbers and say nothing: they warn, and sound ones do not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import tasktheme as tt
from oracles.small import SMALL, small_vectors
from tasktheme.errors import TrainingWarning
from tasktheme.model.themes import Moments, Themes
from tasktheme.nets.build import Networks
from tasktheme.training.embedding import EmbeddedTasks
from tasktheme.training.health import information, warn_of_embedding, warn_of_themes
from tasktheme.training.loop import Trainer

CPU = torch.device("cpu")


def embedded(signal: float, noise: float, points: int = 5000) -> list[EmbeddedTasks]:
    """Two dimensions, of which the second says nothing; padded points, far away, do not count."""
    m = torch.randn((2, points, 2), generator=torch.Generator().manual_seed(0)) * torch.tensor([signal, 0.0]) + 7.0
    mask = torch.ones((2, points), dtype=torch.bool)
    m[:, 0], mask[:, 0] = 1e4, False
    return [EmbeddedTasks(m, torch.full_like(m, noise), mask)]


@pytest.mark.parametrize(("signal", "noise"), [(1.0, 1.0), (3.0, 0.5), (0.2, 2.0)])
def test_information_is_the_capacity_of_a_gaussian_channel(signal: float, noise: float) -> None:
    """Against mutual information of x and x + noise by entropies of the sum and of the noise."""
    total, alone = (torch.distributions.Normal(0.0, scale).entropy().item() for scale in (float(np.hypot(signal, noise)), noise))
    assert information(embedded(signal, noise)) == pytest.approx(total - alone, rel=0.05)


def test_certain_embeddings_say_everything_and_constant_ones_nothing() -> None:
    assert information(embedded(1.0, 0.0)) == float("inf")
    assert information(embedded(0.0, 1.0)) == 0.0
    assert information(embedded(0.0, 0.0)) == 0.0


def test_an_embedding_that_ignores_the_data_warns() -> None:
    with pytest.warns(TrainingWarning, match=r"embedding has collapsed: .* 0\.35 nats .*batch_tasks=5"):
        assert warn_of_embedding(embedded(1.0, 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not warn_of_embedding(embedded(3.0, 0.5))


def test_one_theme_with_everything_warns() -> None:
    with pytest.warns(TrainingWarning, match="one of 3 has 92 % of the data points"):
        assert warn_of_themes(torch.tensor([0.92, 0.04, 0.04]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not warn_of_themes(torch.tensor([0.88, 0.06, 0.06]))
        assert not warn_of_themes(torch.ones(1))


def test_a_training_with_collapsed_networks_warns_at_its_end() -> None:
    settings = SMALL.changed({"encoder": "vector", "bound_weight": 1000.0, "learning_rate": 0.05})
    with pytest.warns(TrainingWarning, match="embedding has collapsed"):
        tt.PTM(settings=settings, device="cpu").fit(small_vectors(), tasks=240, progress=False)


def test_a_sound_training_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tt.PTM(settings=SMALL, device="cpu").fit(small_vectors(), tasks=80, progress=False)


def trainer(**changes: object) -> Trainer:
    settings = SMALL.changed({"polish_sweeps": 0, **changes})
    data = small_vectors()
    return Trainer(settings, Networks(settings, data.point_shape, CPU), data, 40, CPU)


def lose_a_theme(value: Trainer) -> torch.Tensor:
    """Move theme 0 far from all data and take its mass; returns where it is now."""
    old = value.themes
    mu, n = old.mu.clone(), old.moments.n.clone()
    mu[0], n[0] = 1e3, 1e-6
    value.themes.assign(Themes.build(old.alpha, Moments(n / n.sum(), mu, old.moments.Sigma), floor=1e-4))
    return mu[0]


@pytest.mark.parametrize("kept", [False, True])
def test_a_lost_theme_is_counted_and_comes_back(kept: bool) -> None:
    value = trainer(unused_themes="keep" if kept else "revive")
    value._initialise_themes()
    alpha, mu = value.themes.alpha, value.themes.mu  # a recorded step goes on with these very tensors
    lost_at = lose_a_theme(value)
    assert value._tend_themes(revived=not kept) == 1.0
    assert value.themes.alpha is alpha
    assert value.themes.mu is mu
    assert bool(value.themes.valid)
    if kept:
        assert torch.equal(value.themes.mu[0], lost_at)
        return
    assert value._tend_themes(revived=True) == 0.0
    value.step = value.warm_up_steps
    for _ in range(20):
        value.train_step()
    assert float(value.themes.share.min()) > 0.1 / 3  # and finds data of its own


def test_the_history_tells_of_unused_themes_and_the_preset_paper_leaves_them() -> None:
    for settings, left in ((SMALL, 0.0), (SMALL.changed({"unused_themes": "keep"}), 1.0)):
        data = small_vectors()
        value = Trainer(settings.changed({"polish_sweeps": 0}), Networks(settings, data.point_shape, CPU), data, 12, CPU)
        start = value._initialise_themes
        value._initialise_themes = lambda start=start, value=value: (start(), lose_a_theme(value))  # type: ignore[method-assign, misc]
        value.run(progress=False)
        assert value.history[-1]["unused_themes"] == left
        assert value.history[value.warm_up_steps]["unused_themes"] == 1.0
    assert tt.Settings.preset("paper").unused_themes == "keep"


@pytest.mark.parametrize("kept", [False, True])
def test_the_final_em_drops_a_theme_without_data(kept: bool) -> None:
    value = trainer(polish_sweeps=3, unused_themes="keep" if kept else "revive")
    value._initialise_themes()
    lose_a_theme(value)
    embedded = value._embedded_tasks(8)
    if kept:
        value._polish(embedded, lambda: False, progress=False)
        assert value.settings.themes == len(value.themes.alpha) == 3
        return
    with pytest.warns(TrainingWarning, match="1 of 3 themes had next to no data points and was dropped"):
        value._polish(embedded, lambda: False, progress=False)
    assert value.settings.themes == len(value.themes.alpha) == 2
    assert float(value.themes.mu.abs().max()) < 500.0  # the lost one is the one that is gone
    assert float(value.themes.share.sum()) == pytest.approx(1.0)
