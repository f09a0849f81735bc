"""Settings of the lifelong experiment, and of the learner inside it.

The paper says: a pool of 200 tasks of 5 ways and 1 shot, learners that start alike, 100 random test tasks after every 500
steps, all 5-way test tasks at the end. It says nothing of the learners' own settings; ours are their defaults, with one task
in each update and a step size that does not fall: a life has no end to anneal towards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tasktheme.errors import SettingsError
from tasktheme.learners.build import find_learner
from tasktheme.learners.settings import LearnerSettings
from tasktheme.settings import CheckedSettings


@dataclass(frozen=True)
class LifelongSettings(CheckedSettings):
    """What the paper's experiment fixes."""

    setting: Literal["induction", "transduction"] = "induction"
    """Whether any future task matters, or the test tasks, which the policies then see without their labels."""
    pool: int = 200
    """Tasks to choose from."""
    evaluate_every: int = 500
    """Steps between two tests on the fixed test tasks."""
    test_tasks: int = 100
    """Fixed test tasks."""
    test_seed: int = 1
    """Seed of all test tasks, the same for all arms."""
    average: int = 0
    """Test the mean of a learner's weights over about its last so many steps instead of the last weights, which swing with each
    task; 0, as in the paper, tests the last."""
    skip: bool = False
    """Discard a pick without learning from it where its loss is unusually low (selection/worth.py); the paper never does."""
    skip_margin: float = 1.0
    """How many deviations below the mean of the last losses is unusually low."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("pool", "evaluate_every", "test_tasks"):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        for name in ("average", "skip_margin"):
            self._require(name, getattr(self, name) >= 0, "at least 0")
        if not self.skip and self.skip_margin != type(self).skip_margin:
            raise SettingsError("skip_margin says what is skipped, but skip is off: set skip, or leave skip_margin out")
        self._require("test_seed", 0 <= self.test_seed < 2**32, "at least 0 and below 2^32")


def lifelong_learner(name: str, changes: Mapping[str, Any]) -> LearnerSettings:
    """The learner's settings in this experiment, changed by ``changes``."""
    kind = find_learner(name)
    settings = kind.Settings().changed({"batch_tasks": 1, "anneal": False} | dict(changes))
    if settings.training_ways != settings.ways:
        if "train_ways" in changes:
            raise SettingsError("a lifelong learner's tasks are like those of its test: set ways, and leave train_ways alone")
        settings = settings.changed({"train_ways": settings.ways})
    if settings.batch_tasks != 1:
        raise SettingsError("a lifelong learner takes one task at a time: leave batch_tasks at 1")
    if settings.anneal:
        raise SettingsError("a lifelong learner's step size does not fall, as no end is known: leave anneal off")
    if settings.augment:
        raise SettingsError(
            "a pool's tasks are the images as they are, of which policies and learner see the same: leave augment off"
        )
    for idle in ("validate_every", "validation_tasks"):
        if not settings.patience and getattr(settings, idle) != getattr(kind.Settings, idle):
            raise SettingsError(f"a lifelong learner validates to stop early alone: set patience, or leave {idle} out")
    if settings.seed:
        raise SettingsError("each arm has a seed of its own: say how many, and leave the setting 'seed' alone")
    return settings
