"""Data sets by name, from files, or from objects: one function for all that has labels, one for tasks that have none."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import torch.utils.data

from tasktheme.data.cache import cache_folder
from tasktheme.data.dataset import Dataset, DataSplit
from tasktheme.data.decoding import Decoding, load_images, tell_empty
from tasktheme.data.files import open_files
from tasktheme.data.glyphs import load_glyphs
from tasktheme.data.images import ImageForm
from tasktheme.data.layout import arrange_classes, arrange_tasks, empty_tasks
from tasktheme.data.mini_imagenet import load_mini_imagenet
from tasktheme.data.objects import (
    dataset_from_hugging_face,
    dataset_from_npz,
    dataset_from_torch,
    form_images,
    is_hugging_face,
    read_npz,
)
from tasktheme.data.omniglot import load_omniglot
from tasktheme.data.splits import Split, split_dataset, split_of_parts
from tasktheme.errors import DataError, MissingDataError, SettingsError
from tasktheme.untrusted import exists, expand_home

_NAMED: Mapping[str, Callable[[Path, Decoding], DataSplit]] = {
    "glyphs": lambda _, decoding: load_glyphs(
        size=decoding.form.size, channels=decoding.form.channels or 1, progress=decoding.progress
    ),
    "omniglot": load_omniglot,
    "mini-imagenet": load_mini_imagenet,
}


def load_dataset(
    source: Any,
    *,
    data_dir: str | Path | None = None,
    size: int | None = None,
    channels: int | None = None,
    split: Split | None = None,
    seed: int = 0,
    columns: Sequence[str] | None = None,
    allow_damaged: bool = False,
    progress: bool = True,
) -> DataSplit:
    """A labelled data set with a training and a held-out part that share no class.

    Args:
        source: one of

            - a name: ``glyphs``, writing systems drawn from fonts; ``omniglot``; ``mini-imagenet``. These have their own
              split;
            - a folder or zip of images, ``class/image`` or ``group/class/image``; below ``train``, ``test`` and perhaps
              ``val``, these are the parts. To read a folder that is called like a data set, write ``./omniglot``;
            - an ``.npz`` file with the arrays x, y and perhaps groups; the same in memory: ``(x, y)`` or ``(x, y, groups)``.
              Images (N, channels, height, width) or features (N, D);
            - a map-style torch data set of (x, y) or (x, y, group); a Hugging Face data set; a :class:`Dataset`.
        data_dir: where data sets with a name are looked for; else TASKTHEME_DATA, else the user's cache folder.
        size: side in pixels that images are resized to; by default 64, and arrays stay as they are.
        channels: 1 for grey, 3 for colour; by default grey where all images are. Arrays change with ``size`` alone.
        split: the fraction of groups (of classes, where there is one group) held out, by default a quarter; or the names of
            those held out.
        seed: which groups or classes a fraction takes.
        columns: the columns (image, label) or (image, label, group) of a Hugging Face data set.
        allow_damaged: leave out images that cannot be read, with a warning; otherwise they are an error.
        progress: show progress bars on standard error.

    Images are decoded once and kept in the cache folder (TASKTHEME_CACHE), until a file or a setting changes.
    """
    decoding = Decoding(_form(size, channels), allow_damaged=allow_damaged, progress=progress)
    if columns is not None and not is_hugging_face(source):
        raise SettingsError(f"columns are those of a Hugging Face data set, got {type(source).__name__}: leave columns out")
    if isinstance(source, str) and is_named(source):
        name = _plain(source)
        if split is not None:
            raise SettingsError(f"{name} has its own split into training and test classes; leave split out")
        return _NAMED[name](data_directory(data_dir), decoding)
    if isinstance(source, DataSplit):
        if split is not None:
            raise SettingsError(f"{source.name!r} is split already; leave split out")
        if size is None:
            return source
        train, test = (_resized(part, size, channels) for part in (source.train, source.test))
        return DataSplit(source.name, train, test, source.val and _resized(source.val, size, channels))
    if isinstance(source, str | os.PathLike):
        path = existing(source)
        if path.suffix.lower() != ".npz":
            return _from_images(path, decoding, split, seed)
        dataset = dataset_from_npz(path)
    else:
        dataset = _from_object(source, decoding, columns)
    return split_dataset(_resized(dataset, size, channels), split, seed=seed)


def load_tasks(
    source: Any,
    *,
    size: int | None = None,
    channels: int | None = None,
    allow_damaged: bool = False,
    progress: bool = True,
) -> Dataset:
    """Unlabelled tasks, each a set of data points of any number.

    Args:
        source: a folder in which each sub-folder is a task, with all images in it and below, or a zip of such a folder; an
            ``.npz`` file in which each array is one; a dictionary of arrays; or a list of arrays.
        size: side in pixels that images are resized to; by default 64, and arrays stay as they are.
        channels: 1 for grey, 3 for colour; by default grey where all images are. Arrays change with ``size`` alone.
        allow_damaged: leave out images that cannot be read, with a warning; otherwise they are an error.
        progress: show progress bars on standard error.
    """
    if isinstance(source, str) and is_named(source) and not exists(expand_home(source)):
        raise DataError(f"the data set {source!r} has classes to draw tasks from: leave out --unlabelled, or use load_dataset")
    if isinstance(source, str | os.PathLike):
        path = existing(source)
        if path.suffix.lower() != ".npz":
            decoding = Decoding(_form(size, channels), allow_damaged=allow_damaged, progress=progress)
            name = path_name(path)
            zipped = None if path.is_dir() else name
            arrange, files = partial(arrange_tasks, zipped=zipped), open_files(path)
            images = load_images(files, arrange, decoding, name=name, layout=f"tasks, {zipped=}", unlabelled=True)[""]
            tell_empty(empty_tasks(files.folders, files.names, zipped), path)
            return images
        arrays = read_npz(path)
        tasks = Dataset.from_tasks(list(arrays.values()), names=list(arrays), name=path.stem)
    elif isinstance(source, Dataset) and source.unlabelled:
        tasks = source
    elif isinstance(source, Mapping):
        tasks = Dataset.from_tasks(list(source.values()), names=[str(name) for name in source])
    elif isinstance(source, Sequence):
        tasks = Dataset.from_tasks(source)
    else:
        raise DataError(f"expected a list of tasks, each an array of data points, or a path; got {type(source).__name__}")
    return _resized(tasks, size, channels)


def _form(size: int | None, channels: int | None) -> ImageForm:
    return ImageForm(channels=channels) if size is None else ImageForm(size, channels)


def _resized(dataset: Dataset, size: int | None, channels: int | None) -> Dataset:
    return dataset if size is None else form_images(dataset, ImageForm(size, channels))


def is_named(source: str) -> bool:
    """Whether this is the name of a data set that tasktheme knows."""
    return _plain(source) in _NAMED


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def data_directory(chosen: str | Path | None = None) -> Path:
    """Where data sets with a name are looked for: the folder chosen, else TASKTHEME_DATA, else the user's cache folder."""
    chosen = chosen or os.environ.get("TASKTHEME_DATA")
    return cache_folder() / "data" if not chosen else expand_home(chosen)


