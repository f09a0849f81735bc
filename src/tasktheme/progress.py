"""Progress bars on standard error, or silence: the one place that draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tasktheme import distributed

Advance = Callable[[int, str], None]


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
    with Progress(*columns, console=Console(stderr=True)) as bars:
        bar = bars.add_task(description, total=total, completed=done, note="")
        yield lambda steps, note: bars.update(bar, advance=steps, note=note)
