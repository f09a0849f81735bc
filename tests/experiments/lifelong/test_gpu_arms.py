"""Arms on a GPU: the picks and losses of the CPU, and a replayed step like one that is not recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import tasktheme as tt
from oracles.learners import NAMES
from oracles.small import SMALL, small_images
from tasktheme.data.dataset import DataSplit
from tasktheme.experiments.lifelong import arms as engine
from tasktheme.experiments.lifelong.arms import Arm, SideBySide
from tasktheme.experiments.lifelong.lifelong import run_lifelong
from tasktheme.experiments.lifelong.records import all_records
from tasktheme.experiments.lifelong.settings import LifelongSettings, lifelong_learner
from tasktheme.experiments.lifelong.world import World
from tasktheme.learners.base import precision
from tasktheme.learners.build import build_learner
from tasktheme.selection.build import POLICIES, build_policy
from tasktheme.selection.predicted import Predicted
from tasktheme.training import graph

pytestmark = pytest.mark.gpu
TINY = {"ways": 3, "queries": 3, "filters": 16, "modules": 3, "precision": "float32"}


def split() -> DataSplit:
    return DataSplit("small", small_images(), small_images(seed=1), small_images(seed=2))


def lived(
    name: str, device: str, steps: int, setting: str = "induction", *, skip: bool = False, waiting: bool = False
) -> SideBySide:
    own = {} if name == "protonet" else {"inner_steps": 2, "test_steps": 2, "inner_rate": 0.1}
    settings = LifelongSettings(setting=setting, pool=6, test_tasks=3, skip=skip)  # type: ignore[arg-type]
    model = tt.PTM(settings=SMALL, device="cpu").fit(small_images(), 16, progress=False)  # the same everywhere
    learner = lifelong_learner(name, TINY | own)
    world = World(split(), learner, settings, torch.device(device), model)
    probe = build_learner("maml", TINY | {"inner_steps": 1, "test_steps": 1}, (1, 16, 16)).to(device)
    policies = {policy: build_policy(policy, probe=probe) for policy, kind in POLICIES.items() if kind.on_device or waiting}
    with precision(learner):
        together = SideBySide(world, [Arm(policy, seed) for policy in policies for seed in (0, 1)], policies, name, steps)
        for _ in range(steps):
            together.train_step()
    return together


@pytest.mark.parametrize("name", NAMES)
def test_picks_and_losses_are_those_of_the_cpu(name: str) -> None:
    """Of policies that do not see the learner; for the others a rounding may turn a pick."""
    cpu, gpu = (lived(name, device, 6) for device in ("cpu", "cuda"))
    rows = [row for row, arm in enumerate(cpu.arms) if arm.policy in ("ptm", "random", "diverse")]
    assert torch.equal(cpu.picked[rows], gpu.picked[rows].cpu())
    np.testing.assert_allclose(gpu.losses[rows].cpu(), cpu.losses[rows], rtol=5e-2, atol=5e-3)


def _short_memory(self: Predicted) -> None:
    self.looks, self.memory = 3, 5


@pytest.mark.parametrize("setting", ["induction", "transduction"])
@pytest.mark.parametrize("how", [{}, {"skip": True}, {"waiting": True}])
def test_a_replayed_step_is_the_step(setting: str, how: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the eager calls and the memory of any policy, alone or around a pick that waits for the device."""
    monkeypatch.setattr(engine, "_USUAL", 10)
    monkeypatch.setattr("tasktheme.selection.predicted.Predicted.__init__", _short_memory)
    replayed = lived("maml", "cuda", 20, setting, **how)
    monkeypatch.setattr(graph, "_EAGER_CALLS", 1000)
    eager = lived("maml", "cuda", 20, setting, **how)
    rows = [row for row, arm in enumerate(eager.arms) if arm.policy in ("ptm", "random", "diverse", "task2vec")]
    assert torch.equal(replayed.picked[rows], eager.picked[rows])
    np.testing.assert_allclose(replayed.losses[rows].cpu(), eager.losses[rows].cpu(), rtol=5e-2, atol=5e-3)


def test_a_run_on_a_gpu_goes_on_from_its_files(tmp_path: Path) -> None:
    changes = {**TINY, "pool": 6, "test_tasks": 4, "evaluate_every": 4, "inner_steps": 1, "test_steps": 1}
    common = {"policies": ("random", "worst-case"), "seeds": 2, "final_tasks": 8, "progress": False, "changes": changes}
    run_lifelong(split(), tmp_path / "whole", steps=12, device="cuda", **common)  # type: ignore[arg-type]
    for steps in (5, 12):
        run_lifelong(split(), tmp_path / "parts", steps=steps, device="cuda", **common)  # type: ignore[arg-type]
    for ours, theirs in zip(
        *(all_records(tmp_path / out / "maml-induction" / "arms") for out in ("parts", "whole")), strict=True
    ):
        if ours.arm.policy == "random":
            np.testing.assert_array_equal(ours.picked, theirs.picked)
            np.testing.assert_allclose(ours.losses, theirs.losses, rtol=5e-2, atol=5e-3)
        assert ours.final.shape == (8,)


@pytest.mark.filterwarnings("ignore")  # of the compiler's own
def test_a_compiled_run_is_the_run(tmp_path: Path) -> None:
    """Update, look and test, compiled and recorded: one arm of each kind, past the eager calls."""
    own = {"filters": 8, "modules": 1, "inner_steps": 1, "test_steps": 1, "inner_rate": 0.1}
    changes = {**TINY, **own, "pool": 6, "test_tasks": 6, "evaluate_every": 4}
    common = {"policies": ("random", "worst-case"), "seeds": 1, "final_tasks": 9, "progress": False, "changes": changes}
    for out, compiled in (("compiled", True), ("plain", False)):
        run_lifelong(split(), tmp_path / out, steps=8, device="cuda", compiled=compiled, **common)  # type: ignore[arg-type]
    pairs = zip(*(all_records(tmp_path / out / "maml-induction" / "arms") for out in ("compiled", "plain")), strict=True)
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours.losses[0], theirs.losses[0], rtol=1e-3)
        if ours.arm.policy == "random":
            np.testing.assert_array_equal(ours.picked, theirs.picked)
            np.testing.assert_allclose(ours.losses, theirs.losses, rtol=2e-2, atol=2e-3)
            assert np.abs(ours.final - theirs.final).mean() < 0.1  # a query at the border may fall to either side
