"""Choosing K: the planted number comes back, the rule by hand, and what is held out of what."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

import tasktheme as tt
from oracles.plain import Array
from oracles.small import SMALL, small_images, small_vectors
from tasktheme.errors import DataError, TrainingError
from tasktheme.model.initialise import STARTS
from tasktheme.model.objective import objective
from tasktheme.nets.build import Networks
from tasktheme.training import choice
from tasktheme.training.choice import (
    Choice,
    HeldOutTasks,
    choose_themes,
    embedded_parts,
    held_out_bound,
    held_out_groups,
    smallest_good,
)
from tasktheme.training.embedding import PlacedTasks, TaskPoints, embed_tasks
from tasktheme.training.loop import Trainer

CPU = torch.device("cpu")


def planted(themes: int, tasks: int, seed: int) -> list[Array]:
    """Tasks of 40 points from Gaussians at the corners of a cube, six deviations apart."""
    rng = np.random.default_rng(seed)
    corners = 6.0 * (np.arange(8)[:, None] >> np.arange(3) & 1)[:themes]
    mixtures = rng.dirichlet(np.full(themes, 0.7), size=tasks)
    return [corners[rng.choice(themes, size=40, p=mixture)] + rng.normal(size=(40, 3)) for mixture in mixtures]


@pytest.mark.parametrize("themes", [2, 4, 8])
def test_the_planted_number_is_found(themes: int) -> None:
    settings = SMALL.changed({"themes": "auto", "concentration": 0.7, "polish_tasks": 120})
    model = tt.PTM(settings=settings, device="cpu").fit(planted(themes, 120, seed=themes), tasks=40, progress=False)
    found = model.trained_on["choice_of_themes"]
    assert found["themes"] == themes == model.settings.themes == len(model.themes.alpha)
    assert {row["themes"] for row in found["curve"]} >= {2, 4, 8}
    assert found["curve"][0]["below"] > found["curve"][0]["error"] or themes == 2


def test_aspects_have_the_number_that_is_planted_in_each() -> None:
    settings = SMALL.changed({"themes": "auto", "aspects": 2, "concentration": 0.7, "polish_tasks": 120})
    tasks = []
    for first, second in zip(planted(4, 120, seed=0), planted(4, 120, seed=1), strict=True):
        tasks.append(np.empty((40, 6)))
        tasks[-1][:, ::2], tasks[-1][:, 1::2] = first, second  # as aspects are dealt out
    model = tt.PTM(settings=settings, device="cpu").fit(tasks, tasks=40, progress=False)
    assert model.choice is not None
    assert model.choice.themes == model.settings.themes == 4  # of one aspect there are 16
    assert model.themes.mu.shape == (8, 3)
    again = model.refit(tasks, themes="auto", progress=False)
    assert (again.settings.aspects, again.choice) == (2, model.choice)
    started = model.refit(tasks, themes="auto", polish_start="tasks", progress=False)
    assert started.themes.mu.shape == (8, 3)


def test_the_bound_of_aspects_is_the_sum_of_theirs() -> None:
    data, settings = small_vectors(), SMALL.changed({"aspects": 2, "ways": (2, 2)})
    fitted, held_out = embedded_parts(settings, Networks(settings, (6,), CPU).encoder, data, data.tensor, (3, 3))
    whole = choose_themes(settings, fitted, held_out, ladder=(2, 4)).curve
    parts = [
        choose_themes(
            settings.changed({"aspects": 1}),
            fitted.aspect(aspect, 2),
            HeldOutTasks(held_out.halves.aspect(aspect, 2), held_out.group),
            ladder=(2, 4),
        ).curve
        for aspect in range(2)
    ]
    for row, *own in zip(whole, *parts, strict=True):
        assert row["bound"] == pytest.approx(sum(part["bound"] for part in own), rel=1e-5)
    assert abs(parts[0][0]["bound"] - parts[1][0]["bound"]) > 0.01  # unlike each other


def test_only_the_themes_that_are_kept_start_from_many_clusterings(monkeypatch: pytest.MonkeyPatch) -> None:
    clusterings: list[tuple[int, int]] = []

    def fit(self: KMeans, x: Array) -> KMeans:
        clusterings.append((self.n_clusters, self.n_init))
        return original(self, x)

    original = KMeans.fit
    monkeypatch.setattr(KMeans, "fit", fit)
    tt.PTM("auto", device="cpu", settings=SMALL).fit(planted(4, 60, seed=0), tasks=20, progress=False)
    begun, kept = clusterings[0], clusterings[-1]
    tried = clusterings[1:-1]
    assert (begun, kept) == ((3, STARTS), (4, STARTS))
    assert [themes for themes, _ in tried] == [2, 4, 8, 16]
    assert max(starts for _, starts in tried) <= STARTS // 3


def test_the_choice_is_saved_with_the_model(tmp_path: object) -> None:
    model = tt.PTM("auto", device="cpu", settings=SMALL).fit(planted(4, 60, seed=0), tasks=20, progress=False)
    model.save(f"{tmp_path}/model")
    loaded = tt.PTM.load(f"{tmp_path}/model", device="cpu")
    assert loaded.trained_on == model.trained_on
    assert loaded.choice == model.choice is not None
    assert loaded.settings == model.settings
    assert loaded.settings.themes == 4
    others = planted(4, 5, seed=1)
    np.testing.assert_array_equal(loaded.embed(others).mean_mixture(), model.embed(others).mean_mixture())


def test_the_smallest_within_an_error_of_the_best() -> None:
    scores = {
        2: np.array([1.0, 3.0, 5.0]),
        4: np.array([4.9, 6.5, 7.9]),
        8: np.array([5.0, 7.0, 7.8]),
        16: np.array([1.0, 1.0, 1.0]),
    }
    found = smallest_good(scores)
    assert found.themes == 4  # below 8 by 0.1, 0.5 and -0.1: 0.167 with an error of 0.176
    row = found.curve[1]
    assert row["below"] == pytest.approx(0.5 / 3)
    assert row["error"] == pytest.approx(np.std([0.1, 0.5, -0.1], ddof=1) / np.sqrt(3))
    scores[4] -= 0.02
    assert smallest_good(scores).themes == 8
    assert "8 themes" in str(smallest_good(scores))


def test_one_held_out_group_has_no_error_and_the_best_wins() -> None:
    assert smallest_good({2: np.array([1.0]), 4: np.array([1.5]), 8: np.array([1.4])}).themes == 4


def test_whole_groups_are_held_out_where_there_are_enough() -> None:
    x = np.arange(40.0)[:, None]
    data = tt.Dataset.from_arrays(x, np.arange(40) // 2, np.arange(40) // 4)
    divided, held = held_out_groups(SMALL.changed({"ways": (1, 3)}), data)
    assert divided is data
    assert held.sum() == 3  # of ten
    assert not torch.equal(held, held_out_groups(SMALL.changed({"ways": (1, 3), "seed": 1}), data)[1])


def test_classes_are_held_out_of_few_groups() -> None:
    data = small_images()  # two groups of four classes
    divided, held = held_out_groups(SMALL.changed({"ways": (2, 3)}), data)
    assert held.tolist() == [False, True, False, True]
    assert np.bincount(divided.class_group).tolist() == [2, 2, 2, 2]
    assert divided.x is data.x
    for new, old in zip(divided.class_group, data.class_group, strict=True):
        assert divided.group_names[new].startswith(data.group_names[old])


def test_too_few_classes_are_an_error_before_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "run", None)
    with pytest.raises(DataError, match="needs 4 groups, or 6 classes in a group, to hold some out: set themes to a number"):
        tt.PTM("auto", settings=SMALL, device="cpu").fit(small_images(), tasks=20, progress=False)


@pytest.mark.parametrize("kind", ["groups", "classes", "unlabelled"])
def test_scored_data_points_are_never_fitted_to(kind: str) -> None:
    """Each data point is its own row number, so that the embeddings tell which rows were used."""
    rows = np.arange(240.0)[:, None].repeat(2, axis=1)
    if kind == "unlabelled":
        data = tt.Dataset.from_tasks(np.split(rows, 24))
    else:
        data = tt.Dataset.from_arrays(rows, np.arange(240) // 10, np.arange(240) // (40 if kind == "groups" else 120))
    settings = SMALL.changed({"ways": (2, 2)})
    encoder = Networks(settings, (2,), CPU).encoder
    fitted, scored = embedded_parts(settings, encoder, data, data.tensor, (3, 3))
    fit, held = ({float(value) for value in points.m[:, 0]} for points in (fitted, scored.halves))
    assert len(fit) > 100
    assert len(held) > 10
    assert not fit & held
    halves = scored.halves.tasks
    assert sum(len(half.mask) for half in halves) == 2 * len(scored.group)
    for t, v in zip(halves[::2], halves[1::2], strict=True):
        assert t.mask.any(dim=1).all()
        for first, second in zip(t.points[t.place], v.points[v.place], strict=True):
            assert not set(first.tolist()) & set(second.tolist())


def test_the_score_is_the_lda_part_of_the_objective() -> None:
    data, settings = small_vectors(), SMALL
    networks = Networks(settings, data.point_shape, CPU)
    trainer = Trainer(settings, networks, data, 5, CPU)
    trainer._initialise_themes()
    t, v = trainer.sampler.draw(torch.arange(6), *trainer.halves)
    whole = objective(settings, trainer.themes, networks, data.tensor, t, v, torch.zeros(()))
    score = held_out_bound(settings, trainer.themes, embed_tasks(networks.encoder, data.tensor, [t, v]))
    assert float(score.mean()) == pytest.approx(-float(whole.loss), rel=1e-5)


def test_the_ladder_ends_where_scores_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    heights = {2: 1.0, 4: 3.0, 8: 2.0, 16: 2.5, 32: 9.0}
    tried: list[int] = []

    def score(settings: tt.Settings, themes: int, *_: object) -> torch.Tensor:
        tried.append(themes)
        return torch.full((3,), heights[themes])

    monkeypatch.setattr(choice, "start_themes", lambda settings, *_, **__: settings.themes)
    monkeypatch.setattr(choice, "held_out_bound", score)
    nothing = TaskPoints(torch.zeros(0, 1), torch.zeros(0, 1), [], 0)
    held_out = choice.HeldOutTasks(nothing, torch.arange(3))
    assert choose_themes(SMALL, nothing, held_out, ladder=tuple(heights)).themes == 4
    assert tried == [2, 4, 8, 16]


def test_the_ladder_ends_where_there_are_too_few_data_points() -> None:
    settings = SMALL.changed({"covariance": "isotropic", "covariance_floor": 0.5, "ways": (2, 2)})
    data, encoder = small_vectors(), Networks(settings, (6,), CPU).encoder
    fitted, held_out = embedded_parts(settings, encoder, data, data.tensor, (3, 3))
    three = torch.arange(3)[None]
    few = TaskPoints(fitted.m[:3], fitted.s[:3], [PlacedTasks.build(three, three >= 0)], 3)
    assert [row["themes"] for row in choose_themes(settings, few, held_out).curve] == [2]
    with pytest.raises(TrainingError, match="set themes to a number"):
        choose_themes(settings, few, held_out, ladder=[4])


@pytest.mark.parametrize("changes", [{"polish_sweeps": 0}, {"polish_tasks": 0}])
def test_the_number_is_chosen_without_a_final_em_too(changes: dict[str, int]) -> None:
    settings = SMALL.changed({"themes": "auto", **changes})
    model = tt.PTM(settings=settings, device="cpu").fit(planted(4, 60, seed=0), tasks=20, progress=False)
    assert len(model.themes.alpha) == 4
    assert float(model.themes.share.min()) > 0.1


def test_auto_in_every_spelling() -> None:
    assert tt.PTM("auto").settings.choose_themes
    auto = tt.Settings().changed({"themes": "auto"})
    assert auto == tt.Settings(choose_themes=True) == tt.Settings(themes="auto")  # type: ignore[arg-type]
    assert auto.changed({"themes": 16}) == tt.PTM(16, settings=auto).settings == tt.Settings(themes=16)
    assert auto.changed({"themes": 16, "choose_themes": True}).choose_themes
    assert auto.changed({"seed": 1}).choose_themes
    assert isinstance(smallest_good({2: np.zeros(2)}), Choice)


def test_a_second_fit_chooses_again(tmp_path: Path) -> None:
    model, data = tt.PTM("auto", settings=SMALL, device="cpu"), planted(4, 60, seed=0)
    file = tmp_path / "state"
    first = model.fit(data, tasks=20, progress=False, checkpoint=file).themes.mu
    assert model.settings.themes == 4 != SMALL.themes
    assert torch.equal(model.fit(data, tasks=20, progress=False).themes.mu, first)
    assert torch.equal(model.fit(data, tasks=20, progress=False, checkpoint=file, resume=True).themes.mu, first)
    model.settings = SMALL
    assert len(model.fit(data, tasks=20, progress=False).themes.alpha) == SMALL.themes


def test_of_many_unlabelled_tasks_some_of_all_kinds_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_TASKS", 30)
    settings = SMALL.changed({"themes": "auto"})
    kinds = tt.Dataset.from_tasks([np.full((6, 3), float(i // 30)) for i in range(90)])  # in the order of their kind
    fitted, held_out = embedded_parts(settings, Networks(settings, (3,), CPU).encoder, kinds, kinds.tensor, (3, 3))
    for part in (fitted, held_out.halves):
        assert len(torch.unique(part.m[:, 0])) == 3
    assert len(held_out.group) + sum(len(tasks.mask) for tasks in fitted.tasks) == 30
