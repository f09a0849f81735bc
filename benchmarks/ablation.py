"""From the paper's literal recipe to the default, one change at a time, measured on the test groups of a data set.

    python benchmarks/ablation.py --tasks 20000 --seeds 0 1 2 [--only paper "group norm"] [--out ablation.json]
    python benchmarks/ablation.py omniglot --tasks 100000 [--size 32] [--set batch_tasks=5]

Prints a Markdown row as each training ends: the mean over seeds and, in brackets, the smallest and the largest. ``--set`` changes
a setting in all rows.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

import tasktheme as tt
from tasktheme.errors import TrainingError
from tasktheme.evaluation import Evaluation, evaluate
from tasktheme.options import parse_changes

CHANGES: dict[str, dict[str, Any]] = {  # in order, each added to those before it
    "paper": {},
    "ways = 5": {"ways": (5, 5)},
    "responsibilities recomputed on the v half": {"validation_responsibilities": "recomputed"},
    "sufficient statistics": {"update": "statistics", "rate_offset": 10.0, "rate_power": 0.6, "covariance_floor": 1e-4},
    "unused themes revived": {"unused_themes": "revive"},
    "warm-up and mixture start": {"initialisation": "mixture", "warm_up": 0.3},
    "10 E-step iterations": {"e_step_iterations": 10},
    "group norm": {"norm": "group"},
    "no labels": {"classification_weight": 0.0, "squared_distance": True},
    "bound weight 5": {"bound_weight": 5.0},
    "final EM": {"polish_sweeps": 20},
    "learning rate 1e-3": {"learning_rate": 1e-3},
    "prior on covariances (default)": {"covariance_prior": 3.0},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default="glyphs")
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=64, help="side of the images in pixels")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", nargs="+", choices=list(CHANGES), default=list(CHANGES))
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="NAME=VALUE", help="in all rows")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    data = tt.load_dataset(arguments.data, size=arguments.size)
    settings = tt.Settings.preset("paper")
    assert reduce(tt.Settings.changed, CHANGES.values(), settings) == tt.Settings(), "the last change must end at the default"
    everywhere = parse_changes(arguments.changes)
    rows = []
    print("| recipe | AUC by KL | AUC mean embedding | largest share | effective themes | seconds |\n|---|---|---|---|---|---|")
    for name, change in CHANGES.items():
        settings = settings.changed(change)
        if name not in arguments.only:
            continue
        started, results, failed = time.perf_counter(), [], []
        for seed in arguments.seeds:
            try:
                model = tt.PTM(settings=settings.changed(everywhere), seed=seed, device=arguments.device)
                model.fit(data.train, tasks=arguments.tasks, progress=False)
                results.append(evaluate(model, data.test))
            except TrainingError as error:
                failed.append(f"seed {seed}: {error}")
        seconds = (time.perf_counter() - started) / len(arguments.seeds)
        rows.append({"recipe": name, "seconds": seconds, "failed": failed, "results": [r.as_dict() for r in results]})
        print(markdown_row(name, results, failed, seconds), flush=True)
        if arguments.out:
            about = {"data": arguments.data, "size": arguments.size, "tasks": arguments.tasks, "seeds": arguments.seeds}
            about["changes"] = arguments.changes
            arguments.out.write_text(json.dumps(about | {"rows": rows}, indent=1))


def markdown_row(name: str, results: list[Evaluation], failed: list[str], seconds: float) -> str:
    def spread(measure: str, digits: int) -> str:
        values = np.array([getattr(result, measure) for result in results])
        if not len(values):
            return "failed"
        return f"{values.mean():.{digits}f} ({values.min():.{digits}f} to {values.max():.{digits}f})"

    columns = [spread("auc", 3), spread("auc_mean_embedding", 3), spread("largest_share", 2), spread("effective_themes", 1)]
    return f"| {name}{' (' + '; '.join(failed) + ')' if failed else ''} | {' | '.join(columns)} | {seconds:.0f} |"


if __name__ == "__main__":
    main()
