"""Progress bars on standard error, or silence: the one place that draws them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, cast

from tasktheme import distributed

Advance = Callable[[int, str], None]


class _Lossy:
    """Standard error for a bar: where it is lost the work goes on without."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


@contextmanager
def progress_bar(description: str, total: int, *, done: int = 0, show: bool = True) -> Iterator[Advance]:
    """Yield ``advance(steps, note)``: moves the bar and replaces the note at its end. Of several processes one draws."""
    if not (show and distributed.leads()):
        yield lambda steps, note: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[note]}"),
    )
    lossy = None if sys.stderr is None else cast(IO[str], _Lossy(sys.stderr))
    with Progress(*columns, console=Console(file=lossy, stderr=True)) as bars:
        bar = bars.add_task(description, total=total, completed=done, note="")
        yield lambda steps, note: bars.update(bar, advance=steps, note=note)
