"""The embedded glyphs: what is in them, how they are drawn, and that the cache gives them back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

import tasktheme as tt
from tasktheme.data import drawing, glyphs
from tasktheme.data.dataset import Dataset, DataSplit
from tasktheme.errors import MissingDataError, SettingsError

HEBREW = {"Hebrew": glyphs.TEST_SCRIPTS["Hebrew"]}
SMALL_TRAIN = {"Vowels": (tuple(map(ord, "AEIOU")),)}
SMALL_TEST = {"Digits": (range(0x30, 0x3A),)}


@pytest.fixture(scope="module")
def split() -> DataSplit:
    return glyphs.load_glyphs(progress=False)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two small scripts instead of all; returns the empty cache folder."""
    monkeypatch.setenv("TASKTHEME_CACHE", str(tmp_path))
    monkeypatch.setattr(glyphs, "TRAIN_SCRIPTS", SMALL_TRAIN)
    monkeypatch.setattr(glyphs, "TEST_SCRIPTS", SMALL_TEST)
    return tmp_path


def _pictures(data: Dataset) -> npt.NDArray[np.uint8]:
    return np.asarray(data.x, dtype=np.uint8)[:, 0]


def test_enough_scripts_and_characters(split: DataSplit) -> None:
    assert len(split.train.group_names) + len(split.test.group_names) >= 30
    assert len(split.train.class_names) + len(split.test.class_names) >= 700
    assert len(split.test.group_names) >= 8
    assert 0.25 <= len(split.test.group_names) / len(split.train.group_names + split.test.group_names) <= 0.4
    for part in (split.train, split.test):
        characters = np.bincount(part.class_group, minlength=len(part.group_names))
        assert characters.min() >= 14
        assert characters.max() <= 26


def test_form_of_the_data(split: DataSplit) -> None:
    assert split.name == "glyphs"
    for part in (split.train, split.test):
        assert part.x.dtype == np.uint8
        assert part.x.shape == (20 * len(part.class_names), 1, 64, 64)
        assert (part.counts == 20).all()
        assert part.class_group.shape == part.counts.shape
        assert (np.diff(part.class_group) >= 0).all()


def test_names_say_code_point_and_character(split: DataSplit) -> None:
    assert "U+05D0 א" in split.test.class_names
    first = split.test.class_names.index("U+05D0 א")
    assert split.test.group_names[split.test.class_group[first]] == "Hebrew"
    assert split.train.class_names[0] == "U+0041 A"


def test_parts_share_no_script_and_no_character(split: DataSplit) -> None:
    assert not set(split.train.group_names) & set(split.test.group_names)
    names = split.train.class_names + split.test.class_names
    assert len(set(names)) == len(names)


def test_every_drawing_has_ink_on_black(split: DataSplit) -> None:
    for part in (split.train, split.test):
        pictures = _pictures(part)
        ink = (pictures > 127).mean(axis=(1, 2))
        assert ink.min() > 0.01
        assert ink.max() < 0.5
        assert (pictures.max(axis=(1, 2)) >= 250).all()
        assert (pictures.min(axis=(1, 2)) == 0).all()
        assert 0.05 < np.median(ink) < 0.25


def test_drawings_are_centred_and_not_clipped(split: DataSplit) -> None:
    for part in (split.train, split.test):
        pictures = _pictures(part)
        edge = np.concatenate([pictures[:, 0], pictures[:, -1], pictures[:, :, 0], pictures[:, :, -1]], axis=1)
        assert (edge > 0).any(axis=1).mean() < 0.005
        for axis in (1, 2):
            seen = np.asarray((pictures > 127).any(axis=axis))
            middle = (seen.argmax(axis=1) + 63 - seen[:, ::-1].argmax(axis=1)) / 2
            assert abs(middle.mean() - 31.5) < 0.5
            assert np.abs(middle - 31.5).max() < 12


def test_no_two_drawings_are_the_same(split: DataSplit) -> None:
    for part in (split.train, split.test):
        pictures = _pictures(part)
        assert len({picture.tobytes() for picture in pictures}) == len(pictures)


