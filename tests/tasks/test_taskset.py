from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import tasktheme as tt
from tasktheme.errors import DataError
from tasktheme.tasks import distances, search

PRIOR = 0.1


def make(count: int = 30, themes: int = 4, seed: int = 0, fingerprint: str = "m") -> tt.TaskSet:
    generator = np.random.default_rng(seed)
    gamma = generator.gamma(2.0, 3.0, size=(count, themes)) + PRIOR
    sizes = generator.integers(1, 50, size=count)
    columns = {"name": [f"task {i}" for i in range(count)], "level": list(range(count))}
    return tt.TaskSet(gamma, sizes, generator.random(count) < 0.5, columns, fingerprint, np.full(themes, PRIOR))


def test_entropy_is_that_of_scipy() -> None:
    tasks = make()
    np.testing.assert_allclose(tasks.entropy(), [stats.dirichlet.entropy(gamma) for gamma in tasks.concentration])


def test_kl_is_exactly_zero_on_itself_and_positive_elsewhere() -> None:
    tasks = make()
    distances = tasks.kl(tasks)
    assert (np.diag(distances) == 0.0).all()
    assert (distances[~np.eye(30, dtype=bool)] > 0.0).all()


def test_equal_tasks_in_other_sets_are_at_distance_zero() -> None:
    tasks = tt.TaskSet(make().concentration * 1e5, make().sizes, make().converged)
    copy = tt.TaskSet(tasks.concentration.copy(), tasks.sizes, tasks.converged)
    assert (np.diag(tasks.kl(copy)) == 0.0).all()


def test_arrays_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        make().concentration[0, 0] = 1.0


def test_nobody_else_changes_a_task_set() -> None:
    whole = make()
    gamma, names = whole.concentration.copy(), list(whole.columns["name"])
    tasks = tt.TaskSet(gamma, whole.sizes, whole.converged, {"name": names, "place": (places := np.arange(30))})
    before = tasks.nearest(tasks, k=3).indices
    gamma[:] = 1000.0
    places[:] = 0
    names.append("another")
    np.testing.assert_array_equal(tasks.concentration, whole.concentration)
    np.testing.assert_array_equal(tasks.nearest(tasks, k=3).indices, before)
    assert list(tasks.columns["name"]) == list(whole.columns["name"])
    assert list(tasks.columns["place"]) == list(range(30))


def test_a_task_is_not_its_own_neighbour_in_a_copy_either(tmp_path: Path) -> None:
    tasks = make()
    tasks.save(tmp_path / "tasks.parquet")
    expected = tasks.nearest(tasks, k=3)
    for copy in (tt.TaskSet.load(tmp_path / "tasks.parquet"), dataclasses.replace(tasks), tasks[:]):
        found = tasks.nearest(copy, k=3)
        np.testing.assert_array_equal(found.indices, expected.indices)
        assert found.distances.min() > 0.0
    resized = tasks.resized(10).nearest(tasks.resized(10), k=1)
    assert (resized.indices[:, 0] != np.arange(30)).all()
    arrays = tasks.with_columns(name=np.array(tasks.columns["name"]))
    np.testing.assert_array_equal(arrays.nearest(tasks, k=3).indices, expected.indices)
    others = tasks.with_columns(name=[f"other {i}" for i in range(30)])
    assert (tasks.nearest(others, k=1).distances == 0.0).all()


@pytest.mark.parametrize("k", [0, -1])
def test_a_number_of_strongest_themes_is_checked(k: int) -> None:
    with pytest.raises(DataError, match=f"number of themes, must be at least 1, got {k}"):
        make().top_themes(k)


