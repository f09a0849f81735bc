"""Omniglot (Lake, Salakhutdinov & Tenenbaum, 2015): 1,623 characters of 50 alphabets, by 20 drawers each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tasktheme.data.dataset import Dataset, DataSplit
from tasktheme.data.decoding import Decoding, load_images
from tasktheme.data.download import download_file
from tasktheme.data.files import ImageFiles, open_files
from tasktheme.data.layout import Entry
from tasktheme.errors import DataError, MissingDataError
from tasktheme.untrusted import exists

_URL = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python"
_PAGE = "https://github.com/brendenlake/omniglot/tree/master/python"
_CHECKSUMS = {
    "images_background": "md5:68d2efa1b9178cc56df9314c21c6e718",
    "images_evaluation": "md5:6b91aef0f799c5bb55b94e3f2daec811",
}
_CHARACTERS = {"images_background": 964, "images_evaluation": 659}


def load_omniglot(data_dir: Path, decoding: Decoding) -> DataSplit:
    """The original split: 30 background alphabets to train on, 20 evaluation alphabets held out; ink is 255 on 0.

    Read from ``images_background.zip`` and ``images_evaluation.zip``, or the folders they hold, in ``data_dir/omniglot`` or
    ``data_dir``; downloaded where they are missing.
    """
    inked = decoding.formed(inverted=True, channels=decoding.form.channels or 1)
    parts = {part: _find(part, data_dir, progress=decoding.progress) for part in _CHECKSUMS}
    train, test = (_load(part, files, inked) for part, files in parts.items())
    return DataSplit(name="omniglot", train=train, test=test)


def _load(part: str, files: ImageFiles, decoding: Decoding) -> Dataset:
    [dataset] = load_images(files, _arrange, decoding, name="omniglot", layout="omniglot").values()
    if len(dataset.class_names) != _CHARACTERS[part]:
        raise DataError(
            f"omniglot: expected {_CHARACTERS[part]} characters in {str(files.path)!r}, found {len(dataset.class_names)}; "
            "get the zip again"
        )
    return dataset


def _find(part: str, data_dir: Path, *, progress: bool) -> ImageFiles:
    home = data_dir / "omniglot"
    for folder in (home, data_dir):
        for place in (folder / f"{part}.zip", folder / part):
            if exists(place):
                return open_files(place)
    file = home / f"{part}.zip"
    try:
        download_file(f"{_URL}/{file.name}", file, checksum=_CHECKSUMS[part], progress=progress)
    except MissingDataError as error:
        both = " and ".join(f"{name}.zip" for name in _CHECKSUMS)
        raise MissingDataError(
            f"omniglot: there is no {file.name} in {str(home)!r}; put {both} from {_PAGE} there ({error})"
        ) from error
    return open_files(file)


def _arrange(names: Sequence[str]) -> list[Entry]:
    entries = []
    for name in names:
        place = name.split("/")
        if len(place) < 3:
            raise DataError(f"omniglot: {name!r} is out of place; expected alphabet/character/drawing")
        entries.append(Entry("", place[-3], place[-2], name))
    return entries
