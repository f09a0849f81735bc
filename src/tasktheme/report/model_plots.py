"""Pictures of a model: what its themes look like, and how its training went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tasktheme.data.dataset import Dataset
from tasktheme.errors import DataError
from tasktheme.ptm import PTM
from tasktheme.report.style import COLOURS, FAINT, SMALL, WIDTH, new_figure, number, styled
from tasktheme.report.typical import full_contrast, is_ink, typical_rows

_TILE, _GAP, _LABEL = 1.0, 0.08, 2.15  # sizes in the gallery, an image being 1
_MANY_TASKS = 20_000  # whose ticks would run into each other
_FEW_PANELS = 3  # in a row of the training curves

_COUNT = "unused_themes"  # no part of a bound: whole numbers, from zero
_TERMS = {  # the history's names as the paper writes them
    "loss": "loss",
    "ln_p_x": "E[ln p(x | u)], reconstruction",
    "entropy_u": "entropy of q(u)",
    "ln_p_u": "E[ln p(u | z)]",
    "ln_p_z": "E[ln p(z | π)]",
    "entropy_z": "entropy of q(z)",
    "ln_p_pi": "E[ln p(π)]",
    "entropy_pi": "entropy of q(π)",
    "ln_p_y": "E[ln p(y | u)], classes",
    "accuracy": "accuracy",
    "largest_share": "share of the largest theme",
    _COUNT: "unused themes",
}


@styled
def theme_gallery(model: PTM, data: Dataset, *, columns: int = 8) -> Figure:
    """A row for each theme, largest share first: its decoded mean, then the ``columns`` most typical images of ``data``.

    Typical of a theme are images of which it is the most probable theme, by log-likelihood, at most two of a class. The
    means of grey images are shown at full contrast: a mean of drawings is paler than any drawing.
    """
    if len(data.point_shape) != 3:
        raise DataError(f"a gallery shows images, but {data.name!r} holds vectors of shape {data.point_shape}")
    if columns < 1:
        raise DataError(f"columns, the images of each theme, must be at least 1, got {columns}")
    decoded = model.decode_themes()
    if decoded is None:
        raise DataError("a gallery needs a decoder, and this model has none")
    decoded = full_contrast(decoded)
    share: npt.NDArray[np.float32] = model.themes.share.cpu().numpy()
    aspects = model.themes.aspects
    typical = typical_rows(model, data, columns)
    colours = "gray_r" if is_ink(data.x) else "gray"
    width = _LABEL + (columns + 1) * (_TILE + _GAP) + 0.25
    unit = WIDTH / width
    figure = new_figure(unit * (0.45 + len(share) * (_TILE + _GAP)) + 0.1)
    axes = figure.add_subplot()
    first = _LABEL + _TILE + _GAP + 0.25  # left edge of the first typical image
    for row, theme in enumerate(np.argsort(-share, kind="stable")):
        y = row * (_TILE + _GAP)
        own = f"\nof aspect {theme * aspects // len(share)}"
        name = f"theme {theme} · {100 * share[theme]:.0f} %{own * (aspects > 1)}"
        axes.text(_LABEL - 0.15, y + _TILE / 2, name, ha="right", va="center", fontsize=SMALL)
        _draw_tile(axes, decoded[theme], _LABEL, y, colours)
        for column, point in enumerate(typical[theme]):
            _draw_tile(axes, data.x[point] / 255.0, first + column * (_TILE + _GAP), y, colours)
        if not len(typical[theme]):
            axes.text(first, y + _TILE / 2, "the most probable theme of no image here", va="center", fontsize=SMALL, color=FAINT)
    heading: dict[str, Any] = {"va": "bottom", "fontsize": SMALL, "color": FAINT}
    axes.text(_LABEL + _TILE / 2, -0.12, "mean", ha="center", **heading)
    axes.text(first, -0.12, "most typical images", **heading)
    axes.set_xlim(0.0, width)
    axes.set_ylim(len(share) * (_TILE + _GAP), -0.45)
    axes.set_aspect("equal")
    axes.set_axis_off()
    return figure


def _draw_tile(axes: Axes, image: npt.NDArray[Any], x: float, y: float, colours: str) -> None:
    """One image (channels, height, width) with values in [0, 1], its longer side of length 1, centred in its place."""
    height, width = image.shape[1:]
    half = 0.5 * np.array([width, height]) / max(width, height)
    left, right, top, bottom = x + 0.5 - half[0], x + 0.5 + half[0], y + 0.5 - half[1], y + 0.5 + half[1]
    pixels = np.clip(image[0] if len(image) == 1 else image.transpose(1, 2, 0), 0.0, 1.0)
    axes.imshow(pixels, cmap=colours, vmin=0.0, vmax=1.0, extent=(left, right, bottom, top), interpolation="antialiased")
    axes.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor="#cccccc", linewidth=0.5))


@styled
def training_curves(history: Sequence[Mapping[str, float]]) -> Figure:
    """The loss and every term of the bound against the tasks seen, one small panel each; ``history`` is a model's."""
    if not history:
        raise DataError("there is no training to draw: the history is empty")
    found = {name: None for row in history for name in row if name not in ("tasks", "gradient_norm")}
    names = [name for name in _TERMS if name in found] + [name for name in found if name not in _TERMS]
    unit = 1000 if history[-1]["tasks"] >= _MANY_TASKS else 1
    tasks = [row["tasks"] / unit for row in history]
    rows = -(-len(names) // _FEW_PANELS)
    figure = new_figure(0.4 + 1.15 * rows)
    panels = figure.subplots(rows, _FEW_PANELS, sharex=True, squeeze=False).flatten()
    for place, (axes, name) in enumerate(zip(panels, names, strict=False)):
        values = [row.get(name, np.nan) for row in history]
        single = "o" if len(history) == 1 else ""
        axes.plot(tasks, values, color=COLOURS[1 if name == "loss" else 0], linewidth=1.1, marker=single, markersize=3.0)
        axes.set_title(_TERMS.get(name, name), loc="left", fontsize=SMALL)
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=name == _COUNT))
        if name == _COUNT:
            axes.set_ylim(0.0, max(1.0, 1.05 * np.nanmax(values)))
        axes.grid(color="#eeeeee", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: number(value, "z,.6g")))
        axes.tick_params(labelbottom=place + _FEW_PANELS >= len(names))
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    figure.supxlabel(f"training tasks seen{' (thousands)' if unit > 1 else ''}", fontsize=8.0)
    return figure
