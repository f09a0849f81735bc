"""All pictures of a model and its tasks, as files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure

from tasktheme.data.dataset import Dataset
from tasktheme.errors import DataError
from tasktheme.files import make_folder, write_file
from tasktheme.ptm import PTM
from tasktheme.report import plots
from tasktheme.tasks.taskset import TaskSet

_DPI = 180


def write_pictures(folder: str | Path, *, model: PTM, tasks: TaskSet, data: Dataset) -> list[Path]:
    """Write the pictures as PNG files into ``folder``; returns them.

    map.png, distances.png, themes.png (images only), mixtures.png, entropy.png and training.png.
    """
    target = Path(folder)
    make_folder(target)
    written = []
    for name, figure in _pictures(model, tasks, data):
        file = target / f"{name}.png"
        write_file(file, png_bytes(figure))
        written.append(file)
    return written


def _pictures(model: PTM, tasks: TaskSet, data: Dataset) -> Iterator[tuple[str, Figure]]:
    if tasks.fingerprint != model.fingerprint:
        raise DataError("these tasks were not embedded by this model: their themes are not its themes; embed them with it")
    yield "map", plots.task_map(tasks)
    yield "distances", plots.distance_matrix(tasks)
    if len(data.point_shape) == 3:
        yield "themes", plots.theme_gallery(model, data)
    yield "mixtures", plots.mixtures(tasks)
    yield "entropy", plots.entropy_histogram(tasks)
    if model.history:
        yield "training", plots.training_curves(model.history)


def png_bytes(figure: Figure) -> bytes:
    """A figure as the content of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()
