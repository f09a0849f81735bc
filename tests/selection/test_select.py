from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tasktheme as tt
from oracles.learners import make_learner
from oracles.selection import make_gamma, make_tasks
from oracles.small import TOLD_APART, small_images
from tasktheme.errors import DataError, SettingsError
from tasktheme.selection.base import Now, Pool, Tasks
from tasktheme.selection.build import POLICIES, build_policy
from tasktheme.selection.diverse import mixture_distances
from tasktheme.selection.ptm import PTMPolicy
from tasktheme.selection.select import not_picked
from tasktheme.selection.worst_case import learner_losses

PRIOR = np.full(4, 1.1)


def task_set(tasks: int, *, seed: int = 0, size: int = 60, fingerprint: str = "") -> tt.TaskSet:
    gamma = make_gamma(tasks, seed=seed, size=float(size)).numpy()
    return tt.TaskSet(gamma, np.full(tasks, size), np.ones(tasks, dtype=np.bool_), fingerprint=fingerprint, prior=PRIOR)


def test_the_least_certain_or_the_nearest_come_first() -> None:
    pool, targets = task_set(30), task_set(5, seed=1)
    found = tt.select(pool, k=4)
    np.testing.assert_array_equal(found.indices, np.argsort(-pool.entropy())[:4])
    np.testing.assert_allclose(found.scores, np.sort(pool.entropy())[::-1][:4])
    assert found.reasons[2] == f"entropy {pool.entropy()[found.indices[2]]:.2f} nats, no. 3 of 30"
    near = tt.select(pool, "ptm", 3, targets=targets)
    kl = targets.kl(pool)
    np.testing.assert_array_equal(near.indices, np.argsort(kl.mean(axis=0))[:3])
    assert f"target {kl[:, near.indices[0]].argmin()} is nearest" in near.reasons[0]
    assert repr(near).count("\n") == 2
    assert len(tt.select(pool)) == 1
    assert repr(tt.select(pool, k=12)).endswith("and 2 more")


def test_tasks_of_different_sizes_compare_by_content() -> None:
    gamma = make_gamma(6).numpy()
    small = PRIOR + (gamma - PRIOR) / 2.0  # the same content in half as many points
    mixed = tt.TaskSet(np.concatenate([gamma[:3], small[3:]]), np.repeat([60, 30], 3), np.ones(6, dtype=np.bool_), prior=PRIOR)
    alike = tt.TaskSet(small, np.full(6, 30), np.ones(6, dtype=np.bool_), prior=PRIOR)
    found = tt.select(mixed, k=6)
    assert found.size == 30
    np.testing.assert_array_equal(found.indices, tt.select(alike, k=6).indices)
    assert tt.select(alike, k=6).size is None
    aimed = tt.select(alike, k=6, targets=mixed[:2])
    np.testing.assert_array_equal(aimed.indices, tt.select(alike, k=6, targets=alike[:2]).indices)
    assert aimed.size == 30


def test_tasks_of_several_aspects_are_scored_by_all_of_them() -> None:
    pool, targets = (dataclasses.replace(task_set(tasks, seed=tasks), aspects=2) for tasks in (30, 5))
    np.testing.assert_allclose(tt.select(pool, k=4).scores, np.sort(pool.entropy())[::-1][:4])
    np.testing.assert_allclose(tt.select(pool, k=4, targets=targets).scores, np.sort(-targets.kl(pool).mean(axis=0))[::-1][:4])
    with pytest.raises(DataError, match="different models"):
        tt.select(pool, targets=dataclasses.replace(targets, aspects=1))
    drawn = Tasks(torch.arange(30), gamma=torch.tensor(pool.concentration), aspects=2)
    np.testing.assert_array_equal(tt.select(drawn, k=4).indices, tt.select(pool, k=4).indices)
    for other in (dataclasses.replace(drawn, aspects=1), dataclasses.replace(drawn, gamma=make_gamma(30, themes=6))):
        with pytest.raises(DataError, match="different models and cannot be compared: draw all with one model"):
            tt.select(drawn, targets=other)
        with pytest.raises(DataError, match="different models"):
            tt.select(drawn, "diverse", recent=other[:3])
    for aspects in (0, 3):
        with pytest.raises(DataError, match=f"4 themes cannot be those of {aspects} aspects"):
            dataclasses.replace(drawn, aspects=aspects)