def test_mean_mixture_and_top_themes() -> None:
    tasks = make()
    np.testing.assert_allclose(tasks.mean_mixture(), [stats.dirichlet.mean(gamma) for gamma in tasks.concentration])
    assert [sorted(row, reverse=True)[:2] for row in tasks.concentration.tolist()] == [
        [tasks.concentration[i, k] for k in row] for i, row in enumerate(tasks.top_themes(2))
    ]


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_an_interval_holds_its_level_of_draws_and_half_of_the_rest_on_each_side(level: float) -> None:
    tasks = make(3)
    low, high = tasks.interval(level)
    draws = np.stack([np.random.default_rng(5).dirichlet(gamma, size=40_000) for gamma in tasks.concentration], axis=1)
    np.testing.assert_allclose((draws < low).mean(axis=0), (1.0 - level) / 2.0, atol=0.008)
    np.testing.assert_allclose((draws > high).mean(axis=0), (1.0 - level) / 2.0, atol=0.008)


def test_an_interval_of_a_single_theme_is_certain_and_a_level_is_checked() -> None:
    low, high = make(themes=1).interval()
    assert (low == 1.0).all()
    assert (high == 1.0).all()
    for level in (0.0, 1.0, 90.0):
        with pytest.raises(DataError, match="between 0 and 1"):
            make().interval(level)


def test_concatenate_undoes_slicing_and_fills_columns_that_are_missing() -> None:
    tasks = make()
    again = tt.TaskSet.concatenate([tasks[:7], tasks[7:]])
    np.testing.assert_array_equal(again.concentration, tasks.concentration)
    np.testing.assert_array_equal(again.sizes, tasks.sizes)
    np.testing.assert_array_equal(again.converged, tasks.converged)
    assert dict(again.columns) == dict(tasks.columns)
    assert again.fingerprint == "m"
    mixed = tt.TaskSet.concatenate([tasks[:2], tasks[:1].with_columns(group=["a"])])
    assert mixed.columns["group"] == [None, None, "a"]
    with pytest.raises(DataError, match="different models"):
        tt.TaskSet.concatenate([tasks, make(fingerprint="other")])
    with pytest.raises(DataError, match="nothing to concatenate"):
        tt.TaskSet.concatenate([])


def test_concatenated_tasks_keep_a_prior_that_is_known_and_refuse_two() -> None:
    known = make()
    unknown, other = (dataclasses.replace(known, prior=prior) for prior in (None, np.full(4, 0.2)))
    for parts in ([known, unknown], [unknown, known]):
        np.testing.assert_array_equal(tt.TaskSet.concatenate(parts).prior, known.prior)
    assert tt.TaskSet.concatenate([unknown, unknown]).prior is None
    with pytest.raises(DataError, match="different priors"):
        tt.TaskSet.concatenate([known, unknown, other])


def test_log_likelihoods_go_with_their_tasks() -> None:
    tasks = dataclasses.replace(make(), log_likelihood=np.arange(float(len(make()))))
    assert tasks[[3, 1]].log_likelihood == pytest.approx([3.0, 1.0])
    again = tt.TaskSet.concatenate([tasks[:7], tasks[7:]])
    np.testing.assert_array_equal(again.log_likelihood, tasks.log_likelihood)
    assert tt.TaskSet.concatenate([tasks, make()]).log_likelihood is None
    np.testing.assert_array_equal(tasks.resized(10).log_likelihood, tasks.log_likelihood)
    with pytest.raises(DataError, match="finite"):
        dataclasses.replace(make(), log_likelihood=np.full(len(make()), np.nan))
    with pytest.raises(DataError, match="expected"):
        dataclasses.replace(make(), log_likelihood=np.zeros(1))


@pytest.mark.parametrize("block", [1, 7, 1 << 22])
def test_nearest_is_brute_force_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(search, "_PRODUCTS", block)
    query, reference = make(12, seed=1), make(40, seed=2)
    found = query.nearest(reference, k=3)
    distances = query.kl(reference)
    np.testing.assert_array_equal(found.indices, np.argsort(distances, axis=1)[:, :3])
    np.testing.assert_allclose(found.distances, np.sort(distances, axis=1)[:, :3])


def test_a_task_is_not_its_own_neighbour_unless_it_is_in_another_set() -> None:
    tasks = make()
    assert (tasks.nearest(tasks, k=29).indices != np.arange(30)[:, None]).all()
    assert (tasks[:20].nearest(tasks, k=1).indices[:, 0] == np.arange(20)).all()


