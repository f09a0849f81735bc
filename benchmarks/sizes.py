"""What a task's size does to its distances, and what resizing does about it: the same classes, from few images to many.

    tasktheme fit mini-imagenet --out model --themes 32 --latent-dim 32 --tasks 6000 --size 32 --set covariance=diagonal \
        --set t_shots=5 --set v_shots=5
    python benchmarks/sizes.py model [--data mini-imagenet] [--size 10 30 100] [--out sizes.json]

The images of each held-out class are dealt out at random, without overlap, into tasks of 5, 15, 45, 135 and 400 images (as far
as they go). Then each task's nearest other task by KL, as embedded and with all tasks brought to one size.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import tasktheme as tt
from tasktheme.evaluation import same_group_auc

SIZES = (5, 15, 45, 135, 400)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", default="mini-imagenet")
    parser.add_argument("--size", type=int, nargs="+", default=[10, 30, 100])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    model = tt.PTM.load(arguments.model, device="cpu")
    data = tt.load_dataset(arguments.data, size=model.point_shape[-1], progress=False).test
    rng = np.random.default_rng(0)
    arrays, labels = [], []
    for label, (start, count) in enumerate(zip(data.starts, data.counts, strict=True)):
        rows, used = rng.permutation(int(count)) + int(start), 0
        for size in SIZES:
            if used + size <= count:
                arrays.append(np.asarray(data.x)[np.sort(rows[used : used + size])])
                labels.append(label)
                used += size
    tasks = model.embed(arrays)
    classes, sizes = np.array(labels), tasks.sizes
    forms = {"as embedded": tasks, **{f"resized to {size}": tasks.resized(size) for size in arguments.size}}
    result = {name: measure(some, classes, sizes) for name, some in forms.items()}
    print(f"{len(data.counts)} classes, {len(tasks)} tasks\n")
    print("| tasks | AUC of same class | nearest is of the same class | nearest has the same size |\n|---|---|---|---|")
    for name, values in result.items():
        print(f"| {name} | {values['auc']:.3f} | {values['nearest_class']:.2f} | {values['nearest_size']:.2f} |")
    print(f"\n| images | {' | '.join(f'entropy {name} | KL to the largest of its class' for name in result)} |")
    print("|---" * (1 + 2 * len(result)) + "|")
    for size in map(int, np.unique(sizes)):
        cells = [f"{values['entropy'][size]:.1f} | {values['kl'].get(size, np.nan):.1f}" for values in result.values()]
        print(f"| {size} | {' | '.join(cells)} |")
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


def measure(tasks: tt.TaskSet, classes: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
    """How well KL finds the same class, and means for each size; ``sizes`` are those of the data."""
    kl, entropy = tasks.kl(tasks), tasks.entropy()
    nearest = tasks.nearest(tasks, k=1).indices[:, 0]
    largest = sizes == sizes.max()
    to_largest = {classes[j]: kl[:, j] for j in np.flatnonzero(largest)}
    smaller = [size for size in np.unique(sizes) if size < sizes.max()]
    return {
        "auc": same_group_auc(kl, classes),
        "nearest_class": float(np.mean(classes[nearest] == classes)),
        "nearest_size": float(np.mean(sizes[nearest] == sizes)),
        "entropy": {int(size): float(entropy[sizes == size].mean()) for size in np.unique(sizes)},
        "kl": {int(s): float(np.mean([to_largest[classes[i]][i] for i in np.flatnonzero(sizes == s)])) for s in smaller},
    }


if __name__ == "__main__":
    main()
