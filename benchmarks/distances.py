"""Which distance between tasks is best at what: tasks of the same group, of equal and of mixed sizes, and the time of a pair.

    tasktheme fit omniglot --out model --themes 32 --tasks 20000 --size 32 --set covariance=diagonal
    python benchmarks/distances.py model [--data omniglot] [--draws 3] [--out distances.json]

Each draw is 200 tasks of 5 classes of the held-out groups: "equal" of 20 data points of each class, "mixed" of 2, 5, 10 or 20,
50 tasks of each, "resized" the mixed ones brought to the size of 50 data points. AUC of "same group" over ordered pairs (0.5 is
chance): means over the draws and, in brackets, the smallest and the largest. The time is that of one pair of 200 x 200.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tasktheme as tt
from tasktheme.evaluation import same_group_auc

SHOTS = (2, 5, 10, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", default="omniglot")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    model = tt.PTM.load(arguments.model, device="cpu")
    data = tt.load_dataset(arguments.data, size=model.point_shape[-1], progress=False).test
    ground = model.theme_distances()
    kinds: dict[str, Callable[[tt.TaskSet], np.ndarray]] = {
        "KL[i, j]": lambda tasks: tasks.kl(tasks),
        "KL[j, i]": lambda tasks: tasks.kl(tasks, direction="reverse"),
        "symmetric KL": lambda tasks: tasks.symmetric_kl(tasks),
        "Hellinger": lambda tasks: tasks.hellinger(tasks),
        "Jensen-Shannon": lambda tasks: tasks.jensen_shannon(tasks),
        "earth mover": lambda tasks: tasks.earth_mover(tasks, ground),
    }
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in (*kinds, "mean embedding")}
    for draw in range(arguments.draws):
        equal = data.episodes(ways=5, shots=20, n=200, seed=100 + draw)
        parts = [data.episodes(ways=5, shots=shots, n=50, seed=200 + 10 * draw + shots) for shots in SHOTS]
        mixed = tt.TaskSet.concatenate([model.embed(part) for part in parts])
        sets = {"equal": model.embed(equal), "mixed": mixed, "resized": mixed.resized(50)}
        for kind, distance in kinds.items():
            for name, tasks in sets.items():
                started = time.perf_counter()
                matrix = distance(tasks)
                taken = (time.perf_counter() - started) / matrix.size
                add(found[kind], name, matrix, tasks.columns["group"])
                found[kind].setdefault("microseconds", []).append(1e6 * taken)
        means = {"equal": model.mean_embedding(equal), "mixed": np.concatenate([model.mean_embedding(part) for part in parts])}
        for name, mean in means.items():
            matrix = np.linalg.norm(mean[:, None].astype(np.float64) - mean, axis=-1)
            add(found["mean embedding"], name, matrix, sets[name].columns["group"])
    print("| distance | AUC, equal sizes | nearest of same group | AUC, mixed sizes | AUC, mixed, resized | time of a pair |")
    print("|---|---|---|---|---|---|")
    for kind, values in found.items():
        cells = [spread(values.get(name, [])) for name in ("equal", "equal nearest", "mixed", "resized")]
        pair = f"{np.median(values['microseconds']):.2g} µs" if "microseconds" in values else ""
        print(f"| {kind} | {' | '.join(cells)} | {pair} |")
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


def add(found: dict[str, list[float]], name: str, matrix: np.ndarray, groups: object) -> None:
    labels = np.asarray(groups)
    found.setdefault(name, []).append(same_group_auc(matrix, labels))
    others = matrix + np.where(np.eye(len(matrix), dtype=bool), np.inf, 0.0)
    found.setdefault(f"{name} nearest", []).append(float(np.mean(labels[others.argmin(axis=1)] == labels)))


def spread(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})" if values else ""


if __name__ == "__main__":
    main()
