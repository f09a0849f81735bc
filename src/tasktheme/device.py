"""Where to compute."""

from __future__ import annotations

import torch

from tasktheme import distributed
from tasktheme.errors import SettingsError


def find_device(name: str) -> torch.device:
    """The device called ``name``; "auto" is a GPU where there is one."""
    if name == "auto":
        return find_device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SettingsError(f"unknown device {name!r}; use auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SettingsError("device 'cuda' was asked for, but torch sees no GPU here; use auto or cpu")
    if device.type == "cuda" and distributed.world() > 1 and distributed.local_rank() >= torch.cuda.device_count():
        raise SettingsError(
            f"torchrun started more processes here than there are GPUs ({torch.cuda.device_count()}): start one for each, "
            "or use device cpu"
        )
    # streams and graphs are the current GPU's
    if device.type == "cuda" and device.index is not None and device.index != torch.cuda.current_device():
        raise SettingsError(f"device {name!r} is not the current GPU: choose it by CUDA_VISIBLE_DEVICES, and use auto or cuda")
    return device
