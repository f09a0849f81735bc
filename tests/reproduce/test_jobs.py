from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tasktheme.errors import Interrupted
from tasktheme.reproduce.jobs import run_side_by_side
from tasktheme.reproduce.plan import Piece
from tasktheme.reproduce.run import read_record, run_pieces

A, B = (Piece(name, "make {here}", "made") for name in "ab")
C = Piece("c", "make {here} of {a} and {b}", "made")
PLAN = (A, B, C)
SLOW = '(folder / "half").write_text(str(os.getpid())); time.sleep(60)'


def makers(out: Path, work: str) -> Callable[[str], list[str]]:
    """A process for each piece: what it does in a folder is ``work``."""
    script = f"""
        import os, sys, time
        from pathlib import Path
        from tasktheme.reproduce.plan import Piece
        from tasktheme.reproduce.run import run_pieces
        def call(words):
            folder = Path(words[1])
            {work}
            (folder / "made").touch()
        pieces = {[(piece.name, piece.command, piece.makes) for piece in PLAN]!r}
        run_pieces([Piece(*piece) for piece in pieces if piece[0] == sys.argv[1]], Path({str(out)!r}), call)
    """
    return lambda name: [sys.executable, "-c", textwrap.dedent(script), name]


def states(out: Path) -> list[str]:
    return [read_record(piece, out).state for piece in PLAN]


def test_pieces_run_together_but_after_what_they_need(tmp_path: Path) -> None:
    # a and b each wait until the other has begun, so one after the other they would never end
    meet = '(folder / "begun").touch(); other = folder.parent / {"a": "b", "b": "a", "c": "c"}[folder.name] / "begun"'
    work = f"{meet}\n            while not other.exists(): time.sleep(0.01)"
    said: list[str] = []
    assert run_side_by_side(PLAN, tmp_path, makers(tmp_path, work), 2, say=said.append, minutes=1)
    assert states(tmp_path) == ["done"] * 3
    assert [line.partition(":")[0] for line in said[:2]] == ["[1/3] a", "[2/3] b"]
    assert said[-2].startswith("[3/3] c: tasktheme make")
    assert run_side_by_side(PLAN, tmp_path, lambda _: ["false"], 2, say=said.append)  # nothing is done again
    assert said[-1].startswith("[3/3] c: done before")


def test_a_failure_stops_only_what_needs_it(tmp_path: Path) -> None:
    said: list[str] = []
    work = 'assert folder.name != "a", "no such thing"'
    assert not run_side_by_side(PLAN, tmp_path, makers(tmp_path, work), 3, say=said.append)
    assert states(tmp_path) == ["failed", "done", "to do"]
    assert "[1/3] a: failed: no such thing" in said
    assert "[3/3] c: not run, as a is not done" in said


def send_when_begun(out: Path, *numbers: signal.Signals, pieces: str = "ab", file: str = "half", pause: float = 2.0) -> Thread:
    """Signals for this process, ``pause`` seconds apart, once pieces have made a file, such as that of ``SLOW``."""

    def send() -> None:
        while not all((out / name / file).exists() for name in pieces):
            time.sleep(0.01)
        for number in numbers:
            os.kill(os.getpid(), number)
            time.sleep(pause)

    thread = Thread(target=send, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_an_interrupt_reaches_all_and_keeps_their_state(tmp_path: Path, number: signal.Signals, request: Any) -> None:
    before = signal.signal(number, lambda *_: None)
    request.addfinalizer(lambda: signal.signal(number, before))
    started = time.monotonic()
    send_when_begun(tmp_path, number)
    said: list[str] = []
    with pytest.raises(Interrupted, match="a, b were interrupted and keep their state"):
        run_side_by_side(PLAN, tmp_path, makers(tmp_path, SLOW), 2, say=said.append)
    assert sorted(said[2:]) == ["[1/3] a: interrupted", "[2/3] b: interrupted"]
    assert time.monotonic() - started < 45.0
    assert states(tmp_path) == ["interrupted", "interrupted", "to do"]
    assert (tmp_path / "a" / "half").exists()
    with pytest.raises(Interrupted, match="what is left"):
        run_side_by_side(PLAN, tmp_path, makers(tmp_path, SLOW), 2, minutes=0)


def test_a_second_ctrl_c_ends_at_once_what_does_not_stop(tmp_path: Path) -> None:
    stubborn = f"try: {SLOW}\n            except KeyboardInterrupt: time.sleep(60)"
    started = time.monotonic()
    send_when_begun(tmp_path, signal.SIGINT, signal.SIGINT)
    with pytest.raises(Interrupted, match="a, b"):
        run_side_by_side(PLAN, tmp_path, makers(tmp_path, stubborn), 2)
    assert time.monotonic() - started < 45.0


def test_every_ctrl_c_after_the_time_reaches_pieces_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any
) -> None:
    monkeypatch.setattr("tasktheme.training.interrupt._ONE_REQUEST", 0.0)
    before = signal.signal(signal.SIGINT, lambda *_: None)  # for those that come late
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    script = """
        import os, signal, sys, time
        from pathlib import Path
        times, folder = [], Path(sys.argv[1], sys.argv[2])
        def told(*_):
            times.append(time.monotonic())
            (folder / "told").touch()
            len(times) < 3 or os._exit(130)
        folder.mkdir()
        signal.signal(signal.SIGINT, told)
        time.sleep(20)
    """
    words, started = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], time.monotonic()
    sender = send_when_begun(tmp_path, *[signal.SIGINT] * 20, file="told", pause=0.05)
    with pytest.raises(Interrupted, match="a, b were interrupted"):
        run_side_by_side([A, B], tmp_path, lambda name: [*words, name], 2, minutes=1 / 60)
    assert time.monotonic() - started < 15.0
    sender.join(5.0)


