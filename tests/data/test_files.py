"""Folders and zips of images: the same names from both, nothing hidden, nothing from outside."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tasktheme.data import files
from tasktheme.data.files import open_files
from tasktheme.errors import DataError, MissingDataError

Tree = Callable[[Iterable[str]], Path]
Zipped = Callable[[Path], Path]


def test_names_are_sorted_and_only_images_count(tree: Tree, zipped: Zipped) -> None:
    folder = tree(["b/2.png", "b/10.PNG", "a b/x.jpg", "a/y.webp", ".hidden/1.png", "a/.2.png", "__MACOSX/a/y.png", "é/ü.bmp"])
    (folder / "a" / "readme.txt").write_text("not an image", encoding="utf-8")
    expected = ["a/y.webp", "a b/x.jpg", "b/10.PNG", "b/2.png", "é/ü.bmp"]
    assert open_files(folder).names == expected
    packed = open_files(zipped(folder))
    assert packed.names == expected
    for name in expected:
        assert packed.read(name) == open_files(folder).read(name) == (folder / name).read_bytes()


def test_folders_without_an_image_are_folders_too(tree: Tree, zipped: Zipped) -> None:
    folder = tree(["a/late/1.png", ".hidden/1.png", "__MACOSX/b/1.png"])
    (folder / "empty").mkdir()
    (folder / "notes").mkdir()
    (folder / "notes" / "readme.txt").write_text("not an image", encoding="utf-8")
    assert open_files(folder).folders == {"a", "empty", "notes"}
    assert open_files(zipped(folder)).folders == {"a", "a/late", "empty", "notes"}


def test_a_folders_fingerprint_follows_its_files(tree: Tree) -> None:
    folder = tree(["a/1.png", "b/2.png"])
    first = open_files(folder).fingerprint
    assert open_files(folder).fingerprint == first
    (folder / "a" / "notes.txt").write_text("does not count", encoding="utf-8")
    assert open_files(folder).fingerprint == first
    assert open_files(folder.rename(folder.with_name("moved"))).fingerprint == first
    folder = folder.with_name("moved")
    os.utime(folder / "a" / "1.png", ns=(1, 1))
    changed = open_files(folder).fingerprint
    (folder / "b" / "2.png").rename(folder / "b" / "3.png")
    assert len({first, changed, open_files(folder).fingerprint}) == 3


@pytest.mark.parametrize("comment", [b"", b"about this zip"])
def test_a_zips_fingerprint_follows_its_content_alone(tmp_path: Path, comment: bytes) -> None:
    def pack(name: str, content: bytes) -> str:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.comment = comment
            for i in range(50):
                archive.writestr(zipfile.ZipInfo(f"class/{i}.png"), b"same")
            archive.writestr(zipfile.ZipInfo("class/last.png"), content)
        return open_files(tmp_path / name).fingerprint

    assert pack("one.zip", b"this") == pack("other.zip", b"this")
    assert pack("one.zip", b"this") != pack("other.zip", b"that")


def test_the_first_entry_of_a_zip_counts_too(tmp_path: Path) -> None:
    prints = set()
    for content in (b"1234", b"5678"):
        with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
            archive.writestr(zipfile.ZipInfo("a.png"), content)
            for i in range(70_000):  # more than fit without the records of a large zip
                archive.writestr(zipfile.ZipInfo(f"{i}"), b"")
        prints.add(open_files(tmp_path / "set.zip").fingerprint)
    assert len(prints) == 2


@pytest.mark.parametrize("name", ["../out.png", "a/../../out.png", "/etc/out.png", "C:/out.png", "..\\out.png", "a/.."])
def test_zip_entries_from_outside_are_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("class/fine.png", b"")
        archive.writestr(name, b"")
    with pytest.raises(DataError, match=r"bad\.zip.*refused.*outside") as caught:
        _ = open_files(tmp_path / "bad.zip").names
    assert name.replace("\\", "/") in str(caught.value)


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("class/link.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(DataError, match=r"class/link\.png.*is a link"):
        _ = open_files(tmp_path / "bad.zip").names


def test_encrypted_zips_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("class/1.png", b"secret")
    content = bytearray(path.read_bytes())
    directory = content.index(b"PK\x01\x02")
    content[directory + 8] |= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"1\.png.*encrypted"):
        _ = open_files(path).names


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("class/1.png", b"")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("class/1.png", b"")
    with pytest.raises(DataError, match=r"'class/1\.png' twice"):
        _ = open_files(tmp_path / "bad.zip").names


def test_files_that_are_no_zip_are_named(tmp_path: Path, tree: Tree, zipped: Zipped) -> None:
    whole = zipped(tree(["a/1.png", "b/2.png"]))
    cut = tmp_path / "cut.zip"
    cut.write_bytes(whole.read_bytes()[:-30])
    foreign = tmp_path / "foreign.zip"
    foreign.write_bytes(b"hello")
    short = tmp_path / "short.zip"
    short.write_bytes(b"PK\x05\x06" + b"\0" * 5)
    for path in (cut, foreign, short):
        with pytest.raises(DataError, match=rf"{path.name}.*not a folder, nor a whole zip"):
            _ = open_files(path).fingerprint
    headless = tmp_path / "headless.zip"
    headless.write_bytes(struct.pack("<4s8xLLH", b"PK\x05\x06", 1000, 0, 0))
    with pytest.raises(DataError, match=r"headless\.zip.*whole zip"):
        _ = open_files(headless).names
    with pytest.raises(MissingDataError, match="nothing"):
        open_files(tmp_path / "nothing")


def test_large_files_are_refused_unread(tree: Tree, zipped: Zipped, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tree(["a/1.png"])
    monkeypatch.setattr(files, "_LARGEST_FILE", 10)
    for source in (folder, zipped(folder)):
        with pytest.raises(ValueError, match=r"bytes; at most 10 are read"):
            open_files(source).read("a/1.png")


def test_links_between_folders_are_followed_but_not_in_circles(tree: Tree, tmp_path: Path) -> None:
    folder = tree(["a/1.png", "b/2.png"])
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "c").symlink_to(folder / "a")
    (linked / "d").mkdir()
    (linked / "d" / "3.png").symlink_to(folder / "b" / "2.png")
    assert open_files(linked).names == ["c/1.png", "d/3.png"]
    (folder / "a" / "up").symlink_to(folder)
    with pytest.raises(DataError, match="link to a folder above it"):
        _ = open_files(folder).names


def test_unreadable_folders_and_names_are_told(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tree(["a/1.png"])

    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        with pytest.raises(DataError, match=r"pictures.*cannot be read.*Permission denied"):
            _ = open_files(folder).names
    (folder / os.fsdecode(b"b\xff.png")).write_bytes(b"")
    with pytest.raises(DataError, match=r"b\\udcff.*not valid Unicode"):
        _ = open_files(folder).names
