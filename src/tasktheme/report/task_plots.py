"""Pictures of single tasks: what they are made of, and how uncertain they are."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tasktheme.report.style import (
    COLOURS,
    FAINT,
    HATCHES,
    INK,
    MOST_GROUPS,
    SMALL,
    Chosen,
    Floats,
    choose,
    darkened,
    group_look,
    luminance,
    new_figure,
    number,
    styled,
    task_names,
)
from tasktheme.tasks.taskset import TaskSet

_LOOKS = [(colour, hatch) for hatch in HATCHES for colour in COLOURS]  # of themes, largest first
_TITLE = 28  # characters of a task's name over one of two panels
_OTHERS = ("#dddddd", "")


@styled
def mixtures(tasks: TaskSet, *, most: int = 24, group: str = "group") -> Figure:
    """What tasks are made of: a bar for each, split by its expected share of every theme, the entropy at the right.

    At most ``most`` tasks, spread over the groups. Themes carry their number in the model, counted from 0.
    """
    chosen = choose(tasks, group, most)
    entropy = chosen.tasks.entropy()
    parts = _named_parts(chosen.tasks.mean_mixture() / chosen.tasks.aspects)
    count = len(entropy)
    y = np.arange(count) + 0.45 * chosen.group  # a gap between groups
    legend_rows = -(-len(parts) // 9)
    figure = new_figure(1.0 + 0.165 * (float(y[-1]) + 1.0) + 0.17 * legend_rows)
    axes = figure.add_subplot()
    left = np.zeros(count)
    for (name, share), (colour, hatch) in zip(parts, [*_LOOKS, _OTHERS], strict=False):
        axes.barh(y, share, left=left, height=0.86, color=colour, hatch=hatch, edgecolor="white", linewidth=0.4, label=name)
        for row in np.flatnonzero(share >= 0.045 * max(1, len(name) - 2)):
            _write_in_bar(axes, left[row] + share[row] / 2, y[row], name, colour)
        left = left + share
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(float(y[-1]) + 0.6, -0.6)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes.set_xlabel(f"expected share of each theme{', all aspects together' * (chosen.tasks.aspects > 1)}")
    _name_bars(axes, chosen, y)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(axis="y", length=0.0)
    for place, value in zip(y, entropy, strict=True):
        axes.text(1.015, place, number(value), va="center", fontsize=SMALL, transform=axes.get_yaxis_transform())
    axes.text(
        1.05, -0.75, "entropy (nats)", va="bottom", ha="center", fontsize=SMALL, color=FAINT, transform=axes.get_yaxis_transform()
    )
    figure.legend(
        title="theme", title_fontsize=SMALL, loc="outside lower center", ncols=-(-len(parts) // legend_rows), handlelength=1.6
    )
    return figure


def _named_parts(mixture: Floats) -> list[tuple[str, Floats]]:
    """(name, share of each task) of the themes, largest first; of too many, those that are nowhere strong come last as one."""
    named = np.argsort(-mixture.max(axis=0), kind="stable")[: len(_LOOKS)]
    named = named[np.argsort(-mixture[:, named].mean(axis=0), kind="stable")]
    parts = [(str(theme), mixture[:, theme]) for theme in named]
    if len(named) < mixture.shape[1]:
        parts.append(("others", np.delete(mixture, named, axis=1).sum(axis=1)))
    return parts


def _write_in_bar(axes: Axes, x: float, y: float, name: str, colour: str) -> None:
    dark = luminance(colour) < 0.4
    text = axes.text(x, y, name, ha="center", va="center", fontsize=5.5, color="white" if dark else INK)
    text.set_path_effects([withStroke(linewidth=1.6, foreground=colour)])


def _name_bars(axes: Axes, chosen: Chosen, y: Floats) -> None:
    """Each group's name once, in the middle of its bars; without groups each task's own name."""
    if not chosen.names:
        axes.set_yticks(y, task_names(chosen.tasks, chosen.rows))
        return
    axes.set_yticks([float(y[a:b].mean()) for a, b in chosen.spans()], list(chosen.names))


@styled
def mixture_intervals(tasks: TaskSet, *, level: float = 0.9, most: int = 6, group: str = "group") -> Figure:
    """The expected share of each theme with its credible interval, a panel for each of at most ``most`` tasks.

    Themes are ordered by their share in all tasks drawn; the interval holds the share with probability ``level``.
    """
    chosen = choose(tasks, group, most)
    low, high = chosen.tasks.interval(level)
    mixture = chosen.tasks.mean_mixture()
    order = np.argsort(-mixture.mean(axis=0), kind="stable")
    count, themes = mixture.shape
    across = 2 if count > 1 and themes <= 40 else 1
    rows = -(-count // across)
    figure = new_figure(0.55 + 1.05 * rows)
    panels = figure.subplots(rows, across, sharex=True, sharey=True, squeeze=False).flatten()
    names = task_names(chosen.tasks, chosen.rows)
    place = np.arange(themes)
    for i, axes in enumerate(panels[:count]):
        colour = group_look(int(chosen.group[i]), len(chosen.names))[0]
        axes.bar(place, mixture[i, order], width=0.8, color=colour, alpha=0.45, linewidth=0.0)
        axes.vlines(place, low[i, order], high[i, order], color=darkened(colour), linewidth=max(0.8, min(2.0, 40.0 / themes)))
        axes.plot(place, mixture[i, order], linestyle="", marker="_", color=INK, markersize=min(6.0, 120.0 / themes))
        title = " · ".join(part for part in (chosen.names[chosen.group[i]] if chosen.names else "", names[i]) if part)
        title = title if across == 1 or len(title) <= _TITLE else f"{title[: _TITLE - 1].rstrip(chr(92))}…"
        axes.set_title(f"{title}, {chosen.tasks.sizes[i]:,} data points", loc="left", fontsize=SMALL)
        axes.grid(axis="y", color="#eeeeee", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.set_xlim(-0.7, themes - 0.3)
        axes.tick_params(labelbottom=i + across >= count)
    for axes in panels[count:]:
        axes.set_axis_off()
    every = -(-themes // 16)
    panels[0].set_xticks(place[::every], [str(theme) for theme in order[::every]])
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    panels[0].yaxis.set_major_locator(MaxNLocator(4))
    panels[0].set_ylim(0.0, min(1.0, 1.05 * float(high.max())))
    figure.supxlabel("theme, the strongest of these tasks first", fontsize=8.0)
    figure.supylabel(f"share{' of its aspect' * (tasks.aspects > 1)}, with {100 * level:g} % credible interval", fontsize=8.0)
    return figure


@styled
def entropy_histogram(tasks: TaskSet, *, group: str = "group") -> Figure:
    """How uncertain tasks are: a histogram of their entropies and, where there are groups, a strip of dots for each.

    Strips are ordered by their median, the most uncertain group on top; of very many, both ends are drawn, and a line says so.
    """
    chosen = choose(tasks, group, len(tasks) or 1)
    entropy = chosen.tasks.entropy()
    strips = min(len(chosen.names), MOST_GROUPS + 1) if len(chosen.names) > 1 else 0
    figure = new_figure(2.1 + 0.21 * strips)
    if not strips:
        top = bottom = figure.add_subplot()
    else:
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[1.1, 0.21 * strips])
        top.tick_params(axis="x", labelbottom=False)
        _draw_strips(bottom, chosen, entropy)
    low, high = float(entropy.min()), float(entropy.max())
    reach = (low, high) if high - low > 1e-6 * max(1.0, abs(low)) else (low - 0.5, high + 0.5)
    top.hist(
        entropy,
        bins=min(40, max(8, round(2 * np.sqrt(len(entropy))))),
        range=reach,
        color=FAINT,
        edgecolor="white",
        linewidth=0.4,
    )
    top.set_ylabel("tasks")
    top.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    sizes = chosen.tasks.sizes
    note = f"{sizes.min():,} data points each"
    if sizes.min() != sizes.max():
        note = f"{sizes.min():,} to {sizes.max():,} data points: larger tasks are less uncertain"
    top.set_title(f"{chosen.noun()}, {note}", loc="left", fontsize=SMALL, color=FAINT)
    bottom.set_xlabel("entropy in nats: less certain to the right")
    return figure


def _draw_strips(axes: Axes, chosen: Chosen, entropy: Floats) -> None:
    members = [entropy[a:b] for a, b in chosen.spans()]
    order = np.argsort([np.median(own) for own in members], kind="stable")
    places = np.arange(min(len(order), MOST_GROUPS))
    if left_out := len(order) - len(places):
        half = MOST_GROUPS // 2
        order = np.concatenate([order[:half], order[-half:]])
        places[half:] += 1  # room for a line between the ends
        line = f"{left_out:,} group{'' if left_out == 1 else 's'} between these not drawn"
        axes.text(0.5, half, line, ha="center", va="center", color=FAINT, fontsize=SMALL, transform=axes.get_yaxis_transform())
    for y, i in zip(places, order, strict=True):
        own = np.sort(members[i])
        lift = 0.5 * ((np.arange(len(own)) * 0.618 + 0.5) % 1.0 - 0.5)  # neighbours in value are far apart in height
        axes.scatter(own, y + lift, s=13.0, color=group_look(i, len(chosen.names))[0], alpha=0.75, linewidths=0.0)
        axes.plot([np.median(own)] * 2, [y - 0.36, y + 0.36], color=INK, linewidth=1.3)
    axes.set_yticks(places, [f"{chosen.names[i]} ({len(members[i])})" for i in order])
    axes.set_ylim(-0.6, places[-1] + 0.6)
    axes.tick_params(axis="y", length=0.0)
    axes.grid(axis="x", color="#eeeeee", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)
