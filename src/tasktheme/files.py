"""Tensors and JSON in one safetensors file, written so that a reader sees the old file or the new one, never a part."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from tasktheme.errors import ModelFileError, OutputError
from tasktheme.untrusted import exists, parse_json


def write_file(path: Path, content: bytes) -> None:
    """Write to a temporary name beside ``path``, sync, rename, sync the folder."""
    temporary = temporary_name(path)
    try:
        write_synced(temporary, content)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_synced(path: Path, content: bytes) -> None:
    """Write and wait until it is on the disk; OSError where that fails."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def temporary_name(path: Path) -> Path:
    """Where a file or folder is made before it is renamed to ``path``: in the same folder, hidden."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def remove_leftovers(path: Path) -> None:
    """Delete what killed processes left under temporary names of ``path``; what cannot be deleted stays."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.\d+\.tmp")
    with suppress(OSError):
        for left in [entry for entry in path.absolute().parent.iterdir() if ours.fullmatch(entry.name)]:
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last through a loss of power."""
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_writable(folder: Path) -> None:
    """OutputError where no file can be made in ``folder``."""
    try:
        with tempfile.TemporaryFile(dir=folder):  # without a name, where the system can: a kill leaves nothing behind
            pass
    except OSError as error:
        raise OutputError(f"cannot write in {str(folder)!r}: {error.strerror or error}") from error


def check_free(path: Path, *, overwrite: bool) -> None:
    """OutputError where something is at ``path`` that may not be replaced."""
    if exists(path) and not overwrite:
        way = "overwrite it (--overwrite, in Python overwrite=True)"
        raise OutputError(f"{str(path)!r} exists already; choose another name, or {way}")


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, where they are missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {str(folder)!r}: {error.strerror or error}") from error


def pack_tensors(tensors: Mapping[str, Tensor], info: Mapping[str, Any]) -> bytes:
    """A safetensors file in memory, ``info`` as JSON in its header."""
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    return save(own, metadata={"tasktheme": json.dumps(info)})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What :func:`pack_tensors` packed."""
    try:
        with safe_open(path, framework="pt") as file:
            info = parse_json((file.metadata() or {})["tasktheme"])
            return {name: file.get_tensor(name) for name in file.keys()}, info  # noqa: SIM118 (not a dict)
    except FileNotFoundError as error:
        raise ModelFileError(f"{str(path)!r} is missing") from error
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{str(path)!r} is damaged or not tasktheme's: {error}") from error
