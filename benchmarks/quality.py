"""Quality at the paper's scale: models trained on so many tasks with several seeds, then more themes on each encoder.

    python benchmarks/quality.py omniglot --tasks 100000 1000000 --seeds 0 1 2 --out quality
    python benchmarks/quality.py omniglot --tasks 1000000 --themes 8:full --refit polish_start=tasks --out quality
    python benchmarks/quality.py omniglot --tasks 1000000 --seeds 0 1 2 --own --themes 8:full 32:diagonal --out quality
    python benchmarks/quality.py omniglot --tasks 100000 --tuning --set classification_weight=0.03 --out labelled
    python benchmarks/quality.py omniglot --tasks 1000000 --preset paper --themes --out paper

A row for each trained model and for each refit of its themes: AUC of "same group" by KL, average precision, nearest of the same
group, largest share; of its encoder the AUC of means and of Fréchet distances; seconds. ``--tuning`` holds a third of the
training groups out to measure on, so that settings can be chosen without a look at the test groups. ``--own`` fits the new themes
to the 200 measured tasks themselves, as to a user's unlabelled tasks, instead of the training groups. Models and rows are
kept in ``--out``; the same command goes on where it was interrupted, and what is there is not made again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

import tasktheme as tt
from tasktheme.data.episodes import Episodes
from tasktheme.evaluation import evaluate_tasks, same_group_auc
from tasktheme.evaluation.rivals import frechet_distance
from tasktheme.files import write_file
from tasktheme.options import parse_changes
from tasktheme.training.checkpoint_file import remove_checkpoint

TUNING_SEED = 7  # of the groups that are held out for tuning
MEASURES = ("auc", "mean_average_precision", "nearest_same_group", "largest_share")


def parts(data: str, *, tuning: bool) -> tuple[tt.Dataset, tt.Dataset]:
    """What is trained on, and what is measured on."""
    split = tt.load_dataset(data)
    if not tuning:
        return split.train, split.test
    names = list(split.train.group_names)
    held = {names[i] for i in np.random.default_rng(TUNING_SEED).permutation(len(names))[: len(names) // 3]}
    return split.train.select_groups([name for name in names if name not in held]), split.train.select_groups(sorted(held))


def measure(model: tt.PTM, episodes: Episodes) -> dict[str, float]:
    """How good tasks are by KL, and by the means and the Gaussians of the same embeddings."""
    found = evaluate_tasks(model, episodes)
    points = torch.from_numpy(model.point_embeddings(episodes))
    frechet = same_group_auc(frechet_distance(points, episodes.batch.mask).numpy(), np.asarray(episodes.groups()))
    return {name: getattr(found, name) for name in MEASURES} | {"means": found.auc_mean_embedding, "frechet": frechet}


def trained(train: tt.Dataset, tasks: int, settings: tt.Settings, folder: Path) -> tuple[tt.PTM, float]:
    """The model in ``folder``, which is made first where it is not there."""
    begun = time.perf_counter()
    if not folder.exists():
        checkpoint = folder.with_suffix(".checkpoint")
        tt.PTM(settings=settings).fit(train, tasks, checkpoint=checkpoint, resume=True).save(folder)
        remove_checkpoint(checkpoint)
    return tt.PTM.load(folder), time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--tasks", type=int, nargs="+", default=[100_000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--themes", nargs="*", default=["8:full", "32:full", "128:diagonal"], metavar="K:COVARIANCE")
    parser.add_argument("--refit", dest="refits", action="append", default=[], metavar="NAME=VALUE", help="of the refits alone")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--tuning", action="store_true")
    parser.add_argument("--turned", action="store_true", help="train and refit on turned and mirrored images too")
    parser.add_argument("--own", action="store_true", help="refit to the measured tasks themselves, without their labels")
    parser.add_argument("--only-train", action="store_true", help="measure later, by the same command without this")
    parser.add_argument("--out", type=Path, default=Path("quality"))
    words = parser.parse_args()
    words.out.mkdir(parents=True, exist_ok=True)
    train, test = parts(words.data, tuning=words.tuning)
    train = train.turned() if words.turned else train
    episodes = test.episodes(5, 20, 200, seed=1)
    other = parse_changes(words.refits)
    words.refits += ["own tasks"] if words.own else []
    refits = {", ".join([f"K = {size}", *words.refits]): size.split(":") for size in words.themes}
    source = episodes if words.own else train
    settings = tt.Settings.preset(words.preset).changed(parse_changes(words.changes))
    file = words.out / "rows.json"
    rows: dict[str, dict[str, float]] = json.loads(file.read_text()) if file.exists() else {}

    def keep(name: str, row: dict[str, float]) -> None:
        rows[name] = row
        write_file(file, (json.dumps(rows, indent=1) + "\n").encode())
        print(f"{name:<48}" + "  ".join(f"{key} {value:.3f}" for key, value in row.items()), flush=True)

    for tasks in words.tasks:
        for seed in words.seeds:
            name = f"{tasks} tasks, seed {seed}"
            if all(row in rows for row in (name, *(f"{name}, {refit}" for refit in refits))):
                continue
            folder = words.out / f"{tasks}-{seed}"
            model, seconds = trained(train, tasks, settings.changed({"seed": seed}), folder)
            if words.only_train:
                print(f"{name:<48}seconds {seconds:.0f}", flush=True)
                continue
            if name not in rows:
                keep(name, measure(model, episodes) | {"seconds": seconds})
            for refit, (themes, covariance) in refits.items():
                begun = time.perf_counter()
                changed = model.refit(source, themes=int(themes), covariance=covariance, progress=False, **other)
                keep(f"{name}, {refit}", measure(changed, episodes) | {"seconds": time.perf_counter() - begun})


if __name__ == "__main__":
    main()
