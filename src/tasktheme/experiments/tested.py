"""What all experiments start from: test tasks, and the accuracy of a meta-learner on each of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Int64
from torch import Tensor

from tasktheme.data.dataset import Dataset
from tasktheme.data.episodes import Episodes
from tasktheme.data.task_lists import task_names
from tasktheme.errors import DataError
from tasktheme.learners.meta import MetaLearner
from tasktheme.learners.settings import LearnerSettings
from tasktheme.learners.testing import Accuracies, listed_classes, listed_episodes

PAPER_TASKS = 100  # in the paper's correlation diagrams
_MOST_TASKS = 20_000  # of which all are tested, unless asked otherwise
_OTHERWISE = 10_000


@dataclass(frozen=True)
class Tested:
    """Test tasks with the accuracy on each."""

    dataset: Dataset
    learner: MetaLearner
    classes: Int64[Tensor, "T W"]
    accuracies: Accuracies
    seed: int

    def episodes(self) -> Episodes:
        """The same tasks with the same data points, labelled ones and queries, for a model of tasks."""
        return listed_episodes(self.dataset, self.learner.settings, self.classes, seed=self.seed)

    def some(self, count: int = PAPER_TASKS) -> npt.NDArray[np.int64]:
        """Places of ``count`` of the tasks, chosen at random by the seed."""
        generator = np.random.default_rng(self.seed)
        return np.sort(generator.choice(len(self.classes), size=min(count, len(self.classes)), replace=False))


def run_test(
    learner: MetaLearner, dataset: Dataset, tasks: int | str | None = None, *, seed: int = 1, progress: bool = False
) -> Tested:
    """Test on "all" tasks, a number of random ones or, by default, all where they are not too many, else 10,000."""
    wanted = suitable_tasks(dataset, learner.settings) if tasks is None else tasks
    accuracies = learner.test(dataset, wanted, seed=seed, progress=progress)
    return Tested(dataset, learner, listed_classes(dataset, learner.settings, wanted, seed=seed), accuracies, seed)


def known_test(learner: MetaLearner, dataset: Dataset, accuracies: Accuracies) -> Tested:
    """What an earlier meta-test found, instead of a test; it must be of the same learner, data and settings."""
    about, seed = accuracies.about, accuracies.about["seed"]
    same = {"fingerprint": learner.fingerprint, "data": dataset.name}
    same |= {name: getattr(learner.settings, name) for name in ("ways", "shots", "queries", "within_group")}
    for name, value in same.items():
        if about[name] != value:
            raise DataError(f"these accuracies are of another test: {name} is {about[name]}, but {value} here")
    classes = listed_classes(dataset, learner.settings, about["tasks"], seed=seed)
    named = (task_names(dataset, classes.tolist(), grouped=grouped) for grouped in (True, False))  # without in earlier files
    if list(accuracies.columns["classes"]) not in named:
        raise DataError("these accuracies are of other tasks than this data set has")
    return Tested(dataset, learner, classes, accuracies, seed)


def suitable_tasks(dataset: Dataset, settings: LearnerSettings) -> int | str:
    """Which test tasks to take where nobody says: "all" where they are not too many, else 10,000."""
    sizes = np.bincount(dataset.class_group) if settings.within_group else np.array([len(dataset.class_names)])
    count = sum(math.comb(int(size), settings.ways) for size in sizes)
    return "all" if count <= _MOST_TASKS else _OTHERWISE
