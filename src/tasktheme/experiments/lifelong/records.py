"""What is kept of an arm: a file of its own, from which it goes on to the same numbers, alone or beside others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tasktheme.errors import ModelFileError
from tasktheme.experiments.lifelong.arms import Arm
from tasktheme.training.checkpoint import differences
from tasktheme.training.checkpoint_file import clear_leftovers, read_before, read_checkpoint, write_checkpoint

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
        final: accuracy on each task of the last test, as far as it has come.
        final_tasks, final_count: what that test is asked for ("all" or a number), and how many tasks it has.
        seconds: its share of the time that steps took, evaluation apart; arms side by side share it equally.
        stopped: whether it has stopped learning.
        beside: the arms that it was kept together with, itself among them.
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
    final_count: int = 0
    seconds: float = 0.0
    stopped: bool = False
    beside: Sequence[str] = ()
    state: dict[str, Tensor] = field(default_factory=dict)

    @property
    def final_is_whole(self) -> bool:
        """Whether the last test is whole."""
        return 0 < len(self.final) == self.final_count

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
            "final_count": self.final_count,
            "seconds": self.seconds,
            "stopped": self.stopped,
            "beside": list(self.beside),
        }
        write_checkpoint(_file(folder, self.arm), tensors | {f"state.{k}": v for k, v in self.state.items()}, info)


def save_together(folder: Path, records: Sequence[Record]) -> None:
    """Write the files of arms that are at the same point."""
    for record in records:
        record.beside = [str(other.arm) for other in records]
        record.save(folder)


def read_record(path: Path) -> Record:
    """What :meth:`Record.save` wrote last."""
    return _record(path, *read_checkpoint(path))


def _record(path: Path, tensors: dict[str, Tensor], info: dict[str, Any]) -> Record:
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
        final_count=info.get("final_count", len(tensors["record.final"])),  # older files do not say
        state={name.removeprefix("state."): value for name, value in tensors.items() if name.startswith("state.")},
        **{name: info[name] for name in ("identity", "step", "final_tasks", "seconds", "stopped", "beside")},
    )


def open_records(folder: Path, arms: Sequence[Arm], identities: Sequence[dict[str, Any]]) -> list[Record]:
    """The arms' records as far as they have come; ModelFileError where one, or another in the folder, is of another experiment.

    Arms that were kept together go on together: where a kill fell between their files, or one is damaged, from the last
    point that all of them have.
    """
    records = [_open_record(folder, arm, identity) for arm, identity in zip(arms, identities, strict=True)]
    for path in {*folder.glob("*.arm")} - {_file(folder, arm) for arm in arms}:  # they are compared with these
        _check_identity(path, read_record(path).identity | {"policy": None}, identities[0] | {"policy": None})
    step = {str(record.arm): record.step for record in records}
    return [
        _at(folder, record, min(step.get(name, record.step) for name in (*record.beside, str(record.arm)))) for record in records
    ]


def _open_record(folder: Path, arm: Arm, identity: dict[str, Any]) -> Record:
    path = _file(folder, arm)
    clear_leftovers(path)
    if not path.exists():
        return Record(arm, identity)
    record = read_record(path)
    _check_identity(path, record.identity, identity)
    return record


def _check_identity(path: Path, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    if other := differences(theirs, ours):
        raise ModelFileError(f"{str(path)!r} is of an experiment with other {other}: ask for the same, or choose another --out")


def _at(folder: Path, record: Record, step: int) -> Record:
    """The record at an earlier step, where that was kept too; at step 0 nothing is needed."""
    if step == record.step:
        return record
    if step == 0:
        return Record(record.arm, record.identity)
    path = _file(folder, record.arm)
    before = read_before(path)
    return _record(path, *before) if before is not None and before[1].get("step") == step else record


def all_records(folder: Path) -> list[Record]:
    """Every arm of a folder, by policy and seed."""
    return sorted((read_record(path) for path in folder.glob("*.arm")), key=lambda record: record.arm)


def _file(folder: Path, arm: Arm) -> Path:
    return folder / f"{arm}.arm"
