"""What one draw of held-out tasks can tell: models and their rivals on several draws, and the sum of the models' distances.

    python benchmarks/draws.py omniglot omniglot-default omniglot-wide
    python benchmarks/draws.py omniglot omniglot-wide refit-1 refit-2 --even --draws 1 2 3 4 5
    python benchmarks/draws.py omniglot omniglot-default omniglot-wide --apart

A row for each distance: AUC of "same group" on each draw of 200 tasks of five classes, its mean, and the means of average
precision and of the share of tasks whose nearest is of the same group. Distances: KL by each model; of several models the sum of
their KLs, which is the KL between the products of their Dirichlets; of the first model's embeddings the means and the Gaussians
(Fréchet), and those of PCA-16 of the data points. ``--even`` gives each group the same number of tasks, where a draw of the
library leaves that to chance; ``--apart`` too, and as many as its classes are enough for with no class in two tasks.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

import tasktheme as tt
from tasktheme.data.episodes import Episodes
from tasktheme.evaluation import raw
from tasktheme.evaluation.retrieval import Retrieval, retrieval
from tasktheme.evaluation.rivals import frechet_distance, mean_distance
from tasktheme.tasks.distances import Floats

TASKS, WAYS, SHOTS = 200, 5, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("models", nargs="+", help="all of one size of images")
    parser.add_argument("--draws", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="seeds of the tasks")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--even", action="store_true", help="the same number of tasks of each group")
    kinds.add_argument("--apart", action="store_true", help="likewise, with no class in two tasks")
    words = parser.parse_args()
    models = {name: tt.PTM.load(name) for name in words.models}
    test = tt.load_dataset(words.data, size=next(iter(models.values())).point_shape[-1]).test
    rows: dict[str, list[Retrieval]] = {}
    for seed in words.draws:
        listed = even_tasks(test, seed, apart=words.apart) if words.even or words.apart else None
        ways, n = (WAYS, TASKS) if listed is None else (None, None)
        episodes = test.episodes(ways, SHOTS, n, seed=seed, tasks=listed)
        group = np.asarray(episodes.groups())
        for name, matrix in distances(models, episodes, seed):
            rows.setdefault(name, []).append(retrieval(matrix, group))
    width = max(map(len, rows))
    print(f"{'':<{width}}" + "".join(f"  {seed:>5}" for seed in words.draws) + "   mean  precision  nearest")
    for name, found in rows.items():
        table = np.array([(one.auc, one.mean_average_precision, one.nearest_same_group) for one in found])
        mean, precision, nearest = table.mean(axis=0)
        cells = "".join(f"  {auc:.3f}" for auc in (*table[:, 0], mean))
        print(f"{name:<{width}}{cells}  {precision:9.3f}  {nearest:7.3f}", flush=True)


def even_tasks(data: tt.Dataset, seed: int, *, apart: bool) -> npt.NDArray[np.int64]:
    """(T, WAYS) random classes of tasks, as many of each group; with ``apart`` no class is in two tasks."""
    random, groups = np.random.default_rng(seed), range(len(data.group_names))
    members = [np.flatnonzero(data.class_group == group) for group in groups]
    if apart:
        each = min(map(len, members)) // WAYS
        return np.concatenate([random.permutation(own)[: each * WAYS].reshape(each, WAYS) for own in members])
    return np.array([random.choice(own, WAYS, replace=False) for own in members for _ in range(TASKS // len(groups))])


def distances(models: dict[str, tt.PTM], episodes: Episodes, seed: int) -> Iterator[tuple[str, Floats]]:
    """(T, T) distances between the tasks, by name."""
    embedded = [model.embed(episodes, progress=False) for model in models.values()]
    own = [tasks.kl(tasks) for tasks in embedded]
    yield from zip((f"KL, {name}" for name in models), own, strict=True)
    if len(own) > 1:
        yield "sum of these", np.sum(own, axis=0)
    mask, first = episodes.batch.mask, next(iter(models.values()))
    points = torch.from_numpy(first.point_embeddings(episodes))
    yield "means, first encoder", mean_distance(points, mask).numpy()
    yield "Fréchet, first encoder", frechet_distance(points, mask).numpy()
    pixels = raw.project(raw.components(episodes.dataset, raw.DISTANCE_COMPONENTS, seed=seed), episodes.dataset)
    yield "Fréchet, PCA-16", frechet_distance(pixels.tensor[episodes.batch.rows], mask).numpy()


if __name__ == "__main__":
    main()
