"""The state of a training in one file, and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from tasktheme.errors import ModelFileError
from tasktheme.model.themes import Moments, Themes
from tasktheme.settings import Settings
from tasktheme.training.checkpoint import pack_tensors, read_tensors, write_file
from tasktheme.training.loop import Trainer

_KIND = "tasktheme checkpoint"


def theme_tensors(themes: Themes) -> dict[str, Tensor]:
    """What must be kept of the themes; the factors follow from the covariances."""
    moments = themes.moments
    return {
        "themes.alpha": themes.alpha,
        "themes.n": moments.n,
        "themes.mu": moments.mu,
        "themes.Sigma": moments.Sigma,
    }


def themes_from(tensors: Mapping[str, Tensor], settings: Settings, device: torch.device) -> Themes:
    """The themes among ``tensors``."""
    n, mu, Sigma, alpha = (tensors[f"themes.{name}"].to(device) for name in ("n", "mu", "Sigma", "alpha"))
    return Themes.build(alpha, Moments(n, mu, Sigma), floor=settings.covariance_floor)


def save_training(trainer: Trainer, path: Path) -> None:
    """Write networks, optimiser, themes, step and history."""
    tensors = {**trainer.networks.state_dict(), **theme_tensors(trainer.themes)}
    if trainer.optimiser is not None:
        for index, state in trainer.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{index}.{name}": value for name, value in state.items()}
    info = {
        "kind": _KIND,
        "settings": trainer.settings.as_dict(),
        "data": trainer.dataset.name,
        "steps": trainer.steps,
        "step": trainer.step,
        "history": trainer.history,
    }
    write_file(path, pack_tensors(tensors, info))


def resume_training(trainer: Trainer, path: Path) -> None:
    """Bring ``trainer`` to the state in the file, which must be of the same training."""
    tensors, info = read_tensors(path)
    if info.get("kind") != _KIND:
        raise ModelFileError(f"{str(path)!r} is not a checkpoint of a training")
    theirs = Settings().changed(info["settings"])
    if theirs != trainer.settings or info["steps"] != trainer.steps or info["data"] != trainer.dataset.name:
        raise ModelFileError(
            f"{str(path)!r} belongs to a training with other settings, tasks or data, and cannot be resumed here"
        )
    trainer.networks.load(tensors)
    trainer.themes = themes_from(tensors, trainer.settings, trainer.device)
    trainer.step, trainer.history = info["step"], info["history"]
    if trainer.optimiser is not None:
        kept: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimiser."):
                _, index, part = name.split(".")
                kept.setdefault(int(index), {})[part] = value
        trainer.optimiser.load_state_dict({**trainer.optimiser.state_dict(), "state": kept})
