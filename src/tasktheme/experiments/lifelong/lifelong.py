"""The whole experiment in one call: policies and seeds of one learner in one setting, run, tested, compared and written."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasktheme.data.dataset import DataSplit
from tasktheme.data.task_lists import task_names
from tasktheme.device import find_device
from tasktheme.errors import DataError, SettingsError
from tasktheme.experiments.lifelong.comparison import SMOOTHING
from tasktheme.experiments.lifelong.results import ORDER, read_results, write_results
from tasktheme.experiments.lifelong.run import Experiment
from tasktheme.experiments.lifelong.settings import LifelongSettings, lifelong_learner
from tasktheme.experiments.lifelong.world import World
from tasktheme.experiments.tested import suitable_tasks
from tasktheme.learners.build import find_learner
from tasktheme.learners.meta import MetaLearner
from tasktheme.learners.settings import LearnerSettings
from tasktheme.ptm import PTM
from tasktheme.selection.base import Policy
from tasktheme.selection.build import build_policy
from tasktheme.settings import check_known
from tasktheme.training.compiler import require_compiler


def run_lifelong(
    split: DataSplit,
    out: str | Path,
    *,
    learner: str = "maml",
    setting: str = "induction",
    policies: Sequence[str] = ORDER,
    seeds: int = 3,
    steps: int = 10_000,
    model: PTM | None = None,
    probe: MetaLearner | None = None,
    final_tasks: int | str | None = None,
    smoothing: float = SMOOTHING,
    device: str = "auto",
    progress: bool = True,
    changes: Mapping[str, Any] | None = None,
    compiled: bool = False,
) -> dict[str, Any]:
    """Bring every policy with every seed to ``steps`` steps and test it; returns what ``lifelong.json`` holds.

    Everything is kept in ``out / "LEARNER-SETTING"``. Arms that are there go on from where they are: the same call after an
    interrupt ends with the same numbers, one with more steps, seeds or other policies adds them to the rest.

    Args:
        split: training tasks come from its training classes, test tasks from its test classes.
        out: a folder, which may hold several experiments.
        learner, setting, policies: by name; transduction shows the policies the fixed test tasks without labels.
        seeds: 0, 1, ... of as many arms for each policy.
        steps: picks of each arm.
        model: the task model, for policies that ask for it; probe: a trained MAML, for Task2Vec.
        final_tasks: of the last test, "all" or a number; by default all where they are not too many.
        smoothing: weight of the exponentially weighted mean in curves.
        device: "cpu", "cuda", or "auto".
        progress: show progress bars on standard error.
        changes: settings of the experiment or of the learner by name.
        compiled: let torch compile what adapts first, updates and tests. Arms go on either way, with other rounding.
    """
    if not policies or seeds < 1 or steps < 1:
        raise SettingsError("a lifelong experiment needs a policy, a seed and a step at least")
    if not 0.0 <= smoothing < 1.0:
        raise SettingsError(f"smoothing must be at least 0 and below 1, got {smoothing}")
    settings, learner_settings, built = plan_lifelong(learner, setting, policies, model, probe, changes)
    world = World(split, learner_settings, settings, find_device(device), model)
    folder = Path(out) / f"{learner}-{setting}"
    tasks = suitable_tasks(split.test, learner_settings) if final_tasks is None else final_tasks
    if compiled:
        require_compiler(world.device)
    listed = Experiment(world, learner, built, folder / "arms", compiled).run(seeds, steps, tasks, progress=progress)
    return write_results(folder, tasks, task_names(split.test, listed.classes.tolist()), smoothing=smoothing)


def plan_lifelong(
    learner: str,
    setting: str,
    policies: Sequence[str],
    model: PTM | None = None,
    probe: MetaLearner | None = None,
    changes: Mapping[str, Any] | None = None,
) -> tuple[LifelongSettings, LearnerSettings, dict[str, tuple[Policy, dict[str, Any]]]]:
    """What :func:`run_lifelong` is asked for, checked before any data is there: settings of experiment and learner, policies."""
    own = [field.name for field in dataclasses.fields(LifelongSettings)]
    given = dict(changes or {})
    check_known(given, [*own, *(field.name for field in dataclasses.fields(find_learner(learner).Settings))])
    if given.setdefault("setting", setting) != setting:
        raise SettingsError(f"the setting of this experiment is {setting!r}: choose another with --setting, not with --set")
    settings = LifelongSettings().changed({name: value for name, value in given.items() if name in own})
    learner_settings = lifelong_learner(learner, {name: value for name, value in given.items() if name not in own})
    return settings, learner_settings, {name: _built(name, model, probe) for name in dict.fromkeys(policies)}


def _built(name: str, model: PTM | None, probe: MetaLearner | None) -> tuple[Policy, dict[str, Any]]:
    """A policy, and what tells it from others of its name."""
    if name == "task2vec" and probe is None:
        raise SettingsError("the policy 'task2vec' needs a probe network: give --probe, a folder that meta-train maml wrote")
    policy = build_policy(name, probe=None if probe is None else probe.learner)
    about: dict[str, Any] = {key: value for key, value in vars(policy).items() if isinstance(value, int | float | str)}
    if "gamma" in policy.needs:
        if model is None:
            raise DataError(f"the policy {name!r} needs a task model: give --model, a folder that fit wrote")
        about["model"] = model.fingerprint
    if name == "task2vec" and probe is not None:
        about["probe"] = probe.fingerprint
    return policy, about


__all__ = ["plan_lifelong", "read_results", "run_lifelong"]
