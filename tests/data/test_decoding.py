"""Many images: decoded once, kept, decoded again when anything changes, and honest about what cannot be read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tasktheme.data import decoding
from tasktheme.data.dataset import Dataset
from tasktheme.data.decoding import Decoding, LeftOutWarning, load_images
from tasktheme.data.files import open_files
from tasktheme.data.images import ImageForm
from tasktheme.data.layout import arrange_classes
from tasktheme.errors import DataError, OutputError

Tree = Callable[[Iterable[str]], Path]
NAMES = ["pets/cat/1.png", "pets/cat/2.png", "pets/dog/1.png", "farm/cow/1.png", "farm/cow/2.png"]


def load(path: Path, size: int = 8, *, allow_damaged: bool = False, channels: int | None = None) -> Dataset:
    how = Decoding(ImageForm(size, channels), allow_damaged=allow_damaged, progress=False)
    [dataset] = load_images(open_files(path), arrange_classes, how, name="pictures", layout="classes").values()
    return dataset


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with every image that is decoded."""
    count: list[int] = []
    real = decoding.decode_image

    def counting(content: bytes, form: ImageForm) -> object:
        count.append(1)
        return real(content, form)

    monkeypatch.setattr(decoding, "decode_image", counting)
    return count


def test_pixels_belong_to_their_classes(tree: Tree) -> None:
    data = load(tree(NAMES))
    assert data.group_names == ("farm", "pets")
    assert data.class_names == ("cow", "cat", "dog")
    assert data.class_group.tolist() == [0, 1, 1]
    assert data.counts.tolist() == [2, 2, 1]
    assert data.x.shape == (5, 3, 8, 8)
    assert data.x[:, :, 0, 0].tolist() == [[i, 100 + i, 200] for i in (3, 4, 0, 1, 2)]
    assert not data.unlabelled


def test_folder_and_zip_give_the_same(tree: Tree, zipped: Callable[[Path], Path]) -> None:
    folder = tree(NAMES)
    one, other = load(folder), load(zipped(folder))
    np.testing.assert_array_equal(one.x, other.x)
    assert one.class_names == other.class_names


def test_x_is_mapped_read_only_and_the_tensor_shares_it(tree: Tree) -> None:
    data = load(tree(NAMES))
    assert isinstance(data.x, np.memmap)
    assert not data.x.flags.writeable
    assert data.tensor.data_ptr() == data.x.ctypes.data
    np.testing.assert_array_equal(data.tensor.numpy(), data.x)


