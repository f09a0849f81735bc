"""Run pieces side by side, each in a process of its own: a large GPU has room for several."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from tasktheme.errors import Interrupted
from tasktheme.reproduce.plan import Piece
from tasktheme.reproduce.run import missing_input, read_record
from tasktheme.training.interrupt import stop_requests

_LOOK_SECONDS = 0.2


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

    ``command`` gives the words that run the piece of a name alone. Ctrl-C and SIGTERM interrupt all that run.
    """
    end = None if minutes is None else time.monotonic() + 60.0 * minutes
    titles = {piece.name: f"[{place}/{len(pieces)}] {piece.name}" for place, piece in enumerate(pieces, start=1)}
    waiting, running = list(pieces), dict[Piece, subprocess.Popen[bytes]]()

    def begin(piece: Piece) -> None:
        say(f"{titles[piece.name]}: tasktheme {' '.join(piece.words(out))}")
        # in a session of its own: a terminal's Ctrl-C reaches this process alone, which passes it on
        running[piece] = subprocess.Popen(command(piece.name), stdin=subprocess.DEVNULL, start_new_session=True)

    with stop_requests() as stopping:
        try:
            while waiting or running:
                over = stopping() or (end is not None and time.monotonic() >= end)
                for piece in [piece for piece, process in running.items() if process.poll() is not None]:
                    del running[piece]
                    found = read_record(piece, out)
                    outcome = {"done": f"done in {found.seconds:.0f} s", "to do": "could not begin"}.get(found.state, found.state)
                    say(f"{titles[piece.name]}: {found.error or outcome}")
                unfinished = {piece.name for piece in (*waiting, *running)}
                for piece in list(waiting):
                    if unfinished.intersection(piece.needs):
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
                if over and (waiting or running):
                    names = ", ".join(piece.name for piece in running) or "what is left"
                    raise Interrupted(f"{names} was interrupted and keeps its state")
                time.sleep(_LOOK_SECONDS if running else 0.0)
        finally:  # whatever ends this process, none is left behind
            _interrupt(running.values())
    return all(read_record(piece, out).state == "done" for piece in pieces)


def _interrupt(processes: Collection[subprocess.Popen[bytes]]) -> None:
    """Have the processes end, and wait for it; another Ctrl-C is passed on too."""
    while any(process.poll() is None for process in processes):
        for process in processes:
            process.send_signal(signal.SIGINT)
        with suppress(KeyboardInterrupt):
            for process in processes:
                process.wait()
