"""What settings of the final EM bring on given encoders: themes fitted anew with each, the same tasks, paired differences.

    python benchmarks/quality.py omniglot --tasks 100000 --seeds 0 1 2 --tuning --only-train --out tuning
    python benchmarks/refit.py omniglot tuning/100000-* --cases covariance_prior=0 covariance_prior=3 \\
        lambda=2,covariance_prior=0 polish_start=tasks

The first case is what the others are held against; each is NAME=VALUE settings with commas between. ``lambda`` is of this study
alone, a weight on the terms of z and pi in EM: ln r proportional to E[ln N] / lambda + E[ln pi]; tasks are embedded with 1.
Themes are fitted to the part of the training groups that ``quality.py --tuning`` trains on, and measured on three draws of 200
tasks of the others. Prints a row for each number of themes and case: mean area under the curve of "same group" by KL, its mean
difference from the first case over models and seeds, the standard error, and how often it was above.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from quality import parts
from torch import Tensor

import tasktheme as tt
from tasktheme.evaluation import same_group_auc
from tasktheme.model.e_step import TaskPosterior, e_step
from tasktheme.options import parse_changes
from tasktheme.training import polish

DRAWS = (1, 2, 3)  # seeds of the held-out tasks


def weighted_e_step(weight: float, log_likelihood: Tensor, *others: Any, **options: Any) -> TaskPosterior:
    return e_step(log_likelihood / weight, *others, **options)


@contextmanager
def studied(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The settings of a case, while the part of it that is none is in force."""
    weighted = partial(weighted_e_step, float(case.get("lambda", 1.0)))
    with mock.patch.object(polish, "e_step", weighted):
        yield {name: value for name, value in case.items() if name != "lambda"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("models", type=Path, nargs="+", help="folders of models that quality.py --tuning trained")
    parser.add_argument("--themes", nargs="+", default=["8:full", "32:diagonal", "128:diagonal"], metavar="K:COVARIANCE")
    parser.add_argument("--cases", nargs="+", default=["covariance_prior=0", "covariance_prior=3"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    words = parser.parse_args()
    train, held_out = parts(words.data, tuning=True)
    draws = [held_out.episodes(5, 20, 200, seed=seed) for seed in DRAWS]
    models = [tt.PTM.load(folder) for folder in words.models if (folder / "model.json").exists()]
    print(f"{len(models)} models, {len(words.seeds)} seeds")
    print("themes         AUC     less the first   error  above  case", flush=True)
    for size in words.themes:
        themes, covariance = size.split(":")
        first: np.ndarray | None = None
        for text in words.cases:
            aucs = []
            for model in models:
                for seed in words.seeds:
                    with studied(parse_changes(text.split(","))) as changes:
                        shape = {"themes": int(themes), "covariance": covariance, "seed": seed}
                        fitted = model.refit(train, progress=False, **shape, **changes)
                    tasks = [(fitted.embed(draw), np.asarray(draw.groups())) for draw in draws]
                    aucs.append(np.mean([same_group_auc(found.kl(found), groups) for found, groups in tasks]))
            found = np.array(aucs)
            first = found if first is None else first
            apart = found - first
            error = apart.std(ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else np.nan
            won = f"{(apart > 0).sum()}/{len(apart)}"
            print(f"{size:<13}  {found.mean():.4f}  {apart.mean():+.4f}          {error:.4f} {won:>6}  {text}", flush=True)


if __name__ == "__main__":
    main()