def test_diverse_picks_are_spread_and_remember() -> None:
    pool = task_set(60)
    spread, plain = tt.select(pool, "diverse", 6).indices, tt.select(pool, "ptm", 6).indices
    assert len(set(spread)) == 6
    gamma = torch.tensor(pool.concentration)

    def closeness(rows: np.ndarray) -> float:
        apart = mixture_distances(gamma[rows], gamma[rows])
        return float(apart.sum() / (len(rows) * (len(rows) - 1)))

    assert closeness(spread) > closeness(plain)
    assert spread[0] == plain[0]
    after = tt.select(pool, "diverse", 1, recent=pool[spread[:3]])
    assert after.indices[0] == spread[3]
    assert "from the nearest of the last picks" in after.reasons[0]


def test_what_was_picked_before_is_not_picked_again() -> None:
    """Also what is older than the memory of the policy."""
    pool, before = task_set(30), np.arange(0)
    for _ in range(3):
        before = np.concatenate([before, tt.select(pool, "diverse", 10, recent=pool[before] if len(before) else None).indices])
    assert sorted(before) == list(range(30))
    with pytest.raises(DataError, match="from 1 to 1, the tasks of the pool that were not picked before, got 2"):
        tt.select(pool, "diverse", 2, recent=pool[:29])
    with pytest.raises(DataError, match="all tasks of the pool were picked before"):
        tt.select(pool, "diverse", recent=pool)
    with pytest.raises(DataError, match="the pool is empty"):
        tt.select(pool[:0], "diverse")
    images = Tasks(torch.arange(30), gamma=torch.tensor(pool.concentration))
    first = tt.select(images, "diverse", 15).indices
    assert not set(first) & set(tt.select(images, "diverse", 15, recent=images[torch.from_numpy(first)]).indices)


def test_only_what_was_picked_is_left_out_where_tasks_have_the_same_numbers() -> None:
    """Small tasks often have the very same gamma: names tell them apart, and of copies only as many go as were picked."""
    few = task_set(4)
    nameless = few[[0, 0, 1, 1, 2, 3]]
    pool = nameless.with_columns(name=list("abcdef"), score=[float("nan")] * 6, classes=[("x", "y")] * 6)
    recent = pool[[1, 2]].with_columns(score=[2.0, 1.0], rank=[1, 2])
    assert not_picked(pool, recent).tolist() == [True, False, False, True, True, True]
    assert sorted(tt.select(pool, "diverse", 4, recent=recent).indices) == [0, 3, 4, 5]
    assert not_picked(nameless, recent).tolist() == [False, True, False, True, True, True]
    assert not_picked(pool, recent.with_columns(name=["b", "of another pool"])).tolist() == [True, False, True, True, True, True]
    images = Tasks(torch.arange(6), gamma=torch.tensor(nameless.concentration))
    assert not_picked(images, images[torch.tensor([1, 2])]).tolist() == [True, False, False, True, True, True]


@pytest.mark.parametrize("ending", ["parquet", "csv", "npz"])
def test_what_was_picked_before_is_known_after_any_file(tmp_path: Path, ending: str) -> None:
    few = task_set(3)
    pool = few[[0, 0, 0, 1, 2]].with_columns(
        half=[0.5, 1.5, 2.5, 3.5, 4.5],
        whole=[1.0, 2.0, 3.0, 4.0, 5.0],
        gap=[float("nan"), 0.25, float("nan"), 1.0, 2.0],
        absent=[None, "b", None, "d", "e"],
        none=[None] * 5,
        number=[1, 2, 3, 4, 5],
        yes=[True, False, True, False, True],
        classes=[["x", "y"], ["x"], ["y"], ["z", "x"], ["z"]],
    )
    pool[[1, 2]].save(tmp_path / f"picks.{ending}")
    recent = tt.TaskSet.load(tmp_path / f"picks.{ending}")
    assert not_picked(pool, recent).tolist() == [True, False, False, True, True]


def test_a_task_without_data_points_is_told() -> None:
    pool = task_set(3)
    with pytest.raises(DataError, match="a task without data points"):
        tt.select(dataclasses.replace(pool, sizes=np.array([60, 0, 60])))


def test_a_policy_that_picks_at_once_does_not_repeat_recent_picks_either() -> None:
    class Remembering(PTMPolicy):
        memory = 5

    pool = task_set(30)
    first = tt.select(pool, Remembering(), 10).indices
    after = tt.select(pool, Remembering(), 20, recent=pool[first]).indices
    assert sorted([*first, *after]) == list(range(30))
    assert list(after[:5]) == list(tt.select(pool, "ptm", 15).indices[10:])


