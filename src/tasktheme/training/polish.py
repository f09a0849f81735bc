"""Full EM over a fixed set of embedded tasks: the batch form of the same model, with the encoder frozen."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce

import torch
from jaxtyping import Float
from torch import Tensor

from tasktheme import distributed
from tasktheme.model.e_step import e_step
from tasktheme.model.initialise import STARTS, alike, cluster_moments, clusters
from tasktheme.model.m_step import combine, isotropic, log_sum_over_tasks, moments, pooled, shrunk, update_alpha
from tasktheme.model.themes import Moments, Themes
from tasktheme.settings import Settings
from tasktheme.training.embedding import PlacedTasks, TaskPoints

_STARTING_POINTS = 20_000  # embeddings whose clusters the themes start from
_NUMBERS_AT_ONCE = {"cpu": 1 << 21, "cuda": 1 << 26}  # of the K x D numbers behind each data point's likelihoods and moments


def em_sweep(settings: Settings, themes: Themes, data: TaskPoints, *, prior: float = 0.0) -> Themes:
    """One E-step over all tasks and one full M-step: mu, Sigma and, where it is learned, alpha.

    ``prior`` is how many data points the covariances' prior counts as for each dimension; 0 is maximum likelihood.
    ``data`` are the process's share of the tasks; the M-step is over those of all. Likelihoods and moments are of each data
    point once, however many tasks it is in.
    """
    log_likelihood = log_likelihoods(themes, data.m, data.s)
    # of each data point, summed over its tasks; finite, or a piece of points that a theme has no part in would give no mean
    log_r = torch.full_like(log_likelihood, torch.finfo(log_likelihood.dtype).min)
    gammas = []
    for tasks in data.tasks:
        posterior = e_step(tasks.gather(log_likelihood), themes.alpha, tasks.mask, iterations=settings.e_step_iterations)
        gammas.append(posterior.gamma)
        added = log_sum_over_tasks(posterior.log_r, tasks.place, tasks.mask, points=len(tasks.points))
        log_r[tasks.points] = torch.logaddexp(log_r[tasks.points], added)
    total = _moments(settings, data, log_r)
    if prior > 0.0:
        total = shrunk(total, prior * data.m.shape[1] / data.distinct)
    alpha = (
        update_alpha(themes.alpha, distributed.gathered(torch.cat(gammas)), 1.0) if settings.learn_concentration else themes.alpha
    )
    return Themes.build(alpha, total, floor=settings.covariance_floor)


def log_likelihoods(themes: Themes, m: Float[Tensor, "P D"], s: Float[Tensor, "P D"]) -> Float[Tensor, "P K"]:
    """E[ln N(u; mu_k, Sigma_k)] of each data point, some at a time."""
    return torch.cat([themes.expected_log_likelihood(*piece) for piece in _pieces(themes.mu.numel(), m, s)])


def _moments(settings: Settings, data: TaskPoints, log_r: Float[Tensor, "P K"]) -> Moments:
    """Share, mean and covariance of each theme over all processes' data points, r being summed over the tasks of each."""
    pieces = _pieces(log_r.shape[1] * data.m.shape[1], data.m, data.s, log_r)
    parts = (moments(*piece, covariance=settings.covariance) for piece in pieces)
    found = pooled(reduce(partial(combine, first_weight=1.0, second_weight=1.0), parts))
    total = Moments(found.n / found.n.sum(), found.mu, found.Sigma)
    return isotropic(total) if settings.covariance == "isotropic" else total


def _pieces(numbers: int, m: Tensor, *tables: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same rows of each table, as many at a time as fit in memory with so many ``numbers``, K x D, for each."""
    most = _NUMBERS_AT_ONCE.get(m.device.type, _NUMBERS_AT_ONCE["cpu"])
    return zip(*(table.split(max(1, most // numbers)) for table in (m, *tables)), strict=True)


def polish(settings: Settings, themes: Themes, data: TaskPoints, sweeps: int) -> Iterator[Themes]:
    """Yield the themes after each of ``sweeps`` full EM sweeps, their covariances with a prior."""
    for _ in range(sweeps):
        themes = em_sweep(settings, themes, data, prior=settings.covariance_prior)
        yield themes


def start_themes(settings: Settings, data: TaskPoints, *, sweeps: int, starts: int = STARTS) -> Themes:
    """Themes from clusters of embeddings, the best of ``starts``, then ``sweeps`` full EM sweeps, from clusters to a mixture."""
    m, s = _some_embeddings(data)
    found = cluster_moments(m, s, themes=settings.themes, covariance=settings.covariance, seed=settings.seed, starts=starts)
    distributed.from_leader(vars(found).values())  # processors of unlike kinds may round otherwise
    themes = Themes.build(torch.full_like(found.n, settings.concentration), found, floor=settings.covariance_floor)
    for _ in range(sweeps):
        themes = em_sweep(settings, themes, data)
    return themes


def start_from_tasks(settings: Settings, data: TaskPoints) -> Themes:
    """Themes from clusters of tasks by their mean embeddings, each with all data points of its tasks; all of one covariance.

    Where there are fewer tasks than themes, from clusters of data points.
    """
    means = [distributed.gathered(_task_means(data.m, tasks)) for tasks in data.tasks]
    if sum(map(len, means)) < settings.themes:
        return start_themes(settings, data, sweeps=0)
    labels = clusters(torch.cat(means), themes=settings.themes, seed=settings.seed)
    distributed.from_leader([labels])  # processors of unlike kinds may round otherwise
    counts = data.m.new_zeros((len(data.m), settings.themes))  # of each data point's tasks in each cluster
    for tasks, label in zip(data.tasks, labels.split(list(map(len, means))), strict=True):
        theme = label[distributed.share(len(label))].unsqueeze(-1).expand_as(tasks.place)[tasks.mask]
        rows = tasks.points[tasks.place[tasks.mask]]
        counts.index_put_((rows, theme), counts.new_ones(()), accumulate=True)
    found = alike(_moments(settings, data, counts.log().clamp_min(torch.finfo(counts.dtype).min)))
    return Themes.build(torch.full_like(found.n, settings.concentration), found, floor=settings.covariance_floor)


def _task_means(m: Float[Tensor, "P D"], tasks: PlacedTasks) -> Float[Tensor, "T D"]:
    weight = tasks.mask.unsqueeze(-1).to(m.dtype)
    return (tasks.gather(m) * weight).sum(dim=1) / weight.sum(dim=1)


def _some_embeddings(data: TaskPoints) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N D"]]:
    """m and s of data points in the tasks of all processes, every so many-th; one in several tasks may come as often."""
    [count] = distributed.summed([torch.stack([tasks.mask.sum() for tasks in data.tasks]).sum()], weight=1)
    every, seen, parts = -(-int(count) // _STARTING_POINTS), 0, []
    for tasks in data.tasks:
        rows = tasks.points[tasks.place[tasks.mask]]
        m, s = (distributed.gathered(table[rows]) for table in (data.m, data.s))
        parts.append((m[-seen % every :: every], s[-seen % every :: every]))
        seen += len(m)
    m, s = (torch.cat(part) for part in zip(*parts, strict=True))
    return m, s
