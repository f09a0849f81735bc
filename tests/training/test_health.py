"""Trainings that end with finite numbers and say nothing: they warn, and sound ones do not."""

from __future__ import annotations

import signal
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import tasktheme as tt
from oracles.small import SMALL, small_vectors
from oracles.trainers import lose_a_theme, small_trainer
from tasktheme.errors import Interrupted, TrainingWarning
from tasktheme.model.unused import unused
from tasktheme.training import loop
from tasktheme.training.checkpoint import resume_training, save_training
from tasktheme.training.embedding import EmbeddedTasks
from tasktheme.training.health import information, warn_of_embedding, warn_of_themes, warn_of_unused
from tasktheme.training.loop import Trainer


@pytest.mark.parametrize(("covariance", "encoder"), [("full", "identity"), ("diagonal", "identity"), ("full", "vector")])
def test_full_covariances_of_very_many_features_are_told(covariance: str, encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "run", lambda *_, **__: None)
    model = tt.PTM(settings=SMALL.changed({"covariance": covariance, "encoder": encoder}), device="cpu")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit([np.ones((9, 1000)), np.zeros((9, 1000))], tasks=4, progress=False)
        assert told == []
        model.fit([np.ones((9, 1001)), np.zeros((9, 1001))], tasks=4, progress=False)
    wanted = covariance == "full" and encoder == "identity"
    assert [("1,001 features" in str(one.message), one.category) for one in told] == [(True, TrainingWarning)] * wanted


@pytest.mark.parametrize(
    ("dim", "aspects", "covariance", "told"),
    [(10, 1, "full", True), (9, 1, "full", False), (10, 1, "diagonal", False), (20, 2, "full", True), (18, 2, "full", False)],
)
def test_a_choice_of_themes_by_few_data_points_is_told(dim: int, aspects: int, covariance: str, told: bool) -> None:
    tasks = list(np.random.default_rng(0).normal(size=(8, 9, dim)))  # 54 data points are fitted to, and 18 scored
    model = tt.PTM(settings=SMALL.changed({"encoder": "identity", "covariance": covariance}), device="cpu")
    model.fit(tasks, tasks=4, progress=False)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.refit(tasks, themes="auto", aspects=aspects, progress=False)
    said = [str(one.message) for one in found if "the number of themes is chosen by" in str(one.message)]
    assert [line.split(",")[0] for line in said] == ["the number of themes is chosen by 54 data points"] * told
    assert all("fewer than the 55 numbers" in line for line in said)


@pytest.mark.parametrize(("wide", "told"), [(100.0, False), (20_000.0, True)])
def test_features_of_very_different_spread_are_told(wide: float, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "run", lambda *_, **__: None)
    scale, place = np.array([1.0, 1e-4, 1.0, wide, 0.0, 0.0]), np.array([0, 0, 0, 0, 3.0, 1e6])
    columns = scale * np.random.default_rng(0).normal(size=(2, 9, 6)) + place
    for changes, expected in (({}, told), ({"standardise": True}, False), ({"encoder": "vector"}, False)):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            tt.PTM(settings=SMALL, device="cpu", **changes).fit(list(columns), tasks=4, progress=False)
        assert ["set standardise=true, which divides each feature" in str(one.message) for one in found] == [True] * expected


