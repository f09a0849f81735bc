"""Asks a case's question and judges the answer: our own error in one line, or a right answer; and nothing left behind."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer.main

from fuzz.cases import Case
from tasktheme import cli
from tasktheme.data.decoding import LeftOutWarning
from tasktheme.errors import TaskThemeError

LONGEST_LINE = 6_000  # characters of an error: a path in it may have 4,096
LONGEST_TIME = 120  # seconds for one case, on a machine with other work
MOST_MEMORY = 600 << 20  # bytes that one case may add to what the process ever held

command = typer.main.get_command(cli.app)  # made once: it takes longer than most cases


@dataclass(frozen=True)
class Answer:
    """Whether a question was ``refused`` as it should be, ``loaded``, or what else happened: ``fault``."""

    refused: bool = False
    fault: str = ""


class _TooLongError(BaseException):
    """A case took too long."""


def judge(case: Case, folder: Path, *, process: bool = False) -> Answer:
    """Ask, in this process or one of its own, and look at what was said and at what lies in ``folder`` afterwards."""
    before = _files(folder)
    _forget_peak()
    held = _peak_memory()
    answer = _ask_process(case, folder) if process else _ask_here(case, folder)
    if answer.fault:
        return answer
    if _peak_memory() - held > MOST_MEMORY:
        return Answer(fault=f"took {(_peak_memory() - held) >> 20} MiB more")
    after = _files(folder)
    output = {name for name in after if Path(name).parts[0] == "out"}
    if strange := sorted(name for name in after - before if name not in output and not _sound_cache(name)):
        return Answer(fault=f"left behind {strange[:3]}")
    if gone := sorted(name for name in before - after if answer.refused or Path(name).parts[0] != "out"):
        return Answer(fault=f"removed or changed {gone[:3]}")
    if answer.refused and output - before:
        return Answer(fault=f"left partial output {sorted(output)[:3]}")
    if any(Path(name).name.startswith(".") for name in output - before):
        return Answer(fault=f"left temporary files {sorted(output)[:3]}")
    return answer


def _ask_here(case: Case, folder: Path) -> Answer:
    def stop(*_: object) -> None:
        raise _TooLongError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONGEST_TIME)
    home = Path.cwd()
    os.chdir(folder)
    try:
        return _ask_library(case) if callable(case.ask) else _ask_command(case)
    except _TooLongError:
        return Answer(fault=f"no answer in {LONGEST_TIME} s")
    finally:
        signal.alarm(0)
        os.chdir(home)


def _ask_library(case: Case) -> Answer:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            case.ask()
        except _TooLongError:
            raise
        except TaskThemeError as error:
            refused, fault = True, _fault_of_line(str(error))
        except BaseException as error:
            refused, fault = False, _place(error)
        else:
            refused, fault = False, "" if case.may_load else "was accepted"
    if warned := [w for w in said if not issubclass(w.category, LeftOutWarning)]:
        fault = fault or f"warned: {warned[0].message}"
    return Answer(refused, fault)


def _ask_command(case: Case) -> Answer:
    code: object = "none"
    escaped = ""
    with _spoken() as said, _arguments(case):
        try:
            cli.main()
        except SystemExit as leaving:
            code = leaving.code or 0
        except _TooLongError:
            raise
        except BaseException as error:
            escaped = _place(error)
    return Answer(code == 2, escaped or _fault_of_exit(case, code, said[0]))


def _ask_process(case: Case, folder: Path) -> Answer:
    line = [sys.executable, "-m", "tasktheme", *case.ask]
    done = subprocess.run(line, cwd=folder, input=case.stdin, capture_output=True, timeout=10 * LONGEST_TIME, check=False)
    return Answer(done.returncode == 2, _fault_of_exit(case, done.returncode, done.stderr.decode(errors="replace")))


def _fault_of_exit(case: Case, code: object, said: str) -> str:
    if code == 0:
        return "" if case.may_load else "was accepted"
    if code != 2:
        return f"exit status {code}: {said[-300:]}"
    lines = said.splitlines()
    if "--allow-damaged" in case.ask:  # the first line then tells what was left out
        lines = lines[-1:]
    if len(lines) != 1 or not lines[0].startswith("tasktheme: "):
        return f"not one line: {said[-300:]!r}"
    return _fault_of_line(lines[0])


def _fault_of_line(line: str) -> str:
    if not line.strip() or "\n" in line:
        return f"the message is not one line: {line[:300]!r}"
    if len(line) > LONGEST_LINE:
        return f"a message of {len(line):,} characters: {line[:100]}..."
    return ""


def _place(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/tasktheme/" in frame.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {where}: {str(error)[:200]}"


@contextlib.contextmanager
def _spoken() -> Iterator[list[str]]:
    """Collects what is written to the two streams, by Python or by a library in C; the last entry is standard error."""
    said = [""]
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        streams = sys.stdout, sys.stderr
        sys.stdout = io.TextIOWrapper(os.fdopen(os.dup(1), "wb"), encoding="utf-8", errors="surrogateescape")
        sys.stderr = io.TextIOWrapper(
            os.fdopen(os.dup(2), "wb"), encoding="utf-8", errors="backslashreplace", line_buffering=True
        )
        try:
            yield said
        finally:
            sys.stdout.close()
            sys.stderr.close()
            sys.stdout, sys.stderr = streams
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
            os.close(kept[0])
            os.close(kept[1])
            err.seek(0)
            said[0] = err.read().decode(errors="replace")


@contextlib.contextmanager
def _arguments(case: Case) -> Iterator[None]:
    kept = sys.argv, sys.stdin, cli.app
    sys.argv, sys.stdin, cli.app = ["tasktheme", *case.ask], io.TextIOWrapper(io.BytesIO(case.stdin)), command
    try:
        yield
    finally:
        sys.argv, sys.stdin, cli.app = kept


def _files(folder: Path) -> set[str]:
    """Everything below a folder, with the sizes of files: a file that changes its size is another one."""
    found = set()
    for home, folders, files in os.walk(os.fsencode(folder)):
        for name in folders + files:
            path = os.path.join(home, name)  # noqa: PTH118 (bytes: names may be no text)
            status = os.lstat(path)
            size = "" if os.path.isdir(path) else f" {status.st_size}"  # noqa: PTH112
            found.add(os.fsdecode(os.path.relpath(path, os.fsencode(folder))) + size)
    return found


def _sound_cache(name: str) -> bool:
    """Whether a name is what the cache keeps of decoded images: whole folders, no scratch."""
    parts = Path(name).parts
    return parts[0] == "cache" and not any(part.startswith(".") for part in parts)


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _forget_peak() -> None:
    """Let the peak be counted anew, where the system can; elsewhere a case is judged by what it adds to it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def clear(folder: Path) -> None:
    """Remove a case's folder, whatever it did to its permissions."""
    shutil.rmtree(folder, ignore_errors=True)
