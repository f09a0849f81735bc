"""A share of the bad inputs of run.py, in a process of their own: a crash in a decoder fails the test, not the test run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
    done = _run("--inputs", 1000)
    assert done.returncode == 0, done.stdout + done.stderr
    tried, refused, read, failed = _all(done.stdout)
    assert (tried, failed, tried - refused) == (1000, 0, read)
    assert refused > 700  # they are bad indeed


@pytest.mark.slow
def test_commands_in_a_process_of_their_own_answer_too() -> None:
    done = _run("--inputs", 150, "--processes", 40, "--seed", 1)
    assert done.returncode == 0, done.stdout + done.stderr
