"""Arrays, .npz files, torch and Hugging Face data sets, good and bad."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, TensorDataset

from tasktheme.data.dataset import Dataset
from tasktheme.data.loading import load_dataset, load_tasks
from tasktheme.errors import DataError, SettingsError

X = np.arange(48, dtype=np.float32).reshape(8, 6)
Y = np.array([0, 0, 1, 1, 2, 2, 3, 3])


def all_names(split: Any) -> set[str]:
    return set(split.train.class_names + split.test.class_names)


class Items(TorchDataset):
    """A map-style data set of the items given."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        return self.items[i]


class HuggingFace:
    """What is used of a ``datasets.Dataset``: rows as dictionaries, column names and features."""

    def __init__(self, columns: dict[str, list[Any]], names: dict[str, list[str]] | None = None) -> None:
        self.columns = columns
        self.column_names = list(columns)
        self.features = {column: SimpleNamespace(names=(names or {}).get(column)) for column in columns}

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for i in range(len(self)):
            yield {name: column[i] for name, column in self.columns.items()}


def test_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "features.npz", x=X, y=Y)
    split = load_dataset(tmp_path / "features.npz")
    assert split.name == "features"
    assert all_names(split) == {"0", "1", "2", "3"}
    assert split.train.point_shape == (6,)
    np.savez(tmp_path / "grouped.npz", x=X, y=Y, groups=np.array(["a", "b"]).repeat(4))
    assert len(load_dataset(str(tmp_path / "grouped.npz")).test.group_names) == 1


@pytest.mark.parametrize("arrays", [{"x": X}, {"data": X, "labels": Y}, {"x": X, "y": Y, "z": Y}])
def test_npz_with_other_keys(tmp_path: Path, arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "odd.npz", **arrays)
    with pytest.raises(DataError, match=rf"odd\.npz.*expected the arrays x, y and perhaps groups, got {', '.join(arrays)}"):
        load_dataset(tmp_path / "odd.npz")


def test_an_npz_of_many_tasks_says_how_to_read_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "tasks.npz", **{f"customer{i}": X for i in range(500)})
    with pytest.raises(DataError, match=r"got customer0, customer1, customer2 and 497 more; .*--unlabelled of fit, "):
        load_dataset(tmp_path / "tasks.npz")


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (pytest.fail, ("a pickle was loaded",))

    np.savez(tmp_path / "trap.npz", x=np.array([Trap()], dtype=object), y=Y)
    with pytest.raises(DataError, match=r"trap\.npz.*plain arrays"):
        load_dataset(tmp_path / "trap.npz")
    np.save(tmp_path / "trap.npy", np.array([Trap()], dtype=object))
    (tmp_path / "trap.npy").rename(tmp_path / "bare.npz")
    with pytest.raises(DataError, match=r"bare\.npz.*plain arrays"):
        load_dataset(tmp_path / "bare.npz")


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 cut off"])
def test_files_that_are_no_npz(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"bad\.npz.*not an \.npz file"):
        load_dataset(tmp_path / "bad.npz")


def test_an_npy_called_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "x.npy").rename(tmp_path / "x.npz")
    with pytest.raises(DataError, match=r"x\.npz.*not an \.npz file"):
        load_dataset(tmp_path / "x.npz")


def test_arrays_in_memory() -> None:
    split = load_dataset((X, Y), split=["3", "1"])
    assert split.test.class_names == ("1", "3")
    np.testing.assert_array_equal(split.test.x, X[[2, 3, 6, 7]])
    assert load_dataset((X, Y, Y // 2), seed=1).test.class_names in {("0", "1"), ("2", "3")}
    assert load_dataset((torch.tensor(X, requires_grad=True), torch.tensor(Y))).train.point_shape == (6,)


def test_held_out_names_may_be_numbers_as_labels_are() -> None:
    assert load_dataset((X, Y), split=[3, 1]).test.class_names == ("1", "3")


def test_images_in_arrays_are_resized_as_files_are_where_a_size_is_given(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 28, 20), dtype=np.uint8)
    for i, image in enumerate(pixels):
        (tmp_path / "images" / str(Y[i])).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "images" / str(Y[i]) / f"{i}.png")
    np.savez(tmp_path / "images.npz", x=pixels, y=Y)
    expected = load_dataset(tmp_path / "images", size=32, split=["0"], progress=False).train.x
    items = TensorDataset(torch.tensor(pixels[:, None]), torch.tensor(Y))
    for source in ((pixels, Y), (pixels[:, None] / 255.0, Y), items, tmp_path / "images.npz", Dataset.from_arrays(pixels, Y)):
        np.testing.assert_array_equal(load_dataset(source, size=32, split=["0"], progress=False).train.x, expected)
        assert load_dataset(source, split=["0"], progress=False).train.point_shape == (1, 28, 20)
    colour = load_dataset((pixels, Y), size=32, channels=3, split=["0"]).train.x
    np.testing.assert_array_equal(colour, np.repeat(expected, 3, axis=1))
    np.testing.assert_array_equal(load_dataset((colour, Y[2:]), size=32, channels=1, split=["1"]).train.x, expected[2:])
    tasks = {"a": pixels[2:5], "b": pixels[5:]}
    np.savez(tmp_path / "tasks.npz", **tasks)
    for source in (tasks, list(tasks.values()), tmp_path / "tasks.npz"):
        np.testing.assert_array_equal(load_tasks(source, size=32).x, expected)
    assert load_dataset((X, Y), size=32).train.point_shape == (6,)


