"""Results as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
from rich.console import Group
from rich.table import Table

from tasktheme.evaluation import RIVALS, Evaluation, Retrieval
from tasktheme.ptm import PTM
from tasktheme.selection.select import Selection
from tasktheme.settings import CheckedSettings
from tasktheme.tasks.distances import Floats
from tasktheme.tasks.novelty import Novelty
from tasktheme.tasks.search import Nearest
from tasktheme.tasks.taskset import TaskSet
from tasktheme.theme_summary import ThemeSummary, sources

_BOUND_TERMS = {
    "ln_p_x": "reconstruction",
    "ln_p_u": "embedding given its theme",
    "ln_p_z": "themes given the mixture",
    "ln_p_pi": "the mixture's prior",
    "entropy_u": "entropy of q(u)",
    "entropy_z": "entropy of q(z)",
    "entropy_pi": "entropy of q(pi)",
}


def task_names(tasks: TaskSet) -> list[str]:
    """A short name for each task: its name if it has one, else its number and group."""
    for column in ("name", "group"):
        if column in tasks.columns:
            return [f"{i} {value}" for i, value in enumerate(tasks.columns[column])]
    return [str(i) for i in range(len(tasks))]


def task_table(tasks: TaskSet, *, most: int) -> Table:
    """Each task's entropy, strongest themes and nearest other tasks; rows spread evenly where there are too many."""
    table = _table("task", "entropy", "strongest themes", "nearest tasks (KL)", right=("entropy",))
    names, entropy, mixture = task_names(tasks), tasks.entropy(), tasks.mean_mixture()
    top = tasks.top_themes(2)
    neighbours = tasks.nearest(tasks, k=min(2, len(tasks) - 1)) if len(tasks) > 1 else None
    for i in _spread(len(tasks), most):
        themes = ", ".join(f"{k} ({100 * mixture[i, k]:.0f} %)" for k in top[i])
        near = "" if neighbours is None else _neighbours(neighbours, i, names)
        table.add_row(names[i], f"{entropy[i]:.2f}", themes, near)
    if len(tasks) > most:
        table.caption = f"{most} of {len(tasks):,} tasks"
    return table


def settings_table(settings: CheckedSettings) -> Table:
    """Each setting's value and meaning."""
    table = _table("setting", "value", "meaning")
    kinds = get_type_hints(type(settings))
    for name, meaning in settings.meanings().items():
        value = getattr(settings, name)
        choices = f" One of {', '.join(get_args(kinds[name]))}." if get_origin(kinds[name]) is Literal else ""
        table.add_row(name, str(list(value) if isinstance(value, tuple) else value), meaning.replace("``", "") + choices)
    return table


def model_table(models: Mapping[str, PTM], measures: Mapping[str, Mapping[str, Any]]) -> Table:
    """Trained models: what they know, and how well their distances find tasks of the same group."""
    table = _table("model", "images", "themes", "trained on", "AUC", right=("themes", "AUC"))
    table.caption = "AUC: tasks of the same group by KL, groups never seen; 16 x 8: 16 themes in each of 8 aspects"
    for name, model in models.items():
        channels, height, width = model.point_shape
        trained = f"{model.trained_on['tasks']:,} tasks of {model.trained_on['data']}"
        images = f"{width}x{height} {'grey' if channels == 1 else 'colour'}"
        themes = f"{model.settings.themes}{f' x {model.themes.aspects}' * (model.themes.aspects > 1)}"
        table.add_row(name, images, themes, trained, f"{measures[name]['auc']:.3f}")
    return table


def nearest_table(query: TaskSet, known: TaskSet, found: Nearest, *, most: int = 40) -> Table:
    """The neighbours of each query task."""
    table = _table("task", "nearest (KL)")
    names, known_names = task_names(query), task_names(known)
    for i in range(min(len(query), most)):
        table.add_row(names[i], _neighbours(found, i, known_names))
    if len(query) > most:
        table.caption = f"the first {most} of {len(query):,} tasks"
    return table


