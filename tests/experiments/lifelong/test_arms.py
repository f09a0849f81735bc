"""The experiment's engine against a plain loop, one arm and one task at a time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import dirichlet
from torch.utils._python_dispatch import TorchDispatchMode

import tasktheme as tt
from oracles.learners import NAMES
from oracles.lifelong import PlainArm, live, plain_loss, plain_tasks, score_by
from oracles.small import TOLD_APART, small_images
from tasktheme.data.dataset import DataSplit
from tasktheme.experiments.lifelong import arms as engine
from tasktheme.experiments.lifelong import section
from tasktheme.experiments.lifelong.arms import Arm, Programs, SideBySide
from tasktheme.experiments.lifelong.settings import LifelongSettings, lifelong_learner
from tasktheme.experiments.lifelong.world import World
from tasktheme.learners.base import Learner
from tasktheme.learners.build import build_learner
from tasktheme.selection.base import Policy, Tasks
from tasktheme.selection.build import POLICIES, build_policy
from tasktheme.selection.diverse import Diverse
from tasktheme.selection.predicted import Predicted
from tasktheme.selection.ptm import PTMPolicy
from tasktheme.selection.random import Random
from tasktheme.selection.worst_case import WorstCase

TINY: dict[str, Any] = {"ways": 3, "queries": 3, "filters": 4, "modules": 3, "gradient_clip": 1.0}
CPU = torch.device("cpu")
STEPS = 5


def make_world(name: str = "protonet", setting: str = "induction", model: tt.PTM | None = None, **changes: Any) -> World:
    own = {} if name == "protonet" else {"inner_steps": 2, "test_steps": 2, "inner_rate": 0.1}
    settings = LifelongSettings(setting=setting, pool=6, evaluate_every=4, test_tasks=5)  # type: ignore[arg-type]
    split = DataSplit("small", small_images(), small_images(seed=1), small_images(seed=2))
    return World(split, lifelong_learner(name, TINY | own | changes), settings, CPU, model)


@pytest.fixture(scope="module")
def model() -> tt.PTM:
    return tt.PTM(settings=TOLD_APART, device="cpu").fit(small_images(), 16, progress=False)


@pytest.fixture(autouse=True)
def _few_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(section._AHEAD, "cpu", 3)  # so that fresh tasks are described more than once


def run(world: World, name: str, policies: dict[str, Policy], seeds: int = 2, steps: int = STEPS) -> SideBySide:
    arms = [Arm(policy, seed) for policy in policies for seed in range(seeds)]
    together = SideBySide(world, arms, policies, name, steps)
    for _ in range(steps):
        together.train_step()
    return together


@pytest.mark.parametrize("name", NAMES)
def test_arms_live_as_in_a_plain_loop(name: str, model: tt.PTM) -> None:
    """Random: whatever it picks; the task model by scipy's entropies; worst case by a loss for each task: all in one program."""
    world = make_world(name, model=model)
    policies: dict[str, Policy] = {"random": Random(), "ptm": PTMPolicy(), "worst-case": WorstCase()}
    together = run(world, name, policies)
    for row, arm in enumerate(together.arms):
        picked = together.picked[row].tolist()

        numbers = arm.seed * 2**32 + torch.arange(6 + STEPS)
        rows = torch.cat([half.rows for half in world.sampler.draw(numbers, 1, 3)], dim=1).numpy()
        embedded = model.embed([world.split.train.x[row] for row in rows])
        entropy = [dirichlet(gamma).entropy() for gamma in embedded.concentration]
        score = {
            "random": lambda lived, picked=picked: [float(task == picked[len(lived.picked)]) for task in lived.pool],
            "ptm": lambda lived, entropy=entropy: [float(entropy[task]) for task in lived.pool],
            "worst-case": lambda lived, seed=arm.seed: [plain_loss(world, lived.learner, seed, task) for task in lived.pool],
        }[arm.policy]
        plain = live(world, name, arm.seed, STEPS, score)
        assert_lived(together, row, plain)
        for (key, ours), theirs in zip(together.learner.named_parameters(), plain.learner.parameters(), strict=True):
            torch.testing.assert_close(ours[row], theirs, rtol=1e-3, atol=1e-4, msg=lambda text, key=key: f"{key}: {text}")


