"""What a case is: one bad input, and a question to the library or the command line that must be answered, not crash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

Random = np.random.Generator


@dataclass(frozen=True)
class Case:
    """One question about one bad input.

    ask: a function of the library to call, or the arguments of the command line. may_load: the input is odd but legal, so an
    answer is as good as an error. stdin: what the command finds on its standard input.
    """

    name: str
    ask: Callable[[], object] | Sequence[str]
    may_load: bool = False
    stdin: bytes = b""


@dataclass(frozen=True)
class Box:
    """Where a case lives: its input goes to ``folder``, its output to ``out``; ``stock`` holds sound files to spoil."""

    folder: Path
    stock: Path
    number: int  # of the case among those of its kind
    made: list[Path] = field(default_factory=list)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def stocked(self, name: str) -> str:
        return str(self.stock / name)

    def turn(self, choices: Sequence) -> object:
        """The choices one after the other, so that each is made equally often."""
        return choices[self.number % len(choices)]


Kind = Callable[[Random, Box], Case]


def pick(random: Random, choices: Sequence) -> object:
    return choices[int(random.integers(len(choices)))]


def spoil(content: bytes, random: Random) -> bytes:
    """Damage as disks, networks and editors do it: cut, flipped, zeroed, filled in, repeated, exchanged."""
    size = max(1, len(content))
    at = int(random.integers(size))
    length = int(random.integers(1, min(size, 64) + 1))
    way = int(random.integers(7))
    if way == 0:
        return content[:at]
    if way == 1:
        flipped = bytearray(content)
        for place in random.integers(size, size=int(random.integers(1, 20))):
            flipped[place] ^= 1 << int(random.integers(8))
        return bytes(flipped)
    if way == 2:
        return content[:at] + bytes(length) + content[at + length :]
    if way == 3:
        return content[:at] + random.bytes(length) + content[at:]
    if way == 4:
        return content[:at] + content[at : at + length] * 3 + content[at + length :]
    if way == 5:
        return content[at:] + content[:at]
    return content[:at] + b"\xff" * length + content[at + length :]
