"""Arrays kept between runs: made once, written as a whole or not at all, read back without copying."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from tasktheme.errors import DataError, MissingDataError, OutputError, TaskThemeError
from tasktheme.untrusted import expand_home

Arrays = dict[str, npt.NDArray[Any]]
Info = dict[str, Any]

_SCRATCH = ".tasktheme"  # how the name of a folder ends in which arrays are made
_STALE = 24 * 60 * 60.0  # seconds without a change after which the maker of such a folder is taken for dead
_ATTEMPTS = 5  # renames tried against other writers of the same folder; one is enough unless they all find it damaged


def cache_folder() -> Path:
    """Where cached data lives: the environment variable TASKTHEME_CACHE, or the user's cache folder."""
    chosen = os.environ.get("TASKTHEME_CACHE")
    if chosen:
        return expand_home(chosen)
    import platformdirs

    return platformdirs.user_cache_path("tasktheme")


def load_or_build(folder: Path, build: Callable[[], tuple[Arrays, Info]]) -> tuple[Arrays, Info]:
    """The arrays and info kept in ``folder``; where they are missing or damaged, ``build()`` makes them anew."""

    def fill(fresh: Path) -> Info:
        arrays, info = build()
        _save(fresh, arrays)
        return info

    return load_or_fill(folder, fill)


def load_or_fill(folder: Path, fill: Callable[[Path], Info]) -> tuple[Arrays, Info]:
    """Like :func:`load_or_build` for arrays that need not fit in memory: ``fill`` writes .npy files into the folder it gets.

    ``fill`` returns the info; :func:`append_rows` writes such a file piece by piece.
    """
    with suppress(DataError):
        return read_arrays(folder)
    _write(folder, fill)
    return read_arrays(folder)


def read_arrays(folder: Path) -> tuple[Arrays, Info]:
    """The arrays of ``folder``, as read-only memory maps, and its info; DataError when they are missing or damaged.

    Damage means a file that is missing, too short or not what was written; flipped bits inside an array go unnoticed.
    """
    try:
        record = json.loads((folder / "info.json").read_text(encoding="utf-8"))
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in record["arrays"]}
        found = {name: _describe(array) for name, array in arrays.items()}
        info = dict(record["info"])
    except FileNotFoundError as error:
        raise MissingDataError(f"cache {folder}: {error.filename} is missing; it has to be built") from error
    except (ValueError, KeyError, TypeError, EOFError, OSError) as error:
        raise DataError(f"cache {folder}: damaged ({error}); delete the folder") from error
    if found != record["arrays"]:
        raise DataError(f"cache {folder}: expected arrays {record['arrays']}, found {found}; delete the folder")
    return arrays, info


def write_arrays(folder: Path, arrays: Mapping[str, npt.NDArray[Any]], info: Mapping[str, Any]) -> None:
    """Write ``arrays`` (one .npy file each) and ``info`` (anything JSON can hold) to ``folder``, all or nothing.

    The files are written beside ``folder`` and renamed into place. If another process got there first with a sound copy,
    that copy stays and this one is dropped; a damaged copy is replaced.
    """

    def fill(fresh: Path) -> Info:
        _save(fresh, arrays)
        return dict(info)

    _write(folder, fill)


@contextmanager
def append_rows(file: Path, row_shape: tuple[int, ...], dtype: npt.DTypeLike) -> Iterator[Callable[[npt.NDArray[Any]], None]]:
    """Yield ``append(rows)``, which adds rows to a new .npy file; how many there are is known only at the end.

    The file is written, not mapped: a full disk is then an error, where a write to a map would kill the process.
    """
    written = 0
    with file.open("wb") as stream:
        _write_header(stream, (0, *row_shape), dtype)
        start = stream.tell()

        def append(rows: npt.NDArray[Any]) -> None:
            nonlocal written
            if rows.dtype != dtype or rows.shape[1:] != row_shape:
                raise ValueError(f"rows of {row_shape} {np.dtype(dtype)} are wanted, got {rows.shape[1:]} {rows.dtype}")
            stream.write(np.ascontiguousarray(rows).data)
            written += len(rows)

        yield append
        stream.seek(0)
        _write_header(stream, (written, *row_shape), dtype)
        if stream.tell() != start:  # numpy pads the header so that a growing first dimension never moves the data
            raise ValueError(f"{file}: the header of {written} rows does not fit")


def _save(fresh: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    for name, array in arrays.items():
        np.save(fresh / f"{name}.npy", array, allow_pickle=False)


def _write(folder: Path, fill: Callable[[Path], Info]) -> None:
    _check_writable(folder)  # before the work of making the arrays, not after it
    _remove_stale(folder.parent)
    try:
        with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-", suffix=_SCRATCH) as scratch:
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            info = fill(fresh)
            made = {file.stem: _describe(np.load(file, mmap_mode="r", allow_pickle=False)) for file in fresh.glob("*.npy")}
            record = {"arrays": dict(sorted(made.items())), "info": info}
            (fresh / "info.json").write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
            _move_into_place(fresh, folder, Path(scratch))
    except TaskThemeError:  # of the making, not of the keeping; some are OSErrors too
        raise
    except OSError as error:
        raise OutputError(f"cache {folder}: cannot be written ({error}); set TASKTHEME_CACHE to another folder") from error


def _remove_stale(parent: Path) -> None:
    """Delete what killed processes left unfinished, whatever it was to become; what cannot be deleted stays.

    Another process may be at work in such a folder: its files then change.
    """
    ours = re.compile(rf"\..+-[a-z0-9_]{{8}}{re.escape(_SCRATCH)}")  # a cache folder may hold other things too
    with suppress(OSError):
        for left in [entry for entry in parent.iterdir() if ours.fullmatch(entry.name)]:
            with suppress(OSError):  # another process may be deleting it too
                last_change = max(path.lstat().st_mtime for path in (left, *left.rglob("*")))
                if time.time() - last_change > _STALE:
                    shutil.rmtree(left)


def _move_into_place(fresh: Path, folder: Path, scratch: Path) -> None:
    for attempt in range(_ATTEMPTS):
        with suppress(OSError):  # a folder that holds files is never overwritten by a rename
            fresh.rename(folder)
            return
        with suppress(DataError):
            read_arrays(folder)
            return
        with suppress(FileNotFoundError):  # another writer may have moved it just now
            folder.rename(scratch / f"damaged{attempt}")  # goes away with the scratch folder
    fresh.rename(folder)


def _write_header(stream: Any, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)


def _check_writable(folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cache {folder.parent}: cannot be made ({error}); set TASKTHEME_CACHE to another folder") from error
    if not os.access(folder.parent, os.W_OK | os.X_OK):
        raise OutputError(f"cache {folder.parent}: cannot be written; set TASKTHEME_CACHE to another folder")


def _describe(array: npt.NDArray[Any]) -> dict[str, Any]:
    return {"dtype": array.dtype.str, "shape": list(array.shape)}
