"""Runs that keep their state in a file, and go on from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from tasktheme import distributed
from tasktheme.errors import Interrupted, LostProcess, OutputError, SettingsError, TrainingError


@runtime_checkable
class Run(Protocol):
    """A training that can be started at its current step."""

    def run(self, *, progress: bool = True, checkpoint: Callable[[], None] | None = None) -> None:
        """Train to the end; call ``checkpoint`` now and then."""


R = TypeVar("R", bound=Run)


def check_run(tasks: object, checkpoint: str | Path | None, *, resume: bool) -> tuple[int, Path | None]:
    """The number of training tasks and the checkpoint's file, checked before anything is built."""
    if not isinstance(tasks, int | np.integer) or isinstance(tasks, bool) or tasks < 1:
        raise SettingsError(f"tasks, the number of training tasks, must be a whole number of at least 1, got {tasks!r}")
    file = None if checkpoint is None else Path(checkpoint)
    resume = resume or (distributed.restarted() and file is not None)
    if resume and file is None:
        raise SettingsError("resume needs the checkpoint file to go on from")
    if file is not None and file.exists() and not resume:
        raise OutputError(f"{str(file)!r} exists already: resume from it, or delete it")
    return int(tasks), file


def run_resumably(
    run: R, file: Path | None, *, save: Callable[[R, Path], None], load: Callable[[R, Path], None], progress: bool
) -> None:
    """Go on from ``file`` where it exists, run to the end, and say on a stop where the last good state is."""
    if file is None:
        run.run(progress=progress)
        return
    if file.exists():
        load(run, file)

    def keep() -> None:
        if distributed.leads():
            save(run, file)
        distributed.wait_for_all()  # none leaves, and takes the others along, before it is written

    try:
        run.run(progress=progress, checkpoint=keep)
    except (Interrupted, LostProcess, TrainingError) as stop:
        if file.exists():
            raise type(stop)(f"{stop}; the last good state is in {str(file)!r}: fit again with resume to go on") from None
        raise