@pytest.mark.parametrize("k", [0, 30, 2.5])
def test_k_out_of_range_says_the_range(k: float) -> None:
    tasks = make()
    with pytest.raises(DataError, match="between 1 and 29"):
        tasks.nearest(tasks, k=k)


def test_tasks_of_different_models_do_not_mix() -> None:
    for other in (make(fingerprint="other"), make(themes=5)):
        with pytest.raises(DataError, match="different models"):
            make().kl(other)
        with pytest.raises(DataError, match="different models"):
            make().nearest(other)


@pytest.mark.parametrize(("count", "k"), [(2, 1), (6, 5), (30, 5)])
def test_nearest_takes_five_or_all_there_are(count: int, k: int) -> None:
    tasks = make(count)
    found = tasks.nearest(tasks)
    assert found.indices.shape == (count, k)
    np.testing.assert_array_equal(found.indices, tasks.nearest(tasks, k=k).indices)


@pytest.mark.parametrize("method", ["kl", "symmetric_kl", "hellinger", "jensen_shannon", "nearest", "novelty"])
@pytest.mark.parametrize("other", [np.ones((3, 4)), None])
def test_other_things_than_task_sets_are_one_line(method: str, other: object) -> None:
    with pytest.raises(DataError, match=f"expected a TaskSet to compare with, such as embed gives, got {type(other).__name__}"):
        getattr(make(), method)(other)


def test_a_task_is_found_by_its_name() -> None:
    tasks = make()
    assert tasks["task 7"].columns == {"name": ["task 7"], "level": [7]}
    np.testing.assert_array_equal(tasks["task 7"].concentration, tasks[7].concentration)
    with pytest.raises(DataError, match="no task is named 'task 30'"):
        tasks["task 30"]
    with pytest.raises(DataError, match="2 tasks are named 'task 3'"):
        tt.TaskSet.concatenate([tasks, tasks[3]])["task 3"]
    with pytest.raises(DataError, match="no task is named 'a'"):
        tt.TaskSet(tasks.concentration, tasks.sizes, tasks.converged)["a"]


def test_slicing_takes_everything_along() -> None:
    tasks = make()
    some = tasks[[3, 1]]
    np.testing.assert_array_equal(some.concentration, tasks.concentration[[3, 1]])
    assert some.columns["name"] == ["task 3", "task 1"]
    assert some.fingerprint == "m"
    assert len(tasks[5:]) == 25
    assert tasks[7].columns["name"] == ["task 7"]
    assert len(tasks[tasks.sizes > 20]) == int((tasks.sizes > 20).sum())


def test_columns_are_checked() -> None:
    with pytest.raises(DataError, match="'group' has 2 values for 30 tasks"):
        make().with_columns(group=["a", "b"])
    with pytest.raises(DataError, match="cannot be called 'size'"):
        make().with_columns(size=list(range(30)))


def test_resized_tasks_have_the_evidence_of_so_many_data_points_in_the_same_proportions() -> None:
    tasks = make()
    resized = tasks.resized(10)
    np.testing.assert_allclose((resized.concentration - PRIOR).sum(axis=1), 10.0)
    before, after = tasks.concentration - PRIOR, resized.concentration - PRIOR
    np.testing.assert_allclose(after / after.sum(axis=1, keepdims=True), before / before.sum(axis=1, keepdims=True))
    assert (resized.sizes == 10).all()
    assert resized.columns == tasks.columns
    np.testing.assert_allclose(resized.resized(77).concentration, tasks.resized(77).concentration)


def test_a_task_and_its_double_are_the_same_once_resized() -> None:
    tasks = make()
    double = tt.TaskSet(2.0 * tasks.concentration - PRIOR, 2 * tasks.sizes, tasks.converged, {}, "m", tasks.prior)
    assert np.diag(tasks.kl(double)).min() > 1e-3
    assert np.diag(tasks.resized(20).kl(double.resized(20))).max() < 1e-12