def novelty_table(query: TaskSet, known: TaskSet, found: Novelty, *, most: int = 40) -> Table:
    """How unlike the known tasks each query task is: those first that themes explain worse than all known, then the farthest."""
    numbers = ("percentile", "misfit", "KL to the nearest")
    table = _table("task", *numbers, "nearest known task", right=numbers)
    names, known_names = task_names(query), task_names(known)
    misfit = np.zeros(len(query)) if found.misfit is None else found.misfit
    for i in np.lexsort((-found.distances, -misfit))[:most]:
        unlike = "" if found.misfit is None else f"{misfit[i]:.1f}"
        nearest = known_names[found.indices[i]]
        table.add_row(names[i], f"{found.percentile[i]:.1f}", unlike, f"{found.distances[i]:.2f}", nearest)
    shown = f"the {most} most unlike of {len(query):,} tasks; " if len(query) > most else ""
    table.caption = (
        f"{shown}percentile of the distances that are usual among the {len(known):,} known; "
        "misfit: how much worse the themes explain a task than any of these, in nats for each data point"
    )
    return table


def selection_table(found: Selection, columns: Mapping[str, Sequence[Any]], pool: int, *, most: int = 40) -> Table:
    """The picked tasks, best first, with the reason for each."""
    table = _table("rank", "task", "why", right=("rank",))
    names = columns.get("name", columns.get("group"))
    for rank, (index, reason) in enumerate(zip(found.indices[:most].tolist(), found.reasons, strict=False), start=1):
        table.add_row(str(rank), str(index) if names is None else f"{index} {names[index]}", reason)
    shown = f"the first {most} of {len(found):,} picks" if len(found) > most else f"{len(found):,} picks"
    sizes = "" if found.size is None else f"; compared as if each had {found.size:,} data points"
    table.caption = f"{shown} of {pool:,} tasks{sizes}"
    return table


def summary_table(tasks: TaskSet, *, most: int = 12) -> Table:
    """An overview of a task set: sizes, entropies, themes, groups."""
    table = _table("of these tasks", "")
    entropy, share = tasks.entropy(), tasks.mean_mixture().mean(axis=0)
    low, middle, high = np.quantile(entropy, [0.0, 0.5, 1.0])
    fewest, most_points = int(tasks.sizes.min()), int(tasks.sizes.max())
    points = f"{fewest:,} to " * (fewest < most_points) + f"{most_points:,} data point{'s' * (most_points != 1)}"
    table.add_row("tasks", f"{len(tasks):,}, of {points}")
    table.add_row("columns", ", ".join(tasks.columns) or "none")
    table.add_row("converged", f"{100 * tasks.converged.mean():.0f} %")
    table.add_row("entropy", f"{low:.2f} to {high:.2f} nats, median {middle:.2f}")
    order = np.argsort(-share, kind="stable")
    themes = ", ".join(f"{k} ({100 * share[k]:.0f} %)" for k in order[:most])
    if tasks.aspects > 1:
        each = len(share) // tasks.aspects
        table.add_row("aspects", f"{tasks.aspects}, of {each} themes each: 0 to {each - 1} are of the first, and so on")
    table.add_row("themes", f"{themes}{_more(len(order), most)}")
    if "group" in tasks.columns:
        names, counts = np.unique([str(value) for value in tasks.columns["group"]], return_counts=True)
        largest = np.argsort(-counts, kind="stable")
        groups = ", ".join(f"{names[i]} ({counts[i]:,})" for i in largest[:most])
        table.add_row("groups", f"{groups}{_more(len(names), most)}")
    table.add_row("most certain", _ends(tasks, np.argsort(entropy, kind="stable")[:3], entropy))
    table.add_row("least certain", _ends(tasks, np.argsort(-entropy, kind="stable")[:3], entropy))
    table.add_row("model", tasks.fingerprint[:16] or "unknown")
    return table


def _more(count: int, most: int) -> str:
    return f" and {count - most:,} more" if count > most else ""


def _ends(tasks: TaskSet, rows: npt.NDArray[np.int64], entropy: Floats) -> str:
    names = task_names(tasks)
    return ", ".join(f"{names[i]} ({entropy[i]:.2f})" for i in rows)


def distance_table(first: TaskSet, second: TaskSet, matrix: Floats, *, kind: str = "kl", most: int = 8) -> Table:
    """A corner of a distance matrix, columns by number, and the median of all."""
    columns = [str(j) for j in range(min(len(second), 6))]  # they fit a narrow terminal
    table = _table("task", *columns, right=columns)
    for name, row in zip(task_names(first)[:most], matrix, strict=False):
        table.add_row(name, *(f"{value:.3g}" for value in row[: len(columns)]))
    size = f"{len(first):,} x {len(second):,}"
    table.caption = f"{kind} from row to column, {size}, median {np.median(matrix):.3g}; --out writes all"
    return table


