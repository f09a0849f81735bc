"""What follows the last step: the final EM starts where it should, drops themes that nothing needs, and says so."""

from __future__ import annotations

import pytest
import torch

from oracles.trainers import lose_a_theme, small_trainer
from tasktheme.errors import TrainingWarning
from tasktheme.training.finish import finish
from tasktheme.training.loop import Trainer
from tasktheme.training.polish import polish, start_from_tasks


def end(value: Trainer) -> None:
    finish(value, lambda: False, None, progress=False)


def test_a_training_ends_with_a_word_on_unused_themes() -> None:
    value = small_trainer(steps=2, unused_themes="keep")
    value.run(progress=False)
    lose_a_theme(value)
    with pytest.warns(TrainingWarning, match="1 of 3 themes is unused"):
        end(value)


@pytest.mark.parametrize("kept", [False, True])
def test_the_final_em_drops_a_theme_without_data(kept: bool) -> None:
    value = small_trainer(polish_sweeps=3, covariance_prior=0.0, unused_themes="keep" if kept else "revive")
    value._initialise_themes()
    lose_a_theme(value)
    told = "1 of 3 themes is unused" if kept else "1 of 3 themes had next to no data points and was dropped"
    with pytest.warns(TrainingWarning, match=told):
        end(value)
    assert value.settings.themes == len(value.themes.alpha) == (3 if kept else 2)
    if not kept:
        assert float(value.themes.mu.abs().max()) < 500.0  # the lost one is the one that is gone
        assert float(value.themes.share.sum()) == pytest.approx(1.0)


def test_a_theme_without_data_comes_back_by_the_covariance_prior() -> None:
    """Its mean is that of the data nearest to it, its covariance that of all themes: it need not be dropped."""
    value = small_trainer(polish_sweeps=3)
    value._initialise_themes()
    lose_a_theme(value)
    end(value)
    assert value.settings.themes == len(value.themes.alpha) == 3
    assert float(value.themes.share.min()) > 0.1 / 3
    assert float(value.themes.mu.abs().max()) < 500.0


def test_a_final_em_that_starts_from_tasks_does_so_once() -> None:
    """The sweeps that follow start from those clusters, whatever the online themes were; what was swept already is kept."""
    value = small_trainer(steps=2, polish_sweeps=3, polish_start="tasks")
    value.run(progress=False)
    settings, embedded = value.settings, value.embedded_tasks(value.settings.polish_tasks)
    *_, expected = polish(settings, start_from_tasks(settings, embedded), embedded, settings.polish_sweeps)
    for name, tensor in expected.tensors().items():
        torch.testing.assert_close(value.themes.tensors()[name], tensor, rtol=1e-6, atol=1e-6)
    before = value.themes
    end(value)  # nothing is left to do
    assert value.themes is before
