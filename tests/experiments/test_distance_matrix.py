from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm, ttest_1samp

import tasktheme as tt
from oracles.small import SMALL, small_images
from tasktheme.errors import DataError
from tasktheme.evaluation.retrieval import same_group_auc
from tasktheme.experiments.distance_matrix import auc_interval, block_tasks, distance_matrix, mean_interval, resampled_aucs


def grouped(groups: int = 4) -> tt.Dataset:
    places = np.arange(6 * groups).repeat(2)
    return tt.Dataset.from_arrays(np.zeros((len(places), 3)), places, places // 6)


def test_tasks_stand_in_blocks_of_one_group() -> None:
    data = grouped()
    listed = block_tasks(data, groups=3, tasks=4, ways=5, seed=2)
    groups = data.class_group[listed].reshape(3, 4 * 5)
    assert (groups == groups[:, :1]).all()
    assert len(set(groups[:, 0])) == 3
    assert all(len(set(row)) == 5 for row in listed.tolist())
    assert len({tuple(sorted(row)) for row in listed.tolist()}) > 3  # not one task over and over
    assert (listed == block_tasks(data, groups=3, tasks=4, ways=5, seed=2)).all()


@pytest.mark.parametrize(
    ("groups", "tasks", "said"),
    [
        (1, 5, "at least two tasks of each of two groups, got 5 of 1"),
        (5, 5, r"only 4 groups .* have 5 classes, 5 were asked for: --groups 4, or hold out more"),
        (3, 1, "got 1 of 3"),
    ],
)
def test_too_few_groups_or_tasks_are_refused(groups: int, tasks: int, said: str) -> None:
    with pytest.raises(DataError, match=said):
        block_tasks(grouped(), groups=groups, tasks=tasks, ways=5, seed=0)


def test_groups_of_too_few_classes_are_told() -> None:
    with pytest.raises(DataError, match=r"two groups with 99 classes, but .* has 0: hold out more"):
        block_tasks(grouped(), groups=2, tasks=2, ways=99, seed=0)


def test_a_group_that_counts_twice_is_one_that_stands_there_twice() -> None:
    generator = np.random.default_rng(0)
    kl, group = generator.uniform(size=(7, 7)).round(1), np.array(list("aabbbcc"))  # with ties
    rows, copy = [0, 1, 0, 1, 2, 3, 4], [0, 0, 1, 1, 0, 0, 0]  # a twice, b once, c never
    nearer = []
    same = [(i, j) for i in range(7) for j in range(7) if i != j and (group[rows[i]], copy[i]) == (group[rows[j]], copy[j])]
    other = [(i, j) for i in range(7) for j in range(7) if group[rows[i]] != group[rows[j]]]
    for i, j in same:
        nearer += [(np.sign(kl[rows[k], rows[m]] - kl[rows[i], rows[j]]) + 1) / 2 for k, m in other]
    plain, resampled = resampled_aucs(kl, group, np.array([[1, 1, 1], [2, 1, 0]]))
    assert plain == pytest.approx(same_group_auc(kl, group), abs=1e-12)
    assert resampled == pytest.approx(np.mean(nearer), abs=1e-12)


def test_the_interval_is_where_the_groups_are_told_apart_and_where_not() -> None:
    group = np.arange(10).repeat(5)
    apart = np.where(group[:, None] == group, 1.0, 2.0)
    assert auc_interval(apart, group, 0) == (1.0, 1.0)
    low, high = auc_interval(np.random.default_rng(0).uniform(size=(50, 50)), group, 0)
    assert low < 0.5 < high
    assert 0.02 < high - low < 0.4


def test_the_interval_of_the_auc_holds_95_percent_of_its_resamples() -> None:
    generator = np.random.default_rng(1)
    group, kl = np.arange(10).repeat(5), generator.uniform(size=(50, 50))
    times = np.stack([np.bincount(generator.integers(10, size=10), minlength=10) for _ in range(1000)])
    found = resampled_aucs(kl, group, times)
    low, high = auc_interval(kl, group, 0)
    assert np.mean(found < low) == pytest.approx(0.025, abs=0.015)
    assert np.mean(found > high) == pytest.approx(0.025, abs=0.015)
    assert high - low == pytest.approx(2 * norm.ppf(0.975) * found.std(), rel=0.1)  # they are nearly normal


def test_the_interval_of_the_mean_is_that_of_the_groups_means() -> None:
    generator = np.random.default_rng(0)
    group, values = generator.permutation(np.arange(10).repeat(5)), generator.normal(size=50)
    expected = ttest_1samp([values[group == each].mean() for each in range(10)], 0.0).confidence_interval(0.95)
    assert mean_interval(values, group) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_interval_of_the_mean_holds_it_though_tasks_of_a_group_are_alike() -> None:
    generator = np.random.default_rng(0)
    group = np.arange(10).repeat(5)
    values = generator.normal(size=(2000, 10)).repeat(5, axis=1) + 0.5 * generator.normal(size=(2000, 50))
    held = [low < 0.0 < high for low, high in (mean_interval(row, group) for row in values)]
    assert np.mean(held) == pytest.approx(0.95, abs=0.02)


def test_the_experiment_embeds_what_it_says() -> None:
    data = small_images()
    model = tt.PTM(settings=SMALL, device="cpu").fit(data, 8, progress=False)
    with pytest.raises(DataError, match="with 5 classes"):
        distance_matrix(model, data, groups=2)
    wide = tt.Dataset.from_arrays(data.x, np.arange(80) // 8, np.arange(80) // 40)
    found = distance_matrix(model, wide, groups=2, tasks=3, shots=4).as_dict()
    assert (found["tasks"], found["groups"]) == (6, 2)
    assert np.array(found["kl"]).shape == (6, 6)
    low, high = found["mean entropy interval"]
    assert (low + high) / 2.0 == pytest.approx(found["mean entropy"], abs=1e-12)
    low, high = found["auc interval"]
    assert low - 1e-12 <= found["auc"] <= high + 1e-12  # few tasks: all may be one number