def theme_table(themes: Sequence[ThemeSummary]) -> Table:
    """Each theme's share, sources and most typical rows of the data."""
    several = any(found.aspect for found in themes)
    numbers = ("theme", *("aspect",) * several, "share")
    table = _table(*numbers, "classes", "groups", "typical rows", "mean", right=numbers)
    for found in themes:
        rows = ", ".join(map(str, found.typical[:4])) or "none"
        values = (str(found.theme), *(str(found.aspect),) * several, f"{100 * found.share:.0f} %")
        decoded = "decoded" if found.decoded else "no decoder"
        table.add_row(*values, sources(found.classes), sources(found.groups), rows, decoded)
    table.caption = "the largest sources of each theme's data points; plot themes shows the images and the decoded means"
    return table


def evaluation_table(result: Evaluation) -> Group:
    """The measures of the model with a word on each, then every task distance beside its rivals."""
    table = _table("the model", "value", "meaning", right=("value",))
    table.add_row("tasks", f"{result.tasks:,}", f"from {result.groups} groups")
    table.add_row("largest theme's share", f"{result.largest_share:.3f}", "near 1 is a collapse")
    table.add_row("effective themes", f"{result.effective_themes:.1f}", "used alike")
    table.add_row("converged", f"{result.converged:.3f}", "E-steps within tolerance")
    if result.bound is not None:
        table.add_row("held-out bound", f"{result.bound['bound']:,.1f}", "per data point, in nats")
        for name, value in result.bound.items():
            if name in _BOUND_TERMS:
                table.add_row(f"  {name}", f"{value:,.1f}", _BOUND_TERMS[name])
    if result.reconstruction is not None:
        table.add_row("reconstruction", f"{result.reconstruction:.3f}", "ln p(x | u) per pixel or feature")
    if result.prototype_accuracy is not None:
        table.add_row("1-shot accuracy", f"{result.prototype_accuracy:.3f}", "nearest of one labelled point per class")
    if result.entropy_accuracy is not None:
        low, high = result.entropy_accuracy["interval"]
        table.add_row(
            "entropy and accuracy",
            f"{result.entropy_accuracy['spearman']:.2f}",
            f"Spearman over tasks, 95 % in {low:.2f} to {high:.2f}",
        )
    columns = ("AUC", "average precision", "nearest is same group")
    distances = _table("distance between tasks", *columns, right=columns)
    distances.add_row("KL of the model", *_retrieved(result))
    for place, names in RIVALS.items():
        found = {words: result.rivals[name] for name, words in names.items() if name in result.rivals}
        if found:
            distances.add_section()
            distances.add_row(f"rivals, {place}", style="bold")
        for words, rival in found.items():
            distances.add_row(f"  {words}", *_retrieved(rival))
    distances.caption = "AUC: pairs of one group are closer than others; 0.5 is chance"
    return Group(table, "", distances)


def _retrieved(found: Evaluation | Retrieval) -> tuple[str, ...]:
    return tuple(f"{value:.3f}" for value in (found.auc, found.mean_average_precision, found.nearest_same_group))


def speed_table(result: dict[str, Any]) -> Table:
    """Rates of a speed measurement: medians, with the slowest and fastest run."""
    table = _table("work", "tasks/s", "slowest to fastest run", right=("tasks/s",))
    for row in result["measurements"]:
        table.add_row(row["name"], f"{row['rate']:,.1f}", f"{row['spread'][0]:,.1f} to {row['spread'][1]:,.1f}")
    machine, memory = result["machine"], result["memory"]
    if memory is not None:
        gib = memory["extra_bytes"] / 2**30
        table.add_row(f"embedding, one task of {memory['images']:,} images", "", f"{gib:.2f} GiB beyond the images")
    table.caption = (
        f"training is {result['speed_up']:.1f} times the plain reference; {machine['device']}, {machine['threads']} threads, "
        f"torch {result['versions']['torch']}"
    )
    return table


def _neighbours(found: Nearest, row: int, names: list[str]) -> str:
    pairs = zip(found.indices[row], found.distances[row], strict=True)
    return ", ".join(f"{names[j]} ({distance:.1f})" for j, distance in pairs)


def _spread(count: int, most: int) -> list[int]:
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, most))})


def _table(*columns: str, right: tuple[str, ...] | list[str] = ()) -> Table:
    table = Table(box=None, header_style="bold", caption_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table
