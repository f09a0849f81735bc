"""What places say: classes, groups, parts and tasks."""

from __future__ import annotations

import pytest

from tasktheme.data.layout import Entry, arrange_classes, arrange_tasks, empty_tasks
from tasktheme.errors import DataError


def test_classes() -> None:
    assert arrange_classes(["cat/1.png", "dog/1.png"]) == [Entry("", "", "cat", "cat/1.png"), Entry("", "", "dog", "dog/1.png")]


def test_groups_of_classes() -> None:
    entries = arrange_classes(["pets/cat/1.png", "farm/cat/1.png"])
    assert [(entry.group, entry.label) for entry in entries] == [("pets", "cat"), ("farm", "cat")]


@pytest.mark.parametrize("wrapper", ["images", "deep/er"])
def test_a_folder_around_everything_does_not_count(wrapper: str) -> None:
    entries = arrange_classes([f"{wrapper}/cat/1.png", f"{wrapper}/dog/1.png"])
    assert [(entry.group, entry.label) for entry in entries] == [("", "cat"), ("", "dog")]
    assert entries[0].name == f"{wrapper}/cat/1.png"


def test_one_class_is_a_class() -> None:
    assert arrange_classes(["cat/1.png"])[0].label == "cat"


def test_parts() -> None:
    names = ["train/cat/1.png", "val/cow/1.png", "test/dog/1.png"]
    assert [(e.part, e.label) for e in arrange_classes(names)] == [("train", "cat"), ("val", "cow"), ("test", "dog")]
    grouped = arrange_classes(["set/train/pets/cat/1.png", "set/test/farm/cow/1.png"])
    assert [(e.part, e.group, e.label) for e in grouped] == [("train", "pets", "cat"), ("test", "farm", "cow")]


@pytest.mark.parametrize("names", [["train/1.png", "test/1.png"], ["train/cat/1.png", "night/dog/1.png"]])
def test_train_and_test_may_be_common_names(names: list[str]) -> None:
    assert {entry.part for entry in arrange_classes(names)} == {""}


def test_parts_may_not_share_a_class() -> None:
    with pytest.raises(DataError, match=r"'cat' is in train and in test.*share no class"):
        arrange_classes(["train/cat/1.png", "test/cat/2.png"])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["cat/1.png", "stray.png"], r"'stray\.png' lies too high"),
        (["a/b/c/d/1.png", "b/b/c/d/1.png"], r"'a/b/c/d/1\.png' lies too deep"),
        (["pets/cat/1.png", "dog/2.png"], r"'pets/cat/1\.png' and 'dog/2\.png' lie at different depths"),
    ],
)
def test_images_out_of_place_are_named(names: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message + r".*expected class/image or group/class/image"):
        arrange_classes(names)


def test_tasks_hold_all_below_them() -> None:
    entries = arrange_tasks(["monday/1.png", "monday/late/2.png", "tuesday/1.png"])
    assert [entry.label for entry in entries] == ["monday", "monday", "tuesday"]


def test_one_task_is_a_task() -> None:
    assert {entry.label for entry in arrange_tasks(["monday/early/1.png", "monday/late/1.png"])} == {"monday"}


@pytest.mark.parametrize(
    ("wrapper", "alone"),
    [("week/", {"monday"}), ("home/week/", {"monday"}), ("home/all/", {"early", "late"}), ("", {"early", "late"})],
)
def test_folders_around_all_tasks_of_a_zip(wrapper: str, alone: set[str]) -> None:
    names = [f"{wrapper}monday/{time}/1.png" for time in ("early", "late")]
    several = [*names, f"{wrapper}tuesday/1.png"]
    assert {entry.label for entry in arrange_tasks(several, zipped="week")} == {"monday", "tuesday"}
    assert {entry.label for entry in arrange_tasks(names, zipped="week")} == alone


def test_an_image_in_no_task_is_named() -> None:
    with pytest.raises(DataError, match=r"'stray\.png' belongs to no task"):
        arrange_tasks(["monday/1.png", "stray.png"])


def test_folders_beside_the_tasks_that_hold_no_image() -> None:
    names = ["monday/late/1.png", "tuesday/1.png"]
    assert empty_tasks({"monday", "tuesday", "sunday", "friday/early"}, names) == ["friday", "sunday"]
    wrapped = {f"week/{name}" for name in ("monday", "monday/late", "tuesday", "sunday")} | {"week", "notes"}
    assert empty_tasks(wrapped, [f"week/{name}" for name in names], zipped="week") == ["sunday"]
    assert empty_tasks({"monday", "tuesday"}, names) == []
