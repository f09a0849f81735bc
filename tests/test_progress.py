from __future__ import annotations

import io
import sys

import pytest

from tasktheme.progress import progress_bar


class Screen(io.StringIO):
    """Standard error, until it is lost."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.lost, self._terminal = False, terminal

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        if self.lost:
            raise OSError(5, "Input/output error")
        return super().write(text)


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("lost", [True, False])
def test_a_bar_that_cannot_be_drawn_ends_nothing(terminal: bool, lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(terminal=terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    with progress_bar("fitting", 3) as advance:
        advance(1, "")
        screen.lost = lost
        advance(2, "almost")
    assert ("3/3" in screen.getvalue()) is not lost


def test_no_bar_where_there_is_no_standard_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with progress_bar("fitting", 3) as advance:
        advance(3, "")
    assert capsys.readouterr().out == ""  # nor anywhere else: results go there
