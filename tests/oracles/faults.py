"""Real faults, made on purpose: a disk that is full, a folder that cannot be written."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534


def fill_disk() -> None:
    """From now on no file of this process may grow beyond a few bytes: writing fails as on a full disk."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))


def empty_disk() -> None:
    """There is room again."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@contextmanager
def full_disk() -> Iterator[None]:
    fill_disk()
    try:
        yield
    finally:
        empty_disk()


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder that a user without rights can reach too; the superuser, whom nothing stops, becomes one meanwhile."""
    folder, user = Path(tempfile.mkdtemp()), os.geteuid()
    if user == 0:
        os.chown(folder, _NOBODY, _NOBODY)
        os.seteuid(_NOBODY)
    try:
        yield folder
    finally:
        os.seteuid(user)
        folder.chmod(0o700)
        shutil.rmtree(folder)
