"""What is kept of an arm: a file of its own, from which it goes on to the same numbers, alone or beside others."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tasktheme.errors import ModelFileError
from tasktheme.experiments.lifelong.arms import Arm
from tasktheme.files import pack_tensors, read_tensors, write_file

_KIND = "tasktheme lifelong arm"
_FORMAT = 1

Floats = npt.NDArray[np.float64]


@dataclass
class Record:
    """The history of an arm and, in ``state``, all that its future depends on.

    Attributes:
        step: tasks that it has picked.
        evaluated: accuracy on each fixed test task, by the step.
        validated: mean accuracy on the validation tasks, by the step.
        picked, losses, learned: (step,) place in the stream and loss of each task picked, and whether it was learned from.
        final: accuracy on each task of the last test, as far as it has come, with ``final_tasks`` in all ("all" or a number).
        seconds: its share of the time that steps took, evaluation apart; arms side by side share it equally.
        stopped: whether it has stopped learning.
    """

    arm: Arm
    identity: dict[str, Any]
    step: int = 0
    evaluated: dict[int, Floats] = field(default_factory=dict)
    validated: dict[int, float] = field(default_factory=dict)
    picked: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    losses: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    learned: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    final: Floats = field(default_factory=lambda: np.zeros(0))
    final_tasks: int | str | None = None
    seconds: float = 0.0
    stopped: bool = False
    state: dict[str, Tensor] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write the arm's file."""
        arrays = {"picked": self.picked, "losses": self.losses, "learned": self.learned, "final": self.final}
        tensors = {f"record.{name}": torch.from_numpy(array) for name, array in arrays.items()}
        tensors |= {f"evaluated.{step}": torch.from_numpy(values) for step, values in self.evaluated.items()}
        info = {
            "kind": _KIND,
            "format": _FORMAT,
            "policy": self.arm.policy,
            "seed": self.arm.seed,
            "identity": self.identity,
            "step": self.step,
            "validated": sorted(self.validated.items()),
            "final_tasks": self.final_tasks,
            "seconds": self.seconds,
            "stopped": self.stopped,
        }
        write_file(_file(folder, self.arm), pack_tensors(tensors | {f"state.{k}": v for k, v in self.state.items()}, info))


def read_record(path: Path) -> Record:
    """What :meth:`Record.save` wrote."""
    tensors, info = read_tensors(path)
    if info.get("kind") != _KIND or info.get("format", 0) > _FORMAT:
        raise ModelFileError(f"{str(path)!r} does not keep an arm of a lifelong experiment that this version can read")
    evaluated = {int(name.split(".")[1]): value.numpy() for name, value in tensors.items() if name.startswith("evaluated.")}
    return Record(
        arm=Arm(info["policy"], info["seed"]),
        evaluated=dict(sorted(evaluated.items())),
        validated={int(step): float(accuracy) for step, accuracy in info["validated"]},
        picked=tensors["record.picked"].numpy(),
        losses=tensors["record.losses"].numpy(),
        learned=tensors["record.learned"].numpy(),
        final=tensors["record.final"].numpy(),
        state={name.removeprefix("state."): value for name, value in tensors.items() if name.startswith("state.")},
        **{name: info[name] for name in ("identity", "step", "final_tasks", "seconds", "stopped")},
    )


def open_record(folder: Path, arm: Arm, identity: dict[str, Any]) -> Record:
    """The arm's record as far as it has come; ModelFileError where it is of another experiment."""
    path = _file(folder, arm)
    if not path.exists():
        return Record(arm, identity)
    record = read_record(path)
    if record.identity != identity:
        differing = sorted(key for key in identity if record.identity.get(key) != identity[key])
        raise ModelFileError(
            f"{str(path)!r} belongs to an experiment with other {', '.join(differing)}: choose another --out, or delete it"
        )
    return record


def all_records(folder: Path) -> list[Record]:
    """Every arm of a folder, by policy and seed."""
    return sorted((read_record(path) for path in folder.glob("*.safetensors")), key=lambda record: record.arm)


def _file(folder: Path, arm: Arm) -> Path:
    return folder / f"{arm}.safetensors"
