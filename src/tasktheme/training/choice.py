"""How many themes: mixtures of a ladder of sizes, fitted with the encoder frozen and scored on groups that they did not see."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from tasktheme import distributed
from tasktheme.data.dataset import Dataset
from tasktheme.data.episodes import EpisodeBatch, EpisodeSampler
from tasktheme.data.random import random_places
from tasktheme.errors import DataError, TrainingError
from tasktheme.model.bound import lda_bound
from tasktheme.model.e_step import e_step, responsibilities
from tasktheme.model.themes import Themes
from tasktheme.nets.build import Encoder
from tasktheme.progress import Advance
from tasktheme.settings import Settings
from tasktheme.training.embedding import TaskPoints, embed_tasks
from tasktheme.training.polish import log_likelihoods, start_themes

LADDER = (2, 4, 8, 16, 32, 64, 128)
_HELD_OUT = 4  # one group, or class, of so many is held out
_TASKS = 800  # fitted to and scored, together
_TASKS_AT_ONCE = 100
_STARTS = 3  # of k-means for each K: fewer than for themes that are kept (docs/decisions.md)
_SWEEPS = 10  # of EM for each K
_FALLS = 2  # sizes in a row that score below the best: larger ones are not tried


@dataclasses.dataclass(frozen=True)
class Choice:
    """themes: the chosen K. curve: of each K tried, in order, the mean score and how far it is below the best.

    ``bound`` is the LDA part of the bound per data point, in nats; ``below`` its mean distance from the best K's, over held-out
    groups, and ``error`` the standard error of that distance.
    """

    themes: int
    curve: list[dict[str, float]]

    def __str__(self) -> str:
        tried = ", ".join(f"{row['themes']:.0f}: {row['bound']:.2f}" for row in self.curve)
        return f"{self.themes} themes, the fewest within one standard error of the best held-out bound ({tried})"

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return dataclasses.asdict(self)


def held_out_groups(settings: Settings, dataset: Dataset) -> tuple[Dataset, Bool[Tensor, " G"]]:
    """The same data points in groups of which some are held out, and which: a fourth of the groups, or of each group's classes.

    A task's classes are then of one part. A class is an unlabelled task where tasks are unlabelled.
    """
    fewest = 1 if dataset.unlabelled else settings.ways[0]
    generator = np.random.default_rng(settings.seed)
    groups = len(dataset.group_names)
    if groups >= _HELD_OUT:
        held = generator.permutation(groups) % _HELD_OUT == 0
        return dataset, torch.from_numpy(held)
    place = np.empty(len(dataset.class_group), dtype=np.int64)  # of each class in its group, shuffled
    for group in range(groups):
        members = np.flatnonzero(dataset.class_group == group)
        place[members] = generator.permutation(len(members))
    sizes = np.bincount(dataset.class_group, minlength=groups)
    kept_out = np.maximum(fewest, sizes // _HELD_OUT)[dataset.class_group]
    apart = (place < kept_out) & (sizes >= 2 * fewest)[dataset.class_group]
    if not apart.any():
        raise DataError(
            f"choosing the number of themes needs {_HELD_OUT} groups, or {2 * fewest} classes in a group, to hold some out: "
            "set themes to a number"
        )
    used, class_group = np.unique(2 * dataset.class_group + apart, return_inverse=True)
    names = tuple(f"{dataset.group_names[code // 2]}{' held out' if code % 2 else ''}" for code in used.tolist())
    divided = dataclasses.replace(dataset, class_group=class_group.astype(np.int64), group_names=names)
    return divided, torch.from_numpy(used % 2 == 1)


@dataclasses.dataclass(frozen=True)
class HeldOutTasks:
    """Embedded tasks that no theme is fitted to: the t half of a batch, its v half, those of the next; each task's group.

    The groups are those of all processes' tasks.
    """

    halves: TaskPoints
    group: Int64[Tensor, " T"]


def embedded_parts(
    settings: Settings, encoder: Encoder, dataset: Dataset, data: Tensor, halves: tuple[int, int]
) -> tuple[TaskPoints, HeldOutTasks]:
    """Tasks of the training data for fitting themes, and tasks of other groups for scoring them."""
    divided, held = held_out_groups(settings, dataset)
    number, tasks = _TASKS, None
    if dataset.unlabelled:  # each once, some of them where there are many
        tasks = random_places(settings.seed, len(dataset.counts), _TASKS)[:, None]
        number = len(tasks)
    sampler = EpisodeSampler(
        divided,
        ways=None if dataset.unlabelled else settings.ways,
        tasks=tasks,
        shots=sum(halves),
        seed=settings.seed,
        allow_fewer=dataset.unlabelled,
        device=data.device,
    )
    group_of_class = torch.from_numpy(divided.class_group).to(data.device)
    fitted: list[EpisodeBatch] = []
    scored: list[EpisodeBatch] = []
    units: list[Tensor] = []
    for task in torch.arange(number, device=data.device).split(_TASKS_AT_ONCE):
        group = group_of_class[sampler.classes(task)[0][:, 0]]
        out = held.to(data.device)[group]
        if not bool(out.all()):
            fitted += sampler.draw(task[~out])
        t, v = sampler.draw(task, *halves)
        out &= t.mask.any(dim=1) & v.mask.any(dim=1)  # an unlabelled task of one data point has one half only
        if bool(out.any()):
            scored += [EpisodeBatch(half.rows[out], half.labels[out], half.mask[out]) for half in (t, v)]
            # groups are alike inside, so they are the units of the error; unlabelled tasks are units themselves
            units.append((task if dataset.unlabelled else group)[out])
    if not scored:
        raise DataError("choosing the number of themes needs held-out tasks of two data points: set themes to a number")
    return embed_tasks(encoder, data, fitted), HeldOutTasks(embed_tasks(encoder, data, scored), torch.cat(units))


def choose_themes(
    settings: Settings,
    fitted: TaskPoints,
    held_out: HeldOutTasks,
    *,
    ladder: Sequence[int] = LADDER,
    advance: Advance | None = None,
) -> Choice:
    """Fit themes of each size in the ladder to some tasks by EM and score others, until scores fall; all aspects have as many.

    Chosen is the smallest K whose score is within one standard error of the best (Breiman et al., 1984), the error being that
    of the difference over held-out groups.
    """
    group, aspects = held_out.group.cpu().numpy(), settings.aspects
    parts = [(fitted.aspect(each, aspects), held_out.halves.aspect(each, aspects)) for each in range(aspects)]
    scores: dict[int, npt.NDArray[np.float64]] = {}
    for themes in ladder:
        sized, bounds = dataclasses.replace(settings, themes=themes), []
        try:
            for own, halves in parts:
                found = start_themes(sized, own, sweeps=_SWEEPS, starts=_STARTS)
                bounds.append(held_out_bound(settings, found, halves).double().cpu().numpy())
        except DataError:  # fewer data points than themes
            break
        score = np.sum(bounds, axis=0)
        if not np.isfinite(score).all():  # more themes than the data can tell apart
            break
        scores[themes] = np.array([score[group == each].mean() for each in np.unique(group)])
        if advance is not None:
            advance(1, f"K = {themes}: {score.mean():.2f}")
        means = [value.mean() for value in scores.values()]
        if len(means) - 1 - int(np.argmax(means)) >= _FALLS:
            break
    if not scores:
        raise TrainingError(
            "no number of themes gives a finite held-out bound: set themes to a number, or raise covariance_floor"
        )
    return smallest_good(scores)


def smallest_good(scores: dict[int, npt.NDArray[np.float64]]) -> Choice:
    """The rule, from the score of each held-out group under each K."""
    best = max(scores, key=lambda themes: scores[themes].mean())
    curve = []
    for themes, score in scores.items():
        below = scores[best] - score
        error = below.std(ddof=1) / np.sqrt(len(below)) if len(below) > 1 else 0.0
        row = {"themes": themes, "bound": score.mean(), "below": below.mean(), "error": error}
        curve.append({name: float(value) for name, value in row.items()})
    chosen = next(row for row in curve if row["below"] <= row["error"])
    return Choice(int(chosen["themes"]), curve)


def held_out_bound(settings: Settings, themes: Themes, halves: TaskPoints) -> Float[Tensor, " T"]:
    """The LDA part of each task's bound per data point of the v half, with q(z, pi) from the t half, as in training.

    ``halves`` are the process's share, as in :class:`HeldOutTasks`; returned are all tasks.
    """
    log_likelihood = log_likelihoods(themes, halves.m, halves.s)
    bounds = []
    for t, v in zip(halves.tasks[::2], halves.tasks[1::2], strict=True):
        likelihood_t, likelihood_v = (half.gather(log_likelihood) for half in (t, v))
        gamma = e_step(likelihood_t, themes.alpha, t.mask, iterations=settings.e_step_iterations).gamma
        bound = lda_bound(likelihood_v, responsibilities(likelihood_v, gamma), gamma, themes.alpha, v.mask).total()
        bounds.append(distributed.gathered(bound / v.mask.sum(dim=-1).clamp_min(1)))
    return torch.cat(bounds)