def test_unused_themes_that_are_left_alone_are_told() -> None:
    share = torch.tensor([0.5, 0.001, 0.498, 0.001])
    with pytest.warns(TrainingWarning, match=r"2 of 4 themes are unused.*try unused_themes='revive'"):
        warn_of_unused(unused(share), SMALL.changed({"unused_themes": "keep"}))
    with pytest.warns(TrainingWarning, match=r"2 of 4 themes are unused.*try a final EM \(polish_sweeps\)"):
        warn_of_unused(unused(share), SMALL)
    with pytest.warns(TrainingWarning, match=r"2 of 4 themes are unused.*: try fewer themes, or fewer aspects"):
        warn_of_unused(unused(share), SMALL.changed({"aspects": 5}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_unused(unused(torch.tensor([0.4, 0.1, 0.4, 0.1])), SMALL)


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
        assert warn_of_embedding(embedded(1.0, 1.0), tt.Settings())
    with pytest.warns(TrainingWarning, match=r"; train on more tasks$"):  # what is so already is no remedy
        assert warn_of_embedding(embedded(1.0, 1.0), tt.Settings(batch_tasks=5, network_start="data"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not warn_of_embedding(embedded(3.0, 0.5), tt.Settings())


def test_one_theme_with_everything_warns() -> None:
    with pytest.warns(TrainingWarning, match="one of 3 has 92 % of the data points"):
        assert warn_of_themes(torch.tensor([0.92, 0.04, 0.04]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not warn_of_themes(torch.tensor([0.88, 0.06, 0.06]))
        assert not warn_of_themes(torch.ones(1))
        assert not warn_of_themes(torch.ones(1), torch.ones(1))


def test_collapsed_aspects_are_counted() -> None:
    even, near, far = torch.tensor([0.5, 0.5]), torch.tensor([0.06, 0.94]), torch.tensor([0.97, 0.03])
    with pytest.warns(TrainingWarning, match="2 of 3 aspects have collapsed, one of 2 has 97 % .*: try fewer aspects"):
        assert warn_of_themes(near, even, far)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not warn_of_themes(even, even)


def test_a_training_with_collapsed_networks_warns_at_its_end() -> None:
    settings = SMALL.changed({"encoder": "vector", "bound_weight": 1000.0, "learning_rate": 0.05})
    with pytest.warns(TrainingWarning, match="embedding has collapsed"):
        tt.PTM(settings=settings, device="cpu").fit(small_vectors(), tasks=240, progress=False)


def test_a_sound_training_does_not_warn() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tt.PTM(settings=SMALL, device="cpu").fit(small_vectors(), tasks=80, progress=False)
    assert [str(warning.message) for warning in said] == []


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kept", [False, True])
def test_a_lost_theme_is_counted_and_comes_back(kept: bool, device: str) -> None:
    value = small_trainer(device, unused_themes="keep" if kept else "revive")
    value._initialise_themes()
    for _ in range(5):  # a GPU replays its record by then
        value.train_step()
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
    for _ in range(20):
        value.train_step()
    assert float(value.themes.share.min()) > 0.1 / 3  # and finds data of its own


def loses_one(value: Trainer) -> Trainer:
    """The same trainer, with a lost theme from the start."""
    start = value._initialise_themes

    def initialise() -> None:
        start()
        lose_a_theme(value)

    value._initialise_themes = initialise  # type: ignore[method-assign]
    return value


@pytest.mark.parametrize("kept", [False, True])
def test_the_history_tells_of_unused_themes(kept: bool) -> None:
    value = loses_one(small_trainer(steps=12, unused_themes="keep" if kept else "revive"))
    value.run(progress=False)
    assert [row["unused_themes"] for row in value.history] == [1.0, *([float(kept)] * 11)]


def test_the_preset_paper_leaves_themes_alone() -> None:
    assert tt.Settings.preset("paper").unused_themes == "keep"


def test_a_training_resumed_before_a_revival_gives_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_RECORDS", 3)  # every fourth step: the theme is lost when the training stops
    whole, first, second = loses_one(small_trainer(steps=12)), loses_one(small_trainer(steps=12)), small_trainer(steps=12)
    whole.run(progress=False)
    step = first.train_step

    def stop_in_the_third() -> None:
        if first.step == 2:
            signal.raise_signal(signal.SIGINT)
        step()

    first.train_step = stop_in_the_third  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        first.run(progress=False, checkpoint=lambda: save_training(first, tmp_path / "state"))
    assert float(first.themes.share.min()) < 0.01
    resume_training(second, tmp_path / "state")
    second.run(progress=False)
    assert [row["unused_themes"] for row in second.history] == [1.0, 0.0, 0.0]
    for name, value in whole.themes.tensors().items():
        assert torch.equal(second.themes.tensors()[name], value), name
