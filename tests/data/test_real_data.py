"""The real data sets, where TASKTHEME_DATA names their folder."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from tasktheme.data.dataset import DataSplit
from tasktheme.data.loading import load_dataset

pytestmark = pytest.mark.data


def test_omniglot() -> None:
    split = load_dataset("omniglot", progress=False)
    for part, alphabets, characters in ((split.train, 30, 964), (split.test, 20, 659)):
        assert len(part.group_names) == alphabets
        assert len(part.class_names) == characters
        assert (part.counts == 20).all()
        assert part.x.shape == (20 * characters, 1, 64, 64)
        assert part.x.dtype == np.uint8
        pictures = np.asarray(part.x)
        assert (pictures.max(axis=(1, 2, 3)) == 255).all()
        ink = (pictures > 127).mean(axis=(1, 2, 3))
        assert ink.min() > 0.0
        assert ink.max() < 0.35
        assert 0.05 < ink.mean() < 0.1
        assert (pictures[:, 0, 0, 0] == 0).mean() > 0.99  # corners are empty
    assert not set(split.train.group_names) & set(split.test.group_names)
    assert "Greek" in split.train.group_names
    assert "Tengwar" in split.test.group_names


@pytest.fixture(scope="module")
def mini_imagenet() -> DataSplit:
    return load_dataset("mini-imagenet", progress=False)


def test_mini_imagenet(mini_imagenet: DataSplit) -> None:
    split = mini_imagenet
    assert split.val is not None
    for part, classes in ((split.train, 64), (split.val, 16), (split.test, 20)):
        assert len(part.class_names) == classes
        assert (part.counts == 600).all()
        assert part.x.shape == (600 * classes, 3, 64, 64)
        assert part.x.dtype == np.uint8
        some = np.asarray(part.x[::97])
        assert 90 < some.mean() < 140
        assert 50 < some.std() < 90
        assert (some[:, 0] != some[:, 2]).any()
    assert split.train.class_names[0] == "n01532829"
    assert "n01930112" in split.test.class_names
    parts = [set(part.class_names) for part in (split.train, split.val, split.test)]
    assert len(set.union(*parts)) == 100


def test_all_15504_tasks_of_mini_imagenet(mini_imagenet: DataSplit) -> None:
    data = mini_imagenet.test
    episodes = data.episodes(tasks=data.combinations(5), shots=16, seed=1)
    assert len(episodes) == 15_504
    assert len(episodes.classes.unique(dim=0)) == 15_504
    assert (torch.bincount(episodes.classes.flatten(), minlength=20) == 3_876).all()
    assert episodes.batch.mask.all()
    rows = episodes.batch.rows
    assert (rows.sort(dim=1).values.diff(dim=1) > 0).all()  # no image twice in a task
    assert torch.equal(rows // 600, episodes.classes.gather(1, episodes.batch.labels))
    drawn = torch.bincount(rows.flatten(), minlength=12_000).view(20, 600).numpy()
    # 16 of 600 without repetition spread more evenly than independent draws: the test is on the safe side
    assert min(stats.chisquare(of_class).pvalue for of_class in drawn) > 1e-4
