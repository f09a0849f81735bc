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


@contextmanager
def stop_requests(also: Sequence[signal.Signals] = ()) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether a stop was asked for; Ctrl-C a second later interrupts at once, SIGTERM never does.

    Signals of ``also`` ask for one too, where they are not ignored, as nohup has SIGHUP be. Outside the main thread
    signals cannot be caught, and the function always says no.
    """
    asked = threading.Event()
    first = 0.0

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if not asked.is_set():
            asked.set()
            first = time.monotonic()
        elif number == signal.SIGINT and time.monotonic() - first > _ONE_REQUEST:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    heard = [*_SIGNALS, *(number for number in also if signal.getsignal(number) is not signal.SIG_IGN)]
    before = {number: signal.signal(number, ask) for number in heard}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