def test_resizing_needs_the_prior_and_a_size() -> None:
    with pytest.raises(DataError, match="embed them again"):
        tt.TaskSet(make().concentration, make().sizes, make().converged).resized(5)
    for n in (0, -1, 2.5):
        with pytest.raises(DataError, match="whole number of at least 1"):
            make().resized(n)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gamma", "expected"),
    [(np.ones(3), r"\(tasks, themes\)"), (np.array([[1.0, 0.0]]), "above 0"), (np.array([[1.0, np.nan]]), "above 0")],
)
def test_parameters_are_checked(gamma: np.ndarray, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        tt.TaskSet(gamma, np.ones(len(gamma), dtype=np.int64), np.ones(len(gamma), dtype=np.bool_))
    with pytest.raises(DataError, match="sizes has 2 values, expected 1"):
        tt.TaskSet(np.ones((1, 2)), np.ones(2, dtype=np.int64), np.ones(1, dtype=np.bool_))


def test_numbers_of_any_kind_count_as_float64() -> None:
    gamma = np.array([[3.0, 1.5, 0.25], [1.0, 2.0, 8.0], [2.0, 2.0, 2.0]])
    wanted = tt.TaskSet(gamma, np.full(3, 4), np.ones(3, dtype=np.bool_), prior=np.full(3, 0.5))
    others = [
        tt.TaskSet(gamma.astype(np.float32), np.full(3, 4, dtype=np.int32), np.ones(3, dtype=np.bool_)),
        tt.TaskSet(gamma.tolist(), [4, 4, 4], [True, True, True], prior=[0.5, 0.5, 0.5]),  # type: ignore[arg-type]
    ]
    for found in others:
        assert np.array_equal(found.kl(wanted), wanted.kl(wanted))
        assert np.array_equal(found.entropy(), wanted.entropy())
        assert (found.sizes.dtype, found.converged.dtype) == (np.int64, np.bool_)
    whole = tt.TaskSet(np.array([[1, 2], [3, 4]]), np.ones(2, dtype=np.int64), np.ones(2, dtype=np.bool_))
    assert np.allclose(whole.entropy(), [stats.dirichlet(row).entropy() for row in ([1, 2], [3, 4])], rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("concentration", [[1.0], [2.0, 3.0]], "concentration must be an array of numbers, got"),
        ("concentration", [["a", "b"]], "concentration must be an array of numbers, got"),
        ("sizes", [1.5], "sizes must be an array of whole numbers"),
        ("converged", ["yes"], "converged must be an array of true or false"),
    ],
)
def test_other_things_than_numbers_are_one_line(name: str, value: object, said: str) -> None:
    whole = {"concentration": np.ones((1, 2)), "sizes": np.ones(1, dtype=np.int64), "converged": np.ones(1, dtype=np.bool_)}
    with pytest.raises(DataError, match=said):
        tt.TaskSet(**(whole | {name: value}))  # type: ignore[arg-type]


def test_pandas_gets_a_row_for_each_task() -> None:
    tasks = make()
    frame = tasks.to_pandas()
    assert list(frame.columns) == ["name", "level", "size", "converged", "gamma_0", "gamma_1", "gamma_2", "gamma_3"]
    np.testing.assert_array_equal(frame[[f"gamma_{k}" for k in range(4)]].to_numpy(), tasks.concentration)
    assert frame["name"].tolist() == tasks.columns["name"]


def in_aspects(seed: int = 0, count: int = 30) -> tuple[tt.TaskSet, list[tt.TaskSet]]:
    """Tasks in three aspects of four themes, and those of each aspect alone."""
    parts = [make(count, seed=3 * seed + i) for i in range(3)]
    gamma = np.concatenate([part.concentration for part in parts], axis=1)
    sizes, converged = parts[0].sizes, parts[0].converged
    return tt.TaskSet(gamma, sizes, converged, {}, "m", np.full(12, PRIOR), aspects=3), parts


