"""What all pictures share: size and fonts, colours that the colour-blind tell apart, and groups of tasks in order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import matplotlib.style
import numpy as np
import numpy.typing as npt
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font
from matplotlib.transforms import Bbox
from sklearn.isotonic import isotonic_regression

from tasktheme.errors import DataError
from tasktheme.tasks.taskset import TaskSet

Floats = npt.NDArray[np.float64]

WIDTH = 5.5  # inches: the text column of most papers
SMALL, INK, FAINT = 7.0, "#222222", "#767676"  # points; colours of text
MOST_GROUPS = 60  # more than this are not told apart
_FONT = "DejaVu Sans"  # ships with matplotlib
_GROUP = "group"  # the column that tasks are grouped by where nobody says which
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

# Paul Tol's "muted" scheme and a grey, made for all kinds of colour vision; ordered so that neighbours differ much
COLOURS = ("#332288", "#CC6677", "#44AA99", "#DDCC77", "#AA4499", "#88CCEE", "#882255", "#999933", "#117733", "#555555")
MARKERS = ("o", "s", "^", "D", "v", "P")
HATCHES = ("", "////")


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
        return list(pairwise(edges.tolist()))


def choose(tasks: TaskSet, column: str, most: int) -> Chosen:
    """At most ``most`` tasks, spread evenly over the groups named in ``column`` and sorted by them.

    Without that column: in the given order, spread evenly over it; only "group", the default, may be missing.
    """
    count = len(tasks)
    if count == 0:
        raise DataError("there is no task to draw: the task set is empty")
    if most < 1:
        raise DataError(f"most, the number of tasks drawn, must be at least 1, got {most}")
    if column not in tasks.columns:
        if column != _GROUP:
            has = f"the columns {', '.join(tasks.columns)}" if tasks.columns else "no column"
            raise DataError(f"there is no column {column!r} to group tasks by: they have {has}")
        rows = np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))
        return Chosen(tasks[rows], rows, (), np.zeros(len(rows), dtype=np.int64), count)
    names = sorted({str(value) for value in tasks.columns[column]}, key=natural)
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


def natural(name: str) -> list[tuple[int, str]]:
    """A key by which 'group 9' comes before 'group 10'."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


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


def group_look(place: int, groups: int) -> tuple[str, str]:
    """Colour and mark of the ``place``-th group of so many; all alike where there are none, or too many."""
    if not 0 < groups <= MOST_GROUPS:
        return COLOURS[0], MARKERS[0]
    return COLOURS[place % len(COLOURS)], MARKERS[place // len(COLOURS) % len(MARKERS)]


def new_figure(height: float, *, width: float = WIDTH) -> Figure:
    """An empty figure on white that makes room for its own labels."""
    return Figure(figsize=(width, height), dpi=150, facecolor="white", layout="constrained")


def spread(places: npt.ArrayLike, gap: float, low: float, high: float) -> Floats:
    """Ascending ``places`` moved as little as possible until they are ``gap`` apart, within ``low`` and ``high``."""
    wanted = np.asarray(places, dtype=np.float64)
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    steps = gap * np.arange(len(wanted))
    moved = isotonic_regression(wanted - steps, y_min=low, y_max=high - gap * (len(wanted) - 1))
    return np.asarray(moved + steps, dtype=np.float64)


def place_names(sizes: Floats, anchors: Floats, dots: Floats, inside: Bbox) -> Floats:
    """Centres (L, 2) for L names near their ``anchors``, off the ``dots`` and off each other as far as there is room.

    All in pixels. Each name in turn takes the cheapest of some places around its anchor: a covered dot costs as much as
    three lines' distance, another name far more.
    """
    line = float(sizes[:, 1].mean())
    angles = np.linspace(0.0, 2.0 * np.pi, 24, endpoint=False)
    ring = np.stack([1.6 * np.cos(angles), np.sin(angles)], axis=1)  # names are wide: they go further sideways
    offsets = np.concatenate([np.zeros((1, 2)), *(radius * line * ring for radius in np.arange(0.5, 7.5, 0.5))])
    half = sizes / 2.0
    low = np.array(inside.min) + half
    high = np.maximum(low, np.array(inside.max) - half)
    places = np.clip(anchors[:, None] + offsets, low[:, None], high[:, None])  # (L, places, 2)
    covered = (np.abs(places[:, :, None] - dots) < half[:, None, None] + 0.25 * line).all(axis=-1).sum(axis=-1)
    cost = 3.0 * covered + np.linalg.norm(places - anchors[:, None], axis=-1) / line
    centres = anchors.copy()
    for _ in range(4):
        for i in range(len(centres)):
            others = np.arange(len(centres)) != i
            overlap = half[i] + half[others] - np.abs(places[i][:, None] - centres[others])  # (places, others, 2)
            clash = np.where((overlap > 0.0).all(axis=-1), 30.0 + overlap.min(axis=-1), 0.0).sum(axis=-1)
            centres[i] = places[i, np.argmin(cost[i] + clash)]
    return centres


def number(value: float, form: str = "z,.1f") -> str:
    """A number with a true minus sign, and none before a zero."""
    return format(value, form).replace("-", "\N{MINUS SIGN}")


def darkened(colour: str) -> str:
    """A colour dark enough for text on white: mixed with black until it is."""
    factor = min(1.0, 0.38 / max(luminance(colour), 0.01))
    red, green, blue = to_rgb(colour)
    return to_hex((factor * red, factor * green, factor * blue))


def luminance(colour: str) -> float:
    """From 0 for black to 1 for white."""
    return float(np.array(to_rgb(colour)) @ (0.299, 0.587, 0.114))