def test_drawers_keep_their_weight_from_script_to_script(split: DataSplit) -> None:
    """Ink by drawer, averaged over the training scripts and over the test scripts, tells the same drawers apart."""
    weights = [(_pictures(part) > 127).mean(axis=(1, 2)).reshape(-1, 20).mean(axis=0) for part in (split.train, split.test)]
    assert np.corrcoef(weights)[0, 1] > 0.9
    assert weights[0].std() > 0.1 * weights[0].mean()


def test_pixels_alone_do_not_solve_it(split: DataSplit) -> None:
    """Nearest neighbour in pixels, 5 characters of one script, 1 example each: above chance (20 %), far from solved."""
    rng = np.random.default_rng(0)
    data = split.test
    drawings = _pictures(data).reshape(len(data.class_names), 20, -1)
    right = []
    for _ in range(300):
        group = rng.integers(len(data.group_names))
        classes = rng.choice(np.flatnonzero(data.class_group == group), 5, replace=False)
        pairs = np.array([rng.choice(20, 2, replace=False) for _ in classes])
        known = drawings[classes, pairs[:, 0]].astype(np.float32)
        asked = drawings[classes, pairs[:, 1]].astype(np.float32)
        distances = ((asked[:, None] - known[None]) ** 2).sum(axis=2)
        right.append((distances.argmin(axis=1) == np.arange(5)).mean())
    assert 0.45 < np.mean(right) < 0.85


def test_same_seed_same_bits_whatever_else_is_drawn() -> None:
    alone = drawing.render_scripts(HEBREW, seed=3)["Hebrew"]
    torch.manual_seed(1)
    beside = drawing.render_scripts({**SMALL_TRAIN, **HEBREW}, seed=3)["Hebrew"]
    assert alone.codes == beside.codes
    np.testing.assert_array_equal(alone.pictures, beside.pictures)


def test_other_seed_other_drawings_of_the_same_characters() -> None:
    one = drawing.render_scripts(HEBREW, seed=0)["Hebrew"]
    other = drawing.render_scripts(HEBREW, seed=1)["Hebrew"]
    assert one.codes == other.codes
    assert (one.pictures != other.pictures).any(axis=(2, 3)).all()


def test_global_random_state_is_left_alone() -> None:
    torch_state = torch.get_rng_state()
    numpy_state: Any = np.random.get_state(legacy=False)  # noqa: NPY002 (the global state is what is looked at)
    drawing.render_scripts(SMALL_TRAIN, seed=0)
    assert torch.equal(torch_state, torch.get_rng_state())
    after: Any = np.random.get_state(legacy=False)  # noqa: NPY002
    np.testing.assert_array_equal(numpy_state["state"]["key"], after["state"]["key"])


def test_blank_missing_and_repeated_characters_are_dropped() -> None:
    latin_a, greek_alpha, space, thai, latin_b = 0x41, 0x391, 0x20, 0xE01, 0x42  # DejaVu draws A and Alpha alike, no Thai
    codes = drawing.render_scripts({"odd": ((latin_a, greek_alpha, space, thai, latin_b),)}, seed=0)["odd"].codes
    assert codes == [latin_a, latin_b]


def test_a_large_script_is_thinned_evenly() -> None:
    codes = drawing.render_scripts({"large": (range(0x1401, 0x1480),)}, seed=0)["large"].codes
    assert len(codes) == 26
    assert codes == sorted(codes)
    assert np.diff(codes).max() <= 3 * np.diff(codes).min()


@pytest.mark.parametrize("pen", [0.0, 0.5, 1.0])
def test_pen_adds_its_width_to_each_side_of_a_stroke(pen: float) -> None:
    bar = Image.new("L", (40, 160), 255)  # fitted to a height of 42 pixels, so 10.5 wide
    masters = drawing._make_masters([bar])
    still = drawing._Manner(
        matrix=np.eye(2)[None], shift=np.zeros((1, 2)), pen=np.array([pen]), displacement=np.zeros((1, 2, 5, 5))
    )
    picture = drawing._distort(masters, np.array([0]), still)[0] / 255.0
    assert picture[32].sum() == pytest.approx(10.5 + 2 * pen, abs=0.15)
    assert picture[:, 32].sum() == pytest.approx(42.0 + 2 * pen, abs=0.15)


