from __future__ import annotations

import io
import json

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy import stats

import tasktheme as tt
from oracles.small import SMALL, small_images
from tasktheme.errors import DataError
from tasktheme.evaluation import RIVALS, evaluate_tasks, raw, same_group_auc
from tasktheme.report import plots
from tasktheme.report.tables import evaluation_table

OLD_KEYS = {
    "tasks", "groups", "auc", "auc_mean_embedding", "nearest_same_group", "largest_share", "effective_themes", "converged"
}  # fmt: skip


@pytest.fixture(scope="module")
def model() -> tt.PTM:
    return tt.PTM(settings=SMALL, device="cpu").fit(small_images(), tasks=40, progress=False)


@pytest.fixture(scope="module")
def full(model: tt.PTM) -> tt.Evaluation:
    return tt.evaluate(model, small_images(1), ways=3, shots=6, n=12, rivals=True, train=small_images())


def test_every_measure_and_rival_is_there_and_ready_for_json(model: tt.PTM, full: tt.Evaluation) -> None:
    found = json.loads(json.dumps(full.as_dict()))
    assert set(found) >= OLD_KEYS
    assert set(found["rivals"]) == {name for names in RIVALS.values() for name in names}
    for rival in found["rivals"].values():
        assert all(0.0 <= value <= 1.0 for value in rival.values())
    again = tt.evaluate(model, small_images(1), ways=3, shots=6, n=12, rivals=True, train=small_images())
    assert again.as_dict() == full.as_dict()
    assert found["reconstruction"] == pytest.approx(found["bound"]["ln_p_x"] / 256)


def test_raw_rivals_see_the_groups_of_stripes(full: tt.Evaluation) -> None:
    assert full.rivals["pca_frechet"].auc == 1.0
    assert full.rivals["pca_mean"].nearest_same_group == 1.0


def test_lda_of_components_tells_groups_apart_that_lie_apart(model: tt.PTM) -> None:
    rng = np.random.default_rng(0)
    label = np.arange(160) // 20  # eight classes, four in each group
    x = rng.normal(size=(160, 12)) + 8.0 * (label >= 4)[:, None] * np.eye(12)[0]
    data = tt.Dataset.from_arrays(x, label, label >= 4, name="apart")
    episodes = data.episodes(ways=3, shots=6, n=12, seed=1)
    distances = raw.lda_distances(model, data, episodes, seed=1)
    assert same_group_auc(distances, np.array(episodes.groups())) > 0.95


@pytest.mark.parametrize(("features", "alike"), [(12, True), (10, False)])
def test_lda_of_components_has_the_aspects_of_the_model_where_they_divide(model: tt.PTM, features: int, alike: bool) -> None:
    one, five = (model.refit(small_images(), themes=2, aspects=aspects, progress=False) for aspects in (1, 5))
    x = np.random.default_rng(0).normal(size=(160, features))
    data = tt.Dataset.from_arrays(x, np.arange(160) // 20, np.arange(160) // 80, name="noise")
    episodes = data.episodes(ways=3, shots=6, n=5, seed=1)
    whole, parts = (raw.lda_distances(rival, data, episodes, seed=1) for rival in (one, five))
    assert np.allclose(whole, parts) == alike


def test_measures_are_those_of_the_embedded_tasks(model: tt.PTM) -> None:
    episodes = small_images(1).episodes(ways=(2, 3), shots=6, n=12, seed=4)
    found = evaluate_tasks(model, episodes, seed=4)
    tasks = model.embed(episodes)
    np.testing.assert_array_equal(found.details.distances["kl"], tasks.kl(tasks))
    means = torch.from_numpy(model.mean_embedding(episodes)).double()
    np.testing.assert_allclose(found.details.distances["mean_embedding"], torch.cdist(means, means), atol=1e-4)
    assert set(found.rivals) == {"mean_embedding"}
    expected = stats.spearmanr(tasks.entropy(), found.details.accuracy).statistic
    assert found.entropy_accuracy is not None
    assert found.entropy_accuracy["spearman"] == pytest.approx(expected)
    low, high = found.entropy_accuracy["interval"]
    assert low < expected < high


def test_tasks_of_one_shot_have_neither_bound_nor_accuracy(model: tt.PTM) -> None:
    found = tt.evaluate(model, small_images(1), ways=3, shots=1, n=8)
    assert found.bound is found.reconstruction is found.prototype_accuracy is found.entropy_accuracy is None
    plots.evaluation_figure(found).draw_without_rendering()
    shown = _shown(found)
    assert "1-shot" not in shown


def test_table_fits_80_columns_and_picture_shows_each_distance(full: tt.Evaluation) -> None:
    lines = _shown(full).splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    for names in RIVALS.values():
        for name, words in names.items():
            [line] = [line for line in lines if line.strip().startswith(f"{words}  ")]
            assert f"{full.rivals[name].auc:.3f}" in line
    figure = plots.evaluation_figure(full)
    figure.draw_without_rendering()
    bars, curve, dots = figure.axes
    widths = [bar.get_width() for bar in bars.patches]
    assert widths == [full.auc, *(full.rivals[name].auc for names in RIVALS.values() for name in names)]
    assert len(curve.lines) == 4  # the model, the best of each kind of rival, and chance
    np.testing.assert_allclose(dots.collections[0].get_offsets()[:, 1], full.details.accuracy)


def _shown(found: tt.Evaluation) -> str:
    written = io.StringIO()
    Console(width=80, file=written).print(evaluation_table(found))
    return written.getvalue()


def test_classes_are_the_groups_where_there_is_one_group(model: tt.PTM) -> None:
    across = small_images(1).select_groups(["group 0"])
    found = tt.evaluate(model, across, shots=5, n=30)
    assert found.groups == 4
    assert sorted(set(found.details.group.tolist())) == sorted(across.class_names)
    assert (found.prototype_accuracy, found.entropy_accuracy) == (None, None)  # one class is always right
    as_groups = small_images(1).classes_as_groups()
    assert as_groups.group_names[:2] == ("group 0/class 0", "group 0/class 1")
    np.testing.assert_array_equal(as_groups.x, small_images(1).x)
    with pytest.raises(DataError, match="at least two groups"):
        tt.evaluate(model, across, ways=2, shots=5, n=8)


def test_tasks_that_have_no_choice_of_data_points_are_told(model: tt.PTM) -> None:
    across = small_images(1).select_groups(["group 0"])  # four classes of ten images
    with pytest.warns(UserWarning, match="26 of 30 tasks have the very data points of others.*fewer shots"):
        assert tt.evaluate(model, across, shots=10, n=30).nearest_same_group == 1.0
