"""Omniglot: found as zips or folders, ink on nothing, and help where it is missing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tasktheme.data import omniglot
from tasktheme.data.loading import load_dataset
from tasktheme.errors import DataError, MissingDataError, SettingsError

Tree = Callable[[Iterable[str]], Path]
TRAIN = [f"images_background/{a}/character0{c}/000{c}_0{d}.png" for a in ("Greek", "Latin") for c in (1, 2) for d in (1, 2, 3)]
TEST = [f"images_evaluation/Tengwar/character0{c}/000{c}_0{d}.png" for c in (1, 2) for d in (1, 2, 3)]


@pytest.fixture
def small(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with two small parts: black ink, a bar, on white."""
    monkeypatch.setattr(omniglot, "_CHARACTERS", {"images_background": 4, "images_evaluation": 2})
    folder = tree(TRAIN + TEST)
    for name in TRAIN + TEST:
        drawing = Image.new("1", (105, 105), 1)
        drawing.paste(0, (30, 40, 35, 80))
        drawing.save(folder / name)
    return folder


def _check(split: object) -> None:
    assert split.name == "omniglot"
    assert split.train.group_names == ("Greek", "Latin")
    assert split.train.class_names == ("character01", "character02") * 2
    assert split.test.group_names == ("Tengwar",)
    assert split.val is None
    for part in (split.train, split.test):
        assert (part.counts == 3).all()
        assert part.point_shape == (1, 64, 64)
        assert part.x.max() == 255
        assert 0 < (np.asarray(part.x) > 0).mean() < 0.1


def test_extracted_folders(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _check(load_dataset("omniglot", data_dir=small, progress=False))
    monkeypatch.setenv("TASKTHEME_DATA", str(small))
    _check(load_dataset("omniglot", progress=False))


@pytest.mark.parametrize("wrapped", [True, False])
def test_zips(small: Path, tmp_path: Path, zipped: Callable[[Path], Path], wrapped: bool) -> None:
    home = tmp_path / "data" / "omniglot"
    home.mkdir(parents=True)
    for part in ("images_background", "images_evaluation"):
        root = tmp_path / "wrapped"
        root.mkdir()
        (small / part).rename(root / part)
        zipped(root if wrapped else root / part).rename(home / f"{part}.zip")
        (root / part).rename(small / part)
        root.rmdir()
    _check(load_dataset("omniglot", data_dir=tmp_path / "data", progress=False))


def test_missing_files_are_asked_for_in_one_line(
    tmp_path: Path, small: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(url: str, *_: object, **__: object) -> None:
        raise MissingDataError(f"not downloaded from {url}: ConnectionError")

    monkeypatch.setattr(omniglot, "download_file", offline)
    with pytest.raises(MissingDataError, match=r"put images_background\.zip and images_evaluation\.zip from https") as caught:
        load_dataset("omniglot", data_dir=tmp_path / "nowhere")
    assert str(tmp_path / "nowhere" / "omniglot") in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(MissingDataError) as caught:
        load_dataset("omniglot")
    assert str(cache / "data" / "omniglot") in str(caught.value)


def test_what_is_missing_is_downloaded_with_its_checksum(
    small: Path, zipped: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def online(url: str, file: Path, *, checksum: str, progress: bool) -> None:
        asked.append((url.rpartition("/")[2], checksum))
        file.parent.mkdir(parents=True)
        zipped(hidden).rename(file)

    hidden = (small / "images_evaluation").rename(small / "elsewhere")
    monkeypatch.setattr(omniglot, "download_file", online)
    _check(load_dataset("omniglot", data_dir=small, progress=False))
    assert asked == [("images_evaluation.zip", "md5:6b91aef0f799c5bb55b94e3f2daec811")]


def test_it_is_downloaded_once_with_a_bar_and_a_checksum(
    small: Path,
    tmp_path: Path,
    zipped: Callable[[Path], Path],
    served: Callable[[Path], str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    online, here = tmp_path / "online", tmp_path / "here"
    online.mkdir()
    checksums = {}
    for part in ("images_background", "images_evaluation"):
        content = zipped(small / part).rename(online / f"{part}.zip").read_bytes()
        checksums[part] = f"md5:{hashlib.md5(content).hexdigest()}"
    monkeypatch.setattr(omniglot, "_URL", served(online))
    monkeypatch.setattr(omniglot, "_CHECKSUMS", checksums | {"images_evaluation": "md5:00"})
    with pytest.raises(MissingDataError, match=r"no images_evaluation\.zip in .*: the checksum is wrong\)$"):
        load_dataset("omniglot", data_dir=here, progress=False)
    assert [file.name for file in (here / "omniglot").iterdir()] == ["images_background.zip"]  # what was sound is kept

    monkeypatch.setattr(omniglot, "_CHECKSUMS", checksums)
    capfd.readouterr()
    _check(load_dataset("omniglot", data_dir=here))
    said = capfd.readouterr()
    assert said.out == ""
    assert "downloading images_evaluation.zip" in said.err
    assert "downloading images_background.zip" not in said.err

    monkeypatch.setattr(omniglot, "_URL", "http://127.0.0.1:9")  # nobody answers: nothing is asked for again
    _check(load_dataset("omniglot", data_dir=here, progress=False))
    with pytest.raises(MissingDataError, match=r"no images_background\.zip in .*ConnectionError"):
        load_dataset("omniglot", data_dir=tmp_path / "offline", progress=False)


def test_the_folder_given_wins_over_the_environment(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(omniglot, "_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("TASKTHEME_DATA", str(tmp_path / "nowhere"))
    _check(load_dataset("omniglot", data_dir=small, progress=False))
    monkeypatch.setenv("TASKTHEME_DATA", str(small))
    with pytest.raises(MissingDataError, match="no images_background"):
        load_dataset("omniglot", data_dir=tmp_path / "nowhere", progress=False)


def test_incomplete_sets_are_told(small: Path) -> None:
    for file in (small / "images_background" / "Greek" / "character01").iterdir():
        file.unlink()
    with pytest.raises(DataError, match=r"expected 4 characters in .*images_background.*found 3"):
        load_dataset("omniglot", data_dir=small, progress=False)


def test_drawings_out_of_place_are_named(small: Path) -> None:
    Image.new("1", (5, 5)).save(small / "images_evaluation" / "stray.png")
    with pytest.raises(DataError, match=r"omniglot: 'stray\.png' is out of place"):
        load_dataset("omniglot", data_dir=small, progress=False)


def test_its_own_split_stands(small: Path) -> None:
    with pytest.raises(SettingsError, match="own split"):
        load_dataset("omniglot", data_dir=small, split=0.5)
