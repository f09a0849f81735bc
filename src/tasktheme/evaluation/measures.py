"""All measures of a model's task representation, on tasks whose group is known but was never shown to it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tasktheme.data.dataset import Dataset
from tasktheme.data.episodes import Episodes, Range
from tasktheme.data.task_lists import TaskList
from tasktheme.evaluation import raw
from tasktheme.evaluation.correlation import spearman, spearman_interval
from tasktheme.evaluation.prototypes import prototype_accuracy
from tasktheme.evaluation.retrieval import Retrieval, check_groups, retrieval
from tasktheme.evaluation.rivals import frechet_distance, mean_distance, mmd_distance
from tasktheme.ptm import PTM
from tasktheme.tasks.distances import Floats
from tasktheme.tasks.taskset import TaskSet

RIVALS = {  # names of the rivals in JSON, and in words, by what they see
    "same encoder": {"mean_embedding": "mean embedding", "frechet": "Fréchet of Gaussians", "mmd": "MMD"},
    "raw data": {
        "pca_mean": "mean of PCA-16",
        "pca_frechet": "Fréchet on PCA-16",
        "pca_mmd": "MMD on PCA-16",
        "pca_lda": "PCA-64 + Gaussian LDA",
    },
}
_TASKS = 200  # drawn where nobody says how many
_REPEATED = 0.5  # of the tasks may have the data points of others before that is told


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Measures of a task representation.

    Attributes:
        tasks: how many tasks were embedded.
        groups: how many groups they come from.
        auc, mean_average_precision, nearest_same_group: how well KL finds tasks of the same group, see :class:`Retrieval`.
        largest_share: of the mass of all tasks in one theme, among those of its aspect; near 1 is a collapse.
        effective_themes: exponential of the entropy of the themes' shares; K if all are used alike.
        converged: share of tasks whose E-step met its tolerance.
        bound: the held-out bound per data point and its terms, see :meth:`PTM.held_out_bound`; None for tasks of one shot.
        reconstruction: E[ln p(x | u)] per pixel or feature, a part of the bound; None without a decoder.
        prototype_accuracy: 1-shot accuracy of the embedding within a task, mean over tasks; None for tasks of one shot or class.
        entropy_accuracy: Spearman's correlation of a task's entropy with that accuracy, and its 95 % bootstrap interval.
        rivals: other distances between the same tasks, by name. ``mean_embedding``, ``frechet`` and ``mmd`` are of the
            same encoder's embeddings; ``pca_mean``, ``pca_frechet``, ``pca_mmd`` and ``pca_lda`` of raw data points.
        details: what the picture draws.
    """

    tasks: int
    groups: int
    auc: float
    mean_average_precision: float
    nearest_same_group: float
    largest_share: float
    effective_themes: float
    converged: float
    bound: Mapping[str, float] | None
    reconstruction: float | None
    prototype_accuracy: float | None
    entropy_accuracy: Mapping[str, Any] | None
    rivals: Mapping[str, Retrieval]
    details: Details = field(repr=False)

    @property
    def auc_mean_embedding(self) -> float:
        """AUC by the Euclidean distance of the tasks' mean embeddings, the plain rival."""
        return self.rivals["mean_embedding"].auc

    def as_dict(self) -> dict[str, Any]:
        """All measures, ready for JSON."""
        measures = {name: value for name, value in vars(self).items() if name not in ("rivals", "details")}
        rivals = {name: asdict(found) for name, found in self.rivals.items()}
        return {**measures, "auc_mean_embedding": self.auc_mean_embedding, "rivals": rivals}


@dataclass(frozen=True, eq=False)
class Details:
    """``distances`` (T, T) by name, "kl" and the rivals'; ``group``, ``entropy`` and ``accuracy`` (T,) of the tasks."""

    distances: Mapping[str, Floats]
    group: npt.NDArray[Any]
    entropy: Floats
    accuracy: Floats


def evaluate(
    model: PTM,
    data: Dataset,
    *,
    ways: Range | None = None,
    shots: Range = 20,
    n: int | None = None,
    seed: int = 1,
    tasks: TaskList | None = None,
    rivals: bool = False,
    train: Dataset | None = None,
    progress: bool = False,
) -> Evaluation:
    """Draw ``n`` tasks (200, or all that ``tasks`` lists) from ``data``, embed them, and measure what came out.

    The arguments are those of :meth:`Dataset.episodes`, and ``rivals`` and ``train`` of :func:`evaluate_tasks`. Where all
    classes are of one group and nothing is said about ``ways``, tasks are of one class each, and the class is their group.
    """
    if len(data.group_names) == 1 and len(data.class_names) > 1 and ways is None and tasks is None and not data.unlabelled:
        data, ways = data.classes_as_groups(), 1
    if n is None and tasks is None:
        n = _TASKS
    episodes = data.episodes(ways, shots, n, seed=seed, tasks=tasks)
    return evaluate_tasks(model, episodes, seed=seed, rivals=rivals, train=train, progress=progress)


