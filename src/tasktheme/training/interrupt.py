"""Ctrl-C and SIGTERM end a loop between two steps, never inside one."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ONE_REQUEST = 1.0  # seconds: what comes closer is the same request, as `timeout` and other wrappers send a signal twice


class StopRequest:
    """Whether a stop was asked for."""

    def __init__(self) -> None:
        self._first: float | None = None

    def __call__(self) -> bool:
        """Tell."""
        return self._first is not None

    def ask(self) -> bool:
        """Ask for a stop; returns whether that was asked for before, so that this is a request of its own."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
        return now - self._first > _ONE_REQUEST


def _at_once() -> None:
    raise KeyboardInterrupt


@contextmanager
def stop_requests(also: Sequence[signal.Signals] = (), again: Callable[[], None] = _at_once) -> Iterator[StopRequest]:
    """Yield what tells whether a stop was asked for; Ctrl-C a second later interrupts at once, SIGTERM never does.

    Signals of ``also`` ask for one too, where they are not ignored, as nohup has SIGHUP be. ``again`` is what such a later
    Ctrl-C does. Outside the main thread signals cannot be caught.
    """
    stopping = StopRequest()

    def hear(number: int, frame: FrameType | None) -> None:
        if stopping.ask() and number == signal.SIGINT:
            again()

    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    heard = [*_SIGNALS, *(number for number in also if signal.getsignal(number) is not signal.SIG_IGN)]
    before = {number: signal.signal(number, hear) for number in heard}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
