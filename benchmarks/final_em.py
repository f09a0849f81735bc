"""A sweep of the final EM over distinct data points, beside one over every place in every task, in the same run.

    python benchmarks/final_em.py [--tasks 2000] [--repeats 3] [--choice] [--set NAME=VALUE ...]

Tasks of the glyphs' training scripts through an encoder with random weights: neither the number of points nor the time depends
on the weights. Prints a Markdown table of processor seconds (medians) and how far the means of the themes differ; with --choice
also those of ``--themes auto`` up to K = 32, k-means included. OMP_NUM_THREADS says how many cores are used.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from unittest import mock

import torch

import tasktheme as tt
from tasktheme.data.glyphs import load_glyphs
from tasktheme.model.e_step import e_step
from tasktheme.model.m_step import combine, moments
from tasktheme.model.themes import Moments, Themes
from tasktheme.nets.build import Networks
from tasktheme.options import parse_changes
from tasktheme.training import choice, polish
from tasktheme.training.embedding import EmbeddedTasks, TaskPoints
from tasktheme.training.loop import Trainer

T = TypeVar("T")
LADDER = (2, 4, 8, 16, 32)


def every_place(data: TaskPoints) -> list[EmbeddedTasks]:
    return [EmbeddedTasks(tasks.gather(data.m), tasks.gather(data.s), tasks.mask) for tasks in data.tasks]


def plain_sweep(settings: tt.Settings, themes: Themes, batches: list[EmbeddedTasks]) -> Themes:
    """The same sweep, with likelihoods and moments of a data point in each of its tasks."""
    found: Moments | None = None
    for batch in batches:
        likelihood = themes.expected_log_likelihood(batch.m, batch.s)
        log_r = e_step(likelihood, themes.alpha, batch.mask, iterations=settings.e_step_iterations).log_r
        local = moments(*(part.flatten(0, 1) for part in (batch.m, batch.s, log_r, batch.mask)), covariance=settings.covariance)
        found = local if found is None else combine(found, local, first_weight=1.0, second_weight=1.0)
    assert found is not None
    return Themes.build(themes.alpha, Moments(found.n / found.n.sum(), found.mu, found.Sigma), floor=settings.covariance_floor)


def timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--choice", action="store_true")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    settings = tt.Settings(choose_themes=arguments.choice).changed(parse_changes(arguments.changes))
    data, device = load_glyphs(progress=False).train, torch.device("cpu")
    trainer = Trainer(settings, Networks(settings, data.point_shape, device), data, 1, device)
    points = trainer.embedded_tasks(arguments.tasks)
    places = every_place(points)
    print(
        f"{len(points.m):,} data points in {sum(int(batch.mask.sum()) for batch in places):,} places of {arguments.tasks:,} tasks"
    )
    print("| work | every place | each point once | ratio | largest difference |\n|---|---|---|---|---|")

    def row(name: str, runs: list[list[float]], difference: float) -> None:
        plain, ours = (statistics.median(taken) for taken in zip(*runs, strict=True))
        print(f"| {name} | {plain:.2f} s | {ours:.2f} s | {plain / ours:.1f} | {difference:.0e} |", flush=True)

    for covariance in ("full", "diagonal"):
        for themes in (8, 32):
            case = settings.changed({"themes": themes, "covariance": covariance})
            start = polish.start_themes(case, points, sweeps=1)
            sweeps = (partial(plain_sweep, case, start, places), partial(polish.em_sweep, case, start, points))
            runs = [[timed(sweep) for sweep in sweeps] for _ in range(arguments.repeats)]
            plain, ours = (found.mu for _, found in runs[-1])
            row(f"a sweep, K = {themes}, {covariance}", [[taken for taken, _ in run] for run in runs], (plain - ours).abs().max())
    if arguments.choice:
        fitted, held_out = choice.embedded_parts(settings, trainer.networks.encoder, data, data.tensor, trainer.halves)
        places = every_place(fitted)
        choose = partial(choice.choose_themes, settings, fitted, held_out, ladder=LADDER)
        with mock.patch.object(choice, "_FALLS", len(LADDER)):  # each K, whatever the scores
            with mock.patch.object(polish, "em_sweep", lambda case, themes, _: plain_sweep(case, themes, places)):
                plain_taken, plain_choice = timed(choose)
            taken, chosen = timed(choose)
        curves = zip(plain_choice.curve, chosen.curve, strict=True)
        apart = max(abs(one["bound"] - other["bound"]) for one, other in curves)
        row(f"the number of themes, K = {', '.join(map(str, LADDER))}", [[plain_taken, taken]], apart)


if __name__ == "__main__":
    main()
