"""The paper's correlation diagram of task uncertainty: a meta-learner's accuracy against the entropy of the task."""

from __future__ import annotations

from tasktheme.experiments.diagram import Diagram, make_diagram
from tasktheme.experiments.tested import Tested
from tasktheme.ptm import PTM


def entropy_accuracy(tested: Tested, model: PTM, *, progress: bool = False) -> Diagram:
    """Accuracy on each test task against the entropy of its distribution over themes.

    The task's labelled points and queries are embedded together, as one task of one size.
    """
    entropy = model.embed(tested.episodes(), progress=progress).entropy()
    return make_diagram("entropy-accuracy", "task entropy (nats)", entropy, tested, model)
