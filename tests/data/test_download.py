"""Downloads: checked, whole or not at all, and silent; the network here is a server of the test's own."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tasktheme.data.download import download_file
from tasktheme.errors import MissingDataError

CONTENT = bytes(range(256)) * 1000


@pytest.fixture
def url(tmp_path: Path, served: Callable[[Path], str]) -> str:
    """Where ``set.zip`` can be had."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "set.zip").write_bytes(CONTENT)
    return f"{served(tmp_path / 'served')}/set.zip"


@pytest.mark.parametrize("progress", [True, False])
def test_a_file_is_downloaded(url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], progress: bool) -> None:
    file = tmp_path / "data" / "set.zip"
    download_file(url, file, checksum=f"md5:{hashlib.md5(CONTENT).hexdigest()}", progress=progress)
    assert file.read_bytes() == CONTENT
    said = capfd.readouterr()
    assert said.out == ""
    assert ("downloading set.zip" in said.err) == progress


def test_a_wrong_checksum_leaves_nothing(url: str, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"not downloaded from http.*the checksum is wrong"):
        download_file(url, tmp_path / "data" / "set.zip", checksum="md5:0123456789abcdef", progress=False)
    assert list((tmp_path / "data").iterdir()) == []


def test_what_is_not_there_is_told(url: str, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"nothing\.zip: HTTPError"):
        download_file(url.replace("set", "nothing"), tmp_path / "nothing.zip", checksum="md5:00", progress=False)


def test_without_pooch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingDataError, match=r"pip install 'tasktheme\[download\]'"):
        download_file("http://127.0.0.1:9/set.zip", tmp_path / "set.zip", checksum="md5:00", progress=False)
