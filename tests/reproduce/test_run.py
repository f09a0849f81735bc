from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tasktheme.errors import DataError, Interrupted, OutputError
from tasktheme.reproduce.plan import Piece
from tasktheme.reproduce.run import read_record, run_pieces

A = Piece("a", "make {here}", "made")
B = Piece("b", "make {here} of {a}", "made")
C = Piece("c", "make {here}", "made")


class Maker:
    """Makes what a command asks for, and remembers."""

    def __init__(self, *, failing: str = "") -> None:
        self.asked: list[str] = []
        self.failing = failing

    def __call__(self, words: list[str]) -> None:
        folder = Path(words[1])
        self.asked.append(folder.name)
        if folder.name == self.failing:
            raise DataError("no such\nthing")
        (folder / "made").write_text(" ".join(words))


def states(out: Path, *pieces: Piece) -> list[str]:
    return [read_record(piece, out).state for piece in pieces]


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    first, second = Maker(), Maker()
    assert states(tmp_path, A, B) == ["to do", "to do"]
    assert run_pieces([A, B], tmp_path, first)
    assert run_pieces([A, B, C], tmp_path, second)
    assert (first.asked, second.asked) == (["a", "b"], ["c"])


def test_a_changed_command_runs_again_in_an_empty_folder_and_so_does_what_needs_it(tmp_path: Path) -> None:
    run_pieces([A, B, C], tmp_path, Maker())
    (tmp_path / "a" / "old").write_text("of the other settings")
    changed, again = Piece("a", "make {here} --tasks 2", "made"), Maker()
    assert states(tmp_path, changed, B, C) == ["outdated", "done", "done"]
    assert run_pieces([changed, B, C], tmp_path, again)
    assert again.asked == ["a", "b"]
    assert not (tmp_path / "a" / "old").exists()


def test_a_lost_output_is_made_again(tmp_path: Path) -> None:
    run_pieces([A], tmp_path, Maker())
    (tmp_path / "a" / "made").unlink()
    again = Maker()
    assert run_pieces([A], tmp_path, again)
    assert again.asked == ["a"]


def test_a_failure_is_one_line_and_stops_only_what_needs_it(tmp_path: Path) -> None:
    maker, said = Maker(failing="a"), list[str]()
    assert not run_pieces([A, B, C], tmp_path, maker, say=said.append)
    assert maker.asked == ["a", "c"]
    assert states(tmp_path, A, B, C) == ["failed", "to do", "done"]
    assert "[1/3] a: failed: no such thing" in said
    assert "[2/3] b: not run, as a is not done" in said
    again = Maker()
    assert run_pieces([A, B, C], tmp_path, again)
    assert again.asked == ["a", "b"]


def test_torchs_account_of_a_full_gpu_is_one_line_of_ours(tmp_path: Path) -> None:
    def call(_: list[str]) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.99 GiB. GPU 0 has a total capacity of 139.80 GiB")

    said: list[str] = []
    assert not run_pieces([A], tmp_path, call, say=said.append)
    assert said[-1].startswith("[1/1] a: failed: the GPU has no memory left")
    assert "GiB" not in said[-1]


def test_a_piece_that_makes_nothing_has_failed(tmp_path: Path) -> None:
    assert not run_pieces([A], tmp_path, lambda words: None)
    assert "did not make made" in read_record(A, tmp_path).error


def test_an_interrupt_keeps_what_is_there_and_the_time_adds_up(tmp_path: Path) -> None:
    def stopped(words: list[str]) -> None:
        (Path(words[1]) / "state").write_text("half")
        time.sleep(0.05)
        raise Interrupted

    with pytest.raises(Interrupted, match="a was interrupted"):
        run_pieces([A, C], tmp_path, stopped)
    assert states(tmp_path, A, C) == ["interrupted", "to do"]
    assert run_pieces([A], tmp_path, Maker())
    assert (tmp_path / "a" / "state").read_text() == "half"
    assert 0.05 <= read_record(A, tmp_path).seconds < 5.0


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])  # in front, and in a script's background
def test_when_the_time_is_over_the_running_piece_is_interrupted(tmp_path: Path, handler: Any, request: Any) -> None:
    before = signal.signal(signal.SIGINT, handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    started = time.monotonic()

    def slow(words: list[str]) -> None:
        while time.monotonic() - started < 20.0:
            time.sleep(0.01)

    with pytest.raises(Interrupted):
        run_pieces([A, C], tmp_path, slow, minutes=0.2 / 60)
    assert time.monotonic() - started < 10.0
    assert signal.getsignal(signal.SIGINT) is handler
    assert states(tmp_path, A, C) == ["interrupted", "to do"]
    with pytest.raises(Interrupted, match="over before a"):
        run_pieces([A], tmp_path, Maker(), minutes=0)


def test_files_of_others_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "thesis.tex").write_text("mine")
    with pytest.raises(OutputError, match="no piece made"):
        run_pieces([A], tmp_path, Maker())
    assert (tmp_path / "a" / "thesis.tex").read_text() == "mine"


@pytest.mark.parametrize("content", ['{"command": 3, "colour": "red"}', "[]", "{"])
def test_a_damaged_record_is_made_anew(content: str, tmp_path: Path) -> None:
    run_pieces([A, B], tmp_path, Maker())
    (tmp_path / "a" / "piece.json").write_text(content)
    assert states(tmp_path, A, B) == ["outdated", "outdated"]
    assert run_pieces([A, B], tmp_path, Maker())


def test_a_piece_that_another_process_makes_is_left_to_it(tmp_path: Path) -> None:
    def call(words: list[str]) -> None:
        with pytest.raises(OutputError, match=r"a' is in use: another process makes it"):  # a handle of its own, as there
            run_pieces([A], tmp_path, Maker())
        assert run_pieces([C], tmp_path, Maker())
        Maker()(words)

    assert run_pieces([A], tmp_path, call)
    (tmp_path / "a" / "made").unlink()
    assert run_pieces([A], tmp_path, Maker())  # it was let go of


def test_what_another_process_has_made_meanwhile_stays(tmp_path: Path) -> None:
    run_pieces([A], tmp_path, Maker())
    changed, other, own = Piece("a", "make {here} --tasks 2", "made"), Maker(), Maker()

    def say(line: str) -> None:
        if "tasktheme make" in line:  # between the look at the record and the work
            run_pieces([changed], tmp_path, other)

    assert run_pieces([changed], tmp_path, own, say=say)
    assert (other.asked, own.asked) == (["a"], [])


def test_a_folder_is_held_by_a_file_open_for_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags: list[int] = []

    def flock(handle: int, _: int) -> None:
        flags.append(fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE)

    monkeypatch.setattr(fcntl, "flock", flock)
    assert run_pieces([A], tmp_path, Maker())
    assert flags == [os.O_RDWR]  # as NFS asks for


def test_a_folder_that_cannot_be_held_is_one_line(tmp_path: Path) -> None:
    (tmp_path / ".a.lock").mkdir()
    with pytest.raises(OutputError, match=r"cannot write '.*a\.lock': Is a directory"):
        run_pieces([A], tmp_path, Maker())
