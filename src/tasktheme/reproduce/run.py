"""Run pieces, each once: what is there and was made by the same command from the same inputs is left as it is."""

from __future__ import annotations

import _thread
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from tasktheme.errors import Interrupted, OutputError, out_of_memory
from tasktheme.files import make_folder, write_file
from tasktheme.reproduce.plan import Piece

_RECORD = "piece.json"

State = Literal["to do", "done", "interrupted", "failed", "outdated"]


@dataclass(frozen=True)
class PieceRecord:
    """What is known of a piece, kept in its folder.

    Attributes:
        command: that it was run with, folders left open.
        inputs: when each input was made; an input made again outdates it.
        state: how far it is; "outdated" where command or inputs have changed since.
        seconds: of all its runs.
        made: when it was done.
        error: the line that it failed with.
    """

    command: str
    inputs: dict[str, str] = field(default_factory=dict)
    state: State = "to do"
    seconds: float = 0.0
    made: str = ""
    error: str = ""


def read_record(piece: Piece, out: Path) -> PieceRecord:
    """Where a piece stands; a damaged record is that of a piece to be made anew."""
    file, inputs = out / piece.name / _RECORD, _inputs(piece, out)
    fresh = PieceRecord(piece.command, inputs)
    if not file.exists():
        return fresh
    try:
        found = PieceRecord(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return replace(fresh, state="outdated")
    if (found.command, found.inputs) != (piece.command, inputs):
        return replace(found, state="outdated")
    if found.state == "done" and not (out / piece.name / piece.makes).exists():
        return fresh
    return found


def run_pieces(
    pieces: Sequence[Piece],
    out: Path,
    call: Callable[[list[str]], None],
    *,
    minutes: float | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> bool:
    """Run each piece that is not done; returns whether all are done now.

    One that fails says so in a line, and those that do not need it go on. After ``minutes`` the running piece is interrupted
    as by Ctrl-C; Interrupted tells that some are left. ``call`` runs the words of a command.
    """
    end = None if minutes is None else time.monotonic() + 60.0 * minutes
    for place, piece in enumerate(pieces, start=1):
        title, found = f"[{place}/{len(pieces)}] {piece.name}", read_record(piece, out)
        if found.state == "done":
            say(f"{title}: done before, in {found.seconds:.0f} s")
            continue
        if missing := missing_input(piece, out):
            say(f"{title}: not run, as {missing} is not done")
            continue
        if end is not None and time.monotonic() >= end:
            raise Interrupted(f"the time was over before {piece.name}")
        say(f"{title}: tasktheme {' '.join(piece.words(out))}")
        make_folder(out / piece.name)
        with _alone(out / piece.name):
            found = read_record(piece, out)  # again: another process may have made it since
            if found.state != "done":
                found = _run_piece(piece, out, call, _prepared(piece, out, found), end)
        say(f"{title}: {found.error or f'done in {found.seconds:.0f} s'}")
    return all(read_record(piece, out).state == "done" for piece in pieces)


def _prepared(piece: Piece, out: Path, found: PieceRecord) -> PieceRecord:
    """A folder for the piece, and its record: what other settings or inputs made is removed, what was interrupted stays."""
    folder = out / piece.name
    inside = list(folder.iterdir())
    if inside and not (folder / _RECORD).exists():
        raise OutputError(f"{str(folder)!r} holds files that no piece made: choose another --out")
    if found.state == "outdated":
        for entry in sorted(inside, key=lambda entry: entry.name == _RECORD):  # last: without it they would be a stranger's
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        found = PieceRecord(piece.command, _inputs(piece, out))
    return found


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a piece's folder; an error where another process does. The system lets go of it when a process ends, killed or not.

    What is held is a file beside the folder, ``.NAME.lock``, which stays: who deletes it may delete what another has just held.
    """
    if os.name != "posix":
        yield
        return
    import fcntl

    lock = folder.with_name(f".{folder.name}.lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)  # NFS lets nobody hold what is not open for writing
    except OSError as error:
        raise OutputError(f"cannot write {str(lock)!r}: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(
                f"{str(folder)!r} is in use: another process makes it; wait for it, or choose another --out"
            ) from error
        except OSError:
            pass  # not every file system can
        yield
    finally:
        os.close(handle)


def _run_piece(piece: Piece, out: Path, call: Callable[[list[str]], None], before: PieceRecord, end: float | None) -> PieceRecord:
    """One run, to its end, its failure or an interrupt; its record is written in any case."""
    started = time.monotonic()

    def kept(state: State, *, error: str = "") -> PieceRecord:
        made = datetime.now(UTC).isoformat() if state == "done" else ""
        record = replace(before, state=state, seconds=before.seconds + time.monotonic() - started, made=made, error=error)
        write_file(out / piece.name / _RECORD, (json.dumps(asdict(record), indent=1) + "\n").encode())
        return record

    kept("interrupted")  # which is what a kill leaves behind
    try:
        with _ending(end):
            call(piece.words(out))
        if not (out / piece.name / piece.makes).exists():
            return kept("failed", error=f"failed: it did not make {piece.makes}")
        return kept("done")
    except KeyboardInterrupt as stop:  # Interrupted is one
        kept("interrupted")
        raise Interrupted(f"{piece.name} was interrupted and keeps its state") from stop
    except Exception as error:
        return kept("failed", error=f"failed: {_line(error)}")


@contextmanager
def _ending(end: float | None) -> Iterator[None]:
    """Ctrl-C at the time ``end``, also where a shell has told a job in the background to ignore it."""
    if end is None:
        yield
        return
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(max(0.0, end - time.monotonic()), _thread.interrupt_main)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def missing_input(piece: Piece, out: Path) -> str | None:
    """The first piece that another needs and that is not done."""
    return next((name for name, made in _inputs(piece, out).items() if not made), None)


def _inputs(piece: Piece, out: Path) -> dict[str, str]:
    """When each input was made; an empty text where it is not done."""
    made = {}
    for name in piece.needs:
        try:
            made[name] = json.loads((out / name / _RECORD).read_text(encoding="utf-8"))["made"]
        except (OSError, ValueError, KeyError, TypeError):
            made[name] = ""
    return made


def _line(error: Exception) -> str:
    explain = getattr(error, "format_message", None)  # an error of the command line
    said = explain() if callable(explain) else out_of_memory(error) or str(error)
    return " ".join(said.split()) or type(error).__name__
