"""Data sets from arrays and from tasks, and their parts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasktheme.data.dataset import Dataset
from tasktheme.errors import DataError


def small() -> Dataset:
    """Three groups of two classes each; class c has c + 1 points, all of the value c."""
    counts = np.arange(1, 7)
    labels = np.repeat(np.arange(6), counts)
    return Dataset.from_arrays(labels[:, None] * np.ones(2), labels, np.array(list("aabbcc"))[labels], name="small")


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=40))
def test_every_point_keeps_its_class_and_group(points: list[tuple[int, int]]) -> None:
    labels, groups = (list(column) for column in zip(*points, strict=True))
    x = np.arange(len(points), dtype=np.float32)[:, None]
    data = Dataset.from_arrays(x, labels, groups)
    assert data.counts.sum() == len(data) == len(points)
    assert len(data.class_names) == len(set(points))
    for c, (start, count) in enumerate(zip(data.starts, data.counts, strict=True)):
        rows = data.x[start : start + count, 0].astype(int)
        assert list(rows) == sorted(rows)  # in the order they came
        for row in rows:
            assert str(labels[row]) == data.class_names[c]
            assert str(groups[row]) == data.group_names[data.class_group[c]]


def test_labels_may_be_words_and_groups_may_be_missing() -> None:
    data = Dataset.from_arrays(np.eye(3), ["cow", "ant", "cow"], name="zoo")
    assert data.class_names == ("ant", "cow")
    assert data.group_names == ("zoo",)
    assert data.counts.tolist() == [1, 2]
    assert repr(data) == "Dataset('zoo': 3 points of shape (3,), 2 classes, 1 groups)"


@pytest.mark.parametrize(
    ("y", "groups", "message"),
    [
        ([0, 1], None, r"labels of 'arrays': expected shape \(3,\) to match the data, got \(2,\)"),
        (np.eye(3), None, r"labels of 'arrays': expected shape \(3,\).*got \(3, 3\)"),
        ([0, 1, 2], [0], r"groups of 'arrays': expected shape \(3,\) to match the data, got \(1,\)"),
        ([[0], [0, 1], 2], None, "labels of 'arrays': expected an array of one shape"),
    ],
)
def test_labels_and_groups_must_fit(y: npt.ArrayLike, groups: npt.ArrayLike | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Dataset.from_arrays(np.eye(3), y, groups)


def test_bad_points_are_told_with_the_name() -> None:
    with pytest.raises(DataError, match="data set 'mine': data point 1 holds a NaN"):
        Dataset.from_arrays([[1.0], [np.nan]], [0, 1], name="mine")


def test_tasks_of_any_sizes() -> None:
    tasks = Dataset.from_tasks([np.zeros((2, 3)), np.ones((1, 3)), np.full((4, 3), 2.0)], names=["x", "y", "z"])
    assert tasks.unlabelled
    assert tasks.counts.tolist() == [2, 1, 4]
    assert tasks.starts.tolist() == [0, 2, 3]
    assert tasks.class_names == ("x", "y", "z")
    assert tasks.x[:, 0].tolist() == [0, 0, 1, 2, 2, 2, 2]
    assert Dataset.from_tasks([np.eye(2)] * 2).class_names == ("0", "1")
    assert Dataset.from_tasks([torch.eye(2)]).point_shape == (2,)


@pytest.mark.parametrize(
    ("tasks", "names", "message"),
    [
        ([], None, "'tasks' holds no task"),
        ([np.eye(2)], ["a", "b"], "a name for each of the 1 tasks, got 2 names"),
        ([np.eye(2), np.eye(3)], None, r"task 1: expected data points of shape \(2,\) as in task 0, got \(3,\)"),
        ([np.eye(2), np.eye(3)], ["a", "b"], r"task 'b': expected data points of shape \(2,\) as in task 'a', got \(3,\)"),
        ([np.eye(2), np.zeros((0, 2))], None, "task 1: is empty"),
        ([np.zeros(4)], None, r"task 0: expected vectors .*got shape \(4,\)"),
        ([[[1.0], [1.0, 2.0]]], None, "task 0: expected an array of one shape"),
    ],
)
def test_bad_tasks_are_named(tasks: list[npt.ArrayLike], names: list[str] | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Dataset.from_tasks(tasks, names=names)


def test_groups_are_selected_in_order() -> None:
    part = small().select_groups(["c", "a"], name="part")
    assert part.name == "part"
    assert part.group_names == ("a", "c")
    assert part.class_names == ("0", "1", "4", "5")
    assert part.class_group.tolist() == [0, 0, 1, 1]
    assert part.x[:, 0].tolist() == [0, 1, 1, *[4] * 5, *[5] * 6]


@pytest.mark.parametrize(("classes", "shared"), [([2, 3], True), ([3, 2, 3], True), ([5], True), ([0, 2, 5], False)])
def test_neighbouring_classes_share_memory(classes: list[int], shared: bool) -> None:
    data = small()
    part = data.select_classes(classes)
    assert np.shares_memory(part.x, data.x) == shared
    assert part.class_names == tuple(str(c) for c in sorted(set(classes)))
    assert part.counts.tolist() == [c + 1 for c in sorted(set(classes))]
    for name, start, count in zip(part.class_names, part.starts, part.counts, strict=True):
        assert (part.x[start : start + count] == int(name)).all()
    assert [part.group_names[g] for g in part.class_group] == ["aabbcc"[c] for c in sorted(set(classes))]


def test_tasks_stay_unlabelled_in_parts() -> None:
    assert Dataset.from_tasks([np.eye(2)] * 3).select_classes([1]).unlabelled


def test_bad_selections_are_refused() -> None:
    with pytest.raises(DataError, match="'small' has no group 'z'; it has a, b, c"):
        small().select_groups(["a", "z"])
    with pytest.raises(DataError, match="no class of 'small' is chosen"):
        small().select_groups([])
    for classes in ([-1], [6]):
        with pytest.raises(DataError, match="'small' has classes 0 to 5"):
            small().select_classes(classes)


@pytest.mark.parametrize("writeable", [True, False])
def test_the_tensor_shares_memory(writeable: bool) -> None:
    data = small()
    data.x.flags.writeable = writeable
    assert data.tensor.data_ptr() == data.x.ctypes.data
    np.testing.assert_array_equal(data.tensor.numpy(), data.x)
    assert data.tensor is data.tensor


def test_turned_images_are_groups_and_classes_of_their_own() -> None:
    corner = np.zeros((3, 1, 4, 4), dtype=np.uint8)
    corner[:, 0, 0, 1] = [10, 20, 30]  # a point that each of the eight puts elsewhere
    data = Dataset.from_arrays(corner, ["b", "a", "b"], ["greek", "greek", "latin"], name="corners")
    turned = data.turned()
    assert turned.counts.tolist() == [1, 1, 1] * 8
    assert turned.class_names == ("a", "b", "b") * 8
    assert turned.group_names[:4] == ("greek", "latin", "greek turned 90", "latin turned 90")
    assert len(set(turned.group_names)) == 16
    places = set()
    for view in range(8):
        part = turned.select_groups(turned.group_names[2 * view : 2 * view + 2])
        assert part.class_names == data.class_names
        assert [part.group_names[g].split()[0] for g in part.class_group] == ["greek", "greek", "latin"]
        assert part.x.max(axis=(1, 2, 3)).tolist() == [20, 10, 30]
        [place] = {tuple(np.argwhere(image[0])[0]) for image in part.x}
        places.add(place)
    assert places == {(0, 1), (0, 2), (1, 0), (2, 0), (3, 1), (3, 2), (1, 3), (2, 3)}
    np.testing.assert_array_equal(turned.select_groups(["greek", "latin"]).x, data.x)
    tasks = Dataset.from_tasks([corner[:2], corner])
    assert tasks.turned().unlabelled
    assert tasks.turned().counts.tolist() == [2, 3] * 8


@pytest.mark.parametrize("shape", [(4, 5), (4, 1, 4, 5)])
def test_only_square_images_can_be_turned(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, dtype=np.uint8 if len(shape) == 4 else np.float32)
    with pytest.raises(DataError, match="only square images can be turned"):
        Dataset.from_arrays(x, np.arange(4)).turned()