def evaluate_tasks(
    model: PTM,
    episodes: Episodes,
    *,
    embedded: TaskSet | None = None,
    seed: int = 1,
    rivals: bool = False,
    train: Dataset | None = None,
    progress: bool = False,
) -> Evaluation:
    """Measure the given tasks.

    Args:
        model: a fitted model.
        episodes: tasks of at least two groups.
        embedded: what the model makes of them, where that is known already.
        seed: of the labelled points of the 1-shot accuracy, the noise of the reconstruction, and the bootstrap.
        rivals: compute all rivals, not only the distance of mean embeddings: about a minute for 200 tasks of 100 images.
        train: the training part; with it ``rivals`` have Gaussian LDA on principal components too.
        progress: show progress bars on standard error.
    """
    tasks = model.embed(episodes, progress=progress) if embedded is None else embedded
    group = np.asarray(tasks.columns["group"])
    check_groups(group)
    _warn_of_repeated(episodes)
    points, mask = torch.from_numpy(model.point_embeddings(episodes, progress=progress)), episodes.batch.mask
    distances = {"kl": tasks.kl(tasks), "mean_embedding": mean_distance(points, mask).numpy()}
    if rivals:
        distances |= dict(_rivals(model, episodes, points, train, seed=seed, progress=progress))
    found = {name: retrieval(matrix, group) for name, matrix in distances.items()}
    accuracy = prototype_accuracy(points, episodes.batch.labels, mask, seed=seed).numpy()
    entropy = tasks.entropy()
    has_queries = bool(np.isfinite(accuracy).all()) and episodes.classes.shape[1] > 1  # one class is always right
    has_bound = episodes.fewest_shots() >= 2
    bound = model.held_out_bound(episodes, seed=seed, progress=progress) if has_bound else None
    share = tasks.mean_mixture().mean(axis=0)
    own = found.pop("kl")
    return Evaluation(
        tasks=len(tasks),
        groups=len(set(group)),
        **asdict(own),
        largest_share=float(share.max()),
        effective_themes=float(tasks.aspects * np.exp(-(share * np.log(share)).sum() / tasks.aspects)),
        converged=float(tasks.converged.mean()),
        bound=bound,
        reconstruction=None if bound is None or "ln_p_x" not in bound else bound["ln_p_x"] / math.prod(model.point_shape),
        prototype_accuracy=float(accuracy.mean()) if has_queries else None,
        entropy_accuracy=_correlation(entropy, accuracy, seed) if has_queries else None,
        rivals=found,
        details=Details(distances, group, entropy, accuracy),
    )


def _rivals(
    model: PTM, episodes: Episodes, points: torch.Tensor, train: Dataset | None, *, seed: int, progress: bool
) -> Iterator[tuple[str, Floats]]:
    """The expensive distances by name: Gaussians and kernels of embeddings, then everything on raw data."""
    mask, rows = episodes.batch.mask, episodes.batch.rows
    yield "frechet", frechet_distance(points, mask).numpy()
    yield "mmd", mmd_distance(points, mask).numpy()
    plain = raw.project(raw.components(episodes.dataset, raw.DISTANCE_COMPONENTS, seed=seed), episodes.dataset).tensor[rows]
    yield "pca_mean", mean_distance(plain, mask).numpy()
    yield "pca_frechet", frechet_distance(plain, mask).numpy()
    yield "pca_mmd", mmd_distance(plain, mask).numpy()
    if train is not None:
        yield "pca_lda", raw.lda_distances(model, train, episodes, seed=seed, progress=progress)


def _warn_of_repeated(episodes: Episodes) -> None:
    points = episodes.batch.rows.masked_fill(~episodes.batch.mask, -1).numpy()
    repeated = len(points) - len(np.unique(np.sort(points, axis=1), axis=0))
    if repeated > _REPEATED * len(points):
        warnings.warn(
            f"{repeated} of {len(points)} tasks have the very data points of others, which any distance finds: "
            "the measures say little; take fewer shots or fewer tasks",
            stacklevel=3,
        )


def _correlation(entropy: Floats, accuracy: Floats, seed: int) -> dict[str, Any]:
    return {"spearman": spearman(entropy, accuracy), "interval": list(spearman_interval(entropy, accuracy, seed))}
