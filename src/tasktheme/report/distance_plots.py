"""Pictures of the distances between tasks: all of them as a matrix, and a map of the tasks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import blended_transform_factory

from tasktheme.report.places import scale_down
from tasktheme.report.style import (
    FAINT,
    INK,
    MOST_GROUPS,
    SMALL,
    Chosen,
    Floats,
    choose,
    darkened,
    group_look,
    new_figure,
    number,
    place_names,
    spread,
    styled,
    task_names,
)
from tasktheme.tasks.taskset import TaskSet

_LINE = 0.125  # inches that a line of small text needs
_STRIP = 0.035  # width of the strip of groups beside a clustered matrix, in parts of it
_NAMED_TASKS = 40  # more tasks than this are not named one by one
_NEGLIGIBLE = 1e-6  # nats: smaller distances are rounding


@styled
def distance_matrix(tasks: TaskSet, *, group: str = "group", most: int = 400, clustered: bool = False) -> Figure:
    """KL[row || column] of all pairs of tasks on a logarithmic colour scale, sorted by the column ``group``.

    Without that column tasks keep their order. Where ``clustered``, like tasks stand together instead, under the tree of an
    average-linkage clustering by the square root of the symmetrised KL, with each task's group as a coloured strip. Of more
    than ``most`` tasks, that many are drawn, spread over the groups. Distances below the scale, such as the 0 of a task to
    itself, have its lowest colour.
    """
    chosen = choose(tasks, group, most)
    kl = chosen.tasks.kl(chosen.tasks)
    tree = _cluster(kl) if clustered and len(kl) > 1 else None
    if tree is not None:
        kl = kl[np.ix_(tree.order, tree.order)]
    floor, ceiling = _log_range(kl)
    side, inches = len(kl), _side_for(chosen)
    figure = new_figure(inches + 1.5, width=inches + 2.1)
    axes = figure.add_subplot()
    picture = axes.imshow(
        np.maximum(kl, floor), cmap="viridis", norm=LogNorm(floor, ceiling), interpolation="nearest", interpolation_stage="data"
    )
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(picture, ax=axes, shrink=0.8, pad=0.02, aspect=30, extend="min")
    bar.set_label("KL[row ‖ column] in nats, log scale")
    _plain_log_ticks(bar.ax, floor, ceiling)
    bar.outline.set_visible(False)
    axes.set_xlabel(f"second task (column), {chosen.noun()}")
    axes.set_ylabel("first task (row)")
    if len(kl) > 1 and kl.max() <= _NEGLIGIBLE:
        axes.set_title("all distances are 0 but for rounding: these tasks are not told apart", loc="left", fontsize=SMALL)
    if tree is not None:
        _draw_tree(axes, tree, chosen, inches)
    elif 0 < len(chosen.names) <= MOST_GROUPS:
        for _, edge in chosen.spans()[:-1]:
            axes.axhline(edge - 0.5, color="white", linewidth=0.6)
            axes.axvline(edge - 0.5, color="white", linewidth=0.6)
        _name_along(axes, [(a + b - 1) / 2 for a, b in chosen.spans()], list(chosen.names), inches)
    elif side <= _NAMED_TASKS:
        _name_along(axes, list(range(side)), task_names(chosen.tasks, chosen.rows), inches)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    return figure


@dataclass(frozen=True)
class _Tree:
    """A clustering: the order of its leaves and, for each join, the corners of its bracket in leaves (4) and height (4)."""

    order: npt.NDArray[np.int64]
    leaves: Floats
    heights: Floats


def _cluster(kl: Floats) -> _Tree:
    from scipy.cluster.hierarchy import dendrogram, linkage
    from scipy.spatial.distance import squareform

    joins = linkage(squareform(np.sqrt((kl + kl.T) / 2.0), checks=False), method="average", optimal_ordering=len(kl) <= 400)
    tree = dendrogram(joins, no_plot=True)
    corners = np.array(tree["icoord"])  # leaves stand at 5, 15, 25, ...
    return _Tree(np.array(tree["leaves"]), (corners - 5.0) / 10.0, np.array(tree["dcoord"]))


def _draw_tree(axes: Axes, tree: _Tree, chosen: Chosen, inches: float) -> None:
    """The brackets above the matrix, and beside it the groups: a strip of colour, named at each group's longest run."""
    above = axes.inset_axes((0.0, 1.01, 1.0, 0.16))
    brackets = list(np.stack([tree.leaves, tree.heights], axis=-1))
    above.add_collection(LineCollection(brackets, colors=INK, linewidths=0.5))
    above.set_xlim(axes.get_xlim())
    above.set_ylim(0.0, 1.03 * max(float(tree.heights.max()), 1e-9))
    above.set_axis_off()
    axes.set_xticks([])
    axes.set_yticks([])
    names = task_names(chosen.tasks, chosen.rows)
    if not 0 < len(chosen.names) <= MOST_GROUPS:
        if len(names) <= _NAMED_TASKS:
            _name_along(axes, list(range(len(names))), [names[i] for i in tree.order], inches, under=False)
        return
    beside = blended_transform_factory(axes.transAxes, axes.transData)
    group = chosen.group[tree.order]
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    longest: dict[int, tuple[int, float]] = {}  # of each group, its longest run: length and centre
    for start, stop in pairwise([*starts.tolist(), len(group)]):
        own, length = int(group[start]), stop - start
        colour = group_look(own, len(chosen.names))[0]
        strip = Rectangle(
            (-_STRIP, start - 0.5), _STRIP - 0.01, length, transform=beside, color=colour, linewidth=0.0, clip_on=False
        )
        axes.add_patch(strip)
        if length > longest.get(own, (0, 0.0))[0]:
            longest[own] = length, (start + stop - 1) / 2.0
    ordered = sorted(longest, key=lambda own: longest[own][1])
    _name_along(
        axes, [longest[own][1] for own in ordered], [chosen.names[own] for own in ordered], inches, under=False, start=_STRIP
    )


