"""What each theme of a model is about: its share, where its data points come from, and the most typical of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from tasktheme.data.dataset import Dataset

_MOST_POINTS = 20_000  # data points that are looked at
_PER_CLASS = 2  # of one class among those typical of a theme
_SHOWN = 3  # sources named in a line

Shares = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class ThemeSummary:
    """One theme.

    Attributes:
        theme: its number.
        share: of the data points seen in training, among the themes of its aspect.
        classes, groups: the largest sources of its data points in the given data, by name, with their parts of its mass.
        typical: rows of the data that are most typical of it, at most two of a class; empty where it is the most probable
            theme of none.
        decoded: whether :meth:`PTM.decode_themes` shows its mean.
        aspect: that it is a theme of, from 0.
    """

    theme: int
    share: float
    classes: Shares
    groups: Shares
    typical: tuple[int, ...]
    decoded: bool
    aspect: int

    def __str__(self) -> str:
        return f"theme {self.theme} ({100 * self.share:.0f} %): {sources(self.classes)}; {sources(self.groups)}"


def sources(shares: Shares) -> str:
    """'a (40 %), b (12 %)'."""
    return ", ".join(f"{name} ({100 * part:.0f} %)" for name, part in shares[:_SHOWN])


def some_rows(data: Dataset) -> npt.NDArray[np.int64]:
    """All rows of ``data``, or many spread evenly over it."""
    return np.unique(np.linspace(0, len(data) - 1, min(len(data), _MOST_POINTS)).round().astype(np.int64))


def summarise(
    data: Dataset,
    rows: npt.NDArray[np.int64],
    log_likelihood: npt.NDArray[np.floating],
    share: npt.NDArray[np.floating],
    *,
    typical: int,
    decoded: bool,
    aspects: int = 1,
) -> list[ThemeSummary]:
    """Each theme by (M, K) log-likelihoods of the data points ``rows``, the largest share first.

    A data point's mass is divided among the themes of each aspect by their posterior probabilities, with the shares as their
    prior.
    """
    mass = softmax(_weighted(log_likelihood, share, aspects), axis=2).reshape(log_likelihood.shape)
    class_of = np.searchsorted(data.starts, rows, side="right") - 1
    by_class = np.zeros((len(data.class_names), mass.shape[1]))
    np.add.at(by_class, class_of, mass)
    by_group = np.zeros((len(data.group_names), mass.shape[1]))
    np.add.at(by_group, data.class_group, by_class)
    names = [f"{data.group_names[g]}/{name}" for name, g in zip(data.class_names, data.class_group, strict=True)]
    if len(data.group_names) == 1:
        names = list(data.class_names)
    points = typical_rows(data, rows, log_likelihood, share, typical, aspects)
    return [
        ThemeSummary(
            int(k),
            float(share[k]),
            _largest(by_class[:, k], names),
            _largest(by_group[:, k], data.group_names),
            tuple(points[k].tolist()),
            decoded,
            int(k) * aspects // len(share),
        )
        for k in np.argsort(-share, kind="stable")
    ]


def typical_rows(
    data: Dataset,
    rows: npt.NDArray[np.int64],
    log_likelihood: npt.NDArray[np.floating],
    share: npt.NDArray[np.floating],
    most: int,
    aspects: int = 1,
) -> list[npt.NDArray[np.int64]]:
    """Of each theme, those ``rows`` whose likeliest theme of its aspect it is, the likeliest first, at most two of a class."""
    log_likelihood = log_likelihood.astype(np.float64)
    best = _weighted(log_likelihood, share, aspects).argmax(axis=2)  # (M, aspects), of an aspect's themes
    themes = log_likelihood.shape[1] // aspects
    class_of = np.searchsorted(data.starts, rows, side="right") - 1
    chosen = []
    for theme in range(log_likelihood.shape[1]):
        taken: dict[int, int] = {}
        kept: list[int] = []
        for i in np.argsort(-log_likelihood[:, theme], kind="stable"):
            label = int(class_of[i])
            if best[i, theme // themes] == theme % themes and taken.get(label, 0) < _PER_CLASS and len(kept) < most:
                taken[label] = taken.get(label, 0) + 1
                kept.append(int(rows[i]))
        chosen.append(np.array(kept, dtype=np.int64))
    return chosen


def _weighted(log_likelihood: npt.NDArray[np.floating], share: npt.NDArray[np.floating], aspects: int) -> npt.NDArray[np.float64]:
    """(M, aspects, K / aspects) ln of share times likelihood, whose soft-max is the posterior of an aspect's themes."""
    with np.errstate(divide="ignore"):  # a theme without share is nobody's
        weighted: npt.NDArray[np.float64] = log_likelihood.astype(np.float64) + np.log(share.astype(np.float64))
    return weighted.reshape(len(weighted), aspects, -1)


def _largest(mass: npt.NDArray[np.float64], names: Sequence[str], most: int = 8) -> Shares:
    total = mass.sum()
    if not total > 0.0:
        return ()
    return tuple((names[i], float(mass[i] / total)) for i in np.argsort(-mass, kind="stable")[:most] if mass[i] > 0.0)