class Third(tt.Policy):
    """A user's own: tasks of the third theme first."""

    name = "third"
    needs = ("gamma",)

    def __init__(self, wrong: object = None) -> None:
        self.wrong = wrong

    def scores(self, pool: Pool, targets: Pool | None, now: Now) -> Any:
        return pool.kept[:, 2] if self.wrong is None else self.wrong


def test_a_policy_of_ones_own() -> None:
    pool = task_set(30)
    found = tt.select(pool, Third(), 3)
    assert list(found.indices) == list(np.argsort(-pool.concentration[:, 2])[:3])
    assert found.reasons[0].endswith("no. 1 of 30")


@pytest.mark.parametrize("greedy", [False, True])
def test_a_task_that_a_policy_never_wants_is_picked_last_and_once(greedy: bool) -> None:
    class Picky(Third):
        memory = 5

    Picky.greedy = greedy
    pool, never = task_set(10), torch.full((10,), -torch.inf)
    never[[4, 7]] = torch.tensor([1.0, 2.0])
    picks = tt.select(pool, Picky(never), 8, recent=pool[[0, 1]]).indices
    assert list(picks[:2]) == [7, 4]
    assert sorted(picks) == list(range(2, 10))


@pytest.mark.parametrize("wrong", [np.ones(30), torch.ones(3), torch.ones(30, 1)])
def test_a_policy_that_gives_no_scores_is_told(wrong: object) -> None:
    with pytest.raises(DataError, match="'third' must give a tensor of 30 numbers, one for each task"):
        tt.select(task_set(30), Third(wrong))


def test_a_policy_whose_scores_are_no_numbers_is_told() -> None:
    scores = torch.ones(30)
    scores[[3, 5]] = torch.nan
    with pytest.raises(DataError, match="'third' must give numbers, but 2 of its 30 scores are NaN"):
        tt.select(task_set(30), Third(scores))


@pytest.mark.parametrize("policy", [Third, lambda pool: pool])
def test_what_is_no_policy_is_refused(policy: Any) -> None:
    with pytest.raises(SettingsError, match=r"must be a name or an object of a subclass of tasktheme\.Policy"):
        getattr(tt.select, "__wrapped__", tt.select)(task_set(5), policy)  # without the type checks of these tests


def test_random_picks_differ_by_step_and_repeat() -> None:
    pool = task_set(40)
    first = tt.select(pool, "random", 10, seed=1).indices
    np.testing.assert_array_equal(first, tt.select(pool, "random", 10, seed=1).indices)
    assert set(first) != set(tt.select(pool, "random", 10, seed=1, step=1).indices)
    assert tt.select(pool, "random").reasons == ("chance",)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("transduction", [False, True])
def test_every_policy_ranks_a_pool_by_its_scores(name: str, transduction: bool) -> None:
    learner, pool = make_learner("maml"), make_tasks(5)
    targets = make_tasks(2, seed=3) if transduction else None
    found = tt.select(pool, name, 5, targets=targets, learner=learner, seed=4)
    assert sorted(found.indices) == [0, 1, 2, 3, 4]
    policy = build_policy(name, probe=learner)
    aims = None if targets is None else policy.enter(targets)
    scores = policy.scores(policy.enter(pool), aims, Now(seed=4, learner=learner))
    assert scores.shape == (5,)
    assert int(found.indices[0]) == int(scores.argmax())
    if not policy.greedy:
        torch.testing.assert_close(torch.tensor(found.scores), scores.double().sort(descending=True).values)
    assert all(found.reasons)


@pytest.mark.parametrize("policy", ["ptm", "random", PTMPolicy()])
def test_no_policy_picks_again_what_was_picked(policy: Any) -> None:
    pool = task_set(12)
    first = tt.select(pool, policy, 5).indices
    second = tt.select(pool, policy, 7, recent=pool[first]).indices
    assert sorted([*first, *second]) == list(range(12))
    scores = tt.select(pool, policy, 12)
    assert [i for i in scores.indices if i not in first] == list(second), "otherwise it picks as it would without"


def test_a_policy_that_sees_the_learner_leaves_recent_picks_out_and_asks_the_learner_about_the_others() -> None:
    pool, learner = make_tasks(6), make_learner("maml")
    first = tt.select(pool, "predicted", 2, learner=learner).indices
    second = tt.select(pool, "predicted", 4, learner=learner, recent=pool[torch.from_numpy(first)]).indices
    assert sorted([*first, *second]) == list(range(6))