def test_a_piece_that_fails_when_it_is_interrupted_has_failed(tmp_path: Path) -> None:
    said: list[str] = []
    work = f'try: {SLOW}\n            except KeyboardInterrupt: raise OSError("no room")'
    send_when_begun(tmp_path, signal.SIGINT, pieces="a")
    needs = Piece("c", "make {here} of {a}", "made")
    assert not run_side_by_side([A, needs], tmp_path, makers(tmp_path, work), 2, say=said.append)
    assert said[1:] == ["[1/2] a: failed: no room", "[2/2] c: not run, as a is not done"]


def test_the_loss_of_the_terminal_loses_no_word_but_what_is_said(tmp_path: Path, request: Any) -> None:
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    request.addfinalizer(lambda: signal.signal(signal.SIGHUP, before))

    def say(line: str) -> None:
        if "tasktheme make" not in line:
            raise OSError(5, "Input/output error")

    send_when_begun(tmp_path, signal.SIGHUP)
    with pytest.raises(Interrupted, match="a, b"):
        run_side_by_side(PLAN, tmp_path, makers(tmp_path, SLOW), 2, say=say)


def test_the_time_ends_pieces_where_a_shell_ignores_ctrl_c(tmp_path: Path, request: Any) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    started = time.monotonic()
    with pytest.raises(Interrupted, match="a, b"):
        run_side_by_side(PLAN, tmp_path, makers(tmp_path, SLOW), 2, minutes=0.05)
    assert time.monotonic() - started < 45.0


def test_no_piece_outlives_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    def say(line: str) -> None:
        if line.startswith("[2/3]"):
            while not (tmp_path / "a" / "half").exists():
                time.sleep(0.01)
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_side_by_side(PLAN, tmp_path, makers(tmp_path, SLOW), 2, say=say)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "a" / "half").read_text()), 0)


def test_a_killed_piece_is_called_so_and_goes_on_from_its_state(tmp_path: Path) -> None:
    said: list[str] = []
    work = 'folder.name == "a" and os.kill(os.getpid(), 9)'
    assert not run_side_by_side(PLAN, tmp_path, makers(tmp_path, work), 2, say=said.append)
    assert "[1/3] a: was killed (signal 9)" in said
    assert "[3/3] c: not run, as a is not done" in said
    assert states(tmp_path) == ["interrupted", "done", "to do"]


@pytest.mark.parametrize(
    ("status", "expected"),
    [(-9, "was killed (signal 9)"), (-2, "interrupted"), (130, "interrupted"), (1, "could not run"), (2, "could not run")],
)
def test_a_process_that_never_came_to_its_piece_says_nothing_of_an_earlier_failure(
    tmp_path: Path, status: int, expected: str
) -> None:
    assert not run_pieces([A], tmp_path, lambda words: None)
    said: list[str] = []
    end = f"os.kill(os.getpid(), {-status})" if status < 0 else f"os._exit({status})"
    words = [sys.executable, "-c", f"import os, signal; signal.signal(2, signal.SIG_DFL); {end}"]
    with pytest.raises(Interrupted, match="a was interrupted") if expected == "interrupted" else nullcontext():
        assert not run_side_by_side([A], tmp_path, lambda _: words, 2, say=said.append)
    assert said[1:] == [f"[1/1] a: {expected}"]


def test_what_is_done_needs_no_time(tmp_path: Path) -> None:
    assert run_pieces(PLAN, tmp_path, lambda words: (Path(words[1]) / "made").touch())
    assert run_side_by_side(PLAN, tmp_path, makers(tmp_path, SLOW), 2, minutes=0)


def test_files_of_others_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "thesis.tex").write_text("mine")
    said: list[str] = []
    assert not run_side_by_side(PLAN, tmp_path, makers(tmp_path, "pass"), 2, say=said.append)
    assert (tmp_path / "a" / "thesis.tex").read_text() == "mine"
    assert states(tmp_path) == ["to do", "done", "to do"]
    assert "[1/3] a: could not run" in said
    assert run_pieces([B], tmp_path, lambda words: None)
