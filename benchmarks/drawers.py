"""What makes two tasks of one alphabet near: the same characters, the same people's hands, or the alphabet itself?

    python benchmarks/drawers.py omniglot-default omniglot-wide

Of each evaluation alphabet of Omniglot four tasks of five characters, no character in two, once in the hands of the first ten
people who drew it and once in those of the other ten. Pairs of one alphabet are then of the same characters by others, of other
characters by the same people, or of other characters by others; each kind is told from pairs of two alphabets. A row for each
distance: area under the curve, average precision and the share of tasks whose nearest is such a one, of each kind of pairs, means
over ``--draws``. Means and Gaussians (Fréchet) are of the first model's embeddings.
"""

from __future__ import annotations

import argparse

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

import tasktheme as tt
from tasktheme.evaluation import raw
from tasktheme.evaluation.rivals import frechet_distance, mean_distance
from tasktheme.tasks.distances import Floats

WAYS, TIMES, HANDS = 5, 4, 10
KINDS = {"same characters": (True, False), "same hands": (False, True), "neither": (False, False)}
Numbers = npt.NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="all of one size of images")
    parser.add_argument("--draws", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="seeds of the characters")
    words = parser.parse_args()
    models = {name: tt.PTM.load(name) for name in words.models}
    data = tt.load_dataset("omniglot", size=next(iter(models.values())).point_shape[-1]).test
    found: dict[str, list[list[float]]] = {}
    for seed in words.draws:
        rows, what = deal(data, seed)
        for name, matrix in distances(models, data, rows).items():
            found.setdefault(name, []).append([value for kind in KINDS.values() for value in score(matrix, what, *kind)])
    width = max(map(len, found))
    print(" " * width + "".join(f"  {kind:>24}" for kind in KINDS))
    for name, values in found.items():
        table = np.mean(values, axis=0).reshape(len(KINDS), -1)
        print(f"{name:<{width}}" + "".join("  " + "".join(f"{value:8.3f}" for value in row) for row in table))


def deal(data: tt.Dataset, seed: int) -> tuple[Numbers, Numbers]:
    """(T, N) images of each task, and (T, 3) its alphabet, its characters and its hands, as numbers."""
    random = np.random.default_rng(seed)
    rows, what = [], []
    for group in range(len(data.group_names)):
        characters = random.permutation(np.flatnonzero(data.class_group == group))[: WAYS * TIMES].reshape(TIMES, WAYS)
        for time, own in enumerate(characters):
            for half in range(2):
                rows.append((data.starts[own][:, None] + HANDS * half + np.arange(HANDS)).ravel())
                what.append((group, time, half))
    return np.array(rows), np.array(what)


def distances(models: dict[str, tt.PTM], data: tt.Dataset, rows: Numbers) -> dict[str, Floats]:
    """(T, T) distances between the tasks, by name."""
    images = [data.x[own] for own in rows]
    embedded = {f"KL, {name}": model.embed(images, progress=False) for name, model in models.items()}
    first = next(iter(models.values()))
    points = torch.from_numpy(np.stack([first.embed_points(x) for x in images]))
    pixels = raw.project(raw.components(data, raw.DISTANCE_COMPONENTS, seed=0), data).tensor[torch.from_numpy(rows)]
    mask = torch.ones(points.shape[:2], dtype=torch.bool)
    rivals = {
        "means, first encoder": mean_distance(points, mask),
        "Fréchet, first encoder": frechet_distance(points, mask),
        "Fréchet, PCA-16": frechet_distance(pixels, mask),
    }
    return {name: tasks.kl(tasks) for name, tasks in embedded.items()} | {name: some.numpy() for name, some in rivals.items()}


def score(matrix: Floats, what: Numbers, characters: bool, hands: bool) -> tuple[float, float, float]:
    """AUC, average precision and nearest, of pairs of one alphabet with these in common against pairs of two alphabets."""
    alphabet, own_characters, own_hands = (column[:, None] == column for column in what.T)
    wanted = alphabet & (own_characters == characters) & (own_hands == hands)
    judged = wanted | ~alphabet
    rows = [(one[some], -row[some]) for one, row, some in zip(wanted, matrix, judged, strict=True)]
    precision = np.mean([average_precision_score(*row) for row in rows])
    nearest = np.mean([one[near.argmax()] for one, near in rows])
    return float(roc_auc_score(wanted[judged], -matrix[judged])), float(precision), float(nearest)


if __name__ == "__main__":
    main()