def test_parts_of_a_split_are_resized_too_and_not_split_again() -> None:
    x, y = np.random.default_rng(0).integers(0, 256, (40, 3, 20, 30), dtype=np.uint8), np.arange(40) // 10
    split = load_dataset((x, y))
    small = load_dataset(split, size=16)
    assert (small.train.point_shape, small.test.point_shape, small.val) == ((3, 16, 16), (3, 16, 16), None)
    np.testing.assert_array_equal(small.train.x, load_dataset((x, y), size=16).train.x)
    with pytest.raises(SettingsError, match="is split already"):
        load_dataset(split, split=0.5)


def test_columns_are_for_hugging_face_alone() -> None:
    with pytest.raises(SettingsError, match="columns are those of a Hugging Face data set, got tuple: leave columns out"):
        load_dataset((X, Y), columns=("x", "y"))


def test_label_lengths_must_match() -> None:
    with pytest.raises(DataError, match=r"labels of 'arrays': expected shape \(8,\) to match the data, got \(7,\)"):
        load_dataset((X, Y[:7]))
    with pytest.raises(DataError, match=r"groups of 'arrays': expected shape \(8,\)"):
        load_dataset((X, Y, Y[:2]))


def test_torch_tensors() -> None:
    images = torch.rand(8, 3, 5, 5)
    split = load_dataset(TensorDataset(images, torch.tensor(Y)), split=["0"], progress=False)
    assert split.name == "TensorDataset"
    np.testing.assert_array_equal(split.test.x, np.rint(images[:2].numpy() * 255))


def test_torch_pictures_are_brought_to_one_form() -> None:
    pictures = [Image.new("L", (20, 10), 7), Image.new("RGB", (5, 9), (1, 2, 3))]
    split = load_dataset(Items([(pictures[0], "a"), (pictures[1], "b")]), size=12, split=["b"], progress=False)
    assert split.train.x[:, :, 0, 0].tolist() == [[7, 7, 7]]
    assert split.test.x[:, :, 0, 0].tolist() == [[1, 2, 3]]
    assert split.train.point_shape == (3, 12, 12)
    grey = load_dataset(Items([(pictures[0], "a"), (pictures[1], "b")]), channels=1, progress=False)
    assert grey.train.point_shape == (1, 64, 64)


def test_torch_groups() -> None:
    split = load_dataset(Items([(X[i], int(Y[i]), "ab"[i // 4]) for i in range(8)]), split=["b"], progress=False)
    assert split.train.group_names == ("a",)
    assert split.test.class_names == ("2", "3")


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "is empty"),
        ([X[0], X[1]], r"item 0 of 'Items': expected \(x, y\)"),
        ([(X[0], 0), (X[1], 1, 2)], "some items"),
        ([(X[0], 0), (X[1, :3], 1)], r"item 1 of 'Items': expected shape \(6,\) as item 0 has, got \(3,\)"),
        ([(X[0], [0, 1])], "label of item 0 of 'Items': expected a number or a name, got list"),
        ([(X[0], torch.zeros(2))], "expected a number or a name, got Tensor"),
        ([(Image.new("F", (2, 2), 9.0), 0)], "item 0 of 'Items': the image cannot be read"),
        ([([[1.0], [1.0, 2.0]], 0)], "item 0 of 'Items': expected an array of one shape"),
    ],
)
def test_bad_torch_items_are_named(items: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_dataset(Items(items), progress=False)


def test_torch_streams_are_refused() -> None:
    class Stream(IterableDataset):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    with pytest.raises(DataError, match="Stream: expected a map-style data set"):
        load_dataset(Stream())


def test_hugging_face_names_its_classes() -> None:
    pictures = [Image.new("RGB", (4, 4), (i, 0, 0)) for i in range(4)]
    data = HuggingFace({"img": pictures, "label": [0, 1, 2, 0]}, {"label": ["cat", "dog", "cow"]})
    split = load_dataset(data, size=4, split=["cat"], progress=False)
    assert split.train.class_names == ("cow", "dog")
    assert split.test.x[:, 0, 0, 0].tolist() == [0, 3]


def test_hugging_face_columns_may_be_named() -> None:
    data = HuggingFace({"vector": list(X), "fine": Y.tolist(), "coarse": (Y // 2).tolist()})
    split = load_dataset(data, columns=("vector", "fine", "coarse"), split=["0"], progress=False)
    assert split.test.class_names == ("0", "1")
    for columns in (None, ("vector", "none"), ("vector",)):
        with pytest.raises(DataError, match=r"columns: expected \(image, label\).* out of vector, fine, coarse"):
            load_dataset(data, columns=columns)


def test_hugging_face_without_labels_or_with_parts() -> None:
    data = HuggingFace({"image": list(X), "label": [-1] * 8}, {"label": ["cat", "dog"]})
    with pytest.raises(DataError, match=r"label -1.*without labels"):
        load_dataset(data, progress=False)
    with pytest.raises(DataError, match="has the parts train, test"):
        load_dataset(SimpleNamespace(column_names={"train": ["image"], "test": ["image"]}))
