"""What all pictures share: size and fonts, colours that the colour-blind tell apart, and groups of tasks in order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font
from matplotlib.transforms import Bbox
from sklearn.isotonic import isotonic_regression

from tasktheme.errors import DataError
from tasktheme.tasks.taskset import TaskSet

WIDTH = 5.5  # inches: the text column of most papers
SMALL, INK, FAINT = 7.0, "#222222", "#767676"  # points; colours of text
_FONT = "DejaVu Sans"  # ships with matplotlib
_LONGEST = 26  # characters of a name in a picture

STYLE: dict[str, Any] = {
    "font.family": [_FONT],
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "hatch.linewidth": 0.7,
}
styled = matplotlib.style.context(["default", STYLE])  # a decorator: the caller's own settings neither leak in nor change

# Paul Tol's "muted" scheme, made for all kinds of colour vision; ordered so that neighbours differ much
COLOURS = ("#332288", "#CC6677", "#44AA99", "#DDCC77", "#AA4499", "#88CCEE", "#882255", "#999933", "#117733")
MARKERS = ("o", "s", "^", "D", "v", "P")
HATCHES = ("", "////", "....", "xxxx")


@dataclass(frozen=True)
class Chosen:
    """The tasks of a picture in their order; ``names`` of the groups as drawn and ``group`` (T,) of each task.

    Without groups ``names`` is empty and all tasks are of group 0. ``of`` is how many tasks there were to choose from.
    """

    tasks: TaskSet
    rows: npt.NDArray[np.int64]
    names: tuple[str, ...]
    group: npt.NDArray[np.int64]
    of: int

    def noun(self) -> str:
        """'100 tasks', or '400 of 15,504 tasks'."""
        count = len(self.rows)
        if count < self.of:
            return f"{count:,} of {self.of:,} tasks"
        return f"{count:,} task{'' if count == 1 else 's'}"

    def spans(self) -> list[tuple[int, int]]:
        """(first, last + 1) place of each group's tasks."""
        edges = np.searchsorted(self.group, np.arange(self.group.max() + 2))
        return [(int(a), int(b)) for a, b in zip(edges[:-1], edges[1:], strict=True)]


def choose(tasks: TaskSet, column: str, most: int) -> Chosen:
    """At most ``most`` tasks, spread evenly over the groups named in ``column`` and sorted by them.

    Without that column: in the given order, spread evenly over it.
    """
    count = len(tasks)
    if count == 0:
        raise DataError("there is no task to draw: the task set is empty")
    if most < 1:
        raise DataError(f"most, the number of tasks drawn, must be at least 1, got {most}")
    if column not in tasks.columns:
        rows = np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))
        return Chosen(tasks[rows], rows, (), np.zeros(len(rows), dtype=np.int64), count)
    names = sorted({str(value) for value in tasks.columns[column]})
    place = {name: i for i, name in enumerate(names)}
    group = np.array([place[str(value)] for value in tasks.columns[column]], dtype=np.int64)
    turn = np.empty(count, dtype=np.int64)  # a task's number within its group: every group gets its first before any its second
    for i in range(len(names)):
        members = np.flatnonzero(group == i)
        turn[members] = np.arange(len(members))
    rows = np.sort(np.lexsort((group, turn))[:most])
    rows = rows[np.argsort(group[rows], kind="stable")]
    kept, group = np.unique(group[rows], return_inverse=True)
    return Chosen(tasks[rows], rows, tuple(drawn_name(names[i], f"group {i}") for i in kept), group.astype(np.int64), count)


def task_names(tasks: TaskSet, numbers: npt.NDArray[np.int64]) -> list[str]:
    """A short name for each task that can be drawn: its own, or its number."""
    plain = [f"task {i}" for i in numbers]
    if "name" not in tasks.columns:
        return plain
    return [drawn_name(str(name), instead) for name, instead in zip(tasks.columns["name"], plain, strict=True)]


def drawn_name(name: str, instead: str) -> str:
    """``name`` as matplotlib can draw it: one short line, unknown characters as '?', no dollar read as mathematics.

    A name of which nothing can be drawn becomes ``instead``.
    """
    line = " ".join(name.split())
    known = [c if c.isprintable() and ord(c) in _drawable() else "?" for c in line]
    if not any(c == drawn for c, drawn in zip(line, known, strict=True)):
        return instead
    short = "".join(known if len(known) <= _LONGEST else [*known[: _LONGEST - 1], "…"])
    return short.replace("$", r"\$")


@cache
def _drawable() -> frozenset[int]:
    return frozenset(FT2Font(findfont(FontProperties(family=_FONT))).get_charmap())


def new_figure(height: float, *, width: float = WIDTH) -> Figure:
    """An empty figure on white that makes room for its own labels."""
    return Figure(figsize=(width, height), dpi=150, facecolor="white", layout="constrained")


def spread(places: npt.ArrayLike, gap: float, low: float, high: float) -> npt.NDArray[np.float64]:
    """Ascending ``places`` moved as little as possible until they are ``gap`` apart, within ``low`` and ``high``."""
    wanted = np.asarray(places, dtype=np.float64)
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    steps = gap * np.arange(len(wanted))
    moved = isotonic_regression(wanted - steps, y_min=low, y_max=high - gap * (len(wanted) - 1))
    return np.asarray(moved + steps, dtype=np.float64)


def push_apart(boxes: list[Bbox], inside: Bbox, *, rounds: int = 400) -> npt.NDArray[np.float64]:
    """(boxes, 2) shifts after which the boxes hardly overlap and lie ``inside``: each pair parts along its shorter way."""
    half = np.array([[box.width, box.height] for box in boxes]).reshape(-1, 2) / 2.0
    start = np.array([[box.x0 + box.x1, box.y0 + box.y1] for box in boxes]).reshape(-1, 2) / 2.0
    low, high = np.array(inside.min) + half, np.array(inside.max) - half
    centre = np.clip(start, low, np.maximum(low, high))
    for _ in range(rounds):
        moved = False
        for i in range(len(boxes)):
            for j in range(i):
                apart = centre[i] - centre[j]
                overlap = half[i] + half[j] - np.abs(apart)
                if (overlap <= 0.0).any():
                    continue
                axis = int(np.argmin(overlap))
                push = 0.5 * (overlap[axis] + 0.5) * (1.0 if apart[axis] >= 0.0 else -1.0)
                centre[i, axis] += push
                centre[j, axis] -= push
                moved = True
        centre = np.clip(centre, low, np.maximum(low, high))
        if not moved:
            break
    return centre - start
