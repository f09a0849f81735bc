from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch

from oracles.faults import full_disk
from tasktheme.errors import ModelFileError, OutputError
from tasktheme.training.checkpoint_file import clear_leftovers, read_checkpoint, remove_checkpoint, write_checkpoint


def state(step: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    return {"odd": torch.full((3,), float(step)), "weights": torch.arange(7.0) + step}, {"step": step, "history": [0.1 * step]}


def write(path: Path, *steps: int) -> None:
    for step in steps:
        write_checkpoint(path, *state(step))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_state_comes_back_to_the_bit_in_memory_of_its_own(tmp_path: Path) -> None:
    tensors: dict[str, torch.Tensor] = {
        "float": torch.tensor([1e-45, -0.0, 1 / 3]),
        "step": torch.tensor(3.0),
        "byte": torch.tensor([7], dtype=torch.uint8),
        "crossed": torch.arange(6.0).view(2, 3).T,
    }
    info = {"loss": 0.1 + 0.2, "name": "a\nb", "kind": "x"}
    write_checkpoint(tmp_path / "state", tensors, info)
    found, told = read_checkpoint(tmp_path / "state")
    assert told == info
    assert found.keys() == tensors.keys()
    for name, value in tensors.items():
        assert torch.equal(found[name], value)
        assert torch.equal(found[name].signbit(), value.signbit())
        assert found[name].dtype == value.dtype
        assert found[name].data_ptr() % 64 == 0


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    write(tmp_path / "state", 1, 2, 3)
    assert names(tmp_path) == ["state", "state.before"]
    assert [read_checkpoint(tmp_path / name)[1]["step"] for name in names(tmp_path)] == [3, 2]


@pytest.mark.parametrize("place", [0, 40, 64, 70, 100, -1])  # in the checksum, at its end, in the text, in the numbers
@pytest.mark.parametrize("damage", ["torn", "altered", "longer", "empty"])
def test_a_damaged_one_is_noticed_and_the_one_before_is_used(tmp_path: Path, place: int, damage: str) -> None:
    file = tmp_path / "state"
    write(file, 1, 2)
    content = bytearray(file.read_bytes())
    if damage == "torn":
        del content[place:]
    elif damage == "altered":
        content[place] ^= 1
    elif damage == "longer":
        content.insert(place, 0)
    else:
        content.clear()
    file.write_bytes(content)
    with pytest.warns(UserWarning, match=r"state' is damaged.*going on from the checkpoint before it, .*state\.before'") as said:
        assert read_checkpoint(file)[1]["step"] == 1
    assert len(said) == 1
    assert "\n" not in str(said[0].message)


def test_without_a_sound_one_there_is_one_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "state"
    write(file, 1)
    file.write_bytes(b"rubbish")
    with pytest.raises(ModelFileError, match=r"'.*state' is damaged or not tasktheme's"):
        read_checkpoint(file)
    (tmp_path / "state.before").write_bytes(b"more rubbish")
    with pytest.raises(ModelFileError, match=r"state' is damaged.*state\.before' is damaged.*delete both to start anew"):
        read_checkpoint(file)
    with pytest.raises(ModelFileError, match="missing"):
        read_checkpoint(tmp_path / "absent")
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]\n", b"{}\nrubbish", b"not json\n", b"\xff\n"])
def test_a_foreign_file_with_a_right_checksum_is_refused_too(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "state").write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    with pytest.raises(ModelFileError, match="not tasktheme's"):
        read_checkpoint(tmp_path / "state")


def test_a_damaged_one_does_not_take_the_place_of_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "state"
    write(file, 1, 2)
    file.write_bytes(file.read_bytes()[:-1])
    write(file, 3)
    assert [read_checkpoint(tmp_path / name)[1]["step"] for name in names(tmp_path)] == [3, 1]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "state"
    write(file, 1, 2)
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    with full_disk(), pytest.raises(OutputError, match=r"cannot write .*state.*: File too large"):
        write(file, 3)
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == before


def test_what_is_removed_is_ours_and_all_of_it(tmp_path: Path) -> None:
    file = tmp_path / "state"
    write(file, 1, 2)
    for name in (".state.77.tmp", ".state.before.78.tmp"):  # what kills in the middle of a write leave
        (tmp_path / name).write_bytes(b"half")
    others = [".state.v2.79.tmp", ".stated.80.tmp", ".state.tmp", "state.81.tmp", ".other.82.tmp"]
    for name in others:
        (tmp_path / name).write_bytes(b"another's")
    clear_leftovers(file)
    assert names(tmp_path) == sorted(["state", "state.before", *others])
    remove_checkpoint(file)
    assert names(tmp_path) == sorted(others)
    remove_checkpoint(file)  # nothing there: nothing to do


def test_the_one_before_goes_where_the_last_was_deleted_by_hand(tmp_path: Path) -> None:
    write(tmp_path / "state", 1, 2)
    (tmp_path / "state").unlink()
    clear_leftovers(tmp_path / "state")
    assert names(tmp_path) == []
