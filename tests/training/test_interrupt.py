from __future__ import annotations

import signal
from threading import Thread

import pytest

from tasktheme.training import interrupt
from tasktheme.training.interrupt import stop_requests


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Its one number is the time."""
    now = [100.0]
    monkeypatch.setattr(interrupt.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_once_even_when_it_comes_twice(clock: list[float], number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_requests() as stopping:
        assert not stopping()
        signal.raise_signal(number)
        clock[0] += 0.5
        signal.raise_signal(number)  # as `timeout` does: to the program, then to its group
        assert stopping()
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_interrupts_at_once_and_sigterm_does_not(clock: list[float]) -> None:
    with stop_requests() as stopping:
        signal.raise_signal(signal.SIGINT)
        clock[0] += 2.0
        signal.raise_signal(signal.SIGTERM)
        assert stopping()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_what_a_second_ctrl_c_does_can_be_chosen(clock: list[float]) -> None:
    done: list[float] = []
    with stop_requests(again=lambda: done.append(clock[0])) as stopping:
        assert not stopping.ask()  # asked for by the program itself
        assert stopping()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
            clock[0] += 2.0
    assert done == [104.0]


def test_another_thread_is_never_asked() -> None:
    found: list[bool] = []
    before = signal.getsignal(signal.SIGTERM)

    def look() -> None:
        with stop_requests() as stopping:
            found.extend([stopping(), signal.getsignal(signal.SIGTERM) is before])

    thread = Thread(target=look)
    thread.start()
    thread.join()
    assert found == [False, True]
