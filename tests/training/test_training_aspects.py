"""A training whose themes are in several aspects: each aspect learns what it would alone, and any themes may follow."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import tasktheme as tt
from oracles.small import SMALL, TOLD_APART, small_images, small_vectors
from oracles.trainers import small_trainer
from tasktheme.errors import SettingsError, TrainingError, TrainingWarning
from tasktheme.model.m_step import online_statistics
from tasktheme.model.themes import Covariance, Moments, Themes
from tasktheme.nets.build import Networks
from tasktheme.training import loop
from tasktheme.training.loop import Trainer

CPU = torch.device("cpu")
TWO = {"training_aspects": 2, "polish_sweeps": 0}


def on_columns(columns: slice, steps: int, **changes: object) -> Trainer:
    """Trains themes of some features of the small vectors, the tasks being the same whatever the features."""
    data = dataclasses.replace(small_vectors(), x=small_vectors().x[:, columns])
    settings = SMALL.changed({"polish_sweeps": 0, **changes})
    return Trainer(settings, Networks(settings, data.point_shape, CPU), data, steps, CPU)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"covariance": "diagonal", "learn_concentration": True},
        {"update": "parameters", "validation_responsibilities": "reused"},
    ],
    ids=["default", "concentration", "parameters"],
)
def test_the_themes_of_an_aspect_learn_what_they_would_alone(changes: dict[str, Any]) -> None:
    """Without an encoder aspects have nothing in common, and what is trained on one's dimensions is an independent oracle."""
    steps = 6
    both = on_columns(slice(None), steps, training_aspects=2, **changes)
    alone = [on_columns(slice(aspect, None, 2), steps, **changes) for aspect in range(2)]
    for trainer in (both, *alone):
        trainer._initialise_themes()
        for _ in range(steps):
            trainer.train_step()
    assert both.themes.aspects == 2
    for part, trainer in zip(both.themes.apart(), alone, strict=True):
        torch.testing.assert_close(part.tensors(), trainer.themes.tensors())
    sums = {name: sum(trainer._means()[name] for trainer in alone) for name in ("loss", "ln_p_u", "ln_p_z", "entropy_pi")}
    assert {name: both._means()[name] for name in sums} == pytest.approx(sums, rel=1e-4)


def test_the_rate_of_the_themes_falls_from_the_end_of_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """rho_i = (tau_0 + i)^-tau_1, i counting the mini-batches that moved the themes; the same for each aspect."""
    seen: list[float] = []

    def look(old: Moments, batch: Moments, rho: torch.Tensor, *, covariance: Covariance) -> Moments:
        seen.append(float(rho))
        return online_statistics(old, batch, rho, covariance=covariance)

    monkeypatch.setattr(loop, "online_statistics", look)
    rates = {"rate_offset": 4.0, "rate_power": 0.5}
    small_trainer(steps=6, encoder="vector", latent_dim=6, warm_up=0.5, **rates, **TWO).run(progress=False)
    assert seen == pytest.approx([5.0**-0.5] * 2 + [6.0**-0.5] * 2 + [7.0**-0.5] * 2)


def test_a_theme_without_data_comes_back_as_half_of_the_largest_of_its_own_aspect() -> None:
    value = small_trainer(**TWO)
    value._initialise_themes()
    first, second = value.themes.apart()
    n = torch.tensor([0.0, 0.2, 0.8])
    lost = Themes.build(second.alpha, Moments(n, second.mu, second.moments.Sigma), floor=1e-4)
    value.themes = Themes.together([first, lost])
    before, largest = first.mu.clone(), lost.mu[2].clone()
    assert value._tend_themes(revived=True) == 1.0
    found = value.themes.apart()
    torch.testing.assert_close(found[0].mu, before, rtol=0, atol=0)
    torch.testing.assert_close(found[1].mu[[0, 2]].mean(dim=0), largest)
    torch.testing.assert_close(found[1].share, torch.tensor([0.4, 0.2, 0.4]))


def test_collapsed_aspects_are_told_of_in_training() -> None:
    value = small_trainer(**TWO)
    value._initialise_themes()
    first, second = value.themes.apart()
    one = Moments(torch.tensor([0.04, 0.95, 0.01]), second.mu, second.moments.Sigma)
    value.themes = Themes.together([first, Themes.build(second.alpha, one, floor=1e-4)])
    with pytest.warns(TrainingWarning, match="the themes of 1 of 2 aspects have collapsed, one of 3 has 95 %"):
        value._tend_themes(revived=False)


@pytest.mark.parametrize("aspects", [1, 3])
@pytest.mark.parametrize("changes", [{}, {"polish_sweeps": 0}, {"polish_start": "tasks"}, {"initialisation": "random"}], ids=str)
def test_any_themes_may_follow(aspects: int, changes: dict[str, Any]) -> None:
    settings = TOLD_APART.changed({"training_aspects": 2, "latent_dim": 6, "aspects": aspects, **changes})
    model = tt.PTM(settings=settings).fit(small_images(), tasks=24, progress=False)
    assert (model.themes.aspects, model.themes.dimensions, len(model.themes.alpha)) == (aspects, 6, 3 * aspects)
    refitted = model.refit(small_images(), aspects=2, progress=False)
    assert (refitted.themes.aspects, refitted.settings.training_aspects) == (2, 2)


def test_the_encoder_learns_another_embedding(tmp_path) -> None:
    settings, data = TOLD_APART.changed({"latent_dim": 6, "warm_up": 0.25}), small_images()
    models = [tt.PTM(settings=settings.changed({"training_aspects": n})).fit(data, tasks=48, progress=False) for n in (1, 2)]
    episodes = data.episodes(ways=3, shots=4, n=2)
    points = [model.point_embeddings(episodes) for model in models]
    assert abs(points[0] - points[1]).max() > 1e-3
    models[1].save(tmp_path / "model")
    again = tt.PTM.load(tmp_path / "model")
    assert again.settings == models[1].settings
    assert again.fingerprint == models[1].fingerprint


def test_what_cannot_be_dealt_out_or_does_not_learn_is_refused() -> None:
    with pytest.raises(SettingsError, match="5 dimensions cannot be dealt out to 2 aspects alike: take a number that divides 5"):
        tt.PTM(settings=SMALL, training_aspects=2).fit(small_images(), tasks=4, progress=False)
    with pytest.raises(SettingsError, match="learns nothing: set training_aspects = 1 or encoder = 'vector'"):
        tt.PTM(settings=SMALL, training_aspects=2).fit(small_vectors(), tasks=4, progress=False)
    with pytest.raises(SettingsError, match="'training_aspects' must be at least 1"):
        tt.PTM(training_aspects=0)


def test_a_bad_covariance_in_one_aspect_stops_the_training() -> None:
    value = small_trainer(**TWO)
    value._initialise_themes()
    value.train_step()
    first, second = value.themes.apart()
    bad = Themes.build(second.alpha, Moments(second.moments.n, second.mu, -second.moments.Sigma), floor=0.0)
    value.themes = Themes.together([first, bad])
    value.train_step()
    with pytest.raises(TrainingError, match="stopped before task"):
        value._means()
