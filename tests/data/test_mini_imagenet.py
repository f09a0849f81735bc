"""mini-ImageNet: the lists decide what is where, however the images are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tasktheme.data.dataset import DataSplit
from tasktheme.data.loading import load_dataset
from tasktheme.errors import DataError, MissingDataError

Tree = Callable[[Iterable[str]], Path]
CLASSES = {"train": ("n01", "n02"), "val": ("n03",), "test": ("n04", "n05")}
NAMES = [f"{label}/{label}000{i}.png" for labels in CLASSES.values() for label in labels for i in range(3)]


def write_lists(home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    for part, labels in CLASSES.items():
        rows = [f"{label}000{i}.jpg,{label}" for label in labels for i in range(3)]
        (home / f"{part}.csv").write_text("\n".join(["filename,label", *reversed(rows)]) + "\n", encoding="utf-8")


def load(data_dir: Path) -> DataSplit:
    return load_dataset("mini-imagenet", data_dir=data_dir, size=16, progress=False)


def _check(split: DataSplit) -> None:
    assert split.name == "mini-imagenet"
    assert split.val is not None
    for part, data in (("train", split.train), ("val", split.val), ("test", split.test)):
        assert data.class_names == CLASSES[part]
        assert (data.counts == 3).all()
        assert data.point_shape == (3, 16, 16)
        assert data.group_names == ("mini-imagenet",)
    first = [int(part.x[0, 0, 0, 0]) for part in (split.train, split.val, split.test)]
    assert first == [0, 6, 9]  # the first image of each part, by its number in NAMES


def test_a_zip_of_class_folders(tree: Tree, tmp_path: Path, zipped: Callable[[Path], Path]) -> None:
    write_lists(tmp_path / "data" / "mini-imagenet")
    zipped(tree(NAMES)).rename(tmp_path / "data" / "mini-imagenet" / "images.zip")
    _check(load(tmp_path / "data"))


@pytest.mark.parametrize("folder", ["images", "."])
def test_folders(tree: Tree, tmp_path: Path, folder: str) -> None:
    home = tmp_path / "data"
    write_lists(home)
    pictures = tree(NAMES)
    if folder == ".":
        for child in pictures.iterdir():
            child.rename(home / child.name)
    else:
        pictures.rename(home / folder)
    _check(load(home))


def test_a_flat_folder(tree: Tree, tmp_path: Path) -> None:
    write_lists(tmp_path)
    tree(name.split("/")[1] for name in NAMES).rename(tmp_path / "images")
    _check(load(tmp_path))


def test_names_that_repeat_between_classes(tree: Tree, tmp_path: Path) -> None:
    names = [name.replace("/" + name.split("/")[0], "/") for name in NAMES]  # n01/0000.png, n02/0000.png, ...
    write_lists(tmp_path)
    for part in CLASSES:
        file = tmp_path / f"{part}.csv"
        lines = file.read_text(encoding="utf-8").split()
        file.write_text("\n".join([lines[0], *(line[3:] for line in lines[1:])]), encoding="utf-8")
    tree(names).rename(tmp_path / "images")
    _check(load(tmp_path))


def test_missing_lists_are_asked_for(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(MissingDataError, match=r"train\.csv, val\.csv and test\.csv there, and images\.zip") as caught:
        load(tmp_path)
    assert str(tmp_path / "mini-imagenet") in str(caught.value)


def test_missing_images_are_counted_and_named(tree: Tree, tmp_path: Path) -> None:
    write_lists(tmp_path)
    tree(NAMES[2:]).rename(tmp_path / "images")
    with pytest.raises(DataError, match=r"2 of the listed images are missing, the first is 'n01/n010001'"):
        load(tmp_path)


def test_no_images_at_all(tmp_path: Path, cache: Path) -> None:
    write_lists(tmp_path)
    with pytest.raises(DataError, match="holds no image"):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"file;class\na;b\n", b"\xff\xfe\x00", b"filename,label\nonly-one\n"])
def test_a_list_of_another_form_is_named(tree: Tree, tmp_path: Path, content: bytes) -> None:
    write_lists(tmp_path)
    (tmp_path / "val.csv").write_bytes(content)
    tree(NAMES).rename(tmp_path / "images")
    with pytest.raises(DataError, match=r"val\.csv.*columns filename and label"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("rows", "message"), [("", "no image in its part 'test'"), ("n010000.jpg,n01\n", "'n01' is in train and in test")]
)
def test_the_parts_are_full_and_apart(tree: Tree, tmp_path: Path, rows: str, message: str) -> None:
    write_lists(tmp_path)
    (tmp_path / "test.csv").write_text(f"filename,label\n{rows}", encoding="utf-8")
    tree(NAMES).rename(tmp_path / "images")
    with pytest.raises(DataError, match=message):
        load(tmp_path)


def test_a_changed_list_changes_the_data(tree: Tree, tmp_path: Path) -> None:
    write_lists(tmp_path)
    tree(NAMES).rename(tmp_path / "images")
    _check(load(tmp_path))
    (tmp_path / "test.csv").write_text("filename,label\nn040001.jpg,n04\n", encoding="utf-8")
    assert load(tmp_path).test.counts.tolist() == [1]
