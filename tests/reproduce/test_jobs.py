from __future__ import annotations

import os
import signal
import subprocess
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


def makers(out: Path, work: str) -> Callable[[str], list[str]]:
    """A process for each piece: what it does in a folder is ``work``."""
    script = f"""
        import sys, time
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_reaches_all_and_keeps_their_state(number: signal.Signals, tmp_path: Path) -> None:
    work = '(folder / "half").touch(); time.sleep(60)'
    before = signal.getsignal(signal.SIGINT)
    if number == signal.SIGTERM:  # of a job in the background, which a shell has told to ignore Ctrl-C
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def stop() -> None:
        while not all((tmp_path / name / "half").exists() for name in "ab"):
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    started = time.monotonic()
    threading.Thread(target=stop, daemon=True).start()
    try:
        with pytest.raises(Interrupted, match="a, b"):
            run_side_by_side(PLAN, tmp_path, makers(tmp_path, work), 2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - started < 45.0
    assert states(tmp_path) == ["interrupted", "interrupted", "to do"]
    assert (tmp_path / "a" / "half").exists()
    with pytest.raises(Interrupted, match="what is left"):
        run_side_by_side(PLAN, tmp_path, makers(tmp_path, work), 2, minutes=0)


def test_an_error_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[bytes]] = []

    class Kept(subprocess.Popen[bytes]):
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            begun.append(self)

    def say(line: str) -> None:
        if begun:
            raise BrokenPipeError  # `tasktheme reproduce | head -1`

    monkeypatch.setattr(subprocess, "Popen", Kept)
    with pytest.raises(BrokenPipeError):
        run_side_by_side(PLAN, tmp_path, makers(tmp_path, "time.sleep(60)"), 2, say=say)
    assert [process.returncode is None for process in begun] == [False]


def test_files_of_others_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "thesis.tex").write_text("mine")
    said: list[str] = []
    assert not run_side_by_side(PLAN, tmp_path, makers(tmp_path, "pass"), 2, say=said.append)
    assert (tmp_path / "a" / "thesis.tex").read_text() == "mine"
    assert states(tmp_path) == ["to do", "done", "to do"]
    assert "[1/3] a: could not begin" in said
    assert run_pieces([B], tmp_path, lambda words: None)
