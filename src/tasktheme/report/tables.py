"""Results as tables for a terminal."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from tasktheme.evaluation import Evaluation
from tasktheme.tasks.distances import Floats
from tasktheme.tasks.novelty import Novelty
from tasktheme.tasks.search import Nearest
from tasktheme.tasks.taskset import TaskSet


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
    """How unlike the known tasks each query task is, the most unlike first."""
    table = _table("task", "percentile", "KL to the nearest", "nearest known task", right=("percentile", "KL to the nearest"))
    names, known_names = task_names(query), task_names(known)
    for i in np.argsort(-found.distances, kind="stable")[:most]:
        table.add_row(names[i], f"{found.percentile[i]:.1f}", f"{found.distances[i]:.2f}", known_names[found.indices[i]])
    shown = f"the {most} most unlike of {len(query):,} tasks; " if len(query) > most else ""
    table.caption = f"{shown}percentile of the distances that are usual among the {len(known):,} known"
    return table


def summary_table(tasks: TaskSet, *, most: int = 12) -> Table:
    """An overview of a task set: sizes, entropies, themes, groups."""
    table = _table("of these tasks", "")
    entropy, share = tasks.entropy(), tasks.mean_mixture().mean(axis=0)
    low, middle, high = np.quantile(entropy, [0.0, 0.5, 1.0])
    table.add_row("tasks", f"{len(tasks):,}, of {tasks.sizes.min():,} to {tasks.sizes.max():,} data points")
    table.add_row("columns", ", ".join(tasks.columns) or "none")
    table.add_row("converged", f"{100 * tasks.converged.mean():.0f} %")
    table.add_row("entropy", f"{low:.2f} to {high:.2f} nats, median {middle:.2f}")
    order = np.argsort(-share, kind="stable")
    themes = ", ".join(f"{k} ({100 * share[k]:.0f} %)" for k in order[:most])
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


def evaluation_table(result: Evaluation) -> Table:
    """The measures with a word on each."""
    table = _table("measure", "value", "meaning", right=("value",))
    table.add_row("tasks", f"{result.tasks:,}", f"from {result.groups} groups")
    table.add_row("AUC by KL", f"{result.auc:.3f}", "same-group pairs are closer than others; 0.5 is chance")
    table.add_row("AUC by mean embedding", f"{result.auc_mean_embedding:.3f}", "the plain rival, same encoder")
    table.add_row("nearest of same group", f"{result.nearest_same_group:.3f}", "share of tasks")
    table.add_row("largest theme's share", f"{result.largest_share:.3f}", "near 1 is a collapse")
    table.add_row("effective themes", f"{result.effective_themes:.1f}", "used alike")
    table.add_row("converged", f"{result.converged:.3f}", "E-steps within tolerance")
    return table


def speed_table(result: dict[str, Any]) -> Table:
    """Rates of a speed measurement: medians, with the slowest and fastest run."""
    table = _table("work", "tasks/s", "slowest to fastest run", right=("tasks/s",))
    for row in result["measurements"]:
        table.add_row(row["name"], f"{row['rate']:,.1f}", f"{row['spread'][0]:,.1f} to {row['spread'][1]:,.1f}")
    machine = result["machine"]
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
