"""Many image files become data sets: decoded once, in parallel, and kept in the cache."""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from tasktheme.data.cache import Info, append_rows, cache_folder, load_or_fill
from tasktheme.data.dataset import Dataset
from tasktheme.data.files import ImageFiles
from tasktheme.data.images import SUFFIXES, ImageForm, Pixels, decode_image, is_grey_image, why_unreadable
from tasktheme.data.layout import Arrange
from tasktheme.errors import DataError
from tasktheme.progress import progress_bar

_VERSION = 1  # raise it whenever the decoding changes, so that no old cache is taken for the new data
_BLOCK = 128  # images in one piece of work
_BYTES_PER_THREAD = 4096  # a thread more for each of these in the mean file
_MOST_NAMED = 10  # classes or tasks without an image that a warning names
_AHEAD = 4  # pieces of work begun for each thread


class LeftOutWarning(UserWarning):
    """Images that could not be read were left out, as allowed, or folders without an image are no tasks; the message says how
    many, and names some."""


@dataclass(frozen=True)
class Decoding:
    """How images are decoded: their form, whether unreadable ones may be left out, and whether a progress bar is shown."""

    form: ImageForm
    allow_damaged: bool = False
    progress: bool = True

    def formed(self, **changes: Any) -> Decoding:
        """The same with changes to the form."""
        return replace(self, form=replace(self.form, **changes))


def load_images(
    files: ImageFiles, arrange: Arrange, decoding: Decoding, *, name: str, layout: str, unlabelled: bool = False
) -> dict[str, Dataset]:
    """The data set of each part that ``arrange`` sees in the files' names; x is mapped from the cache, read-only.

    ``layout`` names what ``arrange`` does: another layout is another entry of the cache.
    """
    key = json.dumps([_VERSION, files.fingerprint, layout, asdict(decoding.form)])
    digest = hashlib.sha256(key.encode()).hexdigest()[:24]
    folder = cache_folder() / "images" / f"{re.sub(r'[^A-Za-z0-9]+', '-', name)[:40]}-{digest}"
    arrays, info = load_or_fill(folder, lambda fresh: _decode_all(files, arrange, decoding, fresh, name))
    if info["damaged"]:
        lost = {entry[:3] for entry in arrange(files.names)} - {tuple(row[:3]) for row in info["classes"]}
        names = [repr("/".join(filter(None, owner))) for owner in sorted(lost)]
        _tell_damaged(info["damaged"], names, files.path, allowed=decoding.allow_damaged)
    return _datasets(arrays["x"], info["classes"], name=name, unlabelled=unlabelled)


def _decode_all(files: ImageFiles, arrange: Arrange, decoding: Decoding, folder: Path, name: str) -> Info:
    """Write the pixels of all images, in the order of their parts, groups, classes and names; return what is what."""
    if not files.names:
        raise DataError(f"{str(files.path)!r} holds no image; read are {', '.join(SUFFIXES)}")
    entries = sorted(arrange(files.names))
    names = [entry.name for entry in entries]
    with warnings.catch_warnings():  # what a decoder thinks of an image's metadata does not matter, its pixels do
        warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
        warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # such images are refused below
        form = decoding.form
        if form.channels is None:
            form = replace(form, channels=1 if _all_grey(files, names) else 3)
        damaged: list[tuple[int, str]] = []
        row_shape = (form.channels or 3, form.size, form.size)
        with (
            progress_bar(f"decoding {name}", len(names), show=decoding.progress) as advance,
            append_rows(folder / "x.npy", row_shape, np.uint8) as append,
        ):
            for start, block in _decode_blocks(files, names, form):
                damaged += [(start + place, reason) for place, reason in block.damaged]
                append(block.pixels)
                advance(len(block.pixels) + len(block.damaged), f"{len(damaged)} damaged" if damaged else "")
    if len(damaged) == len(names):
        raise DataError(f"no image of {str(files.path)!r} can be read; {names[0]!r}: {damaged[0][1]}")
    unreadable = {place for place, _ in damaged}
    classes = Counter(entry[:3] for place, entry in enumerate(entries) if place not in unreadable)
    return {
        "classes": [[*owner, count] for owner, count in sorted(classes.items())],
        "damaged": [[names[place], reason] for place, reason in damaged],
    }


