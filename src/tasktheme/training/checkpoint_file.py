"""A checkpoint on disk: the last state under its name, the one before beside it, each with a checksum."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from tasktheme.errors import ModelFileError, OutputError
from tasktheme.files import pack_tensors, remove_leftovers, write_file
from tasktheme.untrusted import parse_json

# A file is three parts: a line with the SHA-256 of what follows, a line of JSON, the tensors in safetensors.


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], info: Mapping[str, Any]) -> None:
    """Write a state; the one that ``path`` held before is kept beside it, if it is sound.

    At every moment ``path`` holds a whole state, the old one or the new one; OutputError leaves the old one.
    """
    body = json.dumps(info).encode() + b"\n" + pack_tensors(tensors, {})
    try:
        before = path.read_bytes()
    except OSError:
        before = b""
    if _sound(before):  # a damaged one must not take the place of a good one
        write_file(_before(path), before)
    write_file(path, _checksum(body) + b"\n" + body)


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The last state that is sound; a warning says so where that is not the last."""
    try:
        return _read(path)
    except ModelFileError as fault:
        before = _before(path)
        if not before.exists():
            raise
        try:
            found = _read(before)
        except ModelFileError as other:
            raise ModelFileError(f"{fault}; {other}; neither checkpoint can be used: delete both to start anew") from None
        warnings.warn(f"{fault}; going on from the checkpoint before it, {str(before)!r}", stacklevel=2)
        return found


def read_before(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The state before the last one, where there is a sound one."""
    try:
        return _read(_before(path))
    except ModelFileError:
        return None


def remove_checkpoint(path: Path) -> None:
    """Delete a state that is no longer needed, and the one before it; itself last, so that a kill leaves it or nothing."""
    remove_leftovers(_before(path))
    remove_leftovers(path)
    try:
        _before(path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"cannot delete {str(path)!r}, which is no longer needed: {error.strerror or error}") from error


def clear_leftovers(path: Path) -> None:
    """Delete what a killed process left half written, and where there is no last state (deleted by hand) the one before."""
    remove_leftovers(_before(path))
    remove_leftovers(path)
    with suppress(OSError):
        if not path.exists():
            _before(path).unlink(missing_ok=True)


def _before(path: Path) -> Path:
    return path.with_name(f"{path.name}.before")


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _sound(content: bytes) -> bool:
    checksum, _, body = content.partition(b"\n")
    return checksum == _checksum(body)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise ModelFileError(f"{str(path)!r} is missing") from error
    except OSError as error:
        raise ModelFileError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error
    if not _sound(content):
        raise ModelFileError(f"{str(path)!r} is damaged or not tasktheme's: its checksum does not match")
    try:
        _, about, packed = content.split(b"\n", 2)
        info = dict(parse_json(about))
        # memory of its own for each tensor: products may round otherwise where numbers do not start at a multiple of 64 bytes
        return {name: tensor.clone() for name, tensor in load(packed).items()}, info
    except (SafetensorError, ValueError, TypeError) as error:  # by somebody who can write checksums too
        raise ModelFileError(f"{str(path)!r} is not tasktheme's: {error}") from error
