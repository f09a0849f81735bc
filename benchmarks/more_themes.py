"""What more themes bring on one encoder: themes fitted anew by full EM, then the same held-out tasks for each.

    python benchmarks/more_themes.py omniglot-default omniglot --themes 8 32 128 --seeds 0 1 2
    python benchmarks/more_themes.py omniglot-default omniglot --set covariance_prior=0
    python benchmarks/more_themes.py omniglot-default omniglot --themes 128 --covariances diagonal --groups 5 10 20 30 \\
        --draws 1 2 3
    python benchmarks/more_themes.py omniglot-default omniglot --themes 128 --covariances diagonal --share 0.1667 0.3333 1

Prints a row for each number of themes and structure of the covariance: mean over seeds (smallest to largest) of the area under
the curve of "same group" by KL, average precision, the share of tasks whose nearest is of the same group, the largest theme's
share, and the seconds of a fit. A seed is that of the themes' start and of the tasks that they are fitted to. ``--groups`` fits
them to so many training groups, ``--share`` to such a part of the classes of each, drawn at random with each seed. Of several
``--draws`` of the held-out tasks the mean counts.
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
    parser.add_argument("--share", type=float, nargs="+", default=[1.0], help="of the classes of each training group")
    parser.add_argument("--draws", type=int, nargs="+", default=[1], help="seeds of the held-out tasks")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="NAME=VALUE")
    words = parser.parse_args()
    changes = parse_changes(words.changes)
    model, data = tt.PTM.load(words.model), tt.load_dataset(words.data)
    print("themes  covariance  groups  classes  " + "  ".join(f"{name:<22}" for name in MEASURES) + "  seconds", flush=True)
    for themes, covariance, groups, share in itertools.product(words.themes, words.covariances, words.groups, words.share):
        rows, seconds = [], []
        for seed in words.seeds:
            train = some_of(data.train, groups or len(data.train.group_names), share, seed, ways=model.settings.ways[0])
            start = time.perf_counter()
            fitted = model.refit(train, themes=themes, covariance=covariance, seed=seed, progress=False, **changes)
            seconds.append(time.perf_counter() - start)
            found = [evaluate(fitted, data.test, seed=draw, rivals=False).as_dict() for draw in words.draws]
            rows.append([np.mean([one[name] for one in found]) for name in MEASURES])
        table = np.array(rows)
        cells = [f"{column.mean():.3f} ({column.min():.3f} to {column.max():.3f})" for column in table.T]
        print(
            f"{themes:>6}  {covariance:<10}  {len(train.group_names):>6}  {len(train.class_names):>7}  "
            + "  ".join(cells)
            + f"  {np.median(seconds):7.0f}",
            flush=True,
        )


def some_of(dataset: tt.Dataset, groups: int, share: float, seed: int, *, ways: int) -> tt.Dataset:
    """So many groups of ``dataset`` and such a part of the classes of each, enough for a task; the seed draws both."""
    random = np.random.default_rng(seed)
    drawn = random.permutation(len(dataset.group_names))[:groups]
    members = [random.permutation(np.flatnonzero(dataset.class_group == group)) for group in drawn]
    return dataset.select_classes(np.concatenate([of_one[: max(ways, round(share * len(of_one)))] for of_one in members]))


if __name__ == "__main__":
    main()