def test_shift_and_turn_move_the_ink_the_way_they_say() -> None:
    bar = Image.new("L", (160, 40), 255)
    quarter = np.array([[[0.0, -1.0], [1.0, 0.0]]])
    manner = drawing._Manner(matrix=quarter, shift=np.array([[5.0, -3.0]]), pen=np.zeros(1), displacement=np.zeros((1, 2, 5, 5)))
    picture = drawing._distort(drawing._make_masters([bar]), np.array([0]), manner)[0] / 255.0
    rows, columns = np.indices(picture.shape)
    assert (picture * columns).sum() / picture.sum() == pytest.approx(31.5 + 5.0, abs=0.3)
    assert (picture * rows).sum() / picture.sum() == pytest.approx(31.5 - 3.0, abs=0.3)
    assert picture.max(axis=1).sum() > 3 * picture.max(axis=0).sum()  # the lying bar stands


def test_second_load_reads_the_cache(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = glyphs.load_glyphs(seed=7, progress=False)

    def no_rendering(*_: object, **__: object) -> None:
        raise AssertionError("rendered although it was cached")

    monkeypatch.setattr(glyphs, "render_scripts", no_rendering)
    second = glyphs.load_glyphs(seed=7, progress=False)
    np.testing.assert_array_equal(first.train.x, second.train.x)
    np.testing.assert_array_equal(first.test.x, second.test.x)
    assert second.test.class_names[0] == "U+0030 0"
    assert [folder.name for folder in small.iterdir()] == ["glyphs-v1-seed7"]


def test_cached_pictures_belong_to_their_classes(small: Path) -> None:
    loaded = glyphs.load_glyphs(seed=0, progress=False)
    digits = drawing.render_scripts(SMALL_TEST, seed=0)["Digits"]
    np.testing.assert_array_equal(_pictures(loaded.test).reshape(10, 20, 64, 64), digits.pictures)
    assert loaded.test.group_names == ("Digits",)


@pytest.mark.parametrize(("size", "channels"), [(32, None), (20, 3), (80, None)])
def test_another_form_is_that_of_the_same_drawings_in_files(small: Path, size: int, channels: int | None) -> None:
    for code, picture in zip(range(0x30, 0x3A), _pictures(glyphs.load_glyphs(progress=False).test)[::20], strict=True):
        file = small / "files" / "digits" / chr(code) / "1.png"
        file.parent.mkdir(parents=True)
        Image.fromarray(picture).save(file)
    read = tt.load_tasks(small / "files", size=size, channels=channels, progress=False)
    formed = tt.load_dataset("glyphs", size=size, channels=channels, progress=False)
    assert formed.test.point_shape == formed.train.point_shape == (channels or 1, size, size)
    np.testing.assert_array_equal(formed.test.x[::20], read.x)
    again = tt.load_dataset("glyphs", size=size, channels=channels, progress=False)
    np.testing.assert_array_equal(again.train.x, formed.train.x)


def test_a_size_that_no_image_has_is_refused(small: Path) -> None:
    with pytest.raises(SettingsError, match="got 0"):
        tt.load_dataset("glyphs", size=0, progress=False)


def test_damaged_cache_is_drawn_again(small: Path) -> None:
    before = np.array(glyphs.load_glyphs(progress=False).test.x)
    file = small / "glyphs-v1-seed0" / "test.npy"
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content[: len(content) // 2])
    np.testing.assert_array_equal(glyphs.load_glyphs(progress=False).test.x, before)
    assert file.read_bytes() == content


def test_negative_seed_is_refused() -> None:
    with pytest.raises(SettingsError, match="-1"):
        glyphs.load_glyphs(seed=-1)


def test_missing_fonts_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("matplotlib.get_data_path", lambda: str(tmp_path))
    with pytest.raises(MissingDataError, match=r"DejaVuSans\.ttf.*reinstall matplotlib"):
        drawing.render_scripts(HEBREW, seed=0)
