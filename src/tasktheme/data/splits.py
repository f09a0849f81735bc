"""Which classes are held out: a fraction drawn by seed, or those named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt
import torch

from tasktheme.data.dataset import Dataset, DataSplit
from tasktheme.data.random import random_order
from tasktheme.errors import DataError, SettingsError

Split = float | Sequence[str | int]

DEFAULT_FRACTION = 0.25
_SPLIT = 100  # stream of random numbers


def split_dataset(dataset: Dataset, split: Split | None = None, *, seed: int = 0) -> DataSplit:
    """Hold out some groups, or classes where there is but one group.

    Args:
        dataset: all of it.
        split: the fraction of groups (or classes) held out, a quarter unless said otherwise; at least one is held out and
            one kept. Or the names of those held out: groups, classes, or "group/class" where a class name is not enough.
        seed: which ones a fraction takes.
    """
    if len(dataset.class_names) < 2:
        raise DataError(f"{dataset.name!r} has one class, {dataset.class_names[0]!r}; at least two are needed: one is held out")
    if split is None or isinstance(split, int | float):
        held_out = _draw(dataset, DEFAULT_FRACTION if split is None else split, seed)
    else:
        names = (split,) if isinstance(split, str) else tuple(map(str, split))
        held_out = np.zeros(len(dataset.class_names), dtype=np.bool_)
        for name in names:
            held_out |= _named(dataset, name)
        if held_out.all() or not held_out.any():
            raise DataError(f"split of {dataset.name!r}: {len(names)} names hold out {'all' if names else 'none'} of the classes")
    return DataSplit(
        name=dataset.name,
        train=dataset.select_classes(np.flatnonzero(~held_out)),
        test=dataset.select_classes(np.flatnonzero(held_out)),
    )


def split_of_parts(parts: Mapping[str, Dataset]) -> DataSplit:
    """The split that a data set comes with, from its parts train, test and perhaps val."""
    some = next(iter(parts.values()))
    for part in ("train", "test"):
        if part not in parts:
            raise DataError(f"{some.name!r} has no image in its part {part!r}")
    return DataSplit(name=some.name, train=parts["train"], test=parts["test"], val=parts.get("val"))


def _draw(dataset: Dataset, fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    if not 0.0 < fraction < 1.0:
        raise SettingsError(f"split, the fraction held out, must lie between 0 and 1, got {fraction}")
    groups = len(dataset.group_names)
    owner = dataset.class_group if groups > 1 else np.arange(len(dataset.class_names))
    choices = groups if groups > 1 else len(dataset.class_names)
    take = min(max(1, round(fraction * choices)), choices - 1)
    order = random_order(seed, _SPLIT, torch.tensor(0), torch.tensor(choices), slots=torch.arange(choices), take=take)
    return np.isin(owner, order.numpy())


def _named(dataset: Dataset, name: str) -> npt.NDArray[np.bool_]:
    """The classes that a name means: those of a group, or those so called."""
    groups = [dataset.group_names[group] for group in dataset.class_group]
    full = [f"{group}/{label}" for group, label in zip(groups, dataset.class_names, strict=True)]
    for candidates in (groups, dataset.class_names, full):
        meant = np.array([candidate == name for candidate in candidates], dtype=np.bool_)
        if meant.any():
            return meant
    nearest = get_close_matches(name, {*groups, *dataset.class_names, *full}, n=1, cutoff=0.0)
    raise DataError(f"split of {dataset.name!r}: there is no group or class {name!r}; the nearest is {nearest[0]!r}")
