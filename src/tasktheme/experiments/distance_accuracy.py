"""The paper's correlation diagram of task distance: accuracy against how far a test task lies from the training tasks."""

from __future__ import annotations

import numpy as np

from tasktheme import distributed
from tasktheme.data.dataset import Dataset
from tasktheme.experiments.diagram import Diagram, make_diagram
from tasktheme.experiments.tested import Tested
from tasktheme.ptm import PTM

_TASKS_AT_ONCE = 256


def distance_accuracy(
    tested: Tested, model: PTM, training: Dataset, *, training_tasks: int = 10_000, progress: bool = False
) -> Diagram:
    """Accuracy on each test task against its mean KL to ``training_tasks`` random tasks of the training classes.

    Training tasks have as many classes and data points as the test tasks, since KL depends on the size of a task.
    """
    settings = tested.learner.settings
    drawn = training.episodes(
        ways=settings.ways,
        shots=settings.shots + settings.queries,
        n=training_tasks,
        seed=tested.seed,
        within_group=settings.within_group,
    )
    known = model.embed(drawn, progress=progress)
    asked = model.embed(tested.episodes(), progress=progress)
    distance = np.zeros(len(asked))
    for start in range(distributed.rank() * _TASKS_AT_ONCE, len(asked), distributed.world() * _TASKS_AT_ONCE):
        piece = slice(start, start + _TASKS_AT_ONCE)
        distance[piece] = asked[piece].kl(known).mean(axis=1)
    distance = distributed.filled(distance)
    label = f"mean KL[test || training], {training_tasks:,} training tasks"
    return make_diagram("distance-accuracy", label, distance, tested, model)
