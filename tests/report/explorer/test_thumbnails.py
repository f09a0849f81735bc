from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tasktheme.report.explorer.thumbnails import COLUMNS, TILE, choose_tiles, draw_sheets


@given(st.lists(st.integers(-1, 9), max_size=30), st.integers(0, 12))
def test_the_first_distinct_images_are_chosen(wanted: list[int], budget: int) -> None:
    rows, tiles = choose_tiles(np.array(wanted, dtype=np.int64), budget)
    expected = list(dict.fromkeys(row for row in wanted if row >= 0))[:budget]
    assert rows.tolist() == expected
    assert tiles.tolist() == [expected.index(row) if row in expected else -1 for row in wanted]


def opened(uri: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB")).astype(int)


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 64, 64), (1, 20, 80), (3, 1, 1), (1, 48, 48)])
def test_images_of_any_shape_lie_in_the_middle_of_their_tile(shape: tuple[int, int, int]) -> None:
    image = np.full(shape, 40, dtype=np.uint8)
    [sheet] = draw_sheets([image, 255 - image], ink=False)
    pixels = opened(sheet)
    assert pixels.shape == (TILE, COLUMNS * TILE, 3)
    middle = TILE // 2
    assert np.abs(pixels[middle, middle] - 40).max() < 8
    assert np.abs(pixels[middle, TILE + middle] - 215).max() < 8
    if shape == (1, 20, 80):
        assert pixels[2, middle].min() > 240  # paper above a wide image
    assert np.abs(opened(draw_sheets([image], ink=True)[0])[middle, middle] - 215).max() < 8


def test_a_full_sheet_is_followed_by_another() -> None:
    images = [np.full((1, 4, 4), i % 256, dtype=np.uint8) for i in range(COLUMNS**2 + 1)]
    sheets = draw_sheets(iter(images), ink=False)
    assert [opened(sheet).shape[0] for sheet in sheets] == [COLUMNS * TILE, TILE]
    assert abs(opened(sheets[1])[5, 5, 0] - COLUMNS**2 % 256) < 8
    assert draw_sheets([], ink=False) == []
