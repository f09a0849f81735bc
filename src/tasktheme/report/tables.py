"""Results as tables for a terminal."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.table import Table

from tasktheme.evaluation import Evaluation
from tasktheme.tasks.taskset import Floats, Nearest, TaskSet


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


def distance_table(first: TaskSet, second: TaskSet, matrix: Floats, *, most: int = 8) -> Table:
    """A corner of a distance matrix, columns by number, and the median of all."""
    columns = [str(j) for j in range(min(len(second), most))]
    table = _table("KL[row || column]", *columns, right=columns)
    for name, row in zip(task_names(first)[:most], matrix, strict=False):
        table.add_row(name, *(f"{value:.2f}" for value in row[:most]))
    table.caption = f"{len(first):,} x {len(second):,} distances, median {np.median(matrix):.2f}; --out writes all"
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
