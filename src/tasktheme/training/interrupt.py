"""Ctrl-C and SIGTERM end a loop between two steps, never inside one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether a stop was asked for; a second Ctrl-C interrupts at once.

    Outside the main thread signals cannot be caught, and the function always says no.
    """
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = {number: signal.signal(number, ask) for number in _SIGNALS}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