@pytest.mark.parametrize(("of_pool", "of_recent"), [(10, None), (None, 10), (10, 20)])
def test_recent_picks_are_known_at_any_size(of_pool: int | None, of_recent: int | None) -> None:
    own = task_set(20)
    mixed = dataclasses.replace(own, sizes=np.arange(41, 61))
    pool, recent = mixed, mixed[[3, 8]]
    pool = pool if of_pool is None else pool.resized(of_pool)
    recent = recent if of_recent is None else recent.resized(of_recent)
    assert (~not_picked(pool, recent)).nonzero()[0].tolist() == [3, 8]


@pytest.mark.parametrize("step", [1.5, -1, "2"])
def test_a_step_is_a_whole_number(step: object) -> None:
    with pytest.raises(SettingsError, match=f"step must be a whole number .* got {step!r}"):
        tt.select(task_set(5), "random", step=step)


def test_a_pool_drawn_for_a_learner(capsys: pytest.CaptureFixture[str]) -> None:
    data = small_images()
    learner = tt.MetaLearner("maml", device="cpu", ways=3, queries=4, filters=4, modules=2, batch_tasks=2, test_steps=1)
    learner.fit(data, 2, progress=False)
    model = tt.PTM(settings=TOLD_APART, device="cpu").fit(data, 8, progress=False)
    pool = tt.draw_tasks(data, learner, 6, seed=2, model=model)
    assert pool.support is not None
    assert pool.query is not None
    assert pool.gamma is not None
    assert (pool.support.x.shape[:2], pool.query.x.shape[:2], pool.gamma.shape) == ((6, 3), (6, 12), (6, 3))
    images = (255.0 * pool.x).round().to(torch.uint8).numpy()
    np.testing.assert_allclose(pool.gamma, model.embed(list(images)).concentration, rtol=1e-4)
    assert float(pool.gamma.std(dim=0).min()) > 0.1  # the tasks differ
    capsys.readouterr()
    found = tt.select(pool, "worst-case", 2, learner=learner)
    assert "6/6" in capsys.readouterr().err
    tt.select(pool, "task2vec", 2, learner=learner, targets=pool[:2])
    assert "8/8" in capsys.readouterr().err
    tt.select(pool, "ptm", 2)
    tt.select(pool, "predicted", 2, learner=learner)  # ten looks
    tt.select(pool, "worst-case", 2, learner=learner, progress=False)
    assert capsys.readouterr().err == ""
    losses = learner_losses(learner.learner, pool, seed=0)
    assert found.indices.tolist() == losses.topk(2).indices.tolist()
    accuracy = learner.test(data, 6, seed=2).accuracy  # of the very same tasks
    log_p = np.stack([learner.predict(pool.support.x[i], pool.support.y[i], pool.query.x[i]) for i in range(6)])
    np.testing.assert_allclose((log_p.argmax(axis=-1) == pool.query.y.numpy()).mean(axis=1), accuracy)
    with pytest.raises(DataError, match="images of shape"):
        tt.draw_tasks(tt.Dataset.from_arrays(np.zeros((9, 1, 8, 8), dtype=np.uint8), np.arange(9) // 3), learner, 2)


def test_bad_input_gets_one_line() -> None:
    pool = task_set(3)
    for bad in (0, 4, 1.5):
        with pytest.raises(DataError, match="from 1 to 3"):
            tt.select(pool, k=bad)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="did you mean 'diverse'"):
        tt.select(pool, "divers")
    with pytest.raises(SettingsError, match="needs a probe"):
        tt.select(pool, "task2vec")
    with pytest.raises(DataError, match="'worst-case' needs of each task labelled images"):
        tt.select(pool, "worst-case", learner=make_learner("maml"))
    with pytest.raises(DataError, match="different models"):
        tt.select(pool, targets=task_set(2, fingerprint="other"))
    with pytest.raises(DataError, match="all be task sets"):
        tt.select(pool, targets=make_tasks(2))
    with pytest.raises(DataError, match=r"expected a task set \(model.embed\) .*, got list"):
        tt.select([np.eye(2), np.eye(2)])  # type: ignore[arg-type]
    with pytest.raises(DataError, match="got NoneType"):
        tt.select(None)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="got int"):
        tt.select(pool, targets=5)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no target tasks"):
        tt.select(pool, targets=pool[:0])