def existing(source: str | os.PathLike[str]) -> Path:
    """The path of a file or folder; MissingDataError where there is none."""
    path = expand_home(source)
    if exists(path) and source != "":
        return path
    if isinstance(source, str) and path.name == source and not path.suffix:
        nearest = get_close_matches(source.lower(), _NAMED, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        raise MissingDataError(f"there is no data set, file or folder {source!r}; the data sets are {', '.join(_NAMED)}{hint}")
    raise MissingDataError(f"there is no file or folder {str(path)!r}")


def _from_images(path: Path, decoding: Decoding, split: Split | None, seed: int) -> DataSplit:
    name = path_name(path)
    parts = load_images(open_files(path), arrange_classes, decoding, name=name, layout="classes")
    if "" in parts:
        return split_dataset(parts[""], split, seed=seed)
    if split is not None:
        raise SettingsError(f"{str(path)!r} is split by its folders train and test; leave split out")
    return split_of_parts(parts)


def _from_object(source: Any, decoding: Decoding, columns: Sequence[str] | None) -> Dataset:
    if isinstance(source, Dataset):
        return source
    if isinstance(source, tuple) and len(source) in (2, 3):
        return Dataset.from_arrays(*source)
    if is_hugging_face(source):
        return dataset_from_hugging_face(source, decoding, columns=columns)
    if isinstance(source, torch.utils.data.Dataset):
        return dataset_from_torch(source, decoding)
    hint = "; a list of arrays is unlabelled tasks: use load_tasks" if isinstance(source, list) else ""
    raise DataError(
        "expected a data set's name, a path, (x, y), (x, y, groups), or a torch or Hugging Face data set, "
        f"got {type(source).__name__}{hint}"
    )


def path_name(path: Path) -> str:
    """What a data set from this file or folder is called."""
    real = Path(os.path.realpath(path))  # Path.resolve raises where links lead to one another
    return real.stem if path.is_file() else real.name
