"""Arms from their files: interrupted, joined, prolonged; what comes out of them."""

from __future__ import annotations

import json
import signal
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from matplotlib.text import Text
from scipy import stats

import tasktheme as tt
from oracles.lifelong import plain_average
from oracles.small import SMALL, small_images
from tasktheme.data.dataset import DataSplit
from tasktheme.errors import DataError, Interrupted, ModelFileError, SettingsError, TrainingError
from tasktheme.experiments.lifelong import arms as engine
from tasktheme.experiments.lifelong import run as running
from tasktheme.experiments.lifelong import section
from tasktheme.experiments.lifelong.arms import Arm, Programs, SideBySide
from tasktheme.experiments.lifelong.comparison import compare, mean_of, smoothed, tasks_in_common
from tasktheme.experiments.lifelong.lifelong import read_results, run_lifelong
from tasktheme.experiments.lifelong.records import Record, all_records, open_records
from tasktheme.experiments.lifelong.world import World
from tasktheme.learners.base import Learner
from tasktheme.learners.build import build_learner
from tasktheme.learners.testing import ListedTasks, random_classes, task_accuracies
from tasktheme.report.lifelong_plots import lifelong_figure
from tasktheme.selection.base import Tasks
from tasktheme.selection.build import POLICIES
from tasktheme.selection.task2vec import Task2Vec
from tasktheme.training import compiler

TINY: dict[str, Any] = {"ways": 3, "queries": 3, "filters": 4, "modules": 3, "pool": 6, "evaluate_every": 4, "test_tasks": 5}
COMMON: dict[str, Any] = {"learner": "protonet", "seeds": 2, "final_tasks": 9, "device": "cpu", "progress": False}


@pytest.fixture(scope="module")
def model() -> tt.PTM:
    return tt.PTM(settings=SMALL, device="cpu").fit(small_images(), 8, progress=False)


@pytest.fixture(scope="module")
def split() -> DataSplit:
    return DataSplit("small", small_images(), small_images(seed=1), small_images(seed=2))


@pytest.fixture(autouse=True)
def _few_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(section._AHEAD, "cpu", 3)


def records(out: Path, folder: str = "protonet-induction") -> list[Record]:
    return all_records(out / folder / "arms")


def assert_same(ours: list[Record], theirs: list[Record]) -> None:
    """To the bit, but for the time that it took."""
    assert [record.arm for record in ours] == [record.arm for record in theirs]
    for one, other in zip(ours, theirs, strict=True):
        for name in (field.name for field in fields(Record) if field.name not in ("seconds", "arm")):
            first, second = getattr(one, name), getattr(other, name)
            if name in ("state", "evaluated"):
                assert first.keys() == second.keys()
                for key, value in first.items():
                    np.testing.assert_array_equal(value, second[key], err_msg=f"{one.arm}: {name} {key}")
            elif isinstance(first, np.ndarray):
                np.testing.assert_array_equal(first, second, err_msg=f"{one.arm}: {name}")
            else:
                assert first == second, (one.arm, name)


def interrupt_at(patch: pytest.MonkeyPatch, step: int) -> None:
    original = SideBySide.train_step

    def interrupted(self: SideBySide) -> None:
        original(self)
        if self.step == step:
            signal.raise_signal(signal.SIGINT)

    patch.setattr(SideBySide, "train_step", interrupted)


@pytest.mark.parametrize(
    ("learner", "step", "changes"),
    [
        ("protonet", 1, {}),
        ("protonet", 5, {"patience": 1, "validate_every": 2, "validation_tasks": 3}),
        ("maml", 6, {"inner_steps": 1, "test_steps": 1}),
        ("abml", 4, {"inner_steps": 1, "test_steps": 1, "test_samples": 2}),
    ],
)
def test_interrupted_at_any_step_and_resumed_gives_the_same_bits(
    learner: str, step: int, changes: dict[str, Any], split: DataSplit, model: tt.PTM, tmp_path: Path
) -> None:
    how = COMMON | {"learner": learner, "policies": ("random", "diverse"), "model": model, "steps": 7, "changes": TINY | changes}
    folder = f"{learner}-induction"
    whole = run_lifelong(split, tmp_path / "whole", **how)
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(patch, step)
        with pytest.raises(Interrupted, match=f"after {step} of 7 steps"):
            run_lifelong(split, tmp_path / "parts", **how)
    assert {record.step for record in records(tmp_path / "parts", folder)} == {step}
    parts = run_lifelong(split, tmp_path / "parts", **how)
    assert_same(records(tmp_path / "parts", folder), records(tmp_path / "whole", folder))
    for result in (parts, whole):
        for policy in result["policies"].values():
            policy.pop("milliseconds_per_step")
    assert parts == whole
    assert [len(record.picked) for record in records(tmp_path / "whole", folder)] == [7] * 4


