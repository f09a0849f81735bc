"""Rivals without a network: principal components of the raw data points, and Gaussian LDA on them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from tasktheme.data.dataset import Dataset
from tasktheme.data.episodes import Episodes
from tasktheme.ptm import PTM
from tasktheme.settings import Settings
from tasktheme.tasks.distances import Floats

DISTANCE_COMPONENTS = 16
LDA_COMPONENTS = 64
_POINTS = 10_000  # that components are found from
_AT_ONCE = 4096  # data points turned into components together
_LDA_TASKS = 1000
_SAME = ("themes", "covariance", "concentration", "ways", "t_shots", "v_shots", "seed")  # settings taken from the model
_SHORT = {"polish_tasks": 200, "polish_sweeps": 10}  # 20,000 data points give the themes of so few dimensions

Points = npt.NDArray[np.float32]


def components(data: Dataset, count: int, *, seed: int) -> Any:
    """The ``count`` principal components of data points, or as many as there are: a fitted sklearn PCA."""
    from sklearn.decomposition import PCA

    rows = np.unique(np.linspace(0, len(data) - 1, min(len(data), _POINTS)).round().astype(np.int64))
    some = _flat(data.x[rows])
    return PCA(min(count, *some.shape), svd_solver="randomized", random_state=seed).fit(some)


def project(found: Any, data: Dataset) -> Dataset:
    """The same data set with components in place of its data points."""
    parts = [found.transform(_flat(data.x[start : start + _AT_ONCE])) for start in range(0, len(data), _AT_ONCE)]
    return dataclasses.replace(data, x=np.concatenate(parts).astype(np.float32))


def lda_distances(model: PTM, train: Dataset, tasks: Episodes, *, seed: int, progress: bool = False) -> Floats:
    """KL between tasks under Gaussian LDA on principal components, both fitted to ``train``: this model without its network.

    Themes, covariances and tasks are as in ``model``; aspects where they divide the components.
    """
    found = components(train, LDA_COMPONENTS, seed=seed)
    same = {name: getattr(model.settings, name) for name in _SAME}
    if found.n_components_ % model.themes.aspects == 0:
        same["aspects"] = model.themes.aspects
    plain = PTM(settings=Settings().changed(same | _SHORT), device=str(model.device))
    plain.fit(project(found, train), tasks=_LDA_TASKS, progress=progress)
    embedded = plain.embed(dataclasses.replace(tasks, dataset=project(found, tasks.dataset)), progress=progress)
    return embedded.kl(embedded)


def _flat(x: npt.NDArray[Any]) -> Points:
    return np.asarray(x, dtype=np.float32).reshape(len(x), -1)
