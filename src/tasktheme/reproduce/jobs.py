"""Run pieces side by side, each in a process of its own: a large GPU has room for several."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from tasktheme.errors import Interrupted
from tasktheme.reproduce.plan import Piece
from tasktheme.reproduce.run import PieceRecord, missing_input, read_record
from tasktheme.training.interrupt import stop_requests

_LOOK_SECONDS = 0.2
_BAD_INPUT, _INTERRUPTED = 2, 130  # the command line's statuses
# what a terminal sends when it closes, and for SIGQUIT's key: processes in sessions of their own would outlive this one
_OF_TERMINALS = tuple(getattr(signal, name) for name in ("SIGHUP", "SIGQUIT") if hasattr(signal, name))


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

    ``command`` gives the words that run the piece of a name alone. Ctrl-C, SIGQUIT, SIGTERM, the loss of the terminal and the
    end of the time interrupt all that run, and all are waited for; a Ctrl-C meanwhile is passed on too and ends them at once.
    """
    end = None if minutes is None else time.monotonic() + 60.0 * minutes
    titles = {piece.name: f"[{place}/{len(pieces)}] {piece.name}" for place, piece in enumerate(pieces, start=1)}
    waiting, running = list(pieces), dict[Piece, subprocess.Popen[bytes]]()
    before, cut, told = dict[Piece, PieceRecord](), list[str](), False

    def tell(piece: Piece, words: str) -> None:
        with suppress(OSError) if told else nullcontext():  # the terminal may be what was lost
            say(f"{titles[piece.name]}: {words}")

    def begin(piece: Piece) -> None:
        tell(piece, f"tasktheme {' '.join(piece.words(out))}")
        # in a session of its own: a terminal's Ctrl-C reaches this process alone, which passes it on once
        running[piece] = subprocess.Popen(command(piece.name), stdin=subprocess.DEVNULL, start_new_session=True)

    with stop_requests(also=_OF_TERMINALS, again=lambda: _interrupt(running.values())) as stopping:
        try:
            while waiting or running:
                if end is not None and time.monotonic() >= end:
                    stopping.ask()
                if (over := stopping()) and not told:
                    _interrupt(running.values())
                    told = True
                for piece, process in [pair for pair in running.items() if pair[1].poll() is not None]:
                    del running[piece]
                    outcome = _outcome(before[piece], read_record(piece, out), process.returncode)
                    cut += [piece.name] * (outcome == "interrupted")
                    tell(piece, outcome)
                for piece in list(waiting):
                    if any(other.name in piece.needs for other in (*waiting, *running)):
                        continue
                    before[piece], missing = read_record(piece, out), missing_input(piece, out)
                    if before[piece].state == "done":
                        tell(piece, f"done before, in {before[piece].seconds:.0f} s")
                    elif missing and not (over and missing in cut):  # what waits for an interrupted piece is left, as it is
                        tell(piece, f"not run, as {missing} is not done")
                    elif len(running) < jobs and not over:
                        begin(piece)
                    else:
                        continue
                    waiting.remove(piece)
                if over and not running:
                    break
                time.sleep(_LOOK_SECONDS if running else 0.0)
        finally:
            if not told:  # an error: nobody reads what is said any more
                _interrupt(running.values())
            for process in running.values():
                process.wait()
    if cut or waiting:
        was, its = ("were", "keep their") if len(cut) > 1 else ("was", "keeps its")
        names = ", ".join(piece.name for piece in pieces if piece.name in cut)
        raise Interrupted(f"{names or 'what is left'} {was} interrupted and {its} state")
    return all(read_record(piece, out).state == "done" for piece in pieces)


def _outcome(before: PieceRecord, found: PieceRecord, status: int) -> str:
    """How a piece's process ended, in a few words, from its records before and after."""
    if found.state == "done":
        return f"done in {found.seconds:.0f} s"
    begun = found != before and status != _BAD_INPUT  # a process that is refused says why, and keeps no record of its own
    if begun and found.state == "failed":
        return found.error
    if status in (_INTERRUPTED, -signal.SIGINT):
        return "interrupted"
    if status < 0:  # by no signal of ours: where memory runs out the system sends SIGKILL
        return f"was killed (signal {-status})"
    return found.state if begun else "could not run"


def _interrupt(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    for process in list(processes):
        process.send_signal(signal.SIGINT)
