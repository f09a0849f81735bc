"""Holding out: by fraction and seed, or by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasktheme.data.dataset import Dataset
from tasktheme.data.splits import split_dataset, split_of_parts
from tasktheme.errors import DataError, SettingsError


def grouped(groups: int, classes: int = 3) -> Dataset:
    group = np.repeat(np.arange(groups), classes)
    labels = [f"c{i}" for i in range(groups * classes)]
    return Dataset.from_arrays(np.arange(groups * classes * 2.0).reshape(-1, 2), labels, [f"g{g}" for g in group], name="set")


@given(groups=st.integers(1, 12), classes=st.integers(2, 6), fraction=st.floats(0.01, 0.99), seed=st.integers(0, 2**31))
def test_parts_are_whole_and_apart(groups: int, classes: int, fraction: float, seed: int) -> None:
    data = grouped(groups, classes)
    split = split_dataset(data, fraction, seed=seed)
    assert sorted(split.train.class_names + split.test.class_names) == sorted(data.class_names)
    choices = groups if groups > 1 else classes
    held_out = len(split.test.group_names) if groups > 1 else len(split.test.class_names)
    assert held_out == min(max(1, round(fraction * choices)), choices - 1)
    if groups > 1:
        assert not set(split.train.group_names) & set(split.test.group_names)
    for part in (split.train, split.test):
        for name, row in zip(part.class_names, part.starts, strict=True):
            assert part.x[row, 0] == 2 * int(name[1:])


def test_a_quarter_is_held_out_unless_said_otherwise() -> None:
    assert len(split_dataset(grouped(8)).test.group_names) == 2
    assert len(split_dataset(grouped(1, 8)).test.class_names) == 2


def test_the_seed_decides() -> None:
    held_out = [split_dataset(grouped(8), seed=seed).test.group_names for seed in range(20)]
    assert held_out[3] == split_dataset(grouped(8), seed=3).test.group_names
    assert len(set(held_out)) > 5
    assert {name for names in held_out for name in names} == {f"g{i}" for i in range(8)}


def test_names_of_groups_classes_and_both() -> None:
    data = Dataset.from_arrays(np.zeros((4, 2)), ["cat", "cow", "cat", "dog"], ["pets", "farm", "farm", "pets"], name="set")
    assert split_dataset(data, ["pets"]).test.class_names == ("cat", "dog")
    assert split_dataset(data, "dog").test.class_names == ("dog",)
    assert split_dataset(data, ["cat"]).test.group_names == ("farm", "pets")
    assert split_dataset(data, ["farm/cat", "cow"]).train.class_names == ("cat", "dog")


def test_unknown_names_are_told_with_the_nearest() -> None:
    with pytest.raises(DataError, match=r"no group or class 'g11'; the nearest is 'g1'"):
        split_dataset(grouped(3), ["g0", "g11"])


@pytest.mark.parametrize("names", [[], ["g0", "g1", "g2"]])
def test_all_or_nothing_is_no_split(names: list[str]) -> None:
    with pytest.raises(DataError, match=r"hold out (all|none)"):
        split_dataset(grouped(3), names)


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 3.0, float("nan")])
def test_fractions_outside_are_refused(fraction: float) -> None:
    with pytest.raises(SettingsError, match="between 0 and 1"):
        split_dataset(grouped(3), fraction)


def test_one_class_cannot_be_split() -> None:
    with pytest.raises(DataError, match="has one class, 'c0'"):
        split_dataset(grouped(1, 1))


def test_parts_that_are_empty_are_named() -> None:
    with pytest.raises(DataError, match="no image in its part 'test'"):
        split_of_parts({"train": grouped(1)})