@pytest.mark.parametrize("step", [0, 4])
def test_an_interrupt_does_not_wait_for_a_long_test_on_the_way(
    step: int, split: DataSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arms are kept as they are, and the test is made when they go on."""
    how = COMMON | {
        "policies": ("random",),
        "steps": 6,
        "changes": TINY | {"patience": 9, "validate_every": 4, "validation_tasks": 3},
    }
    monkeypatch.setattr("tasktheme.learners.testing.tasks_at_once", lambda *_: 2)  # five test tasks are more than one part
    whole = run_lifelong(split, tmp_path / "whole", **how)
    tests: list[int] = []
    original = ListedTasks.accuracies

    def interrupted(self: ListedTasks, *arguments: Any, **more: Any) -> torch.Tensor:
        if len(self) == 5:
            tests.append(len(tests))
            if len(tests) == (1 if step == 0 else 2):
                signal.raise_signal(signal.SIGINT)
        return original(self, *arguments, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ListedTasks, "accuracies", interrupted)
        with pytest.raises(Interrupted, match=f"after {step} of 6 steps"):
            run_lifelong(split, tmp_path / "parts", **how)
    assert [(record.step, list(record.evaluated)) for record in records(tmp_path / "parts")] == ([(4, [0])] * 2 if step else [])
    if step:  # and the user wants no more steps
        for out in ("parts", "straight"):
            run_lifelong(split, tmp_path / out, **how | {"steps": 4})
        assert_same(records(tmp_path / "parts"), records(tmp_path / "straight"))
        assert [list(record.validated) for record in records(tmp_path / "parts")] == [[4], [4]]
    parts = run_lifelong(split, tmp_path / "parts", **how)
    assert_same(records(tmp_path / "parts"), records(tmp_path / "whole"))
    assert [policy["curve"] for policy in parts["policies"].values()] == [
        policy["curve"] for policy in whole["policies"].values()
    ]


def test_first_pools_are_described_once_and_can_be_interrupted(
    split: DataSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large pool takes Task2Vec long: an interrupt ends it between two parts, and arms that go on do not repeat it."""
    small = {"ways": 3, "queries": 3, "filters": 4, "modules": 3, "inner_steps": 1, "test_steps": 1, "batch_tasks": 2}
    probe = tt.MetaLearner("maml", device="cpu", **small).fit(split.train, 2, progress=False)
    how = COMMON | {"policies": ("task2vec",), "probe": probe, "changes": TINY, "steps": 2, "seeds": 1}
    monkeypatch.setattr(World, "_tasks_at_once", lambda self: 4)  # the pool of six tasks is two parts
    parts: list[tuple[int, int]] = []
    original = World.describe

    def watched(self: World, policy: Any, seed: int, first: int, count: int, *more: Any) -> torch.Tensor:
        parts.append((first, count))
        return original(self, policy, seed, first, count, *more)

    monkeypatch.setattr(World, "describe", watched)
    described: list[int] = []
    with pytest.MonkeyPatch.context() as patch:

        def interrupted(self: Task2Vec, tasks: Tasks) -> torch.Tensor:
            described.append(len(tasks))
            signal.raise_signal(signal.SIGINT)
            return embed(self, tasks)

        embed = Task2Vec.describe
        patch.setattr(Task2Vec, "describe", interrupted)
        with pytest.raises(Interrupted, match="before its first step"):
            run_lifelong(split, tmp_path, **how)
    assert described == [4]
    assert records(tmp_path) == []

    parts.clear()
    run_lifelong(split, tmp_path, **how)
    assert parts == [(0, 6), (6, 3)]
    parts.clear()
    run_lifelong(split, tmp_path, **how | {"steps": 3})
    assert parts == [(6, 3)]


@pytest.mark.usefixtures("uncompiled")
def test_compiled_arms_go_on_without_compiling_and_the_other_way_round(
    split: DataSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "compiler_fault", lambda device: None)
    monkeypatch.setitem(running._FINAL_BLOCK, "cpu", 8)  # four tasks of each of the two arms
    monkeypatch.setattr("tasktheme.learners.testing.tasks_at_once", lambda *_: 6)  # three of each of the two arms
    used: list[Programs] = []
    original = running.Experiment.run
    monkeypatch.setattr(running.Experiment, "run", lambda self, *a, **k: (used.append(self.programs), original(self, *a, **k))[1])
    own = {"patience": 9, "validate_every": 2, "validation_tasks": 4}
    how = COMMON | {"policies": ("random",), "changes": TINY | own}
    for out, ways in {"plain": (False, False), "first": (True, False), "last": (False, True)}.items():
        for steps, compiled in zip((2, 4), ways, strict=True):
            run_lifelong(split, tmp_path / out, steps=steps, compiled=compiled, **how)
    assert [(len(made.learn.made), len(made.test.made)) for made in used] == [(0, 0), (0, 0), (1, 1), (0, 0), (0, 0), (1, 1)]
    plain, *others = (records(tmp_path / out) for out in ("plain", "first", "last"))
    for other in others:
        for ours, theirs in zip(other, plain, strict=True):
            np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(ours.final, theirs.final)
            np.testing.assert_array_equal([*ours.evaluated.values()], [*theirs.evaluated.values()])
            assert ours.validated == theirs.validated


def test_no_compiler_is_one_clear_line(split: DataSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "compiler_fault", lambda device: "no C++ compiler")
    with pytest.raises(SettingsError, match=r"cannot compile the step here: no C\+\+ compiler; go without compiling it"):
        run_lifelong(split, tmp_path, policies=("random",), steps=1, compiled=True, changes=TINY, **COMMON)


def test_a_last_test_goes_on_where_it_was_interrupted(split: DataSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(running._FINAL_BLOCK, "cpu", 8)  # four tasks of each of the two arms
    how = COMMON | {"policies": ("random",), "steps": 2, "changes": TINY}
    run_lifelong(split, tmp_path / "whole", **how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "new_learners", lambda *a, keep=running.new_learners: (signal.raise_signal(2), keep(*a))[1])
        with pytest.raises(Interrupted, match="last test was interrupted after 4 of 9 tasks"):
            run_lifelong(split, tmp_path / "parts", **how)
    assert [len(record.final) for record in records(tmp_path / "parts")] == [4, 4]
    run_lifelong(split, tmp_path / "parts", **how)
    assert_same(records(tmp_path / "parts"), records(tmp_path / "whole"))


def test_each_test_is_of_its_own_classes(split: DataSplit, tmp_path: Path) -> None:
    """With the weights of the end: fixed and last tasks of the test classes, validation tasks of theirs."""
    more = {"patience": 9, "validate_every": 4, "validation_tasks": 8, "test_tasks": 8}
    run_lifelong(split, tmp_path, policies=("random",), steps=4, **COMMON, changes=TINY | more)
    for record in records(tmp_path):
        learner = build_learner("protonet", record.identity["settings"], split.train.point_shape)
        learner.load_state_dict(
            {name.removeprefix("weights."): value for name, value in record.state.items() if name.startswith("weights.")}
        )

        def tested(data: tt.Dataset | None, tasks: int, seed: int, learner: Learner = learner) -> np.ndarray:
            assert data is not None
            return task_accuracies(learner, data, random_classes(data, learner.settings, tasks, seed=seed), seed=seed)

        np.testing.assert_allclose(record.evaluated[4], tested(split.test, 8, 1))
        np.testing.assert_allclose(record.final, tested(split.test, 9, 2))
        assert record.validated == {4: pytest.approx(tested(split.val, 8, 3).mean())}
        for wrong in (split.train, split.test):
            assert record.validated[4] != pytest.approx(tested(wrong, 8, 3).mean())
        assert not np.allclose(record.final, tested(split.train, 9, 2))
        assert not np.allclose(record.evaluated[4], tested(split.train, 8, 1))


def test_a_last_test_that_is_not_whole_does_not_count(
    split: DataSplit, model: tt.PTM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted in the last test of a policy, the user goes on with another one first."""
    monkeypatch.setitem(running._FINAL_BLOCK, "cpu", 8)  # four tasks of each of the two arms
    how = COMMON | {"model": model, "steps": 2, "changes": TINY}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "new_learners", lambda *a, keep=running.new_learners: (signal.raise_signal(2), keep(*a))[1])
        with pytest.raises(Interrupted, match="after 4 of 9 tasks"):
            run_lifelong(split, tmp_path, policies=("random",), **how)
    result = run_lifelong(split, tmp_path, policies=("ptm",), **how)
    assert "final" in result["policies"]["ptm"]
    assert "final" not in result["policies"]["random"]
    assert result["comparisons"] == []
    result = run_lifelong(split, tmp_path, policies=("random",), **how)
    assert [pair["seeds"] for pair in result["comparisons"]] == [[0, 1]]


def test_tests_of_other_tasks_are_not_compared_though_they_are_as_many(split: DataSplit, tmp_path: Path) -> None:
    how = COMMON | {"policies": ("random",), "steps": 1, "changes": TINY}
    every = run_lifelong(split, tmp_path, **how | {"final_tasks": "all"})
    count = every["final_tasks"]
    result = run_lifelong(split, tmp_path, **how | {"final_tasks": count, "seeds": 1})
    assert result["final_tasks"] == count
    final = result["policies"]["random"]["final"]
    assert (final["seeds"], len(final["by_seed"])) == ([0], 1)  # the other seed was tested on all choices of classes
    table = pq.read_table(tmp_path / "protonet-induction" / "final.parquet").to_pandas()
    assert set(table.seed) == {0}


def test_more_steps_seeds_and_policies_add_to_what_is_there(split: DataSplit, model: tt.PTM, tmp_path: Path) -> None:
    how = COMMON | {"model": model, "changes": TINY}
    run_lifelong(split, tmp_path / "whole", policies=("random", "ptm"), steps=6, **how)
    run_lifelong(split, tmp_path / "parts", policies=("random",), steps=2, **how | {"seeds": 1})
    first = records(tmp_path / "parts")
    assert [(record.step, len(record.final)) for record in first] == [(2, 9)]
    run_lifelong(split, tmp_path / "parts", policies=("ptm",), steps=4, **how)
    result = run_lifelong(split, tmp_path / "parts", policies=("random", "ptm"), steps=6, **how)
    assert list(result["policies"]) == ["ptm", "random"]
    for ours, theirs in zip(records(tmp_path / "parts"), records(tmp_path / "whole"), strict=True):
        assert ours.arm == theirs.arm
        np.testing.assert_array_equal(ours.picked, theirs.picked)
        np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-2)  # other neighbours, other rounding
        assert len(ours.final) == 9


def test_what_is_written(split: DataSplit, model: tt.PTM, tmp_path: Path) -> None:
    how = COMMON | {"model": model, "changes": TINY, "steps": 9}
    result = run_lifelong(split, tmp_path, policies=("random", "ptm"), smoothing=0.5, **how)
    folder = tmp_path / "protonet-induction"
    assert json.loads((folder / "lifelong.json").read_text()) == result
    assert [found["learner"] for found in read_results(tmp_path)] == ["protonet"]
    kept = records(tmp_path)
    curves = pq.read_table(folder / "curves.parquet").to_pandas()
    assert curves.groupby(["policy", "seed"])["step"].apply(list).tolist() == [[0, 4, 8]] * 4
    for record in kept:
        rows = curves[(curves.policy == record.arm.policy) & (curves.seed == record.arm.seed)]
        means = [float(np.mean(record.evaluated[step])) for step in (0, 4, 8)]
        np.testing.assert_allclose(rows.accuracy, means)
        np.testing.assert_allclose(rows.smoothed, [means[0], *plain_average(means[1:], 0.5)])
    starts = curves[curves.step == 0].groupby("seed").accuracy.nunique()
    assert starts.tolist() == [1, 1]  # policies start alike
    picks = pq.read_table(folder / "picks.parquet").to_pandas()
    assert list(picks.columns) == ["policy", "seed", "step", "task", "loss", "learned"]
    assert len(picks) == 4 * 9
    assert picks.learned.all()
    assert not picks.duplicated(["policy", "seed", "task"]).any()
    final = pq.read_table(folder / "final.parquet").to_pandas()
    assert len(final) == 4 * 9
    assert set(final.groupby("task").classes.nunique()) == {1}
    means = final.groupby("policy").accuracy.mean()
    for name, policy in result["policies"].items():
        assert policy["final"]["mean"] == pytest.approx(means[name])
        assert policy["steps"] == [9, 9]
        means_by_seed = final[final.policy == name].groupby("seed").accuracy.mean()
        assert (policy["final"]["seeds"], policy["seeds"]) == ([0, 1], [0, 1])
        np.testing.assert_allclose(policy["final"]["by_seed"], means_by_seed)
        for record in (record for record in kept if record.arm.policy == name):
            raw = [float(np.mean(record.evaluated[step])) for step in (4, 8)]
            np.testing.assert_allclose(policy["curve"]["accuracy"][record.arm.seed], raw)
            np.testing.assert_allclose(policy["curve"]["smoothed"][record.arm.seed], plain_average(raw, 0.5))
    assert any(p["curve"]["smoothed"] != p["curve"]["accuracy"] for p in result["policies"].values())  # something to smooth
    [pair] = result["comparisons"]
    wide = final.pivot_table(index=["seed", "task"], columns="policy", values="accuracy")
    by_seed = (wide["ptm"] - wide["random"]).groupby("seed").mean()
    assert (pair["first"], pair["second"]) == ("ptm", "random")
    assert pair["mean"] == pytest.approx((wide["ptm"] - wide["random"]).mean())
    assert pair["seeds"] == [0, 1]
    np.testing.assert_allclose(pair["by_seed"], by_seed)
    assert pair["spread"] == pytest.approx(by_seed.std())
    by_arm = picks.groupby(["policy", "seed"]).task.agg(set)
    shared = [len(by_arm["ptm", seed] & by_arm["random", seed]) / 9 for seed in (0, 1)]
    assert pair["tasks_in_common"] == pytest.approx(np.mean(shared))
    figure = lifelong_figure([result, result | {"setting": "transduction"}])
    assert len(figure.axes) == 3
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["PTM", "Random"]


def test_experiments_come_in_the_papers_order_and_those_of_other_learners_last(tmp_path: Path) -> None:
    for learner in ("of-a-user", "abml", "another", "maml", "protonet"):
        (tmp_path / learner).mkdir()
        (tmp_path / learner / "lifelong.json").write_text(json.dumps({"learner": learner, "setting": "induction"}))
    assert [found["learner"] for found in read_results(tmp_path)] == ["maml", "protonet", "abml", "another", "of-a-user"]


def test_tasks_in_common_are_those_of_the_same_seed() -> None:
    first, second = {0: np.array([3, 1, 4]), 1: np.array([1, 5])}, {0: np.array([4, 8]), 1: np.array([5, 1]), 2: np.array([3])}
    assert tasks_in_common(first, second, [0, 1]) == pytest.approx((2 / 5 + 1) / 2)
    assert tasks_in_common({0: np.array([], dtype=int)}, {0: np.array([], dtype=int)}, [0]) == 0.0


def test_arms_of_other_steps_or_tasks_are_told_apart(split: DataSplit, model: tt.PTM, tmp_path: Path) -> None:
    how = COMMON | {"model": model, "changes": TINY}
    run_lifelong(split, tmp_path, policies=("ptm", "random"), steps=2, **how)
    result = run_lifelong(split, tmp_path, policies=("random",), steps=3, **how | {"final_tasks": 7})
    tests = {name: (policy["final"]["steps"], policy["final"]["tasks"]) for name, policy in result["policies"].items()}
    assert tests == {"ptm": (2, 9), "random": (3, 7)}
    axes = lifelong_figure([result]).axes
    assert len(axes) == 1  # no test on the way: no empty panel
    assert "7 tasks" in axes[0].get_title(loc="left")
    assert "pale: after other steps, or on other tasks" in axes[0].get_title(loc="left")
    assert [bar.get_alpha() for bar in axes[0].patches] == [0.35, None]  # type: ignore[attr-defined]
    for policy in result["policies"].values():
        policy["curve"] = {"steps": [1], "smoothed": [[0.5]] * len(policy["seeds"])}
    narrow = lifelong_figure([result])  # the bars are one of two panels
    narrow.draw_without_rendering()
    [title] = narrow.findobj(lambda artist: isinstance(artist, Text) and "pale" in artist.get_text())
    assert title.get_window_extent().x1 <= narrow.bbox.x1
    result["policies"].pop("ptm")
    assert "pale" not in lifelong_figure([result]).axes[0].get_title(loc="left")


def test_every_policy_has_one_name_in_pictures() -> None:
    curve = {"seeds": [0], "steps": [2], "curve": {"steps": [1, 2], "smoothed": [[0.2, 0.3]]}}
    result = {"learner": "maml", "setting": "induction", "test_tasks": 3, "smoothing": 0.9}
    figure = lifelong_figure([result | {"policies": dict.fromkeys((*POLICIES, "of-a-user"), curve)}])
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["PTM", "Task2Vec", "Worst case", "Random", "Diverse", "of-a-user", "Predicted"]


def test_earlier_results_are_drawn_too() -> None:
    """They called the mean of each seed ``seeds``, and did not say of each test how many tasks it had."""
    final = {"mean": 0.5, "over_tasks": 0.1, "seeds": [0.4, 0.6]}
    policy = {"seeds": [0, 1], "steps": [2, 2], "curve": {"steps": [], "smoothed": [[], []]}, "final": final}
    about = {"learner": "maml", "setting": "induction", "test_tasks": 3, "smoothing": 0.9, "final tasks": 7}
    [axes] = lifelong_figure([about | {"policies": {"random": policy}}]).axes
    assert "7 tasks" in axes.get_title(loc="left")
    assert axes.collections[-1].get_offsets()[:, 1].tolist() == [0.4, 0.6]  # type: ignore[index]


def test_a_single_test_on_the_way_is_seen_in_the_picture() -> None:
    result = {"learner": "maml", "setting": "induction", "test_tasks": 3, "smoothing": 0.9}
    for tests, marked in ((1, True), (2, False)):
        curve = {"steps": list(range(tests)), "smoothed": [[0.2] * tests, [0.3] * tests]}
        [axes] = lifelong_figure([result | {"policies": {"random": {"seeds": [0, 1], "steps": [2], "curve": curve}}}]).axes
        lines = [line for line in axes.lines if len(line.get_xdata())]
        assert len(lines) == 3
        assert all((line.get_marker() == "o") == marked for line in lines)


def test_the_moving_average_is_that_of_pandas() -> None:
    values = np.random.default_rng(0).normal(size=(2, 50))
    for weight in (0.98, 0.5, 0.0):
        for row, ours in zip(values, smoothed(values, weight), strict=True):
            np.testing.assert_allclose(ours, pd.Series(row).ewm(alpha=1.0 - weight, adjust=True).mean())
            np.testing.assert_allclose(ours, plain_average(row.tolist(), weight))
    assert smoothed(np.zeros((2, 0))).shape == (2, 0)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """Tasks that matter to both policies alike, seeds that differ: over seeds the interval covers, over tasks it is too short."""
    generator = np.random.default_rng(0)
    covered = np.zeros(2)
    for _ in range(400):
        tasks, seeds = generator.normal(size=200), 0.2 * generator.normal(size=(2, 4, 1))
        one, other = (0.3 * tasks + seed + 0.5 * generator.normal(size=(4, 200)) for seed in seeds)
        [pair] = compare({"a": dict(enumerate(one + 1.0)), "b": dict(enumerate(other))})
        covered += [abs(pair["mean"] - 1.0) < pair[over] for over in ("over_seeds", "over_tasks")]
    assert 370 <= covered[0] <= 390  # 380 expected
    assert covered[1] < 300
    alone = mean_of(np.array([[0.2, 0.4]]))
    assert (alone.over_seeds, alone.spread, alone.by_seed) == (None, None, [pytest.approx(0.3)])
    assert compare({"a": {0: np.zeros(3)}, "b": {1: np.zeros(3)}}) == []


def test_intervals_are_those_of_scipy() -> None:
    """Over tasks by the normal distribution, over seeds Student's, of one pair or of all of them together."""
    values = np.random.default_rng(1).normal(size=(4, 5, 7))  # of policies, seeds and tasks
    for one in values:
        found = mean_of(one)
        low, high = stats.norm.interval(0.95, loc=one.mean(), scale=stats.sem(one.mean(axis=0)))
        assert (found.mean, found.over_tasks) == (pytest.approx(one.mean()), pytest.approx((high - low) / 2.0, rel=1e-4))
        by_seed = one.mean(axis=1)
        low, high = stats.t.interval(0.95, 4, loc=by_seed.mean(), scale=stats.sem(by_seed))
        assert found.over_seeds == pytest.approx((high - low) / 2.0)
    pairs = compare({name: dict(enumerate(one)) for name, one in zip("abcd", values, strict=True)})
    assert [(pair["first"], pair["second"]) for pair in pairs] == [tuple(pair) for pair in ("ab", "ac", "ad", "bc", "bd", "cd")]
    for pair in pairs:
        first, second = (values["abcd".index(pair[which])].mean(axis=1) for which in ("first", "second"))
        test = stats.ttest_rel(first, second)
        for over, level in (("over_seeds", 0.95), ("over_seeds_all_pairs", 1.0 - 0.05 / 6)):
            low, high = test.confidence_interval(level)
            assert (pair["mean"] - pair[over], pair["mean"] + pair[over]) == (pytest.approx(low), pytest.approx(high))
    [single] = compare({"a": {0: values[0, 0]}, "b": {0: values[1, 0]}})
    assert (single["over_seeds"], single["over_seeds_all_pairs"]) == (None, None)


def test_of_policies_that_do_not_differ_some_pair_seems_to_unless_all_are_read_together() -> None:
    generator = np.random.default_rng(2)
    ahead = np.zeros(2)
    for _ in range(300):
        final = {name: dict(enumerate(generator.normal(size=(3, 2)))) for name in "abcd"}
        pairs = compare(final)
        ahead += [any(abs(pair["mean"]) > pair[over] for pair in pairs) for over in ("over_seeds", "over_seeds_all_pairs")]
    assert ahead[0] > 0.15 * 300
    assert ahead[1] < 0.08 * 300


def test_early_stopping_keeps_the_best_weights_and_lets_the_others_go_on(
    split: DataSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([[0.5, 0.5], [0.4, 0.6], [0.3, 0.7], [0.9, 0.8]])
    original = running.Experiment.run

    def scripted(self: Any, *arguments: Any, **more: Any) -> Any:
        validation = self.world.validation()
        validation.accuracies = lambda learner, *_, **__: torch.tensor(next(scores)).unsqueeze(1)
        self.world.validation = lambda: validation
        return original(self, *arguments, **more)

    monkeypatch.setattr(running.Experiment, "run", scripted)
    stop = {"patience": 1, "validate_every": 2, "validation_tasks": 3}
    run_lifelong(split, tmp_path / "stop", policies=("random",), steps=8, **COMMON, changes=TINY | stop)
    first, second = records(tmp_path / "stop")
    assert (first.stopped, second.stopped) == (True, False)
    assert list(first.validated) == [2, 4]
    assert list(second.validated) == [2, 4, 6, 8]
    assert first.learned.tolist() == [True] * 4 + [False] * 4
    assert second.learned.all()
    monkeypatch.undo()
    monkeypatch.setitem(section._AHEAD, "cpu", 3)
    run_lifelong(split, tmp_path / "two", policies=("random",), steps=2, **COMMON, changes=TINY)
    best = records(tmp_path / "two")[0]
    for name, value in best.state.items():
        if name.startswith("weights."):
            torch.testing.assert_close(first.state[name], value)
            assert torch.equal(first.state[name], first.state[name.replace("weights.", "best.", 1)])
    np.testing.assert_allclose(first.final, best.final)


def test_the_mean_of_the_last_weights_is_tested(split: DataSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An average over 3 steps: the plain mean of the first three, then a third of the new and two thirds of what was."""
    history: list[dict[str, torch.Tensor]] = []
    original = SideBySide.train_step

    def kept(self: SideBySide) -> None:
        original(self)
        history.append({name: value.detach().clone() for name, value in self.learner.named_parameters()})

    monkeypatch.setattr(SideBySide, "train_step", kept)
    together: dict[str, Any] = {"policies": ("random",), **COMMON, "changes": TINY | {"average": 3}}
    for steps in (2, 6):  # kept in between
        run_lifelong(split, tmp_path, steps=steps, **together)
    share = [1 / 3 * (2 / 3) ** 3] * 3 + [1 / 3 * (2 / 3) ** 2, 1 / 3 * 2 / 3, 1 / 3]
    assert sum(share) == pytest.approx(1.0)
    found = records(tmp_path)
    for name in history[0]:
        mean = sum(weight * weights[name] for weight, weights in zip(share, history, strict=True))
        torch.testing.assert_close(torch.stack([record.state[f"means.{name}"] for record in found]), mean)
    seen: list[torch.Tensor] = []
    accuracies = running.Experiment.accuracies

    def seeing(self: Any, learner: Any, *arguments: Any, **more: Any) -> torch.Tensor:
        seen.append(next(learner.parameters()).detach().clone())
        return accuracies(self, learner, *arguments, **more)

    monkeypatch.setattr(running.Experiment, "accuracies", seeing)
    run_lifelong(split, tmp_path, steps=8, **together)
    name = next(iter(history[0]))
    end = torch.stack([record.state[f"means.{name}"] for record in records(tmp_path)])
    assert len(seen) == 2  # at step 8, and the last test
    assert all(torch.equal(weights, end) for weights in seen)
    assert not torch.equal(end, history[-1][name])


def test_a_pick_of_unusually_low_loss_is_discarded(split: DataSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_USUAL", 12)
    skip = {"skip": True, "skip_margin": 0.5}
    result = run_lifelong(split, tmp_path, policies=("random",), steps=40, **COMMON, changes=TINY | skip)
    for record, skipped in zip(records(tmp_path), result["policies"]["random"]["skipped"], strict=True):
        expected = []
        for step, loss in enumerate(record.losses):
            last = record.losses[max(0, step - 12) : step]
            expected.append(len(last) < 10 or bool(loss > last.mean() - 0.5 * last.std(ddof=1)))
        assert record.learned.tolist() == expected
        assert 0 < skipped == expected.count(False)
    plain = run_lifelong(split, tmp_path / "plain", policies=("random",), steps=40, **COMMON, changes=TINY)
    assert plain["policies"]["random"]["skipped"] == [0, 0]


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"policies": ("randon",)}, SettingsError, "did you mean 'random'"),
        ({"policies": ("ptm",)}, DataError, "needs a task model"),
        ({"policies": ("task2vec",)}, SettingsError, "needs a probe"),
        ({"policies": ()}, SettingsError, "needs a policy"),
        ({"smoothing": 1.0}, SettingsError, "smoothing"),
        ({"changes": {"poool": 3}}, SettingsError, "unknown setting 'poool'; did you mean 'pool'"),
        ({"changes": {"learning_rat": 3}}, SettingsError, "unknown setting 'learning_rat'; did you mean 'learning_rate'"),
        ({"changes": {"setting": "transduction"}}, SettingsError, "'induction': choose another with --setting"),
        ({"changes": {"batch_tasks": 2}}, SettingsError, "one task at a time"),
        ({"changes": {"anneal": True}}, SettingsError, "does not fall"),
        ({"changes": {"augment": True}}, SettingsError, "leave augment off"),
        ({"changes": {"train_ways": 20}}, SettingsError, "set ways, and leave train_ways alone"),
        ({"changes": {"skip": True, "skip_margin": -5.0}}, SettingsError, "'skip_margin' must be at least 0"),
        ({"changes": {"skip_margin": 0.5}}, SettingsError, "skip is off: set skip, or leave skip_margin out"),
        ({"changes": {"validate_every": 5}}, SettingsError, "set patience, or leave validate_every out"),
        ({"changes": {"validation_tasks": 5}}, SettingsError, "set patience, or leave validation_tasks out"),
        ({"changes": {"seed": 3}}, SettingsError, "seed of its own"),
        ({"changes": TINY | {"patience": 1}, "split": "no val"}, SettingsError, "validation classes"),
    ],
)
def test_what_cannot_be_run(more: dict[str, Any], error: type[Exception], words: str, split: DataSplit, tmp_path: Path) -> None:
    if more.pop("split", None):
        split = DataSplit("small", split.train, split.test)
    with pytest.raises(error, match=words):
        run_lifelong(split, tmp_path, **COMMON | {"policies": ("random",), "steps": 2, "changes": TINY} | more)


def test_arms_of_another_experiment_are_not_gone_on_with(split: DataSplit, tmp_path: Path) -> None:
    how = COMMON | {"policies": ("random",), "steps": 2}
    run_lifelong(split, tmp_path, **how, changes=TINY)
    with pytest.raises(ModelFileError, match=r"other settings \(learning_rate 0\.001 there, 0\.1 here\): ask for the same"):
        run_lifelong(split, tmp_path, **how, changes=TINY | {"learning_rate": 0.1})
    with pytest.raises(ModelFileError, match=r"other settings \(pool 6 there, 7 here\)"):
        run_lifelong(split, tmp_path, **how, changes=TINY | {"pool": 7})
    with pytest.raises(
        ModelFileError, match=r"other settings \(learning_rate 0\.001 there, 0\.1 here, pool 6 there, 7 here\): ask"
    ):
        run_lifelong(split, tmp_path, **how, changes=TINY | {"learning_rate": 0.1, "pool": 7})
    with pytest.raises(ModelFileError, match=r"random-.*other settings \(pool 6 there, 7 here\)"):  # nor compared with
        run_lifelong(split, tmp_path, **how | {"policies": ("worst-case",)}, changes=TINY | {"pool": 7})


def interrupted(split: DataSplit, out: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two arms kept at each step, the last time at ``step``."""
    with monkeypatch.context() as patch:
        patch.setattr(running, "_SAVE_SECONDS", 0.0)
        original = SideBySide.train_step

        def stopping(self: SideBySide) -> None:
            original(self)
            if self.step == step:
                signal.raise_signal(signal.SIGINT)

        patch.setattr(SideBySide, "train_step", stopping)
        with pytest.raises(Interrupted):
            run_lifelong(split, out, **TWO)


TWO = COMMON | {"policies": ("random",), "steps": 6, "changes": TINY}


@pytest.mark.parametrize("step", [1, 4])
@pytest.mark.parametrize("fault", ["killed between the two files", "damaged"])
def test_arms_kept_together_go_on_from_the_last_point_of_all(
    fault: str, step: int, split: DataSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_lifelong(split, tmp_path / "whole", **TWO)
    interrupted(split, tmp_path / "parts", step, monkeypatch)
    arms = tmp_path / "parts" / "protonet-induction" / "arms"
    second, before = arms / "random-1.arm", arms / "random-1.arm.before"
    assert before.exists() == (step > 1)
    if fault == "damaged" and step > 1:
        second.write_bytes(second.read_bytes()[:-1])
        with pytest.warns(UserWarning, match=r"random-1\.arm.*checkpoint before it"):
            run_lifelong(split, tmp_path / "parts", **TWO)
    elif fault == "damaged":
        second.write_bytes(b"nothing")
        with pytest.raises(ModelFileError, match=r"random-1\.arm.*damaged"):
            run_lifelong(split, tmp_path / "parts", **TWO)
        return
    else:
        before.replace(second) if step > 1 else second.unlink()
        run_lifelong(split, tmp_path / "parts", **TWO)
    assert_same(records(tmp_path / "parts"), records(tmp_path / "whole"))


def test_arms_that_join_later_do_not_put_others_back(split: DataSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(split, tmp_path, 4, monkeypatch)
    arms = tmp_path / "protonet-induction" / "arms"
    found = open_records(
        arms, [Arm("random", seed) for seed in range(3)], [record.identity for record in records(tmp_path)] + [{}]
    )
    assert [record.step for record in found] == [4, 4, 0]


def test_a_loss_that_is_not_finite_stops_all_and_keeps_the_last_good_state(
    split: DataSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_SAVE_SECONDS", 0.0)
    original = SideBySide.train_step

    def broken(self: SideBySide) -> None:
        if self.step == 3:
            next(self.learner.parameters()).data[1].fill_(float("nan"))
        original(self)

    monkeypatch.setattr(SideBySide, "train_step", broken)
    with pytest.raises(TrainingError, match="random-1: the loss was not finite at step 4"):
        run_lifelong(split, tmp_path, **COMMON | {"policies": ("random",), "steps": 6, "changes": TINY})
    assert [record.step for record in records(tmp_path)] == [3, 3]


def test_a_skipped_pick_whose_loss_is_not_finite_stops_all_too(
    split: DataSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = SideBySide._gradients

    def broken(self: SideBySide, numbers: torch.Tensor) -> tuple[torch.Tensor, ...]:
        losses, *slopes = original(self, numbers)
        return torch.where(self._device_step == 12, torch.nan, losses), *slopes

    monkeypatch.setattr(SideBySide, "_gradients", broken)
    how = COMMON | {"policies": ("random",), "steps": 15, "changes": TINY | {"skip": True}}
    with pytest.raises(TrainingError, match="random-0: the loss was not finite at step 13"):
        run_lifelong(split, tmp_path, **how)
