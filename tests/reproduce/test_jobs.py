from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
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


def send_when_begun(out: Path, *numbers: signal.Signals) -> None:
    """Signals for this process, two seconds apart, once pieces a and b do what is ``SLOW``."""

    def send() -> None:
        while not all((out / name / "half").exists() for name in "ab"):
            time.sleep(0.01)
        for number in numbers:
            os.kill(os.getpid(), number)
            time.sleep(2.0)

    threading.Thread(target=send, daemon=True).start()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_reaches_all_and_keeps_their_state(tmp_path: Path, number: signal.Signals, request: Any) -> None:
    before = signal.signal(number, lambda *_: None)
    request.addfinalizer(lambda: signal.signal(number, before))
    started = time.monotonic()
    send_when_begun(tmp_path, number)
    with pytest.raises(Interrupted, match="a, b were interrupted and keep their state"):
        run_side_by_side(PLAN, tmp_path, makers(tmp_path, SLOW), 2)
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


def test_a_killed_piece_is_interrupted_not_failed(tmp_path: Path) -> None:
    said: list[str] = []
    work = 'folder.name == "a" and os.kill(os.getpid(), 9)'
    with pytest.raises(Interrupted, match=r"^a was interrupted and keeps its state"):
        run_side_by_side(PLAN, tmp_path, makers(tmp_path, work), 2, say=said.append)
    assert "[1/3] a: interrupted" in said
    assert states(tmp_path) == ["interrupted", "done", "to do"]


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
