"""mini-ImageNet (Vinyals et al., 2016): 100 classes of 600 photographs, split as by Ravi & Larochelle (2017)."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from tasktheme.data.dataset import DataSplit
from tasktheme.data.decoding import Decoding, load_images
from tasktheme.data.files import open_files
from tasktheme.data.layout import Entry, check_parts_apart
from tasktheme.data.splits import split_of_parts
from tasktheme.errors import DataError, MissingDataError
from tasktheme.untrusted import exists

_PARTS = ("train", "val", "test")


def load_mini_imagenet(data_dir: Path, decoding: Decoding) -> DataSplit:
    """64 classes to train on, 16 for choosing settings, 20 held out.

    Read from ``data_dir/mini-imagenet`` (or ``data_dir``): the official ``train.csv``, ``val.csv`` and ``test.csv`` (columns
    filename, label), and the images as ``images.zip``, a folder ``images``, or folders beside the lists. An image is known
    by its class folder and its name without ending, or by that name alone where it is unique.
    """
    home = _find(data_dir)
    lists = {part: _read(home / f"{part}.csv") for part in _PARTS}
    places = [place for place in (home / "images.zip", home / "images", home) if exists(place)]
    digest = hashlib.sha256(b"\0".join(lists.values())).hexdigest()

    def arrange(names: Sequence[str]) -> list[Entry]:
        return _arrange(names, {part: _parse(home / f"{part}.csv", content) for part, content in lists.items()})

    coloured = decoding.formed(channels=decoding.form.channels or 3)
    parts = load_images(open_files(places[0]), arrange, coloured, name="mini-imagenet", layout=f"mini-imagenet {digest}")
    return split_of_parts(parts)


def _find(data_dir: Path) -> Path:
    for home in (data_dir / "mini-imagenet", data_dir):
        if all(exists(home / f"{part}.csv") for part in _PARTS):
            return home
    raise MissingDataError(
        f"mini-imagenet is not in {str(data_dir / 'mini-imagenet')!r}; put the official train.csv, val.csv and test.csv there, "
        "and images.zip with <class>/<image>"
    )


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{str(file)!r} cannot be read: {error.strerror}") from error


def _parse(file: Path, content: bytes) -> list[tuple[str, str]]:
    """The images of a list: (name without ending, class)."""
    try:
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))
        return [(PurePosixPath(row["filename"]).stem, row["label"].strip()) for row in rows]
    except (UnicodeDecodeError, csv.Error, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{str(file)!r}: expected a list with the columns filename and label") from error


def _arrange(names: Sequence[str], lists: Mapping[str, Sequence[tuple[str, str]]]) -> list[Entry]:
    by_class: dict[tuple[str, str], str] = {}
    by_stem: dict[str, list[str]] = {}
    for name in names:
        place = PurePosixPath(name)
        by_class[place.parent.name, place.stem] = name
        by_stem.setdefault(place.stem, []).append(name)

    entries = []
    missing = []
    for part, images in lists.items():
        for stem, label in images:
            alike = by_stem.get(stem, [])
            found = by_class.get((label, stem)) or (alike[0] if len(alike) == 1 else None)
            if found is None:
                missing.append(f"{label}/{stem}")
            else:
                entries.append(Entry(part, "", label, found))
    if missing:
        raise DataError(f"mini-imagenet: {len(missing)} of the listed images are missing, the first is {missing[0]!r}")
    check_parts_apart(entries)
    return entries
