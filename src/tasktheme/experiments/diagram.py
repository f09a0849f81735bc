"""A correlation diagram: a number of each task against the accuracy, for as many tasks as in the paper and for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tasktheme.evaluation.correlation import Correlation, Floats, correlate
from tasktheme.experiments.tested import Tested
from tasktheme.ptm import PTM


@dataclass(frozen=True, eq=False)
class Diagram:
    """``x`` and ``accuracy`` (T,) of all tasks; ``some`` are the places of as many as the paper takes."""

    name: str
    label: str
    x: Floats
    accuracy: Floats
    some: list[int]
    few: Correlation
    all: Correlation
    about: dict[str, Any]

    @property
    def panels(self) -> list[tuple[Floats, Floats, Correlation]]:
        """What is shown, each with its x and accuracy: as many tasks as in the paper and all; these alone if no more."""
        everything = (self.x, self.accuracy, self.all)
        if len(self.some) == len(self.x):
            return [everything]
        return [(self.x[self.some], self.accuracy[self.some], self.few), everything]

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "experiment": self.name,
            **self.about,
            "as in the paper": self.few.as_dict(),
            "all tasks": self.all.as_dict(),
            "x": self.x.tolist(),
            "accuracy": self.accuracy.tolist(),
            "places of the paper's tasks": self.some,
        }


def make_diagram(name: str, label: str, x: Floats, tested: Tested, model: PTM) -> Diagram:
    """Both correlations of ``x`` with the accuracy."""
    accuracy, some = tested.accuracies.accuracy, tested.some()
    about = {
        "x is": label,
        "data": tested.dataset.name,
        "learner": dict(tested.accuracies.about),
        "mean accuracy": tested.accuracies.mean,
        "interval": tested.accuracies.interval,
        "model": model.fingerprint,
    }
    classes = tested.classes.numpy()
    few, every = correlate(x[some], accuracy[some], classes[some]), correlate(x, accuracy, classes)
    return Diagram(name, label, x, accuracy, some.tolist(), few, every, about)
