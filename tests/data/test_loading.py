"""The front door: names, paths, objects and unlabelled tasks, and what it says when it cannot help."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from tasktheme.data.dataset import Dataset
from tasktheme.data.decoding import LeftOutWarning
from tasktheme.data.loading import data_directory, load_dataset, load_tasks
from tasktheme.errors import DataError, MissingDataError, SettingsError

Tree = Callable[[Iterable[str]], Path]
CLASSES = [f"class{c}/{i}.png" for c in range(8) for i in range(2)]
GROUPS = [f"group{g}/class{c}/{i}.png" for g in range(4) for c in range(2) for i in range(2)]


def test_a_folder_of_classes(tree: Tree) -> None:
    split = load_dataset(tree(CLASSES), progress=False)
    assert split.name == "pictures"
    assert len(split.train.class_names) == 6
    assert len(split.test.class_names) == 2
    assert split.train.group_names == split.test.group_names == ("pictures",)
    assert split.train.point_shape == (3, 64, 64)


def test_a_folder_of_groups(tree: Tree) -> None:
    folder = tree(GROUPS)
    split = load_dataset(str(folder), size=16, channels=1, progress=False)
    assert len(split.train.group_names) == 3
    assert len(split.test.class_names) == 2
    assert split.train.point_shape == (1, 16, 16)
    named = load_dataset(folder, size=16, split=["group2"], progress=False)
    assert named.test.group_names == ("group2",)
    assert sorted(named.test.x[:, 0, 0, 0].tolist()) == [8, 9, 10, 11]


def test_a_zip(tree: Tree, zipped: Callable[[Path], Path]) -> None:
    folder = tree(CLASSES)
    packed, loose = load_dataset(zipped(folder), progress=False), load_dataset(folder, progress=False)
    assert packed.test.class_names == loose.test.class_names
    np.testing.assert_array_equal(packed.test.x, loose.test.x)


def test_a_folder_of_parts(tree: Tree) -> None:
    folder = tree(["train/a/1.png", "train/b/1.png", "val/c/1.png", "test/d/1.png"])
    split = load_dataset(folder, progress=False)
    assert split.val is not None
    assert [part.class_names for part in (split.train, split.val, split.test)] == [("a", "b"), ("c",), ("d",)]
    assert split.test.x[0, 0, 0, 0] == 3
    with pytest.raises(SettingsError, match="split by its folders"):
        load_dataset(folder, split=0.5, progress=False)


def test_one_class_is_not_enough(tree: Tree) -> None:
    with pytest.raises(DataError, match="'pictures' has one class, 'only'"):
        load_dataset(tree(["only/1.png", "only/2.png"]), progress=False)


def test_progress_is_shown_on_standard_error(tree: Tree, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tree(CLASSES)
    load_dataset(folder)
    said = capfd.readouterr()
    assert said.out == ""
    assert "decoding pictures" in said.err
    load_dataset(folder, progress=True)
    assert capfd.readouterr().err == ""  # nothing left to decode


def test_data_sets_and_splits_pass_through() -> None:
    data = Dataset.from_arrays(np.eye(4), list("abcd"), name="mine")
    split = load_dataset(data, split=["a"])
    assert split.train.class_names == ("b", "c", "d")
    assert load_dataset(split) is split


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("omniglt", r"'omniglt'; the data sets are glyphs, omniglot, mini-imagenet; did you mean omniglot\?"),
        ("imagenet", r"did you mean mini-imagenet\?"),
        ("xyz", r"the data sets are glyphs, omniglot, mini-imagenet$"),
        ("", r"no data set, file or folder ''"),
        ("no/such/folder", r"no file or folder 'no/such/folder'"),
        ("birds.zip", r"no file or folder 'birds\.zip'"),
    ],
)
def test_unknown_names_are_told_what_there_is(name: str, message: str) -> None:
    with pytest.raises(MissingDataError, match=message):
        load_dataset(name)


def test_foreign_files_and_objects(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "table.csv").write_text("a,b\n", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"table\.csv.*not a folder, nor a whole zip.*; vectors come as an \.npz file with the arrays x and y"
    ):
        load_dataset(tmp_path / "table.csv")
    with pytest.raises(DataError, match=r"expected a data set's name.*got int$"):
        load_dataset(3)
    with pytest.raises(DataError, match=r"got list; .*load_tasks"):
        load_dataset([np.eye(3)])


def test_names_may_be_written_another_way(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(MissingDataError, match="mini-imagenet is not in"):
        load_dataset("Mini_ImageNet", data_dir=tmp_path)


def test_the_data_folder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_directory() == cache / "data"
    monkeypatch.setenv("TASKTHEME_DATA", "/some/where")
    assert data_directory() == Path("/some/where")
    assert data_directory("/else") == Path("/else")
    assert data_directory("~/sets") == Path.home() / "sets"


def test_tasks_from_a_folder(tree: Tree, zipped: Callable[[Path], Path]) -> None:
    folder = tree(["monday/1.png", "tuesday/1.png", "tuesday/2.png", "tuesday/late/3.png"])
    for source in (folder, zipped(folder)):
        tasks = load_tasks(source, size=8, progress=False)
        assert tasks.unlabelled
        assert tasks.class_names == ("monday", "tuesday")
        assert tasks.counts.tolist() == [1, 3]
        assert tasks.x[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
        assert tasks.group_names == ("pictures",)


def test_one_task_with_folders_in_it(tree: Tree) -> None:
    folder = tree(["new/monday/early/1.png", "new/monday/late/1.png"])
    assert load_tasks(folder / "new", progress=False).class_names == ("monday",)
    assert load_dataset(folder, progress=False, split=0.5).train.class_names in (("early",), ("late",))


def test_a_folder_read_as_classes_and_as_tasks_is_kept_twice(tree: Tree) -> None:
    folder = tree(CLASSES)
    assert not load_dataset(folder, progress=False).train.unlabelled
    assert load_tasks(folder, progress=False).unlabelled


def test_tasks_from_arrays(tmp_path: Path) -> None:
    arrays = {"b": np.ones((3, 4), dtype=np.float32), "a": np.zeros((1, 4), dtype=np.float32)}
    listed = load_tasks(list(arrays.values()))
    assert listed.class_names == ("0", "1")
    assert listed.counts.tolist() == [3, 1]
    assert load_tasks(listed) is listed
    np.savez(tmp_path / "tasks.npz", **arrays)
    for source in (arrays, tmp_path / "tasks.npz"):
        tasks = load_tasks(source)
        assert tasks.class_names == ("b", "a")
        assert tasks.x[:, 0].tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize("source", [np.eye(3), 7, Dataset.from_arrays(np.eye(2), [0, 1])])
def test_what_is_no_list_of_tasks(source: object) -> None:
    with pytest.raises(DataError, match=f"expected a list of tasks.*got {type(source).__name__}"):
        load_tasks(source)


def test_a_task_without_a_readable_image_is_named(tree: Tree) -> None:
    folder = tree(["ann/1.png", "ann/2.png", "bob/late/1.png"])
    (folder / "bob/late/1.png").write_bytes(b"")
    (folder / "ann/1.png").write_bytes(b"")
    with pytest.warns(LeftOutWarning, match=r"2 of the images .*nothing is left of 'bob'$"):
        assert load_tasks(folder, allow_damaged=True, progress=False).class_names == ("ann",)


@pytest.mark.parametrize("empty", [1, 12])
def test_folders_without_an_image_are_named(tree: Tree, zipped: Callable[[Path], Path], empty: int) -> None:
    folder = tree(["ann/1.png", "zoe/1.png"])
    for number in range(empty):
        (folder / f"bob{number:02}").mkdir()
    said = r"^1 folder holds no image and is no task of .*: 'bob00'$" if empty == 1 else r"^12 folders .*'bob09' and 2 others$"
    for source in (folder, zipped(folder)):
        for _ in range(2):  # decoded, and from the cache
            with pytest.warns(LeftOutWarning, match=said):
                assert load_tasks(source, progress=False).class_names == ("ann", "zoe")


@pytest.mark.parametrize("name", ["glyphs", "mini_imagenet"])
def test_data_sets_with_classes_are_no_tasks(name: str) -> None:
    with pytest.raises(DataError, match=f"{name!r} has classes to draw tasks from: leave out --unlabelled"):
        load_tasks(name)


def test_missing_tasks() -> None:
    with pytest.raises(MissingDataError, match="no file or folder 'some/tasks'"):
        load_tasks("some/tasks")
    with pytest.raises(DataError, match="holds no task"):
        load_tasks([])
