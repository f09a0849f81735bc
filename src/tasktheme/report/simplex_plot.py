"""The picture of the task-theme simplex: tasks on the triangle of three themes, with the density of their posteriors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.tri import Triangulation
from scipy.special import gammaln, xlogy

from tasktheme.errors import DataError
from tasktheme.report.style import (
    COLOURS,
    FAINT,
    INK,
    MOST_GROUPS,
    SMALL,
    Chosen,
    Floats,
    choose,
    group_look,
    new_figure,
    styled,
    task_names,
)
from tasktheme.tasks.taskset import TaskSet

_CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])  # of the triangle, in the order of the themes
_FINE = 160  # steps along a side of the mesh
_INSIDE = (0.9, 0.5)  # parts of the probability inside the outer and the inner line of a task
_MOST_NAMED = 12


@styled
def simplex(tasks: TaskSet, *, themes: Sequence[int] | None = None, group: str = "group", most: int = 12) -> Figure:
    """Tasks on the triangle of three ``themes`` of one aspect, by default the strongest: a dot at the mean, and the posterior's
    density.

    A single task's density fills the triangle, as in the paper's figure. Of several tasks, the regions that hold half and
    nine tenths of the probability are drawn, coloured by the column ``group``; of more than ``most``, some of each group.
    With more than three themes the triangle shows the shares among the three, whose distribution is the Dirichlet of their
    three parameters.
    """
    count = tasks.concentration.shape[1]
    each = count // tasks.aspects
    if each < 3:
        of_one = " of an aspect" * (tasks.aspects > 1)
        raise DataError(f"a triangle needs three themes{of_one}, but these tasks have {each}")
    chosen = choose(tasks, group, most)
    mixture = chosen.tasks.mean_mixture()
    three = _strongest(mixture.mean(axis=0), tasks.aspects) if themes is None else np.asarray(themes)
    if three.shape != (3,) or len(set(three.tolist())) != 3 or not ((three >= 0) & (three < count)).all():
        raise DataError(f"choose three different themes from 0 to {count - 1}, got {list(map(int, three))}")
    if len(set((three // each).tolist())) > 1:
        raise DataError(f"choose three themes of one aspect, {each} in a row, got {list(map(int, three))}")
    gamma = chosen.tasks.concentration[:, three]
    means = gamma / gamma.sum(axis=1, keepdims=True)
    rows = -(-min(len(chosen.names), _MOST_NAMED) // 3) if len(gamma) > 1 and len(chosen.names) <= MOST_GROUPS else 0
    figure = new_figure(3.9 + 0.16 * rows, width=3.8)
    axes = figure.add_subplot()
    _draw_frame(axes, three)
    shares = _mesh()
    mesh = Triangulation(*(shares @ _CORNERS).T)
    density = _density(shares, gamma)
    if len(gamma) == 1:
        _fill(figure, axes, mesh, density[0])
        axes.plot(*(means[0] @ _CORNERS), "o", color=COLOURS[1], markeredgecolor="white", markersize=6.0)
    else:
        _draw_regions(axes, mesh, density, means @ _CORNERS, chosen)
    note = [chosen.noun() if len(gamma) > 1 else task_names(chosen.tasks, chosen.rows)[0]]
    if len(gamma) > 1:
        note.append("regions hold 50 % and 90 % of the probability")
    whole = "the mixture" if tasks.aspects == 1 else f"aspect {three[0] // each}"
    if each > 3:
        held = 100 * float(mixture[:, three].sum(axis=1).mean())
        note.append(f"shares among the three, which hold {held:.0f} % of {whole}" + (" on average" if len(gamma) > 1 else ""))
    elif tasks.aspects > 1:
        note.append(f"the three themes of {whole}")
    axes.set_title(";\n".join(["; ".join(note[:2]), *note[2:]]), loc="left", fontsize=SMALL, color=FAINT)
    return figure


def _strongest(share: Floats, aspects: int) -> npt.NDArray[np.int64]:
    """The three themes of one aspect that hold most of its mass, in the aspect where three hold the most."""
    parts = share.reshape(aspects, -1)
    order = np.argsort(-parts, axis=1, kind="stable")[:, :3]
    best = int(np.take_along_axis(parts, order, axis=1).sum(axis=1).argmax())
    three: npt.NDArray[np.int64] = order[best] + best * parts.shape[1]
    return three


def _mesh() -> Floats:
    """(points, 3) shares all over the triangle, on a regular mesh."""
    i, j = np.meshgrid(np.arange(_FINE + 1), np.arange(_FINE + 1), indexing="ij")
    inside = i + j <= _FINE
    shares: Floats = np.stack([_FINE - i - j, i, j], axis=-1)[inside] / _FINE
    return shares


def _density(shares: Floats, gamma: Floats) -> Floats:
    """(T, points) density of Dirichlet(gamma) at each point, relative to its highest on the mesh.

    Taken half a step inside, as a density may have a pole on the edge.
    """
    inner = (shares * _FINE + 0.5) / (_FINE + 1.5)
    log = xlogy(gamma[:, None] - 1.0, inner).sum(axis=-1) + (gammaln(gamma.sum(axis=1)) - gammaln(gamma).sum(axis=1))[:, None]
    density: Floats = np.exp(log - log.max(axis=1, keepdims=True))
    return density


def _level(density: Floats, inside: float) -> float:
    """The density above which the given part of the probability lies."""
    ordered = np.sort(density)[::-1]
    mass = np.cumsum(ordered)
    return float(ordered[np.searchsorted(mass, inside * mass[-1])])


def _fill(figure: Figure, axes: Axes, mesh: Triangulation, density: Floats) -> None:
    picture = axes.tripcolor(mesh, density, cmap="viridis", shading="gouraud", vmin=0.0, vmax=1.0, rasterized=True, zorder=1)
    bar = figure.colorbar(picture, ax=axes, orientation="horizontal", shrink=0.55, aspect=30, pad=0.02)
    bar.set_label("density of the posterior, relative to its highest")
    bar.outline.set_visible(False)


def _draw_regions(axes: Axes, mesh: Triangulation, density: Floats, place: Floats, chosen: Chosen) -> None:
    """The regions of each task and a dot at its mean."""
    names = chosen.names if 0 < len(chosen.names) <= MOST_GROUPS else ()
    looks = [group_look(i, len(names)) for i in range(len(names))] or [(COLOURS[0], "o")]
    for own, centre, which in zip(density, place, chosen.group, strict=True):
        colour, marker = looks[which if names else 0]
        levels = np.maximum.accumulate([_level(own, part) for part in _INSIDE])
        if levels[0] < levels[-1] < own.max():
            fills = [to_rgba(colour, 0.14), to_rgba(colour, 0.34)]
            axes.tricontourf(mesh, own, levels=[*levels, float(own.max()) * 1.001], colors=fills, zorder=2)
            axes.tricontour(mesh, own, levels=levels, colors=[colour], linewidths=[0.5, 0.9], zorder=3)
        axes.plot(*centre, marker, color=colour, markeredgecolor="white", markeredgewidth=0.5, markersize=5.0, zorder=4)
    if not names:
        return
    marks = []
    for i in sorted(set(chosen.group.tolist()))[:_MOST_NAMED]:
        colour, marker = looks[i]
        marks.append(Line2D([], [], linestyle="", marker=marker, color=colour, markersize=4.5, mew=0.0, label=names[i]))
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.legend(handles=marks, loc="outside lower center", ncols=3, handletextpad=0.1, columnspacing=1.0, borderpad=0.0)


def _draw_frame(axes: Axes, themes: npt.NDArray[np.int64]) -> None:
    """The triangle with its grid, the shares along its sides and the themes at its corners."""
    for tick in (0.2, 0.4, 0.6, 0.8):
        for theme in range(3):
            following, last = (theme + 1) % 3, (theme + 2) % 3
            ends = np.zeros((2, 3))
            ends[:, theme] = tick
            ends[0, following], ends[1, last] = 1.0 - tick, 1.0 - tick
            (x0, y0), (x1, y1) = ends @ _CORNERS
            axes.plot([x0, x1], [y0, y1], color="#d8d8d8", linewidth=0.5, zorder=1.5)
            outward = np.array([x0, y0]) - (np.array([x1, y1]) - np.array([x0, y0])) * 0.035 / (1.0 - tick)
            axes.text(outward[0], outward[1], f"{100 * tick:.0f}", fontsize=6.0, color=FAINT, ha="center", va="center")
    axes.plot(*_CORNERS[[0, 1, 2, 0]].T, color=INK, linewidth=0.8, zorder=5, clip_on=False)
    for theme, corner, offset in zip(themes, _CORNERS, ((-0.02, -0.085), (0.02, -0.085), (0.0, 0.045)), strict=True):
        x, y = corner + offset
        axes.text(x, y, f"theme {theme}", ha="center", va="center", fontweight="bold")
    sides: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SMALL, "color": FAINT}
    axes.text(0.5, -0.085, f"\N{LEFTWARDS ARROW} % of theme {themes[0]}", **sides)
    axes.text(0.885, 0.5, f"% of theme {themes[1]} \N{RIGHTWARDS ARROW}", rotation=-60, **sides)
    axes.text(0.115, 0.5, f"% of theme {themes[2]} \N{RIGHTWARDS ARROW}", rotation=60, **sides)
    axes.set_aspect("equal")
    axes.set_xlim(-0.12, 1.12)
    axes.set_ylim(-0.12, 0.95)
    axes.set_axis_off()
