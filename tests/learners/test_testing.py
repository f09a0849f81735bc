from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

import tasktheme as tt
from oracles.learners import SMALL
from oracles.small import small_images
from tasktheme.errors import DataError, ModelFileError, OutputError
from tasktheme.learners import testing
from tasktheme.learners.base import Noise, Points
from tasktheme.learners.build import build_learner
from tasktheme.learners.tasks import all_classes, listed_sampler
from tasktheme.learners.testing import Accuracies, listed_episodes, random_classes, task_accuracies


def test_all_choices_of_classes() -> None:
    data = small_images()  # two groups of four classes
    assert [tuple(row) for row in all_classes(data, 3, within_group=False).tolist()] == list(combinations(range(8), 3))
    expected = [*combinations(range(4), 3), *combinations(range(4, 8), 3)]
    assert [tuple(row) for row in all_classes(data, 3, within_group=True).tolist()] == expected
    with pytest.raises(DataError, match="too few classes"):
        all_classes(data, 5, within_group=True)


def test_all_tasks_of_twenty_classes_are_15504_and_too_many_are_refused() -> None:
    many = tt.Dataset.from_arrays(np.zeros((400, 1, 2, 2), dtype=np.uint8), np.arange(400) // 2)
    assert len(all_classes(many.select_classes(range(20)), 5, within_group=False)) == 15_504
    with pytest.raises(DataError, match="too many to list"):
        all_classes(many, 5, within_group=False)


SETTINGS = tt.MetaLearner("maml", ways=3, shots=2, queries=4).settings


def test_points_of_listed_tasks_are_of_their_classes_and_apart() -> None:
    data, classes = small_images(), torch.tensor([[5, 0, 3], [1, 2, 7]])
    sampler = listed_sampler(data, SETTINGS, classes, torch.device("cpu"), seed=0)
    support, query = sampler.draw(torch.arange(2), 2, 4)
    for part, shots in ((support, 2), (query, 4)):
        np.testing.assert_array_equal(part.rows // 10, classes.repeat_interleave(shots, dim=1))
        np.testing.assert_array_equal(part.labels[0], np.repeat(np.arange(3), shots))
        assert part.mask.all()
    for task in range(2):
        assert len(set(support.rows[task].tolist()) | set(query.rows[task].tolist())) == 18
    with pytest.raises(DataError, match="has 10 data points, but tasks ask for 11"):
        listed_sampler(data, SETTINGS.changed({"queries": 9}), classes, torch.device("cpu"), seed=0)


def test_accuracy_does_not_depend_on_how_many_tasks_are_tested_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_images()
    for name, settings in SMALL.items():
        learner = build_learner(name, settings | {"ways": 3, "queries": 5}, data.point_shape)
        classes = random_classes(data, learner.settings, 7, seed=0)
        whole = task_accuracies(learner, data, classes, seed=0)
        with monkeypatch.context() as patch:
            patch.setitem(testing._NUMBERS_AT_ONCE, "cpu", 3 * 18 * 16 * 16 * 4 * learner.networks)
            assert testing.tasks_at_once(learner, 18, torch.device("cpu")) == 3
            np.testing.assert_array_equal(task_accuracies(learner, data, classes, seed=0), whole)


def test_a_gpu_is_given_fewer_tasks_where_little_memory_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = build_learner("maml", {"filters": 32}, (3, 64, 64))
    gpu, numbers = torch.device("cuda"), 80 * 64 * 64 * 32
    for free, tasks in ((140 << 30, (1 << 31) // numbers), (24 << 30, (12 << 30) // (24 * numbers)), (1 << 20, 1)):
        testing._free_memory.cache_clear()
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda free=free: (free, 140 << 30))
        assert testing.tasks_at_once(learner, 80, gpu) == tasks
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (140 << 30, 140 << 30))
    for same in (gpu, torch.device("cuda:0")):  # which is what tensors there call it
        assert testing.tasks_at_once(learner, 80, same) == 1  # as it was first
    testing._free_memory.cache_clear()
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (4 << 30, 140 << 30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 30 << 30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 10 << 30)
    assert testing.tasks_at_once(learner, 80, gpu) == (12 << 30) // (
        24 * numbers
    )  # what torch holds and does not use is free too
    testing._free_memory.cache_clear()


@pytest.mark.parametrize("name", SMALL)
def test_accuracy_is_the_share_of_right_queries_one_task_at_a_time(name: str) -> None:
    data = small_images()
    learner = build_learner(name, SMALL[name] | {"ways": 3, "queries": 5}, data.point_shape)
    classes = random_classes(data, learner.settings, 7, seed=4)
    found = task_accuracies(learner, data, classes, seed=4)
    sampler = listed_sampler(data, learner.settings, classes, torch.device("cpu"), seed=4)
    for task, accuracy in enumerate(found):
        support, query = sampler.draw(torch.tensor([task]), 1, 5)
        images = [torch.from_numpy(data.x[part.rows.numpy()] / 255.0).float() for part in (support, query)]
        noise = Noise(4, torch.tensor([task]))
        adapted = learner.adapt(Points(images[0], support.labels, 3), noise)
        guesses = learner.predict(adapted, images[1], noise)[0].argmax(dim=-1)
        assert accuracy == pytest.approx((guesses == query.labels[0]).double().mean().item())
    assert 0.0 < found.mean() < 1.0


def test_episodes_hold_the_points_that_were_tested() -> None:
    data, classes = small_images(), torch.tensor([[5, 0, 3], [1, 2, 7]])
    episodes = listed_episodes(data, SETTINGS, classes, seed=3)
    support, query = listed_sampler(data, SETTINGS, classes, torch.device("cpu"), seed=3).draw(torch.arange(2), 2, 4)
    for task in range(2):
        assert set(episodes.batch.rows[task].tolist()) == {*support.rows[task].tolist(), *query.rows[task].tolist()}
    assert episodes.groups() == ["mixed", "mixed"]


def test_mean_and_interval_are_those_of_the_field() -> None:
    accuracy = np.array([0.2, 0.4, 0.6, 0.8])
    found = Accuracies(accuracy, {}, {})
    assert found.mean == pytest.approx(0.5)
    assert found.interval == pytest.approx(1.96 * np.std(accuracy, ddof=1) / 2)
    assert repr(found) == "50.00 % +- 25.30 over 4 tasks"


def test_accuracies_survive_a_file(tmp_path: Path) -> None:
    file = tmp_path / "made" / "a.parquet"
    found = Accuracies(
        np.array([0.25, 0.5]), {"classes": ["a b", "b c"], "group": ["x", "mixed"]}, {"seed": 1, "learner": "maml"}
    )
    found.save(file)
    again = Accuracies.load(file)
    np.testing.assert_array_equal(again.accuracy, found.accuracy)
    assert again.columns == found.columns
    assert again.about == found.about
    with pytest.raises(OutputError, match=r"exists already.*overwrite=True"):
        found.save(file)
    with pytest.raises(OutputError, match=r"a\.csv': the ending must be \.parquet"):
        found.save(tmp_path / "a.csv")
    tt.TaskSet(np.ones((2, 3)), np.ones(2, dtype=np.int64), np.ones(2, dtype=bool)).save(tmp_path / "t.parquet")
    with pytest.raises(ModelFileError, match="does not hold accuracies"):
        Accuracies.load(tmp_path / "t.parquet")