def assert_lived(together: SideBySide, row: int, plain: PlainArm) -> None:
    """An arm's picks, losses and pool are those of a plain loop."""
    arm = together.arms[row]
    assert together.picked[row].tolist() == plain.picked, arm
    np.testing.assert_allclose(together.losses[row], plain.losses, rtol=1e-4, atol=1e-5)
    assert (together.numbers[row] - arm.seed * 2**32).tolist() == plain.pool


@pytest.mark.parametrize(("setting", "aspects"), [("induction", 1), ("transduction", 1), ("transduction", 5)])
def test_every_policy_sees_of_each_arm_what_a_plain_loop_would(setting: str, aspects: int, model: tt.PTM) -> None:
    """Its own pool, memory and learner, and the test tasks in transduction: the policy's scores on one arm's tasks."""
    model = model if aspects == 1 else model.refit(small_images(), themes=2, aspects=aspects, progress=False)
    world = make_world("protonet", setting, model)
    probe = build_learner("maml", TINY | {"test_steps": 2, "inner_rate": 0.1}, world.split.train.point_shape)
    short = {"predicted": Predicted(looks=3, memory=2), "diverse": Diverse(memory=2)}  # both forget on the way
    everybody = {name: short.get(name) or build_policy(name, probe=probe) for name in POLICIES}
    together = run(world, "protonet", everybody)
    targets = plain_tasks(world, model, range(5), test=True) if setting == "transduction" else None
    streams = [plain_tasks(world, model, range(seed * 2**32, seed * 2**32 + 6 + STEPS)) for seed in (0, 1)]
    for row, arm in enumerate(together.arms):
        score = score_by(everybody[arm.policy], streams[arm.seed], targets)
        assert_lived(together, row, live(world, "protonet", arm.seed, STEPS, score))


README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")


class ByThemeAndLight(Policy):
    """A policy of one's own that keeps something of themes and images."""

    name = "theme-and-light"
    needs = ("gamma", "support", "query")

    def describe(self, tasks: Tasks) -> torch.Tensor:
        assert tasks.gamma is not None
        return torch.stack([tasks.gamma.amax(dim=-1), 9.0 * tasks.x.mean(dim=(1, 2, 3, 4))], dim=-1)

    def scores(self, pool: Any, targets: Any, now: Any) -> torch.Tensor:
        return pool.kept.sum(dim=-1)


def test_policies_of_ones_own_run_as_ours_do(model: tt.PTM) -> None:
    """That of the README, and one that needs everything."""
    [lines] = re.findall(r"^class OneTheme.*?(?=^\S+\.select)", README, flags=re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"tt": tt}
    exec(lines, names)
    own: dict[str, Policy] = {"one-theme": names["OneTheme"](), "theme-and-light": ByThemeAndLight()}
    world = make_world(model=model)
    together = run(world, "protonet", own)
    streams = [plain_tasks(world, model, range(seed * 2**32, seed * 2**32 + 6 + STEPS)) for seed in (0, 1)]
    for row, arm in enumerate(together.arms):
        score = score_by(own[arm.policy], streams[arm.seed], None)
        assert_lived(together, row, live(world, "protonet", arm.seed, STEPS, score))


def test_random_picks_are_of_the_pool_and_spread_over_it() -> None:
    world = make_world()
    together = run(world, "protonet", {"random": Random()}, seeds=3, steps=60)
    for row in together.picked.tolist():
        pool = set(range(6))
        for step, task in enumerate(row):
            assert task in pool
            pool = pool - {task} | {6 + step}
    assert len({tuple(row) for row in together.picked.tolist()}) == 3  # each seed its own
    waited = together.picked - torch.arange(60)  # the newest task of step t is 5 + t
    assert len(waited.unique()) > 8


