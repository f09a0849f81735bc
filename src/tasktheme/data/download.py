"""Files from the network, checked against a checksum; pooch does the work, where it is installed."""

from __future__ import annotations

import importlib
import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tasktheme.errors import MissingDataError
from tasktheme.progress import Advance, progress_bar

_CHUNK = 1 << 16  # bytes between two movements of the bar


def download_file(url: str, file: Path, *, checksum: str, progress: bool) -> None:
    """Download ``url`` to ``file``, whole and with the right checksum ("md5:...") or not at all."""
    try:
        pooch: Any = importlib.import_module("pooch")
    except ImportError as error:
        raise MissingDataError("not downloaded: that needs pip install 'tasktheme[download]'") from error
    logger: logging.Logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # libraries do not print; what fails is raised
    try:
        with ExitStack() as stack:
            downloader = pooch.HTTPDownloader(progressbar=_Bar(stack, file.name) if progress else False, chunk_size=_CHUNK)
            pooch.retrieve(url, known_hash=checksum, fname=file.name, path=file.parent, downloader=downloader)
    except Exception as error:  # of the network, the disk or the checksum: each with its own tree of errors
        why = "the checksum is wrong" if type(error) is ValueError else type(error).__name__
        raise MissingDataError(f"not downloaded from {url}: {why}") from error
    finally:
        logger.setLevel(level)


class _Bar:
    """A progress bar as pooch wants it: told its total late, then fed with steps that may overshoot."""

    total = 0

    def __init__(self, stack: ExitStack, name: str) -> None:
        self._stack = stack
        self._name = name
        self._advance: Advance | None = None
        self._done = 0

    def update(self, steps: int) -> None:
        """Move on by ``steps`` bytes, but never past the total."""
        if self._advance is None:
            self._advance = self._stack.enter_context(progress_bar(f"downloading {self._name}", self.total))
        steps = min(steps, self.total - self._done)
        self._done += steps
        self._advance(steps, "")

    def reset(self) -> None:
        """Called at the end, before a last step of the whole total: what is missing then is all that is added."""

    def close(self) -> None:
        """Called after the last step; the bar ends with the download."""
