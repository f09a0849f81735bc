"""What is read may have been written by anyone: it is asked before it is believed, and bounded before it is unpacked."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

_FREE = 1 << 30  # bytes that any file may unpack to
_EXPANSION = 100  # times its own size that a larger one may
ZIP_FAULTS = (zipfile.BadZipFile, OSError, NotImplementedError, ValueError)  # what zipfile raises on bytes that can be anything
_LONGEST_NAME = 200  # characters of a name from a file that a message repeats


def exists(path: Path) -> bool:
    """Whether there is something at a path; nothing is where a path cannot even be asked for (too long, no access)."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def expand_home(path: str | os.PathLike[str]) -> Path:
    """The path with ~ replaced; one of a user that does not exist stays as it is, and will not be found."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def shorten(name: str) -> str:
    """A name as a message can repeat it."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def parse_json(text: str | bytes) -> Any:
    """JSON; ValueError where it is none, also because it is nested without end."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def read_plain_file(file: Path) -> bytes:
    """The content of a file; ValueError where it is a pipe or a device, which could go on for ever."""
    if not file.is_file():
        if not exists(file):
            raise FileNotFoundError(f"there is no file {str(file)!r}")
        raise ValueError("it is not a plain file")
    return file.read_bytes()


def refuse_bomb(unpacked: int, packed: int) -> None:
    """ValueError where a file claims to hold far more than its size lets expect."""
    if unpacked > max(_FREE, _EXPANSION * packed):
        raise ValueError(f"its {packed:,} bytes claim to hold {unpacked:,}")


def read_npz_arrays(stream: BinaryIO) -> dict[str, npt.NDArray[Any]]:
    """All arrays of an .npz file; ValueError where it is none, or holds pickles, a bomb, or what numpy does not write."""
    try:
        size = stream.seek(0, os.SEEK_END)
        with zipfile.ZipFile(stream) as packed:
            entries = packed.infolist()
        if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
            raise ValueError("it is packed in an unknown way")
        refuse_bomb(sum(entry.file_size for entry in entries), size)
        stream.seek(0)
        with np.errstate(all="ignore"), np.load(stream, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except Exception as error:  # of the zip, of its packing, of the header in it: of every kind
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error
