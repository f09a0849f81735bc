"""Does novelty find tasks of groups that are not among the known ones? Whole groups are held out of the known tasks.

    tasktheme fit omniglot --out model --themes 32 --tasks 20000 --size 32 --set covariance=diagonal
    python benchmarks/novelty.py model [--data omniglot] [--splits 5] [--out novelty.json]
    python benchmarks/novelty.py planted [--splits 5]

In each split half of the evaluation groups, at random, are known: 500 tasks of them, of 5 classes with half of the data points of
each class. 200 tasks of the other half of the data points of the same groups are familiar, 200 of the other groups are new. AUC
of new against familiar by the distance to the nearest known task, by the percentile alone, and by the rival, the Euclidean
distance of mean embeddings; alarms are percentiles above 95. Means over splits and, in brackets, the smallest and the largest.

``planted`` measures on vectors instead: 120 known tasks of six kinds, each a mixture of five Gaussians in 64 dimensions, with 30
to 300 points; 40 tasks of the same kinds are familiar, 40 of two kinds with Gaussians of their own are new. The model is fitted
to the known tasks, with several numbers of themes; distances are of tasks brought to 30 points. Alarms by misfit are those above
5 nats.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

import tasktheme as tt
from tasktheme.tasks.distances import Direction
from tasktheme.tasks.novelty import Novelty

Rows = dict[str, dict[str, list[float]]]  # of each distance, by measure, a number for each split

DIRECTIONS: tuple[Direction, ...] = ("forward", "reverse", "symmetric")


def part_of(data: tt.Dataset, groups: np.ndarray, half: int) -> tt.Dataset:
    """Every other data point of the classes of some groups."""
    label = np.repeat(np.arange(len(data.counts)), data.counts)
    keep = np.isin(np.asarray(data.class_group)[label], groups) & (np.arange(len(label)) % 2 == half)
    names = np.asarray(data.group_names)[np.asarray(data.class_group)[label[keep]]]
    return tt.Dataset.from_arrays(np.asarray(data.x)[keep], label[keep], names, name="part")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", default="omniglot")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if str(arguments.model) == "planted":
        show(planted(arguments.splits), arguments.out)
        return
    model = tt.PTM.load(arguments.model, device="cpu")
    data = tt.load_dataset(arguments.data, size=model.point_shape[-1], progress=False).test
    shots = int(np.asarray(data.counts).min()) // 2
    found: Rows = {}
    for split in range(arguments.splits):
        order = np.random.default_rng(split).permutation(len(data.group_names))
        known_groups, new_groups = np.array_split(order, 2)
        episodes = {
            "known": part_of(data, known_groups, 0).episodes(ways=5, shots=shots, n=500, seed=split),
            "familiar": part_of(data, known_groups, 1).episodes(ways=5, shots=shots, n=200, seed=split + 100),
            "new": part_of(data, new_groups, 1).episodes(ways=5, shots=shots, n=200, seed=split + 200),
        }
        tasks = {name: model.embed(part) for name, part in episodes.items()}
        for direction in DIRECTIONS:
            scores = {name: tasks[name].novelty(tasks["known"], direction=direction) for name in ("familiar", "new")}
            keep(found, f"KL, {direction}", scores)
        keep_misfit(found, "misfit", scores)
        keep_means(found, {name: model.mean_embedding(part).astype(np.float64) for name, part in episodes.items()})
    show(found, arguments.out)


def planted(splits: int) -> Rows:
    found: Rows = {}
    for split in range(splits):
        rng = np.random.default_rng(split)
        centres = rng.normal(size=(8, 5, 64))
        parts = {"known": (range(6), 120), "familiar": (range(6), 40), "new": ((6, 7), 40)}
        arrays = {name: draw(rng, centres[list(kinds)], count) for name, (kinds, count) in parts.items()}
        for themes in (6, 8, "auto", 32):
            model = tt.PTM(themes, device="cpu", seed=split).fit(arrays["known"], tasks=2000, progress=False)
            tasks = {name: model.embed(part).resized(30) for name, part in arrays.items()}
            scores = {name: tasks[name].novelty(tasks["known"]) for name in ("familiar", "new")}
            keep(found, f"KL, themes={themes}", scores)
            keep_misfit(found, f"misfit, themes={themes}", scores)
        means = {name: np.stack([x.mean(axis=0) for x in part]) for name, part in arrays.items()}
        keep_means(found, means)
    return found


def draw(rng: np.random.Generator, kinds: np.ndarray, count: int) -> list[np.ndarray]:
    """Vectors of tasks of random kinds, each with weights of its own for its kind's Gaussians."""
    tasks = []
    for size in rng.integers(30, 301, size=count):
        which = rng.choice(5, size=size, p=rng.dirichlet(np.full(5, 2.0)))
        tasks.append(kinds[rng.integers(len(kinds))][which] + rng.normal(size=(size, 64)))
    return tasks


def keep(found: Rows, kind: str, scores: dict[str, Novelty]) -> None:
    row = found.setdefault(kind, {})
    row.setdefault("auc", []).append(auc(scores["familiar"].distances, scores["new"].distances))
    row.setdefault("auc_percentile", []).append(auc(scores["familiar"].percentile, scores["new"].percentile))
    for name, score in scores.items():
        row.setdefault(f"alarms_{name}", []).append(float((score.percentile > 95.0).mean()))


def keep_misfit(found: Rows, kind: str, scores: dict[str, Novelty]) -> None:
    misfit = {name: score.misfit for name, score in scores.items() if score.misfit is not None}
    row = found.setdefault(kind, {})
    row.setdefault("auc", []).append(auc(misfit["familiar"], misfit["new"]))
    for name, values in misfit.items():
        row.setdefault(f"alarms_{name}", []).append(float((values > 5.0).mean()))


def keep_means(found: Rows, means: dict[str, np.ndarray]) -> None:
    nearest = {n: np.linalg.norm(means[n][:, None] - means["known"], axis=-1).min(axis=1) for n in ("familiar", "new")}
    found.setdefault("mean embedding", {}).setdefault("auc", []).append(auc(nearest["familiar"], nearest["new"]))


def show(found: Rows, out: Path | None) -> None:
    print("| distance | AUC | AUC of the percentile | alarms on familiar tasks | alarms on new tasks |\n|---|---|---|---|---|")
    for kind, values in found.items():
        cells = [spread(values.get(name, [])) for name in ("auc", "auc_percentile", "alarms_familiar", "alarms_new")]
        print(f"| {kind} | {' | '.join(cells)} |")
    if out:
        out.write_text(json.dumps(found, indent=1) + "\n")


def auc(familiar: np.ndarray, new: np.ndarray) -> float:
    return float(roc_auc_score(np.repeat([0, 1], [len(familiar), len(new)]), np.concatenate([familiar, new])))


def spread(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})" if values else ""


if __name__ == "__main__":
    main()
