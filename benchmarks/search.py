"""How fast distances and exact search are, beside torch.distributions in a loop and scipy in a loop.

    python benchmarks/search.py [--references 10000000] [--repeats 7] [--out search.json]

K = 8, tasks of 100 data points with random mixtures. Prints a Markdown table of medians; OMP_NUM_THREADS says how many cores
are used. Loops are timed on some pairs and scaled to all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from scipy import special

import tasktheme as tt
from tasktheme.storage import versions

THEMES, POINTS, PRIOR = 8, 100, 1.1


def random_tasks(count: int, seed: int) -> tt.TaskSet:
    share = np.random.default_rng(seed).gamma(0.7, size=(count, THEMES))
    share *= POINTS / share.sum(axis=1, keepdims=True)
    return tt.TaskSet(share + PRIOR, np.full(count, POINTS), np.ones(count, dtype=np.bool_), {}, "random")


def seconds(work: Callable[[], object], repeats: int, *, warm: bool = True) -> list[tuple[float, float]]:
    """(elapsed, processor) seconds of each run; on a busy machine the second is what an idle one would take with one thread."""
    if warm:
        work()
    taken = []
    for _ in range(repeats):
        started, began = time.perf_counter(), time.process_time()
        work()
        taken.append((time.perf_counter() - started, time.process_time() - began))
    return taken


def torch_loop(first: np.ndarray, second: np.ndarray) -> None:
    others = [torch.distributions.Dirichlet(torch.from_numpy(b), validate_args=False) for b in second]
    for a in first:
        own = torch.distributions.Dirichlet(torch.from_numpy(a), validate_args=False)
        for other in others:
            torch.distributions.kl_divergence(own, other)


def scipy_loop(first: np.ndarray, second: np.ndarray) -> None:
    for a in first:
        g = special.digamma(a) - special.digamma(a.sum())
        own = special.gammaln(a).sum() - special.gammaln(a.sum())
        for b in second:
            special.gammaln(b).sum() - special.gammaln(b.sum()) - own - (b - a) @ g


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--references", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows: list[dict[str, object]] = []
    print("| work | median | fastest to slowest | processor time |\n|---|---|---|---|", flush=True)

    def row(name: str, taken: list[tuple[float, float]], scale: float = 1.0) -> None:
        elapsed, busy = ([scale * value for value in values] for values in zip(*taken, strict=True))
        rows.append({"work": name, "seconds": elapsed, "processor_seconds": busy})
        low, middle, high = (_time(value) for value in (min(elapsed), statistics.median(elapsed), max(elapsed)))
        print(f"| {name} | {middle} | {low} to {high} | {_time(statistics.median(busy))} |", flush=True)

    many, few = random_tasks(10_000, 1), random_tasks(100, 2)
    row("KL matrix 10,000 x 100", seconds(lambda: many.kl(few), 4 * arguments.repeats))
    row("KL matrix 100 x 10,000", seconds(lambda: few.kl(many), 4 * arguments.repeats))
    pairs = many.concentration[:20].copy(), few.concentration[:50].copy()
    row("the same by torch.distributions in a loop (1,000 pairs, scaled)", seconds(lambda: torch_loop(*pairs), 3), 1000.0)
    row("the same by scipy.special in a loop (1,000 pairs, scaled)", seconds(lambda: scipy_loop(*pairs), 3), 1000.0)

    reference, query = random_tasks(arguments.references, 3), random_tasks(100, 4)
    size = f"{arguments.references:,} tasks"
    one = query[:1]
    row(f"first search among {size}, with preparing them", seconds(lambda: one.nearest(reference, k=5), 1, warm=False))
    row(f"5 nearest of 1 task among {size}", seconds(lambda: one.nearest(reference, k=5), arguments.repeats))
    row(f"5 nearest of 100 tasks among {size}", seconds(lambda: query.nearest(reference, k=5), arguments.repeats))
    part = reference.concentration[:1000].copy()
    scale = arguments.references / 1000
    own = query.concentration[:1].copy()
    row(f"1 task against {size} by torch.distributions in a loop (scaled)", seconds(lambda: torch_loop(own, part), 3), scale)
    row(f"1 task against {size} by scipy.special in a loop (scaled)", seconds(lambda: scipy_loop(own, part), 3), scale)
    if arguments.out:
        about = {"references": arguments.references, "threads": torch.get_num_threads(), "versions": versions(), "rows": rows}
        arguments.out.write_text(json.dumps(about, indent=1) + "\n")


def _time(value: float) -> str:
    return f"{1000 * value:,.1f} ms" if value < 1.0 else f"{value:,.1f} s"


if __name__ == "__main__":
    main()
