"""What the page knows: the tasks' numbers as packed arrays, names as text, images on sheets."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb

from tasktheme.ptm import PTM
from tasktheme.report.explorer.images import image_payload
from tasktheme.report.explorer.origin import Origin, text
from tasktheme.report.explorer.packing import packed
from tasktheme.report.places import place_tasks
from tasktheme.report.style import COLOURS, natural
from tasktheme.tasks.taskset import TaskSet

LEVEL = 0.9  # of the credible intervals
_SHARES = 65_535  # steps of a share as two bytes
_STOPS = 64  # colours of a scale


def build_payload(model: PTM, tasks: TaskSet, origin: Origin | None, resized: int | None = None) -> dict[str, Any]:
    """Everything the page shows, ready for JSON. KL distances are not in it: the page computes them exactly."""
    sizes, tasks = tasks.sizes, tasks if resized is None else tasks.resized(resized)
    place, stress = place_tasks(tasks)
    low, high = tasks.interval(LEVEL)
    groups, group = _groups(tasks)
    return {
        "tasks": len(tasks),
        "themes": tasks.concentration.shape[1],
        "aspects": tasks.aspects,
        "level": LEVEL,
        "stress": round(stress, 3),
        "concentration": packed(tasks.concentration, np.float32),
        "low": packed(np.round(low * _SHARES), np.uint16),
        "high": packed(np.round(high * _SHARES), np.uint16),
        "entropy": packed(tasks.entropy(), np.float32),
        "place": packed(place, np.float32),
        "sizes": packed(sizes, np.uint32),
        "resized": resized,
        "converged": packed(tasks.converged, np.uint8),
        "group": packed(group, np.int32),
        "groups": groups,
        "columns": {str(name): [text(value) for value in values] for name, values in tasks.columns.items() if name != "group"},
        "share": [round(float(share), 6) for share in model.themes.share.cpu()],
        "images": image_payload(model, origin),
        "palette": {"light": _palette("light"), "dark": _palette("dark")},
    }


def _groups(tasks: TaskSet) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Names of the groups in their natural order, and each task's place among them; none without that column."""
    if "group" not in tasks.columns:
        return [], np.full(len(tasks), -1)
    own = [text(value) or "none" for value in tasks.columns["group"]]
    names = sorted(set(own), key=natural)
    place = {name: i for i, name in enumerate(names)}
    return names, np.array([place[name] for name in own])


def _palette(mode: str) -> dict[str, list[str]]:
    """Colours of groups and themes, and a scale that rises from near the background's lightness to far from it."""
    ends = (0.92, 0.0) if mode == "light" else (0.18, 1.0)
    return {
        "groups": list(COLOURS) if mode == "light" else [_lighter(colour) for colour in COLOURS],
        "scale": [to_hex(colormaps["viridis"](float(t))) for t in np.linspace(*ends, _STOPS)],
    }


def _lighter(colour: str, white: float = 0.35) -> str:
    red, green, blue = ((1.0 - white) * part + white for part in to_rgb(colour))
    return to_hex((red, green, blue))
