"""How many draws for each data point Task2Vec needs until its embeddings repeat.

    tasktheme meta-train maml glyphs --out probe --tasks 800 --size 28 --queries 5 \
        --set filters=16 --set modules=3 --set batch_tasks=4 --set inner_rate=0.1
    python benchmarks/task2vec.py probe [--data glyphs] [--tasks 40] [--samples 1 3 10 30] [--reference 300]

Tasks are embedded from their labelled points alone, or from all their points. Spearman's rho over the tasks, of the L1 norm (the
largest is picked) and of the mean distance to the first ten tasks (the smallest is picked): between two embeddings with different
draws, and with an embedding of --reference draws of signs, which is near the exact expectation.
"""

from __future__ import annotations

import argparse
import dataclasses
from itertools import product
from pathlib import Path

import torch
from scipy.stats import spearmanr

import tasktheme as tt
from tasktheme.selection.task2vec import DRAWS, Task2Vec, distances


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("probe", type=Path)
    parser.add_argument("--data", default="glyphs")
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 3, 10, 30])
    parser.add_argument("--reference", type=int, default=300)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    probe = tt.MetaLearner.load(arguments.probe, device="cpu")
    data = tt.load_dataset(arguments.data, size=probe.learner.point_shape[-1], progress=False).test
    tasks = tt.draw_tasks(data, probe, arguments.tasks, seed=1)
    print("| points | by | draws | norm, repeated | norm, true | distance, repeated | distance, true |")
    print("|---|---|---|---|---|---|---|")
    for part, points in (("labelled", dataclasses.replace(tasks, query=None)), ("all", tasks)):
        true = Task2Vec(probe.learner, samples=arguments.reference, by="signs", seed=2).describe(points)
        for by, samples in product(DRAWS, arguments.samples):
            first, second = (Task2Vec(probe.learner, samples=samples, by=by, seed=seed).describe(points) for seed in (0, 1))
            cells = [
                spearmanr(measure(first), measure(other)).statistic for measure in (norm, distance) for other in (second, true)
            ]
            print(f"| {part}, {points.points} | {by} | {samples} | {' | '.join(f'{rho:.2f}' for rho in cells)} |", flush=True)


def norm(kept: torch.Tensor) -> torch.Tensor:
    return kept.sum(dim=1)


def distance(kept: torch.Tensor) -> torch.Tensor:
    return distances(kept[10:], kept[:10]).mean(dim=1)


if __name__ == "__main__":
    main()
