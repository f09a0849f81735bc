from __future__ import annotations

import numpy as np
import pytest

import tasktheme as tt
from oracles.small import SMALL, small_images
from tasktheme.theme_summary import summarise

DATA = tt.Dataset.from_arrays(np.arange(8.0)[:, None], list("aabbccdd"), list("xxxxyyyy"), name="eight")


def test_a_theme_draws_from_classes_and_groups_by_the_mass_of_their_points() -> None:
    probability = np.array([[0.9, 0.1]] * 3 + [[0.2, 0.8]] * 5)
    share = np.array([0.25, 0.75])
    first, second = summarise(DATA, np.arange(8), np.log(probability / share), share, typical=3, decoded=False)
    assert (first.theme, second.theme, first.share) == (1, 0, 0.75)  # the largest first
    mass = probability[:, 0]
    groups, classes = dict(second.groups), dict(second.classes)
    assert groups == pytest.approx({"x": mass[:4].sum() / mass.sum(), "y": mass[4:].sum() / mass.sum()})
    assert classes["x/b"] == pytest.approx(mass[2:4].sum() / mass.sum())
    assert sum(classes.values()) == pytest.approx(1.0)
    assert second.classes[0][0] == "x/a"
    assert second.typical == (0, 1, 2)
    assert str(second).startswith("theme 0 (25 %): x/a (")


def test_a_theme_without_share_draws_from_nothing() -> None:
    found = summarise(DATA, np.arange(8), np.zeros((8, 2)), np.array([1.0, 0.0]), typical=3, decoded=False)
    assert (found[1].classes, found[1].groups, found[1].typical) == ((), (), ())


def test_summary_of_a_model_names_its_data() -> None:
    data = small_images()
    model = tt.PTM(settings=SMALL, device="cpu").fit(data, tasks=40, progress=False)
    found = model.summary(data, typical=4)
    assert sorted(theme.theme for theme in found) == [0, 1, 2]
    assert sum(theme.share for theme in found) == pytest.approx(1.0, abs=1e-5)
    assert all(theme.decoded and len(theme.typical) <= 4 for theme in found)
    assert {name for theme in found for name, _ in theme.groups} == {"group 0", "group 1"}
