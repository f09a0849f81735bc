"""The real data sets, where TASKTHEME_DATA names their folder."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import numpy as np
import pytest

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


def test_mini_imagenet(monkeypatch: pytest.MonkeyPatch) -> None:
    with TemporaryDirectory() as folder:  # 700 MB that no run leaves behind
        monkeypatch.setenv("TASKTHEME_CACHE", folder)
        _check_mini_imagenet()


def _check_mini_imagenet() -> None:
    split = load_dataset("mini-imagenet", progress=False)
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
