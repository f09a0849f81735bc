"""What follows the last step: the final EM starts where it should, drops themes that nothing needs, and says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from oracles.trainers import lose_a_theme, small_trainer
from tasktheme.errors import Interrupted, TrainingError, TrainingWarning
from tasktheme.model.themes import Moments, Themes
from tasktheme.settings import Settings
from tasktheme.training import finish as finishing
from tasktheme.training.embedding import TaskPoints
from tasktheme.training.finish import _needed, finish
from tasktheme.training.loop import Trainer
from tasktheme.training.polish import em_sweep, polish, start_from_tasks


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


def test_after_themes_are_dropped_the_others_are_swept_once_more() -> None:
    value = small_trainer(covariance_prior=0.0)
    value._initialise_themes()
    lose_a_theme(value)
    embedded = value.embedded_tasks(8)
    kept = value.themes.select(torch.tensor([False, True, True]), floor=value.settings.covariance_floor)
    expected = em_sweep(value.settings, kept, embedded)
    with pytest.warns(TrainingWarning, match="dropped"):
        found = _needed(value.settings, value.themes, embedded)
    torch.testing.assert_close(found.tensors(), expected.tensors())
    assert (found.mu - kept.mu).abs().max() > 1e-3


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


def of_aspects(**changes: object) -> Trainer:
    """Themes of the three features of each of two aspects, not yet fitted."""
    return small_trainer(aspects=2, polish_sweeps=3, polish_tasks=8, **changes)


@pytest.mark.parametrize("start", ["themes", "tasks"])
def test_each_aspect_is_a_final_em_of_its_own(start: str) -> None:
    value = of_aspects(polish_start=start)
    value.refit_themes(progress=False)
    found, embedded = value.themes, value.embedded_tasks(8)
    for aspect in range(2):
        part = embedded.aspect(aspect, 2)
        torch.testing.assert_close(part.m, embedded.m[:, aspect::2])
        if start == "themes":
            value.themes = value.first_themes(part)
            begun = value.themes
        else:
            begun = start_from_tasks(value.settings, part)
        *_, expected = polish(value.settings, begun, part, 3)
        for name, tensor in expected.tensors().items():
            torch.testing.assert_close(found.tensors()[name].chunk(2)[aspect], tensor, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("off", ["polish_sweeps", "polish_tasks"])
def test_without_a_final_em_aspects_keep_the_themes_that_they_start_with(off: str, trained: bool) -> None:
    value = small_trainer(**{"aspects": 2, "polish_sweeps": 3, "polish_tasks": 8, "polish_start": "tasks", off: 0})
    if trained:
        value.run(progress=False)
        assert value.themes.aspects == 2
    else:
        value.refit_themes(progress=False)
    found, embedded = value.themes, value.embedded_tasks(8 if off == "polish_sweeps" else value.first_tasks)
    value.themes = value.first_themes(embedded.aspect(1, 2))
    torch.testing.assert_close(found.mu[3:], value.themes.mu)


def test_aspects_are_interrupted_checked_and_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Interrupted, match="interrupted in aspect 1 of 2"):
        finish(of_aspects(), lambda: True, None, progress=False)
    value, asked = of_aspects(), iter([*[False] * 5, True])  # after the last of six sweeps there is nothing to give up
    finish(value, lambda: next(asked), None, progress=False)
    assert value.finished

    def lost(settings: Settings, themes: Themes, data: TaskPoints, sweeps: int) -> Iterator[Themes]:
        n = torch.tensor(share)
        yield Themes.build(themes.alpha, Moments(n, themes.mu, sign * themes.moments.Sigma), floor=0.0)

    monkeypatch.setattr(finishing, "polish", lost)
    share, sign = [0.02, 0.48, 0.5], 1.0  # less than a tenth of a third, more than a tenth of a sixth
    with pytest.warns(TrainingWarning, match="2 of 6 themes are unused"):
        of_aspects().refit_themes(progress=False)
    share = [0.01, 0.01, 0.98]
    with pytest.warns(TrainingWarning, match="2 of 2 aspects have collapsed, one of 3 has 98 %"):
        of_aspects().refit_themes(progress=False)
    sign = -1.0
    with pytest.raises(TrainingError, match="not positive definite"):
        of_aspects().refit_themes(progress=False)
