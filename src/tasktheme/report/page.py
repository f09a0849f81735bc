"""The report: one HTML page that opens from disk, offline and without scripts; or its pictures as files."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from matplotlib.figure import Figure

from tasktheme import __version__
from tasktheme.data.dataset import Dataset
from tasktheme.errors import DataError, OutputError
from tasktheme.files import write_file
from tasktheme.ptm import PTM
from tasktheme.report import plots
from tasktheme.report.style import choose, number
from tasktheme.tasks.taskset import TaskSet

_DPI = 180
_MOST_ROWS = 1000  # of the table
_THEMES, _NEIGHBOURS = 3, 3  # shown for each task


def write_report(
    path: str | Path, *, model: PTM, tasks: TaskSet, data: Dataset, title: str, facts: Sequence[tuple[str, str]]
) -> Path:
    """Write one self-contained HTML page about ``tasks``, which ``model`` embedded; returns where.

    Args:
        path: the file; one that is there already is replaced.
        model: for its themes and its training.
        tasks: what the page is about; columns "group", "classes" and "name" are used where they are.
        data: where typical images of each theme are taken from; vectors are left out.
        title: heading of the page.
        facts: (label, value) pairs shown at the top.
    """
    from jinja2 import Environment, StrictUndefined

    target = Path(path)
    _make_folder(target.absolute().parent)
    template = resources.files("tasktheme.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    rows = _table_rows(tasks)
    html = environment.from_string(template).render(
        title=title,
        facts=list(facts),
        pictures=[
            {"title": picture.title, "caption": picture.caption, "png": base64.b64encode(_png(picture.figure)).decode()}
            for picture in _pictures(model, tasks, data)
        ],
        rows=rows,
        tasks=len(tasks),
        fingerprint=tasks.fingerprint,
        version=__version__,
    )
    write_file(target, html.encode("utf-8", errors="replace"))
    return target


def write_pictures(folder: str | Path, *, model: PTM, tasks: TaskSet, data: Dataset) -> list[Path]:
    """Write the report's pictures as PNG files into ``folder``; returns them.

    distances.png, map.png, themes.png (images only), mixtures.png, entropy.png and training.png.
    """
    target = Path(folder)
    _make_folder(target)
    written = []
    for picture in _pictures(model, tasks, data):
        file = target / f"{picture.name}.png"
        write_file(file, _png(picture.figure))
        written.append(file)
    return written


@dataclass(frozen=True)
class _Picture:
    name: str
    title: str
    caption: str
    figure: Figure


def _pictures(model: PTM, tasks: TaskSet, data: Dataset) -> Iterator[_Picture]:
    if tasks.fingerprint != model.fingerprint:
        raise DataError("these tasks were not embedded by this model: their themes are not its themes; embed them with it")
    yield _Picture(
        "map",
        "A map of the tasks",
        "Each dot is a task, coloured by its group; tasks with like mixtures of themes lie close together, and a larger dot is a "
        "more uncertain task. The plane keeps the distances only roughly: a stress of 0 would keep them all, above 0.2 trust "
        "the matrix below rather than the space between two dots.",
        plots.task_map(tasks),
    )
    yield _Picture(
        "distances",
        "Distances between tasks",
        "The colour is KL[row ‖ column]: dark where the task of the column describes that of the row well, bright where it does "
        "not. Dark blocks on the diagonal are groups of tasks that are alike. The matrix is not symmetric: a bright column is a "
        "task so particular that it stands in for no other.",
        plots.distance_matrix(tasks),
    )
    if len(data.point_shape) == 3:
        yield _Picture(
            "themes",
            "The themes",
            "A row for each theme with its share of the training data, the largest on top: first the theme's mean, decoded to an "
            "image, then the images most typical of it, at most two of a class. What the images of a row have in common is what "
            "the theme stands for.",
            plots.theme_gallery(model, data),
        )
    yield _Picture(
        "mixtures",
        "What tasks are made of",
        "Each bar is a task, split by the expected share of every theme; the numbers name the themes. Long pieces of few themes "
        "are a focused task, many short ones a broad task. At the right is the task's entropy.",
        plots.mixtures(tasks),
    )
    yield _Picture(
        "entropy",
        "How uncertain the tasks are",
        "On top the entropies of all tasks; below, where tasks have groups, a dot for each task, a black line at the median of "
        "each group, and in brackets its number of tasks. To the right lie tasks whose mixture of themes is least certain.",
        plots.entropy_histogram(tasks),
    )
    if model.history:
        yield _Picture(
            "training",
            "How the training went",
            "The loss and the terms of the bound, per data point, against the tasks seen. Curves that are flat at the end say "
            "that the training was long enough. A jump on the way is the end of the warm-up, when the themes come in.",
            plots.training_curves(model.history),
        )


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


@dataclass(frozen=True)
class _Neighbour:
    number: int
    name: str
    distance: str
    listed: bool


@dataclass(frozen=True)
class _Row:
    number: int
    name: str
    classes: str
    size: str
    entropy: str
    converged: bool
    themes: list[tuple[int, str]]
    nearest: list[_Neighbour]


def _table_rows(tasks: TaskSet) -> list[_Row]:
    """The table's rows, sorted by group; of very many tasks, some of every group."""
    listed = choose(tasks, "group", _MOST_ROWS).rows.tolist()
    entropy, mixture, top = tasks.entropy(), tasks.mean_mixture(), tasks.top_themes(_THEMES)
    names = _names(tasks)
    classes = [str(value) for value in tasks.columns.get("classes", [""] * len(tasks))]
    found = tasks.nearest(tasks, k=min(_NEIGHBOURS, len(tasks) - 1)) if len(tasks) > 1 else None
    kept = set(listed)

    def neighbours(i: int) -> list[_Neighbour]:
        if found is None:
            return []
        pairs = zip(found.indices[i].tolist(), found.distances[i].tolist(), strict=True)
        return [_Neighbour(j, names[j], _nats(distance), j in kept) for j, distance in pairs]

    return [
        _Row(
            number=i,
            name=names[i],
            classes=classes[i],
            size=f"{tasks.sizes[i]:,}",
            entropy=number(entropy[i]),
            converged=bool(tasks.converged[i]),
            themes=[(k, f"{100 * mixture[i, k]:.0f} %") for k in top[i].tolist()],
            nearest=neighbours(i),
        )
        for i in listed
    ]


def _nats(distance: float) -> str:
    """A distance with about three digits, however large or small."""
    if 0.0 < distance < 0.001:
        return "< 0.001"
    return f"{distance:,.{3 if distance < 1.0 else 2 if distance < 10.0 else 1 if distance < 1000.0 else 0}f}"


def _names(tasks: TaskSet) -> list[str]:
    """Name and group of each task, as far as it has them."""
    parts = [tasks.columns[column] for column in ("name", "group") if column in tasks.columns]
    return [" · ".join(str(part[i]) for part in parts) for i in range(len(tasks))]


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {str(folder)!r}: {error.strerror or error}") from error
