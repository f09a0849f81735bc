"""What anyone may have written is bounded before it is unpacked, and asked what it is before it is read."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest

import tasktheme as tt
from tasktheme import untrusted
from tasktheme.errors import ModelFileError


def test_paths_that_cannot_be_asked_for_are_not_there(tmp_path: Path) -> None:
    assert untrusted.exists(tmp_path)
    for name in ("absent", "n" * 5000, "d/" * 3000, "a\0b"):
        assert not untrusted.exists(tmp_path / name)


def test_the_home_of_nobody_stays_as_it_is() -> None:
    assert untrusted.expand_home("~nosuchuser/x") == Path("~nosuchuser/x")
    assert untrusted.expand_home("~") == Path.home()


def test_long_names_are_cut() -> None:
    assert untrusted.shorten("a" * 200) == "a" * 200
    assert untrusted.shorten("a" * 201) == "a" * 200 + "..."


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "{", ""])
def test_json_that_is_none_or_too_deep_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        untrusted.parse_json(text)


def test_only_plain_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert untrusted.read_plain_file(tmp_path / "file") == untrusted.read_plain_file(tmp_path / "link") == b"abc"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("pipe", "device", "."):
        with pytest.raises(ValueError, match="not a plain file"):
            untrusted.read_plain_file(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        untrusted.read_plain_file(tmp_path / "absent")


def test_a_bomb_is_known_by_its_claim() -> None:
    untrusted.refuse_bomb(1 << 30, 1)
    untrusted.refuse_bomb(1 << 40, 1 << 34)
    with pytest.raises(ValueError, match="claim to hold"):
        untrusted.refuse_bomb((1 << 30) + 1, 1000)


def test_an_npz_of_zeros_is_refused_or_read_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=np.zeros(1 << 20, dtype=np.uint8))
    assert len(untrusted.read_npz_arrays(buffer)["x"]) == 1 << 20
    monkeypatch.setattr(untrusted, "_FREE", 1 << 19)
    with pytest.raises(ValueError, match="claim to hold"):
        untrusted.read_npz_arrays(buffer)


def test_a_parquet_file_of_one_task_again_and_again_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 100_000
    tt.TaskSet(np.ones((count, 16)), np.ones(count, dtype=np.int64), np.ones(count, dtype=np.bool_)).save(tmp_path / "t.parquet")
    assert (tmp_path / "t.parquet").stat().st_size < 100_000  # for 14 MB
    assert len(tt.TaskSet.load(tmp_path / "t.parquet")) == count
    monkeypatch.setattr(untrusted, "_FREE", 1 << 20)
    with pytest.raises(ModelFileError) as caught:
        tt.TaskSet.load(tmp_path / "t.parquet")
    assert "claim to hold" in str(caught.value.__cause__)