def test_a_seed_gives_all_policies_the_same_tasks_and_the_same_start(model: tt.PTM) -> None:
    world = make_world(model=model)
    together = SideBySide(world, [Arm(p, s) for p in ("random", "ptm") for s in (0, 1)], policies(), "protonet", 4)
    assert [str(arm) for arm in together.arms] == ["ptm-0", "ptm-1", "random-0", "random-1"]
    for value in together.learner.parameters():
        assert torch.equal(value[:2], value[2:])
    assert any(not torch.equal(value[0], value[1]) for value in together.learner.parameters())
    assert torch.equal(together.numbers[:2], together.numbers[2:])
    first, second = (world.draw(world.numbers(seed, 0, 6))[0].x for seed in (0, 1))
    assert not torch.equal(first, second)
    assert torch.equal(first[2:], world.draw(world.numbers(0, 2, 4))[0].x)


def policies() -> dict[str, Policy]:
    return {"random": Random(), "ptm": PTMPolicy()}


def test_transduction_looks_at_the_test_tasks(model: tt.PTM) -> None:
    """The smallest mean KL from the test tasks, by the task set's own distances."""
    world = make_world(setting="transduction", model=model)
    together = run(world, "protonet", {"ptm": PTMPolicy()}, seeds=1)

    def embedded(dataset: tt.Dataset, sampler: Any, numbers: list[int]) -> tt.TaskSet:
        halves = sampler.draw(torch.tensor(numbers), 1, 3)
        rows = torch.cat([half.rows for half in halves], dim=1).numpy()
        return model.embed([dataset.x[row] for row in rows])

    targets = embedded(world.split.test, world.test.sampler, list(range(5)))
    stream = embedded(world.split.train, world.sampler, list(range(6 + STEPS)))
    mean = targets.kl(stream).mean(axis=0)
    plain = live(world, "protonet", 0, STEPS, lambda lived: [-float(mean[task]) for task in lived.pool])
    assert together.picked[0].tolist() == plain.picked
    assert run(make_world(model=model), "protonet", {"ptm": PTMPolicy()}, seeds=1).picked[0].tolist() != plain.picked