def test_many_blocks_keep_their_order(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_BLOCK", 3)
    monkeypatch.setattr(decoding, "_processors", lambda: 5)
    monkeypatch.setattr(decoding, "_BYTES_PER_THREAD", 1)
    data = load(tree(f"c{i // 10}/{i:03d}.png" for i in range(100)))
    assert data.x[:, 0, 0, 0].tolist() == list(range(100))


@pytest.mark.parametrize(("size", "threads"), [(10, 1), (6000, 1), (13_000, 3), (30_000, 5)])
def test_small_files_are_left_to_fewer_threads(
    tmp_path: Path, zipped: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch, size: int, threads: int
) -> None:
    monkeypatch.setattr(decoding, "_processors", lambda: 5)
    (tmp_path / "images" / "a").mkdir(parents=True)
    for name, change in (("1.png", -3), ("2.png", 3)):
        (tmp_path / "images" / "a" / name).write_bytes(bytes(size + change))
    for path in (tmp_path / "images", zipped(tmp_path / "images")):
        assert decoding._threads(open_files(path)) == threads


def test_second_load_decodes_nothing(tree: Tree, decoded: list[int]) -> None:
    folder = tree(NAMES)
    first = load(folder)
    assert len(decoded) == len(NAMES)
    second = load(folder)
    assert len(decoded) == len(NAMES)
    np.testing.assert_array_equal(first.x, second.x)
    load(folder, allow_damaged=True)
    assert len(decoded) == len(NAMES)


def test_a_change_decodes_again(tree: Tree, decoded: list[int]) -> None:
    folder = tree(NAMES)
    load(folder)
    Image.new("RGB", (10, 8), "white").save(folder / NAMES[0])
    os.utime(folder / NAMES[0], ns=(5, 5))
    assert (load(folder).x[2] == 255).all()
    assert len(decoded) == 2 * len(NAMES)
    load(folder, size=9)
    load(folder, channels=1)
    assert len(decoded) == 4 * len(NAMES)


def test_damaged_cache_is_decoded_again(tree: Tree, cache: Path, decoded: list[int]) -> None:
    folder = tree(NAMES)
    before = np.array(load(folder).x)
    [kept] = (cache / "images").iterdir()
    content = (kept / "x.npy").read_bytes()
    (kept / "x.npy").write_bytes(content[:-1])
    np.testing.assert_array_equal(load(folder).x, before)
    assert len(decoded) == 2 * len(NAMES)
    assert list((cache / "images").iterdir()) == [kept]


def test_channels_follow_the_images(tree: Tree) -> None:
    folder = tree(NAMES)
    assert load(folder, channels=1).point_shape == (1, 8, 8)
    for i, name in enumerate(NAMES):
        Image.new("L", (10, 8), i).save(folder / name)
    assert load(folder).x[:, :, 0, 0].tolist() == [[3], [4], [0], [1], [2]]
    assert load(folder, channels=3).point_shape == (3, 8, 8)
    (folder / NAMES[0]).write_bytes(b"damaged")
    with pytest.warns(LeftOutWarning):
        assert load(folder, allow_damaged=True).point_shape == (1, 8, 8)


def test_a_damaged_image_is_named(tree: Tree, decoded: list[int]) -> None:
    folder = tree(NAMES)
    (folder / NAMES[1]).write_bytes((folder / NAMES[1]).read_bytes()[:40])
    for _ in range(2):
        with pytest.raises(DataError, match=r"image 'pets/cat/2\.png' of .*pictures.*cannot be read.*allow_damaged"):
            load(folder)
    assert len(decoded) == len(NAMES)  # what was found is kept


def test_damaged_images_are_left_out_where_allowed(tree: Tree) -> None:
    folder = tree(NAMES)
    (folder / NAMES[0]).write_bytes(b"")
    (folder / NAMES[2]).write_bytes(b"nonsense")
    for _ in range(2):  # the cache tells it too
        with pytest.warns(
            LeftOutWarning,
            match=r"2 of the images of .*left out: 'pets/cat/1\.png' \(the file is empty\), and 1 other.*left of 'pets/dog'$",
        ):
            data = load(folder, allow_damaged=True)
    assert data.class_names == ("cow", "cat")
    assert data.counts.tolist() == [2, 1]
    assert data.x[:, 0, 0, 0].tolist() == [3, 4, 1]


@pytest.mark.parametrize(
    ("side", "reason"), [(10_000, r"claims 10,000 x 10,000 pixels"), (100_000, r"exceeds limit of .* pixels")]
)
def test_a_huge_image_is_named(tree: Tree, huge_png: Callable[[int, int], bytes], side: int, reason: str) -> None:
    folder = tree(NAMES)
    (folder / NAMES[3]).write_bytes(huge_png(side, side))
    with pytest.raises(DataError, match=rf"'farm/cow/1\.png' of .*cannot be read \(.*{reason}"):
        load(folder)


def test_a_damaged_entry_of_a_zip_is_named(tree: Tree, zipped: Callable[[Path], Path]) -> None:
    path = zipped(tree(NAMES))
    content = bytearray(path.read_bytes())
    content[content.index(b"IDAT") + 8] ^= 255  # of the entry written first, the last by name
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"'pets/dog/1\.png'.*Bad CRC-32"):
        load(path)


def test_nothing_readable_is_an_error_even_where_allowed(tree: Tree, cache: Path) -> None:
    folder = tree(NAMES)
    for name in NAMES:
        (folder / name).write_bytes(b"nonsense")
    with pytest.raises(DataError, match=r"no image of .*pictures.* can be read; 'farm/cow/1\.png': not an image of a known type"):
        load(folder, allow_damaged=True)
    assert list((cache / "images").iterdir()) == []


def test_an_empty_folder_says_what_is_read(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty.*holds no image; read are .*\.png"):
        load(tmp_path / "empty")


def test_a_full_disk_is_an_error_that_leaves_nothing(tree: Tree, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(decoding, "_decode_blocks", full)
    with pytest.raises(OutputError, match=r"No space left.*TASKTHEME_CACHE"):
        load(tree(NAMES))
    assert list((cache / "images").iterdir()) == []


def test_an_interrupt_leaves_nothing(tree: Tree, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(decoding, "_decode_block", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(tree(NAMES))
    assert list((cache / "images").iterdir()) == []


def test_two_processes_at_once(tree: Tree, cache: Path) -> None:
    folder = tree(f"c{i // 50}/{i:03d}.png" for i in range(250))
    script = (
        "import sys; from tasktheme.data.loading import load_dataset; "
        "print(load_dataset(sys.argv[1], progress=False).train.x.sum())"
    )
    command = [sys.executable, "-W", "error", "-c", script, str(folder)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    sums = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sums[0] == sums[1] != ""
    assert len(list((cache / "images").iterdir())) == 1
