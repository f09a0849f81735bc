"""The image files of a folder or a zip: their names, their bytes, and a fingerprint of them all."""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Protocol
from zipfile import ZipFile, ZipInfo

from tasktheme.data.images import SUFFIXES
from tasktheme.errors import DataError, MissingDataError
from tasktheme.untrusted import ZIP_FAULTS, exists

_LARGEST_FILE = 1 << 28  # bytes; no image of a size that is read needs more
_TABLES = (".csv", ".tsv", ".parquet", ".npy")  # in which people keep vectors
_PIECE = 1 << 16  # bytes unpacked at once: an entry that holds more than it claims is then cut where its claim ends
_ZIP_END = b"PK\x05\x06"
_ZIP_END_LONGEST = 22 + 65_535  # the end record and the longest comment
_ZIP64_RECORDS = 76  # what a large zip has between its directory and its end record


class ImageFiles(Protocol):
    """Image files with names like ``group/class/image.png``. Hidden files and files of other types do not count."""

    path: Path

    @property
    def folders(self) -> set[str]:
        """Folders by name, those without an image too: in a zip all, of a folder those right below it."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes when the content does; quick to make."""
        ...

    @property
    def names(self) -> list[str]:
        """All names, in the same order on every machine."""
        ...

    def read(self, name: str) -> bytes:
        """The content of one file."""
        ...

    @property
    def mean_bytes(self) -> float:
        """How large the files are."""
        ...


def open_files(path: Path) -> ImageFiles:
    """The image files of a folder or a zip."""
    if path.is_dir():
        return FolderFiles(path)
    if not exists(path):
        raise MissingDataError(f"there is no file or folder {str(path)!r}")
    return ZipFiles(path)


class FolderFiles:
    """Image files below a folder; links are followed. The fingerprint is of names, sizes and times of change."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def names(self) -> list[str]:
        """All names, in the same order on every machine."""
        return [name for name, _ in self._found]

    @property
    def folders(self) -> set[str]:
        """Those right below, by name."""
        return {entry.name for entry in self.path.iterdir() if entry.is_dir() and not _hidden(entry.name)}

    @property
    def fingerprint(self) -> str:
        """Of names, sizes and times of change."""
        lines = (f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n" for name, status in self._found)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def read(self, name: str) -> bytes:
        """The content of one file."""
        file = self.path / name
        _refuse_large(file.stat().st_size)
        return file.read_bytes()

    @property
    def mean_bytes(self) -> float:
        """How large the files are."""
        return fmean(status.st_size for _, status in self._found)

    @cached_property
    def _found(self) -> list[tuple[str, os.stat_result]]:
        try:
            return sorted(_walk(self.path, "", ()), key=lambda found: found[0].split("/"))
        except OSError as error:
            raise DataError(f"folder {str(self.path)!r} cannot be read: {error}") from error


class ZipFiles:
    """Image files of a zip, which is never unpacked. The fingerprint is of its directory, which holds checksums."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def names(self) -> list[str]:
        """All names, in the same order on every machine."""
        return sorted((name for name in self._entries if _counts(name)), key=lambda name: name.split("/"))

    @property
    def folders(self) -> set[str]:
        """All that have an entry, or hold a file, by name."""
        found = {entry.filename.replace("\\", "/").rpartition("/")[0] for entry in self._zip.infolist()}
        return {name for name in found if name and not any(map(_hidden, name.split("/")))}

    @cached_property
    def fingerprint(self) -> str:
        """Of the zip's directory: names, sizes and checksums. It is hashed unparsed, which takes milliseconds."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _ZIP_END_LONGEST))
                tail = file.read()
                at = tail.rfind(_ZIP_END)
                if at < 0 or len(tail) < at + 22:
                    raise _not_a_zip(self.path)
                (length,) = struct.unpack_from("<L", tail, at + 12)
                file.seek(max(0, size - (len(tail) - at) - _ZIP64_RECORDS - length))
                return hashlib.sha256(f"{size}\n".encode() + file.read()).hexdigest()
        except OSError as error:
            raise DataError(f"zip {str(self.path)!r} cannot be read: {error}") from error

    def read(self, name: str) -> bytes:
        """The content of one file."""
        entry = self._entries[name]
        _refuse_large(entry.file_size)
        with self._zip.open(entry) as packed:
            pieces = iter(lambda: packed.read(_PIECE), b"")
            return b"".join(pieces)

    @property
    def mean_bytes(self) -> float:
        """How large the files are, unpacked."""
        return fmean(self._entries[name].file_size for name in self.names)

    @cached_property
    def _zip(self) -> ZipFile:
        try:
            return ZipFile(self.path)
        except ZIP_FAULTS as error:
            raise _not_a_zip(self.path) from error

    @cached_property
    def _entries(self) -> dict[str, ZipInfo]:
        entries: dict[str, ZipInfo] = {}
        for entry in self._zip.infolist():
            name = entry.filename.replace("\\", "/")  # as some tools on Windows write it
            _refuse_unsafe(self.path, entry, name)
            if name in entries:
                raise DataError(f"zip {str(self.path)!r} holds {name!r} twice")
            if not entry.is_dir():
                entries[name] = entry
        return entries


def _not_a_zip(path: Path) -> DataError:
    table = path.suffix.lower() in _TABLES
    hint = "; vectors come as an .npz file with the arrays x and y, or with one array for each unlabelled task" if table else ""
    return DataError(f"{str(path)!r} is not a folder, nor a whole zip file{hint}")


def _refuse_large(size: int) -> None:
    if size > _LARGEST_FILE:
        raise ValueError(f"the file has {size:,} bytes; at most {_LARGEST_FILE:,} are read")


def _refuse_unsafe(path: Path, entry: ZipInfo, name: str) -> None:
    if name.startswith("/") or name[1:2] == ":" or ".." in name.split("/"):
        raise DataError(f"zip {str(path)!r} is refused: its entry {name!r} points outside of it")
    if stat.S_ISLNK(entry.external_attr >> 16):
        raise DataError(f"zip {str(path)!r} is refused: its entry {name!r} is a link")
    if entry.flag_bits & 1:
        raise DataError(f"zip {str(path)!r} is refused: its entry {name!r} is encrypted")


def _hidden(part: str) -> bool:
    return part.startswith(".") or part == "__MACOSX"


def _counts(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not any(map(_hidden, name.split("/")))


def _walk(folder: Path, prefix: str, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[str, os.stat_result]]:
    status = folder.stat()
    here = (status.st_dev, status.st_ino)
    if here in above:
        raise DataError(f"folder {str(folder)!r} is a link to a folder above it")
    with os.scandir(folder) as found:
        for entry in found:
            if _hidden(entry.name):
                continue
            if any("\ud800" <= letter <= "\udfff" for letter in entry.name):  # bytes that are no text
                raise DataError(f"{entry.path!a}: the name is not valid Unicode; rename it")
            if entry.is_dir():
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/", (*above, here))
            elif _counts(entry.name):
                status = entry.stat()
                if not stat.S_ISREG(status.st_mode):  # a pipe or a device could go on for ever
                    raise DataError(f"{entry.path!r} is not a plain file")
                yield f"{prefix}{entry.name}", status