@pytest.mark.parametrize("direction", ["forward", "reverse", "symmetric"])
def test_kl_of_several_aspects_is_the_sum_of_theirs(direction: distances.Direction) -> None:
    (tasks, parts), (others, other_parts) = in_aspects(), in_aspects(1, 7)
    wanted = sum(one.kl(other, direction=direction) for one, other in zip(parts, other_parts, strict=True))
    np.testing.assert_allclose(tasks.kl(others, direction=direction), wanted, rtol=1e-9)
    assert (np.diag(tasks.kl(tasks, direction=direction)) == 0.0).all()
    found = tasks.nearest(others, k=4, direction=direction)
    np.testing.assert_array_equal(found.indices, np.argsort(wanted, axis=1)[:, :4])
    np.testing.assert_allclose(found.distances, np.sort(wanted, axis=1)[:, :4], rtol=1e-9)
    kept = tasks.novelty(others, direction=direction)
    np.testing.assert_allclose(kept.distances, wanted.min(axis=1), rtol=1e-9)


def test_a_task_of_several_aspects_is_a_product_of_distributions() -> None:
    tasks, parts = in_aspects()
    np.testing.assert_allclose(tasks.entropy(), sum(part.entropy() for part in parts))
    for kind in ("hellinger", "jensen_shannon"):
        own = np.mean([getattr(part, kind)(part) ** 2 for part in parts], axis=0)
        np.testing.assert_allclose(getattr(tasks, kind)(tasks) ** 2, own, atol=1e-9)
    ground = np.full((12, 12), np.inf)  # nothing moves between aspects, whatever it costs
    for aspect in range(3):
        block = slice(4 * aspect, 4 * aspect + 4)
        ground[block, block] = 1.0 - np.eye(4) + aspect
    work = np.mean([part.earth_mover(part, 1.0 - np.eye(4) + aspect) ** 2 for aspect, part in enumerate(parts)], axis=0)
    np.testing.assert_allclose(tasks.earth_mover(tasks, ground) ** 2, work, atol=1e-9)
    np.testing.assert_allclose(tasks.mean_mixture(), np.concatenate([part.mean_mixture() for part in parts], axis=1))
    for ends in zip(tasks.interval(0.8), *(part.interval(0.8) for part in parts), strict=True):
        np.testing.assert_allclose(ends[0], np.concatenate(ends[1:], axis=1))
    resized = np.concatenate([part.resized(9).concentration for part in parts], axis=1)
    np.testing.assert_allclose(tasks.resized(9).concentration, resized)
    assert (tasks[3:5].aspects, tt.TaskSet.concatenate([tasks, tasks]).aspects) == (3, 3)


@pytest.mark.parametrize("aspects", [1, 3])
def test_no_tasks_have_everything_of_no_tasks(aspects: int) -> None:
    tasks = dataclasses.replace(in_aspects()[0], aspects=aspects)
    none = tasks[:0]
    assert none.mean_mixture().shape == none.interval()[0].shape == none.resized(5).concentration.shape == (0, 12)
    assert none.entropy().shape == (0,)
    for kind in ("kl", "hellinger", "jensen_shannon"):
        assert getattr(none, kind)(tasks).shape == (0, 30)
        assert getattr(tasks, kind)(none).shape == (30, 0)


def test_the_strongest_theme_has_the_largest_share_of_its_aspect() -> None:
    gamma = [[1.0, 9.0, 50.0, 40.0], [30.0, 20.0, 0.9, 0.1]]  # the second aspect's prior is the larger, or the smaller
    tasks = tt.TaskSet(gamma, np.full(2, 9), np.ones(2, dtype=np.bool_), aspects=2)
    np.testing.assert_array_equal(tasks.top_themes(2), [[1, 2], [2, 0]])


def test_themes_that_aspects_do_not_divide_say_so() -> None:
    tasks, _ = in_aspects()
    assert type(dataclasses.replace(tasks, aspects=np.int64(3)).aspects) is int
    for aspects in (0, 5, 3.0, "3"):
        with pytest.raises(DataError, match=f"12 themes cannot be those of {aspects} aspects"):
            dataclasses.replace(tasks, aspects=aspects)
    with pytest.raises(DataError, match="different models"):
        tasks.kl(dataclasses.replace(tasks, aspects=1))
    assert repr(tasks).startswith("TaskSet(30 tasks, 12 themes in 3 aspects,")