def test_points_are_drawn_for_the_looks_alone(model: tt.PTM, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(model=model)
    drawn: list[int] = []
    draw = world.draw
    monkeypatch.setattr(world, "draw", lambda numbers: drawn.append(len(numbers)) or draw(numbers))
    run(world, "protonet", {"predicted": Predicted(looks=2)}, seeds=1)
    assert drawn == [2, 1] * STEPS  # two looks, then what was picked, though the pool has six tasks


def test_arms_do_not_depend_on_each_other(model: tt.PTM) -> None:
    world = make_world("maml", model=model)
    together, alone = run(world, "maml", policies()), run(world, "maml", {"ptm": PTMPolicy()}, seeds=1)
    assert torch.equal(together.picked[0], alone.picked[0])
    torch.testing.assert_close(together.losses[0], alone.losses[0])


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("name", NAMES)
def test_two_threads_share_the_arms_and_learn_as_one_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world, gradients, sizes = make_world(name, weight_decay=1e-3), engine.arm_gradients, []

    def watched(learner: Learner, *points: Any) -> tuple[torch.Tensor, ...]:
        sizes.append(learner.arms)
        return gradients(learner, *points)

    monkeypatch.setattr(engine, "arm_gradients", watched)
    both = run(world, name, {"random": Random()}, seeds=3)
    assert sorted(sizes) == [1] * STEPS + [2] * STEPS
    sizes.clear()
    torch.set_num_threads(1)
    alone = run(world, name, {"random": Random()}, seeds=3)
    torch.set_num_threads(2)
    assert sizes == [3] * STEPS
    assert torch.equal(both.picked, alone.picked)
    torch.testing.assert_close(both.losses, alone.losses, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(both.learner.parameters(), alone.learner.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


class Remembers(Policy):
    """Picks the task whose number is nearest to the mean of the last two, and writes down what it was told."""

    name = "remembers"
    memory = 2

    def __init__(self) -> None:
        self.told: list[tuple[list[float], list[float]]] = []

    def describe(self, tasks: Any) -> torch.Tensor:
        return (tasks.numbers & (2**32 - 1)).double().unsqueeze(-1)

    def scores(self, pool: Any, targets: Any, now: Any) -> torch.Tensor:
        self.told.append((now.recent[0, :, 0].tolist(), now.losses[0].tolist()))
        return -(pool.kept[..., 0] - now.recent.sum(dim=(1, 2), keepdim=False).unsqueeze(-1) / 2).abs()


def test_a_policy_is_told_what_it_picked_last_and_at_what_loss() -> None:
    policy = Remembers()
    together = run(make_world(), "protonet", {"remembers": policy}, seeds=1)
    picked, losses = together.picked[0].tolist(), together.losses[0].tolist()
    for step, (recent, told) in enumerate(policy.told):
        assert recent == picked[max(0, step - 2) : step]
        assert told == losses[max(0, step - 2) : step]


class _NoWaiting(TorchDispatchMode):
    """An error where an operation needs a number from the device, or brings one from the host: neither can be recorded."""

    _FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "unique")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        masked = name in ("index", "index_put", "index_put_") and any(i is not None and i.dtype == torch.bool for i in args[1])
        assert name not in self._FORBIDDEN, name
        assert not masked, f"{name} with a mask"
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(("setting", "programs"), [("induction", None), ("transduction", None), ("induction", Programs())])
def test_a_step_never_waits_for_the_device(
    setting: str, programs: Programs | None, model: tt.PTM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a GPU can record it; Adam apart, which torch can record there."""
    monkeypatch.setattr(engine, "_USUAL", 10)
    world = make_world("maml", setting, model, patience=3, modules=1, inner_steps=1, test_steps=1)
    world.settings = LifelongSettings(setting=setting, pool=6, test_tasks=2, skip=True)  # type: ignore[arg-type]
    probe = build_learner("maml", world.learner.as_dict(), world.split.train.point_shape)
    everybody = {name: build_policy(name, probe=probe) for name in POLICIES}
    recorded = {name: policy for name, policy in everybody.items() if policy.on_device}
    assert set(everybody) - set(recorded) == {"predicted"}
    together = SideBySide(world, [Arm(name, 0) for name in recorded], recorded, "maml", 20, programs)
    for _ in range(together._steps_before_recording):
        together.train_step()
    for own in together.sections:
        own.look_ahead(together.step)
    monkeypatch.setattr(together.optimiser, "step", lambda slopes, _: None)
    with _NoWaiting():
        together._pick_and_learn()
    with pytest.raises(AssertionError, match="_local_scalar_dense"), _NoWaiting():
        float(together.losses[0, 0])


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("name", ["maml", "protonet", pytest.param("abml", marks=pytest.mark.slow)])
def test_compiled_arms_live_as_others_do(name: str, model: tt.PTM) -> None:
    """Random learns alike; worst case and predicted look alike; nothing is compiled anew after the preparation."""
    own = {} if name == "protonet" else {"modules": 1, "inner_steps": 1, "test_steps": 1}
    world = make_world(name, model=model, **own)
    policies: dict[str, Policy] = {"random": Random(), "worst-case": WorstCase(), "predicted": Predicted(looks=3, memory=2)}
    plain, programs = run(world, name, policies), Programs()
    arms = SideBySide(world, plain.arms, policies, name, STEPS, programs)
    before = [value.clone() for value in (*arms.learner.parameters(), arms.numbers)]
    arms.prepare()
    assert all(torch.equal(*pair) for pair in zip(before, (*arms.learner.parameters(), arms.numbers), strict=True))
    for _ in range(STEPS):
        arms.train_step()
    assert [len(whole.made) for whole in (programs.learn, programs.look)] == [1, 2]  # six tasks by worst case, three else
    assert torch.equal(arms.picked, plain.picked)
    torch.testing.assert_close(arms.losses, plain.losses, rtol=1e-4, atol=1e-5)
    assert plain.losses.mean() > 0.05  # there is something to learn
    for ours, theirs in zip(arms.learner.parameters(), plain.learner.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
