"""Quality at the paper's scale: models trained on so many tasks with several seeds, then more themes on each encoder.

    python benchmarks/quality.py omniglot --tasks 100000 1000000 --seeds 0 1 2 --out quality
    python benchmarks/quality.py omniglot --tasks 1000000 --themes 8:full --refit polish_start=tasks --out quality
    python benchmarks/quality.py omniglot --tasks 1000000 --seeds 0 1 2 --own --themes 8:full 32:diagonal --out quality
    python benchmarks/quality.py omniglot --tasks 100000 --tuning --set classification_weight=0.03 --out labelled
    python benchmarks/quality.py omniglot --tasks 1000000 --preset paper --themes --out paper
    python benchmarks/quality.py omniglot --tasks 1000000 --seeds 0 1 2 --even --draws 1 2 3 4 5 --out quality
    python benchmarks/quality.py omniglot --tasks 1000000 --themes 128:diagonal 16:full:8 --out quality
    python benchmarks/quality.py mini-imagenet --tasks 1000000 --seeds 0 1 2 --set latent_dim=128 --set filters=[32,64,128,256] \\
        --set t_shots=16 --set v_shots=16 --set classification_weight=0.03 --themes 32:diagonal --out photographs

A row for each trained model and for each refit of its themes: AUC of "same group" by KL, average precision, nearest of the same
group, largest share; of its encoder the AUC of means and of Fréchet distances; seconds. The number of themes of a refit is that
of each aspect. Several ``--draws`` of the 200 measured tasks give the mean over them, in a row of its own; ``--even`` gives
each group the same number of tasks. ``--tuning`` holds a third of the training groups out to measure on, so that settings can
be chosen without a look at the test groups. ``--own`` fits the new themes to the measured tasks themselves, as to a user's
unlabelled tasks, instead of the training groups. Models and rows are kept in ``--out``; the same command goes on where it was
interrupted, and what is there is not made again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from draws import even_tasks

import tasktheme as tt
from tasktheme.data.episodes import Episodes
from tasktheme.evaluation import evaluate_tasks, same_group_auc
from tasktheme.evaluation.rivals import frechet_distance
from tasktheme.files import write_file
from tasktheme.options import parse_changes
from tasktheme.training.checkpoint_file import remove_checkpoint

TUNING_SEED = 7  # of the groups that are held out for tuning
MEASURES = ("auc", "mean_average_precision", "nearest_same_group", "largest_share")


def parts(data: str, *, size: int, tuning: bool) -> tuple[tt.Dataset, tt.Dataset]:
    """What is trained on, and what is measured on."""
    split = tt.load_dataset(data, size=size)
    if not tuning:
        return split.train, split.test
    names = list(split.train.group_names)
    held = {names[i] for i in np.random.default_rng(TUNING_SEED).permutation(len(names))[: len(names) // 3]}
    return split.train.select_groups([name for name in names if name not in held]), split.train.select_groups(sorted(held))


def measured_tasks(test: tt.Dataset, seed: int, *, even: bool) -> Episodes:
    """200 tasks of 20 images of each of five classes; where there is one group, of one class, which then is the group."""
    if len(test.group_names) == 1:
        return test.classes_as_groups().episodes(1, 20, 200, seed=seed)
    if even:
        return test.episodes(shots=20, tasks=even_tasks(test, seed, apart=False), seed=seed)
    return test.episodes(5, 20, 200, seed=seed)


def measure_draws(model: tt.PTM, draws: Sequence[Episodes]) -> dict[str, float]:
    """The mean over draws of what :func:`measure` finds, and the least by which KL is ahead of Fréchet distances."""
    found = [measure(model, episodes) for episodes in draws]
    means = {name: float(np.mean([row[name] for row in found])) for name in found[0]}
    return means if len(found) == 1 else means | {"least_lead": min(row["auc"] - row["frechet"] for row in found)}


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
    parser.add_argument("--themes", nargs="*", default=["8:full", "32:full", "128:diagonal"], metavar="K:COVARIANCE[:ASPECTS]")
    parser.add_argument("--refit", dest="refits", action="append", default=[], metavar="NAME=VALUE", help="of the refits alone")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--size", type=int, default=64, help="side of the images in pixels")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--tuning", action="store_true")
    parser.add_argument("--turned", action="store_true", help="train and refit on turned and mirrored images too")
    parser.add_argument("--draws", type=int, nargs="+", default=[1], help="seeds of the measured tasks")
    parser.add_argument("--even", action="store_true", help="measure on the same number of tasks of each group")
    parser.add_argument("--own", action="store_true", help="refit to the measured tasks themselves, without their labels")
    parser.add_argument("--only-train", action="store_true", help="measure later, by the same command without this")
    parser.add_argument("--out", type=Path, default=Path("quality"))
    words = parser.parse_args()
    words.out.mkdir(parents=True, exist_ok=True)
    train, test = parts(words.data, size=words.size, tuning=words.tuning)
    train = train.turned() if words.turned else train
    draws = [measured_tasks(test, seed, even=words.even) for seed in words.draws]
    of_draws = "" if words.draws == [1] else f", draws {' '.join(map(str, words.draws))}"
    of_draws += ", even" if words.even else ""
    other = parse_changes(words.refits)
    words.refits += ["own tasks"] if words.own else []
    if words.own and len(draws) > 1:
        parser.error("--own fits themes to one draw of tasks")
    refits = {", ".join([f"K = {size}", *words.refits]) + of_draws: size.split(":") for size in words.themes}
    source = draws[0] if words.own else train
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
            trained_row = name + of_draws
            if all(row in rows for row in (trained_row, *(f"{name}, {refit}" for refit in refits))):
                continue
            folder = words.out / f"{tasks}-{seed}"
            model, seconds = trained(train, tasks, settings.changed({"seed": seed}), folder)
            if words.only_train:
                print(f"{name:<48}seconds {seconds:.0f}", flush=True)
                continue
            if trained_row not in rows:
                keep(trained_row, measure_draws(model, draws) | {"seconds": seconds})
            for refit, (themes, covariance, *aspects) in refits.items():
                begun = time.perf_counter()
                asked = {"themes": int(themes), "covariance": covariance, "aspects": int(*aspects or [1])}
                changed = model.refit(source, progress=False, **asked, **other)
                seconds = time.perf_counter() - begun
                keep(f"{name}, {refit}", measure_draws(changed, draws) | {"seconds": seconds})


if __name__ == "__main__":
    main()
