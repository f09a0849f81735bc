"""A share of the bad inputs of run.py, in a process of their own: a crash in a decoder fails the test, not the test run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import tasktheme as tt
from fuzz.cases import Case
from fuzz.harness import judge
from tasktheme.errors import DataError

RUN = Path(__file__).with_name("run.py")


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(RUN), *map(str, arguments)]
    return subprocess.run(
        line, capture_output=True, text=True, timeout=900, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


def _all(out: str) -> tuple[int, int, int, int]:
    tried, refused, read, failed = re.search(r"^all +(\d+) +(\d+) +(\d+) +(\d+)$", out, flags=re.MULTILINE).groups()
    return int(tried), int(refused), int(read), int(failed)


def test_every_bad_input_is_answered() -> None:
    done = _run("--inputs", 300)
    assert done.returncode == 0, done.stdout + done.stderr
    tried, refused, read, failed = _all(done.stdout)
    assert (tried, failed, tried - refused) == (300, 0, read)
    assert refused > 210  # they are bad indeed


@pytest.mark.slow
def test_commands_in_a_process_of_their_own_answer_too() -> None:
    done = _run("--inputs", 150, "--processes", 40, "--seed", 1)
    assert done.returncode == 0, done.stdout + done.stderr


def _raise(error: BaseException) -> None:
    raise error


def _say_two_lines() -> None:
    raise DataError("one\ntwo")


def _warn() -> None:
    warnings.warn("hm", RuntimeWarning, stacklevel=1)
    raise DataError("no")


def _leave_a_file(name: str) -> None:
    Path(name).write_text("left")
    raise DataError("no")


@pytest.mark.parametrize(
    ("ask", "fault"),
    [
        (lambda: _raise(DataError("no")), ""),
        (lambda: None, "was accepted"),
        (lambda: _raise(KeyError("x")), "KeyError"),
        (lambda: _raise(SystemExit(2)), "SystemExit"),
        (_say_two_lines, "not one line"),
        (_warn, "warned: hm"),
        (lambda: _leave_a_file("pwned"), "left behind ['pwned 4']"),
        (lambda: _leave_a_file("out/part"), "left partial output"),
        (lambda: _leave_a_file("cache/.half"), "left behind"),
        (lambda: Path("given").unlink(), "removed or changed"),
        (lambda: b"x" * (700 << 20) and _raise(DataError("no")), "MiB more"),
        (["summary", "absent.parquet"], ""),
        (["--version"], "was accepted"),
    ],
)
def test_the_harness_sees_what_is_wrong(ask: Callable[[], object] | list[str], fault: str, tmp_path: Path) -> None:
    for name in ("out", "cache"):
        (tmp_path / name).mkdir()
    (tmp_path / "given").write_text("sound")
    answer = judge(Case("case", ask, may_load=fault.startswith("removed")), tmp_path)
    assert fault in answer.fault
    assert bool(fault) == bool(answer.fault)


@pytest.mark.parametrize("way", ["library", "command"])
def test_an_error_that_is_no_longer_caught_is_seen(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.json").write_text("[" * 100_000)
    ask = (lambda: tt.PTM.load(model)) if way == "library" else ["embed", str(model), "x", "--out", "tasks.csv"]
    assert judge(Case("case", ask), tmp_path).fault == ""
    monkeypatch.setattr("tasktheme.storage.parse_json", json.loads)
    assert "RecursionError" in judge(Case("case", ask), tmp_path).fault
