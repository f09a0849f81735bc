"""Runs that keep their state in a file, and go on from it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar, runtime_checkable

import numpy as np

from tasktheme import distributed
from tasktheme.errors import Interrupted, LostProcess, OutputError, SettingsError, TrainingError
from tasktheme.files import check_writable
from tasktheme.settings import CHECKPOINT_SECONDS
from tasktheme.training.checkpoint_file import clear_leftovers


@runtime_checkable
class Run(Protocol):
    """A training that can be started at its current step."""

    def run(self, *, progress: bool = True, checkpoint: Callable[[], None] | None = None) -> None:
        """Train to the end; call ``checkpoint`` now and then."""


R = TypeVar("R", bound=Run)


def check_run(
    tasks: object, checkpoint: str | Path | None, *, resume: bool, every: object = CHECKPOINT_SECONDS
) -> tuple[int, Path | None]:
    """The number of training tasks and the checkpoint's file, checked before anything is built."""
    if not isinstance(tasks, int | np.integer) or isinstance(tasks, bool) or tasks < 1:
        raise SettingsError(f"tasks, the number of training tasks, must be a whole number of at least 1, got {tasks!r}")
    if not isinstance(every, int | float | np.number) or isinstance(every, bool) or not 0.0 <= float(every) < math.inf:
        raise SettingsError(f"checkpoint_every, the seconds between two checkpoints, must be a number from 0 up, got {every!r}")
    file = None if checkpoint is None else Path(checkpoint)
    resume = resume or (distributed.restarted() and file is not None)
    if resume and file is None:
        raise SettingsError("resume needs the checkpoint file to go on from")
    if file is not None:
        check_writable(file.parent)
        if file.exists() and not resume:
            raise OutputError(f"{str(file)!r} exists already: resume from it, or delete it")
    return int(tasks), file


def run_resumably(
    run: R, file: Path | None, *, save: Callable[[R, Path], None], load: Callable[[R, Path], None], progress: bool
) -> None:
    """Go on from ``file`` where it exists, run to the end, and say on a stop where the last good state is.

    A state that cannot be written (a full disk, a folder taken away) does not end the run: a warning says so, the next
    checkpoint tries again, and only a stop then is an OutputError. What was saved before stays as it is.
    """
    if file is None:
        run.run(progress=progress)
        return
    if distributed.leads():
        clear_leftovers(file)
    if file.exists():
        load(run, file)
    fault: OutputError | None = None

    def keep() -> None:
        nonlocal fault
        try:
            if distributed.leads():
                save(run, file)
        except OutputError as error:
            if fault is None:
                warnings.warn(f"{error}; the run goes on and will try again", stacklevel=2)
            fault = error
        else:
            fault = None
        distributed.wait_for_all()  # none leaves, and takes the others along, before it is written

    try:
        run.run(progress=progress, checkpoint=keep)
    except Interrupted as stop:
        _end(stop if fault is None else OutputError(f"{stop}, and its state could not be saved: {fault}"), file)
    except KeyboardInterrupt:  # a second Ctrl-C
        _end(Interrupted("interrupted inside a step"), file)
    except (LostProcess, TrainingError) as stop:
        _end(stop, file)


def _end(stop: Interrupted | LostProcess | OutputError | TrainingError, file: Path) -> NoReturn:
    if not file.exists():
        raise stop from None
    raise type(stop)(f"{stop}; the last good state is in {str(file)!r}: fit again with resume to go on") from None