def _side_for(chosen: Chosen) -> float:
    """Inches for the side of a matrix or map: that of a column, more where there are many groups to name."""
    return max(3.4, 0.095 * len(chosen.names)) if len(chosen.names) <= MOST_GROUPS else 3.4


def _log_range(kl: Floats) -> tuple[float, float]:
    """The colour scale: all distances but the smallest hundredth, which would stretch it, and at least a factor of two."""
    positive = kl[kl > _NEGLIGIBLE]
    if positive.size == 0:
        return 0.1, 1.0
    ceiling = float(positive.max())
    return min(float(np.quantile(positive, 0.01)), ceiling / 2.0), ceiling


def _plain_log_ticks(axes: Axes, low: float, high: float) -> None:
    """Ticks at 1, 2 and 5 times powers of ten, or at the powers alone on a long scale, written as plain numbers."""
    decades = np.log10(high / low)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2.5 else (1.0,), numticks=8))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _name_along(
    axes: Axes, centres: list[float], names: list[str], inches: float, *, under: bool = True, start: float = 0.0
) -> None:
    """Names beside the rows and under the columns, moved apart where they would collide, with a line to their place."""
    side = abs(float(np.diff(axes.get_xlim())[0]))
    points = min(SMALL, SMALL * inches / (_LINE * len(names)))
    moved = spread(centres, points / SMALL * _LINE / inches * side, -0.5, side - 0.5)
    axes.set_yticks(moved, names)
    if under:
        axes.set_xticks(moved, names, rotation=90)
    axes.tick_params(length=0.0, pad=10.0 + 72.0 * start * inches, labelsize=points)
    rows = blended_transform_factory(axes.transAxes, axes.transData)
    columns = blended_transform_factory(axes.transData, axes.transAxes)
    bend, end = -0.01 - start, -0.035 - start  # in parts of the axes
    for centre, place in zip(centres, moved, strict=True):
        lines = [(rows, ([-start, bend, end], [centre, centre, place]))]
        if under:
            lines.append((columns, ([centre, centre, place], [-start, bend, end])))
        for transform, line in lines:
            axes.add_line(Line2D(*line, transform=transform, color=FAINT, linewidth=0.5, clip_on=False))