def _all_grey(files: ImageFiles, names: Sequence[str]) -> bool:
    """Whether all images are grey; the first in colour ends the search."""
    for name in names:
        try:
            if not is_grey_image(files.read(name)):
                return False
        except Exception:  # an unreadable image is noticed, and named, when it is decoded
            continue
    return True


@dataclass(frozen=True)
class _Block:
    pixels: Pixels  # of the readable images
    damaged: list[tuple[int, str]]  # place and reason of the others


def _decode_blocks(files: ImageFiles, names: Sequence[str], form: ImageForm) -> Iterator[tuple[int, _Block]]:
    """Blocks of images in order, decoded by threads: the decoders run in C, side by side."""
    workers = _threads(files)
    waiting: deque[tuple[int, Future[_Block]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(names), _BLOCK):
            waiting.append((start, pool.submit(_decode_block, files, names[start : start + _BLOCK], form)))
            if len(waiting) == _AHEAD * workers:  # so that few blocks are held in memory
                first, block = waiting.popleft()
                yield first, block.result()
        for first, block in waiting:
            yield first, block.result()


def _decode_block(files: ImageFiles, names: Sequence[str], form: ImageForm) -> _Block:
    pixels = np.empty((len(names), form.channels or 3, form.size, form.size), dtype=np.uint8)
    damaged = []
    for place, name in enumerate(names):
        try:
            pixels[place] = decode_image(files.read(name), form)
        except Exception as error:  # decoders raise errors of every kind on damaged files
            damaged.append((place, why_unreadable(error)))
    return _Block(np.delete(pixels, [place for place, _ in damaged], axis=0) if damaged else pixels, damaged)


def _threads(files: ImageFiles) -> int:
    """Fewer for small images: there is more Python than C around each, and threads wait for each other's Python."""
    return min(_processors(), max(1, int(files.mean_bytes / _BYTES_PER_THREAD)))


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _tell_damaged(damaged: Sequence[tuple[str, str]], lost: Sequence[str], path: Path, *, allowed: bool) -> None:
    """Damaged images, and the classes or tasks of which no image is left."""
    name, reason = damaged[0]
    others = f", and {len(damaged) - 1} others" if len(damaged) > 1 else ""
    if not allowed:
        raise DataError(
            f"image {name!r} of {str(path)!r} cannot be read ({reason}){others}; "
            "mend or remove them, or allow leaving them out (allow_damaged)"
        )
    gone = f"; nothing is left of {_some(lost)}" if lost else ""
    warnings.warn(
        f"{len(damaged)} of the images of {str(path)!r} could not be read and were left out: {name!r} ({reason}){others}{gone}",
        LeftOutWarning,
        stacklevel=2,
    )


def tell_empty(folders: Sequence[str], path: Path) -> None:
    """A warning that folders hold no image, and so are no tasks."""
    if folders:
        what = "folder holds no image and is no task" if len(folders) == 1 else "folders hold no image and are no tasks"
        named = _some([repr(folder) for folder in folders])
        warnings.warn(f"{len(folders):,} {what} of {str(path)!r}: {named}", LeftOutWarning, stacklevel=3)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} others" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _datasets(x: npt.NDArray[np.generic], classes: Sequence[Sequence[Any]], *, name: str, unlabelled: bool) -> dict[str, Dataset]:
    """Cut the rows of all classes, given as [part, group, label, count] in order, into the parts' data sets."""
    datasets = {}
    start = 0
    for part, rows in groupby(classes, key=lambda row: str(row[0])):
        _, groups, labels, counts = zip(*rows, strict=True)
        group_names = sorted(set(groups))
        stop = start + sum(counts)
        datasets[part] = Dataset(
            name=name,
            x=x[start:stop],
            counts=np.array(counts, dtype=np.int64),
            class_names=labels,
            class_group=np.array([group_names.index(group) for group in groups], dtype=np.int64),
            group_names=tuple(group or name for group in group_names),
            unlabelled=unlabelled,
        )
        start = stop
    return datasets
