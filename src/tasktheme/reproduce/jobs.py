"""Run pieces side by side, each in a process of its own: a large GPU has room for several."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tasktheme.errors import Interrupted
from tasktheme.reproduce.plan import Piece
from tasktheme.reproduce.run import PieceRecord, missing_input, read_record
from tasktheme.training.interrupt import stop_requests

_LOOK_SECONDS = 0.2
_BAD_INPUT = 2  # the command line's status
_LOST_TERMINAL = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()  # processes in sessions of their own would outlive it


def run_side_by_side(
    pieces: Sequence[Piece],
    out: Path,
    command: Callable[[str], list[str]],
    jobs: int,
    *,
    minutes: float | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> bool:
    """What :func:`run_pieces` does with one piece after another, with up to ``jobs`` at a time.

    ``command`` gives the words that run the piece of a name alone. Ctrl-C, SIGTERM and the loss of the terminal are passed on to
    all that run, and waited for.
    """
    end = None if minutes is None else time.monotonic() + 60.0 * minutes
    titles = {piece.name: f"[{place}/{len(pieces)}] {piece.name}" for place, piece in enumerate(pieces, start=1)}
    waiting, running = list(pieces), dict[Piece, subprocess.Popen[bytes]]()

    def begin(piece: Piece) -> None:
        say(f"{titles[piece.name]}: tasktheme {' '.join(piece.words(out))}")
        # in a session of its own: a terminal's Ctrl-C reaches this process alone, which passes it on once
        running[piece] = subprocess.Popen(command(piece.name), stdin=subprocess.DEVNULL, start_new_session=True)

    cut = []
    with stop_requests(also=_LOST_TERMINAL) as stopping:
        try:
            while waiting or running:
                over = stopping() or (end is not None and time.monotonic() >= end)
                for piece, process in [pair for pair in running.items() if pair[1].poll() is not None]:
                    del running[piece]
                    outcome = _outcome(read_record(piece, out), process.returncode)
                    cut += [piece.name] * (outcome == "interrupted")
                    say(f"{titles[piece.name]}: {outcome}")
                for piece in list(waiting):
                    if any(other.name in piece.needs for other in (*waiting, *running)):
                        continue
                    found, missing = read_record(piece, out), missing_input(piece, out)
                    if found.state == "done":
                        say(f"{titles[piece.name]}: done before, in {found.seconds:.0f} s")
                    elif missing:
                        say(f"{titles[piece.name]}: not run, as {missing} is not done")
                    elif len(running) < jobs and not over:
                        begin(piece)
                    else:
                        continue
                    waiting.remove(piece)
                if over:
                    break
                time.sleep(_LOOK_SECONDS if running else 0.0)
        finally:  # also where nobody reads what is said any more
            _interrupt(list(running.values()))
    cut += [piece.name for piece in running if read_record(piece, out).state != "done"]
    if cut or waiting:
        was, its = ("were", "keep their") if len(cut) > 1 else ("was", "keeps its")
        raise Interrupted(f"{', '.join(cut) or 'what is left'} {was} interrupted and {its} state")
    return all(read_record(piece, out).state == "done" for piece in pieces)


def _outcome(found: PieceRecord, status: int) -> str:
    """How a piece's process ended, in a few words."""
    if found.state == "done":
        return f"done in {found.seconds:.0f} s"
    refused = found.state in ("to do", "outdated") or status == _BAD_INPUT  # which said why, and kept no record of its own
    return "could not run" if refused else found.error or found.state


def _interrupt(processes: list[subprocess.Popen[bytes]]) -> None:
    """Interrupt all and wait for them; a Ctrl-C meanwhile is passed on too, which ends them at once."""
    while any(process.poll() is None for process in processes):
        with suppress(KeyboardInterrupt):
            for process in processes:
                process.send_signal(signal.SIGINT)
            for process in processes:
                process.wait()
