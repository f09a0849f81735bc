"""A saved model is a folder: weights in safetensors, everything else in JSON, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor

from tasktheme import __version__
from tasktheme.errors import ModelFileError, OutputError
from tasktheme.files import (
    check_free,
    check_writable,
    make_folder,
    pack_tensors,
    read_tensors,
    remove_leftovers,
    sync_folder,
    temporary_name,
    write_synced,
)
from tasktheme.untrusted import exists, parse_json, read_plain_file

FORMAT = 1
MODEL, LEARNER = "tasktheme model", "tasktheme learner"  # kinds of folder
_WEIGHTS, _ABOUT = "weights.safetensors", "model.json"


def versions() -> dict[str, str]:
    """Versions that a result may depend on."""
    return {
        "tasktheme": __version__,
        "python": platform.python_version(),
        **{package: version(package) for package in ("torch", "numpy", "scikit-learn", "matplotlib")},
        "platform": f"{sys.platform} {platform.machine()}",
    }


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Sixteen characters that name a model by its weights."""
    return hashlib.sha256(pack_tensors(tensors, {})).hexdigest()[:16]


def check_output(path: Path, *, overwrite: bool) -> None:
    """Raise at once, before the long work, if ``path`` cannot become a model folder."""
    _put_back(path)
    check_free(path, overwrite=overwrite)
    if exists(path) and not _holds_only_a_model(path):
        raise OutputError(f"{str(path)!r} is not a saved model, or holds other files too: it will not be overwritten")
    parent = path.absolute().parent
    make_folder(parent)
    check_writable(parent)
    if path.is_symlink() and not exists(path):
        raise OutputError(f"{str(path)!r} is a link that leads nowhere: remove it, or choose another name")


def _set_aside(path: Path) -> Path:
    """Where an old model waits while the new one takes its name; a kill in between leaves it there."""
    path = path.resolve()
    return path.with_name(f".{path.name}.old")


def _waits(path: Path) -> bool:
    """Whether an old model waits for its name."""
    try:
        return _set_aside(path).is_dir()
    except (OSError, ValueError, RuntimeError):  # a path that cannot even be asked for
        return False


def is_there(path: Path) -> bool:
    """Whether there is something at a path, or an old model that waits for its name."""
    return exists(path) or _waits(path)


def _put_back(path: Path) -> None:
    """Give an old model its name back, if nothing has taken it."""
    if not exists(path) and _waits(path):
        with suppress(OSError):
            _set_aside(path).rename(path.resolve())


def _holds_only_a_model(path: Path) -> bool:
    try:
        about = parse_json(read_plain_file(path / _ABOUT))
        names = {entry.name for entry in path.iterdir()}
    except (OSError, ValueError):
        return False
    return isinstance(about, dict) and about.get("kind") in (MODEL, LEARNER) and names <= {_WEIGHTS, _ABOUT}


def save_model(
    path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any], *, overwrite: bool, kind: str = MODEL
) -> None:
    """Write the folder under a temporary name, sync, rename it into place; an old one is kept until the new one is there."""
    path = path.resolve()
    check_output(path, overwrite=overwrite)
    weights = pack_tensors(tensors, {})
    content = {
        "kind": kind,
        "format": FORMAT,
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        **about,
        "versions": versions(),
    }
    files = {_WEIGHTS: weights, _ABOUT: (json.dumps(content, indent=1) + "\n").encode()}
    remove_leftovers(path)
    _replace_folder(path, files)


def _replace_folder(path: Path, files: Mapping[str, bytes]) -> None:
    fresh, old = temporary_name(path), _set_aside(path)
    try:
        fresh.mkdir()
        for name, content in files.items():
            write_synced(fresh / name, content)
        sync_folder(fresh)
        shutil.rmtree(old, ignore_errors=True)
        if path.exists():
            path.rename(old)
        fresh.rename(path)
        sync_folder(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        _put_back(path)
        shutil.rmtree(fresh, ignore_errors=True)


def load_model(path: Path, *, kind: str = MODEL) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights and description of a saved model, checked against each other."""
    if not exists(path) and _waits(path):
        path = _set_aside(path)
    if not exists(path) or not path.is_dir():
        raise ModelFileError(f"there is no model folder {str(path)!r}")
    try:
        about = parse_json(read_plain_file(path / _ABOUT))
    except FileNotFoundError as error:
        raise ModelFileError(f"{str(path)!r} is not a saved model: it has no {_ABOUT}") from error
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{str(path / _ABOUT)!r} is damaged: {error}") from error
    if not isinstance(about, dict) or about.get("kind") != kind:
        raise ModelFileError(f"{str(path)!r} is not a {kind.removeprefix('tasktheme ')} that tasktheme saved")
    version = about.get("format")
    if type(version) is not int or version < 1:
        raise ModelFileError(f"{str(path / _ABOUT)!r} is damaged: it does not say its format")
    if version > FORMAT:
        raise ModelFileError(
            f"{str(path)!r} has model format {version}, newer than this tasktheme reads ({FORMAT}): update tasktheme"
        )
    weights = path / _WEIGHTS
    if not weights.is_file():
        raise ModelFileError(f"{str(path)!r} is damaged: it has no {_WEIGHTS}")
    if hashlib.sha256(weights.read_bytes()).hexdigest() != about.get("weights_sha256"):
        raise ModelFileError(f"{str(weights)!r} is damaged: its checksum does not match {_ABOUT}")
    _check_about(about, path)
    return read_tensors(weights)[0], about


def holds_model(path: Path, name: str, *, kind: str = MODEL) -> bool:
    """Whether ``path`` is a sound model folder with weights of this fingerprint."""
    try:
        return fingerprint(load_model(path, kind=kind)[0]) == name
    except ModelFileError:
        return False


def _check_about(about: Mapping[str, Any], path: Path) -> None:
    """What every kind of model says about itself, as far as something else relies on it."""
    shape, history, trained = (about.get(name) for name in ("point_shape", "history", "trained_on"))
    sound = {
        "point_shape": isinstance(shape, list) and len(shape) in (1, 3) and all(type(side) is int and side > 0 for side in shape),
        "settings": isinstance(about.get("settings"), dict),
        "history": isinstance(history, list)
        and all(isinstance(row, dict) and all(map(_is_number, row.values())) for row in history),
        "trained_on": isinstance(trained, dict) and isinstance(trained.get("data"), str) and type(trained.get("tasks")) is int,
    }
    for name, met in sound.items():
        if not met:
            raise ModelFileError(f"{str(path / _ABOUT)!r} is damaged: its {name!r} is missing or of the wrong kind")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_tensors(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """RuntimeError unless each expected tensor is there, with the shape and kind of numbers expected, all of them finite."""
    for name, like in expected.items():
        if name not in tensors:
            raise RuntimeError(f"the weights {name!r} are missing")
        given = tensors[name]
        if (given.dtype, given.shape) != (like.dtype, like.shape):
            found, wanted = (f"{one.dtype} of shape {tuple(one.shape)}" for one in (given, like))
            raise RuntimeError(f"the weights {name!r} are {found}, expected {wanted}")
        if not bool(given.isfinite().all()):
            raise RuntimeError(f"the weights {name!r} hold a NaN or an infinity")
