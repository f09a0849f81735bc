"""What more themes bring on one encoder: themes fitted anew by full EM, then the same held-out tasks for each.

    python benchmarks/more_themes.py omniglot-default omniglot --themes 8 32 128 --seeds 0 1 2
    python benchmarks/more_themes.py omniglot-default omniglot --set covariance_prior=0
    python benchmarks/more_themes.py omniglot-default omniglot --themes 128 --covariances diagonal --groups 5 10 20 30 \\
        --draws 1 2 3

Prints a row for each number of themes and structure of the covariance: mean over seeds (smallest to largest) of the area under
the curve of "same group" by KL, average precision, the share of tasks whose nearest is of the same group, the largest theme's
share, and the seconds of a fit. A seed is that of the themes' start and of the tasks that they are fitted to. ``--groups`` fits
them to so many training groups, drawn at random with each seed. Of several ``--draws`` of the held-out tasks the mean counts.
"""

from __future__ import annotations

import argparse
import itertools
import time

import numpy as np

import tasktheme as tt
from tasktheme.evaluation import evaluate
from tasktheme.options import parse_changes

MEASURES = ("auc", "mean_average_precision", "nearest_same_group", "largest_share")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--themes", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--covariances", nargs="+", default=["full", "diagonal"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--groups", type=int, nargs="+", default=[None], help="training groups; all unless told")
    parser.add_argument("--draws", type=int, nargs="+", default=[1], help="seeds of the held-out tasks")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="NAME=VALUE")
    words = parser.parse_args()
    changes = parse_changes(words.changes)
    model, data = tt.PTM.load(words.model), tt.load_dataset(words.data)
    print("themes  covariance  groups  " + "  ".join(f"{name:<22}" for name in MEASURES) + "  seconds", flush=True)
    for themes, covariance, groups in itertools.product(words.themes, words.covariances, words.groups):
        rows, seconds = [], []
        for seed in words.seeds:
            train = data.train if groups is None else some_groups(data.train, groups, seed)
            start = time.perf_counter()
            fitted = model.refit(train, themes=themes, covariance=covariance, seed=seed, progress=False, **changes)
            seconds.append(time.perf_counter() - start)
            found = [evaluate(fitted, data.test, seed=draw, rivals=False).as_dict() for draw in words.draws]
            rows.append([np.mean([one[name] for one in found]) for name in MEASURES])
        table = np.array(rows)
        cells = [f"{column.mean():.3f} ({column.min():.3f} to {column.max():.3f})" for column in table.T]
        known = groups or len(data.train.group_names)
        print(f"{themes:>6}  {covariance:<10}  {known:>6}  " + "  ".join(cells) + f"  {np.median(seconds):7.0f}", flush=True)


def some_groups(dataset: tt.Dataset, number: int, seed: int) -> tt.Dataset:
    """The part of ``dataset`` that so many of its groups make, which the seed draws."""
    drawn = np.random.default_rng(seed).permutation(len(dataset.group_names))[:number]
    return dataset.select_groups([dataset.group_names[place] for place in sorted(drawn)])


if __name__ == "__main__":
    main()