@styled
def task_map(tasks: TaskSet, *, group: str = "group", most: int = 400) -> Figure:
    """Tasks on a plane whose distances follow the square root of the symmetrised KL, coloured by the column ``group``.

    Multidimensional scaling: the classical solution, improved until the stress no longer falls. A larger mark is a more
    uncertain task. Of more than ``most`` tasks, that many are drawn, spread over the groups.
    """
    chosen = choose(tasks, group, most)
    kl = chosen.tasks.kl(chosen.tasks)
    distance = np.sqrt((kl + kl.T) / 2.0)
    place, stress = scale_down(distance)
    entropy = chosen.tasks.entropy()
    inches = _side_for(chosen)
    figure = new_figure(inches + 1.5, width=inches + 2.1)
    axes = figure.add_subplot()
    looks = [group_look(i, len(chosen.names)) for i in range(max(1, len(chosen.names)))]
    for i, (colour, marker) in enumerate(looks):
        own = chosen.group == i
        axes.scatter(
            place[own, 0],
            place[own, 1],
            s=_mark_area(entropy[own], entropy),
            color=colour,
            marker=marker,
            alpha=0.8,
            edgecolors="white",
            linewidths=0.5,
        )
    _frame(axes, place)
    axes.set_title(f"{chosen.noun()}, stress {stress:.2f}", loc="left", fontsize=SMALL, color=FAINT)
    axes.set_xlabel("first direction of the map, in √nats")
    axes.set_ylabel("second direction, in √nats")
    axes.grid(color="#eeeeee", linewidth=0.5)
    axes.set_axisbelow(True)
    _entropy_legend(axes, entropy)
    if 0 < len(chosen.names) <= MOST_GROUPS:
        anchors = np.stack([_middle_dot(place[a:b]) for a, b in chosen.spans()])
        _name_places(figure, axes, anchors, list(chosen.names), [colour for colour, _ in looks], place)
    elif not chosen.names and len(place) <= _NAMED_TASKS:
        _name_places(figure, axes, place, task_names(chosen.tasks, chosen.rows), [INK] * len(place), place)
    return figure


def _frame(axes: Axes, place: Floats) -> None:
    """Equal units in both directions, some room around the dots, and no enlargement of differences that are rounding."""
    middle = (place.min(axis=0) + place.max(axis=0)) / 2.0
    axes.update_datalim([middle - 0.05, middle + 0.05])
    axes.margins(0.08)
    axes.set_aspect("equal", adjustable="datalim")
    axes.autoscale_view()


def _mark_area(entropy: Floats, among: Floats) -> Floats:
    """Area of a mark in square points: 12 at the lowest entropy to 90 at the highest."""
    low, high = float(among.min()), float(among.max())
    area: Floats = 12.0 + 78.0 * (entropy - low) / (high - low) if high > low else np.full(entropy.shape, 40.0)
    return area


def _entropy_legend(axes: Axes, entropy: Floats) -> None:
    low, high = float(entropy.min()), float(entropy.max())
    shown = np.array([low, (low + high) / 2.0, high]) if high - low >= 0.2 else np.array([(low + high) / 2.0])
    marks = [Line2D([], [], linestyle="", label="entropy in nats")]
    for value, area in zip(shown, _mark_area(shown, entropy), strict=True):
        marks.append(
            Line2D([], [], linestyle="", marker="o", color=FAINT, mew=0.0, markersize=float(np.sqrt(area)), label=number(value))
        )
    axes.legend(
        handles=marks,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=len(marks),
        borderpad=0.0,
        handletextpad=0.1,
        columnspacing=1.0,
    )


def _middle_dot(place: Floats) -> Floats:
    """The dot of a group that is nearest to its median."""
    dot: Floats = place[np.argmin(np.linalg.norm(place - np.median(place, axis=0), axis=1))]
    return dot


def _name_places(figure: Figure, axes: Axes, anchors: Floats, names: list[str], colours: list[str], dots: Floats) -> None:
    """A name near each anchor, off the dots and the other names, with a thin line back to the anchor if it went far."""
    texts = [
        axes.text(x, y, name, color=darkened(colour), fontsize=SMALL, fontweight="bold", ha="center", va="center", zorder=4)
        for (x, y), name, colour in zip(anchors, names, colours, strict=True)
    ]
    figure.draw_without_rendering()  # lays the figure out, so that sizes in pixels are known
    boxes = [text.get_window_extent() for text in texts]
    sizes = np.array([[box.width, box.height] for box in boxes]) + 0.03 * figure.dpi
    pixels = axes.transData.transform
    centres = place_names(sizes, pixels(anchors), pixels(dots), axes.get_window_extent())
    for text, anchor, centre, size in zip(texts, anchors, centres, sizes, strict=True):
        place = axes.transData.inverted().transform(centre)
        text.set_position((float(place[0]), float(place[1])))
        text.set_path_effects([withStroke(linewidth=2.2, foreground="white")])
        if (np.abs(pixels(anchor) - centre) > size / 2.0 + 0.04 * figure.dpi).any():
            axes.add_artist(Line2D(*np.stack([anchor, place]).T, color=text.get_color(), linewidth=0.6, zorder=3))
