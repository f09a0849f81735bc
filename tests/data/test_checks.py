"""Data from outside: what is taken, what it becomes, and what each refusal says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tasktheme.data import checks
from tasktheme.data.checks import as_array, check_data
from tasktheme.errors import DataError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.uint8, np.bool_])
def test_vectors_of_any_numbers_become_float32(dtype: Any) -> None:
    x = RNG.integers(0, 2, (5, 3)).astype(dtype)
    checked = check_data(x, what="x")
    assert checked.dtype == np.float32
    np.testing.assert_array_equal(checked, x.astype(np.float32))


def test_images_of_bytes_stay_as_they_are() -> None:
    x = RNG.integers(0, 256, (4, 3, 5, 6), dtype=np.uint8)
    assert check_data(x, what="x") is x or np.shares_memory(check_data(x, what="x"), x)
    np.testing.assert_array_equal(check_data(x[:, 0], what="x"), x[:, :1])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_images_of_real_numbers_are_rounded(dtype: Any) -> None:
    x = np.array([0.0, 0.1, 0.5, 1.0], dtype=dtype).reshape(1, 1, 2, 2)
    np.testing.assert_array_equal(check_data(x, what="x").ravel(), [0, 26, 128, 255])


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    x = RNG.random((50, 1, 3, 3))
    whole = check_data(x, what="x")
    monkeypatch.setattr(checks, "_BLOCK", 20)
    np.testing.assert_array_equal(check_data(x, what="x"), whole)
    x[37, 0, 1, 1] = np.nan
    with pytest.raises(DataError, match="data point 37 holds a NaN"):
        check_data(x, what="x")


def test_images_of_truth_values_are_black_and_white() -> None:
    assert check_data(np.array([[[True, False]]]), what="x").tolist() == [[[[255, 0]]]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(6, 4), (6, 1, 2, 2)])
def test_the_point_with_a_nan_is_named(bad: float, shape: tuple[int, ...]) -> None:
    x = np.zeros(shape)
    x[4].flat[1] = bad
    with pytest.raises(DataError, match="mine: data point 4 holds a NaN or an infinity"):
        check_data(x, what="mine")


def test_numbers_too_large_for_float32_are_named() -> None:
    with pytest.raises(DataError, match="data point 1 holds"):
        check_data(np.array([[1.0], [1e300]]), what="x")


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.array([["a", "b"]]), "expected an array of real numbers, got dtype <U1"),
        (np.array([[None, 1]], dtype=object), "expected an array of real numbers, got dtype object"),
        (np.ones((2, 2), dtype=complex), "expected an array of real numbers, got dtype complex128"),
        (np.zeros(5), r"expected vectors .* got shape \(5,\)"),
        (np.array(3.0), r"got shape \(\)"),
        (np.zeros((1, 1, 1, 1, 1)), r"got shape \(1, 1, 1, 1, 1\)"),
        (np.zeros((0, 4)), "is empty; at least one data point"),
        (np.zeros((3, 0)), r"has an empty dimension, shape \(3, 0\)"),
        (np.zeros((2, 4, 8, 8)), r"expected 1 or 3 channels, got shape \(2, 4, 8, 8\)$"),
        (np.zeros((2, 8, 8, 3), dtype=np.uint8), r"channels come first: use x\.transpose\(0, 3, 1, 2\)"),
        (np.zeros((2, 8, 8), dtype=np.int64), "images are uint8 or real numbers in .*, got dtype int64"),
        (np.full((2, 1, 2, 2), 1.5), r"must lie in \[0, 1\], got values from 1\.5 to 1\.5; scale them, or pass uint8"),
        (np.full((2, 1, 2, 2), -0.1), r"must lie in \[0, 1\], got values from -0\.1"),
    ],
)
def test_refusals_say_what_came(x: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"mine: .*{message}" if not message.startswith("expected") else f"mine: {message}"):
        check_data(x, what="mine")


def test_arrays_tensors_and_lists_become_arrays() -> None:
    expected = np.array([[1.0, 2.0]])
    for values in (expected, [[1.0, 2.0]], torch.tensor([[1.0, 2.0]], requires_grad=True), ((1.0, 2.0),)):
        np.testing.assert_array_equal(as_array(values, what="x"), expected)


def test_ragged_lists_are_refused() -> None:
    with pytest.raises(DataError, match="mine: expected an array of one shape, got list"):
        as_array([[1.0], [1.0, 2.0]], what="mine")
