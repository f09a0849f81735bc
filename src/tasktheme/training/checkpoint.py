"""The state of a training as a checkpoint, and back."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from tasktheme.data.dataset import Dataset
from tasktheme.errors import ModelFileError
from tasktheme.model.themes import Themes
from tasktheme.settings import Settings
from tasktheme.training.checkpoint_file import read_checkpoint, write_checkpoint
from tasktheme.training.choice import Choice
from tasktheme.training.loop import Trainer

_KIND = "tasktheme checkpoint"
_FORMAT = 2  # of what is kept, and of how a training goes on from it
_MAY_DIFFER = ("learning_rate", "gradient_clip", "covariance_floor")
_TITLES = {"experiment": "settings", "tasks": "number of tasks", "shape": "data", "sha256": "data"}
_POINTS_HASHED = 1000  # data points that tell one data set from another of the same shape and name


def save_training(trainer: Trainer, path: Path) -> None:
    """Write networks, optimiser, themes, running means, step, sweeps of the final EM and history."""
    tensors = {**trainer.networks.state_dict(), **trainer.themes.tensors(), **trainer.running.tensors()}
    if trainer.optimiser is not None:
        tensors |= optimiser_tensors(trainer.optimiser)
    info = {
        "kind": _KIND,
        "format": _FORMAT,
        "settings": trainer.asked.as_dict(),
        "training": _identity(trainer),
        "step": trainer.step,
        "sweeps": trainer.sweeps,
        "aspects": trainer.themes.aspects,
        "finished": trainer.finished,
        "running": trainer.running.names,
        "history": trainer.history,
        "choice": None if trainer.choice is None else trainer.choice.as_dict(),
    }
    write_checkpoint(path, tensors, info)


def resume_training(trainer: Trainer, path: Path) -> None:
    """Bring ``trainer`` to the state in the file, which must be of the same training.

    Settings that cure a training gone wrong may differ: the learning rate, the gradient's and the covariances' bounds.
    """
    tensors, info = read_checkpoint(path)
    if info.get("kind") != _KIND:
        raise ModelFileError(f"{str(path)!r} is not a checkpoint of a training")
    if info.get("format") != _FORMAT:
        raise ModelFileError(f"{str(path)!r} was written by another version of tasktheme: go on with that one, or start anew")
    theirs = Settings().changed(info["settings"]).changed({name: getattr(trainer.asked, name) for name in _MAY_DIFFER})
    there = {"settings": theirs.as_dict(), **info["training"]}
    if other := differences(there, {"settings": trainer.asked.as_dict(), **_identity(trainer)}):
        raise ModelFileError(f"{str(path)!r} belongs to a training with other {other}, and cannot be resumed here")
    trainer.networks.load(tensors)
    aspects, floor, device = info["aspects"], trainer.settings.covariance_floor, trainer.device
    trainer.themes = Themes.from_tensors(tensors, floor=floor, device=device, aspects=aspects)
    trainer.running.load(tensors, info["running"], trainer.device)
    trainer.step, trainer.sweeps, trainer.finished, trainer.history = (
        info[name] for name in ("step", "sweeps", "finished", "history")
    )
    trainer.choice = None if info["choice"] is None else Choice(**info["choice"])
    trainer.settings = dataclasses.replace(trainer.asked, themes=len(trainer.themes.alpha) // aspects)
    if trainer.optimiser is not None:
        load_optimiser(trainer.optimiser, tensors)


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """What differs between two identities, settings by name, and the number of tasks, with both values; nothing where they
    are the same."""
    theirs, ours = _in_tasks(theirs), _in_tasks(ours)
    found: dict[str, list[str]] = {}  # by title, which several keys may share
    for key in {**theirs, **ours}:
        there, here = theirs.get(key), ours.get(key)
        title = _TITLES.get(key, key)
        if isinstance(there, dict) and isinstance(here, dict):
            for name in {**there, **here}:
                if there.get(name) != here.get(name):
                    found.setdefault(title, []).append(f"{name} {there.get(name)!r} there, {here.get(name)!r} here")
        elif there != here:
            found.setdefault(title, []).extend([f"{there:,} there, {here:,} here"] if key == "tasks" else [])
    return ", ".join(f"{title} ({', '.join(values)})" if values else title for title, values in found.items())


def _in_tasks(identity: Mapping[str, Any]) -> dict[str, Any]:
    """The same with the length of a training in tasks, as its user gave it, instead of steps."""
    found = dict(identity)
    if "steps" in found:
        found["tasks"] = found.pop("steps") * found["settings"]["batch_tasks"]
    return found


def optimiser_tensors(optimiser: Optimizer) -> dict[str, Tensor]:
    """The state of an optimiser, each tensor under its name."""
    states = optimiser.state_dict()["state"]
    return {f"optimiser.{index}.{name}": value for index, state in states.items() for name, value in state.items()}


def load_optimiser(optimiser: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Take over the state among ``tensors``."""
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    kept: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser."):
            _, index, part = name.split(".")
            own = parameters[int(index)]
            if value.shape == own.shape:  # laid out in memory as its parameter: as the optimiser makes it, and as fast
                value = torch.empty_like(own, dtype=value.dtype).copy_(value)
            kept.setdefault(int(index), {})[part] = value
    optimiser.load_state_dict({**optimiser.state_dict(), "state": kept})


def _identity(trainer: Trainer) -> dict[str, Any]:
    """What makes two trainings with the same settings the same: their length and their data."""
    return {"steps": trainer.steps, **data_identity(trainer.dataset)}


def data_identity(dataset: Dataset) -> dict[str, Any]:
    """What tells one data set from another."""
    digest = hashlib.sha256(dataset.counts.tobytes() + dataset.class_group.tobytes() + bytes([dataset.unlabelled]))
    every = max(1, len(dataset.x) // _POINTS_HASHED)
    digest.update(np.ascontiguousarray(dataset.x[::every]).tobytes())
    return {"data": dataset.name, "shape": list(dataset.x.shape), "sha256": digest.hexdigest()}
