from __future__ import annotations

import dataclasses
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import tasktheme as tt
from oracles.small import SMALL, TOLD_APART, small_images, small_vectors
from tasktheme.device import find_device
from tasktheme.errors import DataError, ModelFileError, NotFittedError, OutputError, SettingsError, TrainingWarning
from tasktheme.evaluation import evaluate
from tasktheme.model.themes import Themes
from tasktheme.selection.base import Tasks
from tasktheme.tasks.files import stream_tasks
from tasktheme.training.embedding import TaskPoints
from tasktheme.training.loop import Trainer
from tasktheme.training.polish import start_themes


@pytest.fixture(scope="module")
def data() -> tt.Dataset:
    return small_images()


@pytest.fixture(scope="module")
def model(data: tt.Dataset) -> tt.PTM:
    return tt.PTM(settings=TOLD_APART).fit(data, tasks=40, progress=False)


def weights(model: tt.PTM) -> dict[str, torch.Tensor]:
    return model._require_fitted().tensors()


def assert_same_weights(first: tt.PTM, second: tt.PTM) -> None:
    ours, theirs = weights(first), weights(second)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.equal(ours[name], theirs[name]), name


def test_history_holds_every_term_of_the_bound(model: tt.PTM) -> None:
    terms = {"ln_p_u", "ln_p_z", "ln_p_pi", "entropy_z", "entropy_pi", "entropy_u", "ln_p_x", "loss"}
    assert terms <= set(model.history[-1])
    assert model.history[-1]["tasks"] == 40
    assert np.isfinite([row["loss"] for row in model.history]).all()


def test_training_lowers_the_loss(data: tt.Dataset) -> None:
    longer = tt.PTM(settings=SMALL.changed({"learning_rate": 5e-3})).fit(data, tasks=400, progress=False)
    losses = [row["loss"] for row in longer.history]
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.05


@pytest.mark.parametrize(("start", "bright"), [("data", True), ("random", False)])
def test_the_first_image_decoded_is_as_bright_as_the_data_where_networks_start_there(start: str, bright: bool) -> None:
    white = tt.Dataset.from_arrays(255 - small_images().x // 4, np.arange(80) // 10, np.arange(80) // 40)
    settings = SMALL.changed({"network_start": start, "learning_rate": 1e-6})
    model = tt.PTM(settings=settings, device="cpu").fit(white, tasks=4, progress=False)
    assert (weights(model)["decoder.bias"].item() > 3.0) is bright


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(data: tt.Dataset, model: tt.PTM) -> None:
    assert_same_weights(model, tt.PTM(settings=TOLD_APART).fit(data, tasks=40, progress=False))
    other = tt.PTM(settings=TOLD_APART, seed=1).fit(data, tasks=40, progress=False)
    assert not torch.equal(weights(other)["themes.mu"], weights(model)["themes.mu"])
    assert other.fingerprint != model.fingerprint


def test_embedding_gives_a_posterior_that_counts_the_points(model: tt.PTM, data: tt.Dataset) -> None:
    tasks = model.embed(data.episodes(ways=3, shots=4, n=7, seed=5))
    np.testing.assert_allclose(tasks.concentration.sum(axis=1), SMALL.themes * SMALL.concentration + 12, rtol=1e-5)
    assert tasks.sizes.tolist() == [12] * 7
    assert tasks.converged.all()
    assert set(tasks.columns) == {"group", "classes"}


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_a_stream_gives_what_embedding_at_once_gives(
    model: tt.PTM, data: tt.Dataset, norm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = model if norm == "group" else tt.PTM(settings=SMALL.changed({"norm": norm})).fit(data, tasks=4, progress=False)
    whole = fitted.embed(data.episodes(ways=(2, 4), shots=(1, 5), n=50, seed=3))
    embedded_points = []
    encode = type(fitted._require_fitted().networks.encoder).forward
    monkeypatch.setattr(
        type(fitted._require_fitted().networks.encoder),
        "forward",
        lambda self, x, mask: embedded_points.append(int(mask.sum())) or encode(self, x, mask),
    )
    monkeypatch.setattr("tasktheme.ptm._TASKS_IN_PART", 7)
    parts = fitted.embed_stream(data.stream(ways=(2, 4), shots=(1, 5), n=50, seed=3))
    stream_tasks(parts, tmp_path / "tasks.parquet", count=50)
    loaded = tt.TaskSet.load(tmp_path / "tasks.parquet")
    assert loaded.concentration.tobytes() == whole.concentration.tobytes() or norm == "batch"
    np.testing.assert_allclose(loaded.concentration, whole.concentration, rtol=1e-3)
    assert loaded.columns == whole.columns
    np.testing.assert_array_equal(loaded.sizes, whole.sizes)
    assert loaded.fingerprint == whole.fingerprint
    np.testing.assert_array_equal(loaded.prior, whole.prior)
    assert sum(embedded_points) == (len(data) if norm == "group" else whole.sizes.sum())  # each point once
    assert [file.name for file in tmp_path.iterdir()] == ["tasks.parquet"]


def test_what_is_no_stream_is_told_at_once(model: tt.PTM, data: tt.Dataset) -> None:
    for given, said in (
        (data.episodes(ways=2, shots=2, n=3), r"got Episodes: what is in memory is for embed"),
        ([data.x[:3]], r"got list: what is in memory is for embed"),
        (iter([data.x[:3]]), r"dataset\.stream\(\.\.\.\) gives, got list_iterator: draw one"),
    ):
        with pytest.raises(DataError, match=said):
            model.embed_stream(given)  # type: ignore[arg-type]


def test_a_stream_that_ends_early_leaves_no_file(model: tt.PTM, data: tt.Dataset, tmp_path: Path) -> None:
    def broken() -> Iterator[tt.TaskSet]:
        yield model.embed(data.episodes(ways=2, shots=2, n=3))
        raise DataError("the rest is missing")

    with pytest.raises(DataError, match="the rest is missing"):
        stream_tasks(broken(), tmp_path / "tasks.parquet", count=6)
    with pytest.raises(OutputError, match="cannot write"):
        stream_tasks(model.embed_stream(data.stream(ways=2, shots=2, n=3)), tmp_path / "no" / "tasks.parquet", count=3)
    assert list(tmp_path.iterdir()) == []


def test_the_longest_warm_up_leaves_the_themes_a_step(data: tt.Dataset) -> None:
    model = tt.PTM(settings=SMALL.changed({"warm_up": 0.99})).fit(data, tasks=20, progress=False)
    assert len(model.themes.alpha) == SMALL.themes
    np.testing.assert_allclose(model.embed([data.x[:10]]).concentration.sum(), 10 + 3 * 1.1, rtol=1e-5)


def test_labels_of_a_task_are_left_aside(model: tt.PTM, data: tt.Dataset) -> None:
    with_labels = model.embed([(data.x[:9], np.arange(9))])
    np.testing.assert_array_equal(with_labels.concentration, model.embed([data.x[:9]]).concentration)


def test_mean_embedding_is_the_mean_over_a_tasks_points(model: tt.PTM, data: tt.Dataset) -> None:
    tasks = [data.x[:4], data.x[10:17]]
    expected = [model.embed_points(task).mean(axis=0) for task in tasks]
    np.testing.assert_allclose(model.mean_embedding(tasks), expected, rtol=1e-4, atol=1e-5)


def test_images_as_floats_embed_as_their_uint8(model: tt.PTM, data: tt.Dataset) -> None:
    as_floats = data.x[:9].astype(np.float64) / 255.0
    np.testing.assert_array_equal(model.embed([as_floats]).concentration, model.embed([data.x[:9]]).concentration)


def test_groups_with_fewer_classes_than_the_most_ways_train_too(data: tt.Dataset) -> None:
    """The most ways are then those of the largest group, here four."""
    changes = {"norm": "batch", "classification_weight": 1.0, "initialisation": "random"}
    wide, exact = (SMALL.changed({"ways": ways, **changes}) for ways in ((2, 9), (2, 4)))
    losses = [tt.PTM(settings=s).fit(data, tasks=8, progress=False).history[-1]["loss"] for s in (wide, exact)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_unlabelled_tasks_train_too() -> None:
    generator = np.random.default_rng(0)
    tasks = [generator.normal(size=(n, 3)) + 5.0 * (i % 2) for i, n in enumerate([1, 2, 9, 30, 31, 8, 50, 60])]
    model = tt.PTM(2, settings=SMALL).fit(tasks, tasks=40, progress=False)
    share = model.embed(tasks).mean_mixture()[3:]
    even, odd = share[1::2].argmax(axis=1), share[0::2].argmax(axis=1)
    assert set(even) != set(odd)
    assert len(set(even)) == len(set(odd)) == 1


@pytest.mark.parametrize("covariance", ["full", "diagonal", "isotropic"])
@pytest.mark.parametrize("encoder", ["identity", "vector"])
def test_vectors_with_every_covariance(encoder: str, covariance: str) -> None:
    settings = SMALL.changed({"encoder": encoder, "covariance": covariance, "learn_concentration": True})
    data = small_vectors()
    model = tt.PTM(settings=settings).fit(data, tasks=40, progress=False)
    assert model.embed(data.episodes(ways=3, shots=5, n=4)).concentration.shape == (4, SMALL.themes)
    assert (model.themes.alpha > 0).all()
    assert model.themes.valid
    decoded = model.decode_themes()
    assert decoded is None if encoder == "identity" else decoded.shape == (SMALL.themes, 6)


def test_the_paper_preset_trains_with_labels(data: tt.Dataset) -> None:
    small = {key: getattr(SMALL, key) for key in ("filters", "latent_dim", "themes", "t_shots", "v_shots", "batch_tasks")}
    model = tt.PTM(settings=tt.Settings.preset("paper").changed(small | {"ways": (2, 4)})).fit(data, tasks=40, progress=False)
    assert {"ln_p_y", "accuracy"} <= set(model.history[-1])
    assert model.embed([data.x[:10]]).converged.all()


def test_save_and_load_give_the_same_bits(model: tt.PTM, data: tt.Dataset, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = tt.PTM.load(tmp_path / "model")
    assert_same_weights(model, loaded)
    assert loaded.settings == model.settings
    assert loaded.history == model.history
    assert loaded.fingerprint == model.fingerprint
    episodes = data.episodes(ways=3, shots=4, n=5)
    np.testing.assert_array_equal(loaded.embed(episodes).concentration, model.embed(episodes).concentration)


def test_a_saved_model_records_settings_versions_and_seed(model: tt.PTM, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    about = json.loads((tmp_path / "model" / "model.json").read_text())
    assert about["settings"]["seed"] == SMALL.seed
    assert {"tasktheme", "torch", "python"} <= set(about["versions"])
    assert about["trained_on"] == {"data": "small", "tasks": 40}
    assert sorted(file.name for file in (tmp_path / "model").iterdir()) == ["model.json", "weights.safetensors"]


def test_a_model_whose_settings_are_no_longer_its_own_is_not_saved(data: tt.Dataset, tmp_path: Path) -> None:
    model = tt.PTM(settings=SMALL).fit(data, tasks=8, progress=False)
    model.settings = model.settings.changed({"embed_iterations": 7})
    model.save(tmp_path / "model")
    assert tt.PTM.load(tmp_path / "model").settings.embed_iterations == 7
    model.settings = model.settings.changed({"themes": 5, "latent_dim": 4})
    with pytest.raises(SettingsError, match="themes, latent_dim changed after the fit"):
        model.save(tmp_path / "other")
    assert not (tmp_path / "other").exists()
    model.fit(data, tasks=8, progress=False).save(tmp_path / "other")
    assert len(tt.PTM.load(tmp_path / "other").themes.alpha) == 5


def test_saving_does_not_overwrite_unasked_nor_anything_foreign(model: tt.PTM, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    with pytest.raises(OutputError, match=r"exists already.*overwrite=True"):
        model.save(tmp_path / "model")
    model.save(tmp_path / "model", overwrite=True)
    assert tt.PTM.load(tmp_path / "model").fingerprint == model.fingerprint
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "model.json").write_text('{"kind": "of another tool"}')
    with pytest.raises(OutputError, match="not a saved model"):
        model.save(tmp_path / "precious", overwrite=True)
    (tmp_path / "model" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="holds other files"):
        model.save(tmp_path / "model", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "precious"]


def test_an_interrupt_between_old_and_new_keeps_the_old(model: tt.PTM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model.save(tmp_path / "model")
    rename = Path.rename

    def interrupt(self: Path, target: Path) -> Path:
        if target == tmp_path / "model" and self.suffix == ".tmp":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.save(tmp_path / "model", overwrite=True)
    assert tt.PTM.load(tmp_path / "model").fingerprint == model.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_overwriting_through_a_link_keeps_the_link(model: tt.PTM, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    (tmp_path / "link").symlink_to(tmp_path / "model")
    model.save(tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert tt.PTM.load(tmp_path / "link").fingerprint == model.fingerprint


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_not_called_damage(model: tt.PTM, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    with pytest.raises(SettingsError, match="no GPU"):
        tt.PTM.load(tmp_path / "model", device="cuda")


def test_a_gpu_other_than_the_current_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert [find_device(name).index for name in ("cuda", "cuda:0")] == [None, 0]
    with pytest.raises(SettingsError, match=r"'cuda:1' is not the current GPU.*CUDA_VISIBLE_DEVICES"):
        tt.PTM(device="cuda:1")


def _truncate(folder: Path) -> None:
    file = folder / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:-7])


def _flip(folder: Path) -> None:
    file = folder / "weights.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))


def _edit(folder: Path, **changes: object) -> None:
    file = folder / "model.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_truncate, "damaged: its checksum"),
        (_flip, "damaged: its checksum"),
        (lambda folder: (folder / "weights.safetensors").unlink(), "has no weights.safetensors"),
        (lambda folder: (folder / "model.json").unlink(), "has no model.json"),
        (lambda folder: (folder / "model.json").write_text("{"), "model.json' is damaged"),
        (lambda folder: (folder / "model.json").write_text("[]"), "not a model that tasktheme saved"),
        (lambda folder: _edit(folder, kind="another tool's"), "not a model that tasktheme saved"),
        (lambda folder: _edit(folder, format=99), "format 99, newer than this tasktheme reads"),
        (lambda folder: _edit(folder, point_shape=[1, 32, 32]), "damaged"),
        (lambda folder: _edit(folder, settings={"nonsense": 1}), "damaged"),
        (
            lambda folder: _edit(folder, settings=SMALL.changed({"themes": 4}).as_dict()),
            "'themes.alpha' are torch.float32 of shape (3,), expected torch.float32 of shape (4,)",
        ),
        (lambda folder: _edit(folder, settings=SMALL.changed({"covariance": "diagonal"}).as_dict()), "'themes.Sigma' are"),
        (lambda folder: _edit(folder, history=["x"]), "its 'history' is missing or of the wrong kind"),
        (lambda folder: _edit(folder, trained_on={}), "its 'trained_on' is missing or of the wrong kind"),
        (lambda folder: _edit(folder, point_shape=[1, 0, 16]), "its 'point_shape' is missing or of the wrong kind"),
        (lambda folder: _edit(folder, settings=[]), "its 'settings' is missing or of the wrong kind"),
        (lambda folder: _edit(folder, format=None), "does not say its format"),
        (shutil.rmtree, "no model folder"),
    ],
)
def test_loading_a_bad_folder_says_what_is_wrong(model: tt.PTM, tmp_path: Path, damage: object, words: str) -> None:
    folder = tmp_path / "model"
    model.save(folder)
    assert callable(damage)
    damage(folder)
    with pytest.raises(ModelFileError) as caught:
        tt.PTM.load(folder)
    assert words in str(caught.value)


def test_an_unfitted_model_says_so(data: tt.Dataset, tmp_path: Path) -> None:
    for ask in (lambda m: m.embed([data.x[:3]]), lambda m: m.themes, lambda m: m.save(tmp_path / "m")):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            ask(tt.PTM())


def test_bad_tasks_are_one_clear_line(model: tt.PTM, data: tt.Dataset) -> None:
    wide = np.zeros((2, 1, 16, 32), dtype=np.uint8)
    nan = np.full((2, 1, 16, 16), np.nan)
    for tasks, words in [
        ([], "no task"),
        ([data.x[:0]], "task 0: is empty"),
        ([data.x[:2], nan], "task 1: data point 0 holds a NaN"),
        ([wide], "shape (1, 16, 16), got (1, 16, 32)"),
        ({"ann": wide}, "task 'ann': this model embeds data points of shape (1, 16, 16), got (1, 16, 32)"),
        ({"ann": wide, "bob": wide, "cy": wide}, "task 'ann' and 2 others: this model embeds"),
        ([data.x[:2], wide], "as in task 0"),
        ([data.x[:2].astype(np.float32)], "must lie in [0, 1]"),
        ([data.x[:2].astype(np.int64)], "uint8 or real numbers"),
        ([np.array(["a", "b"])], "real numbers"),
        (data.x[:3], "got one array"),
        (data, "labelled data set, not tasks"),
        (tt.DataSplit("both", data, data), "labelled data set, not tasks"),
        (None, "got NoneType"),
        ("glyphs", "got 'glyphs': load it with load_dataset, or as unlabelled tasks with load_tasks"),
        ({"ann": data.x[:2], "bob": nan}, "task 'bob': data point 0 holds a NaN"),
    ]:
        with pytest.raises(DataError) as caught:
            model.embed(tasks)
        assert words in str(caught.value)


def test_all_tasks_at_fault_are_named_at_once(model: tt.PTM, data: tt.Dataset) -> None:
    good, nan = data.x[:2], np.full((2, 1, 16, 16), np.nan)
    with pytest.raises(DataError, match=r"task 'bob': data point 0 holds a NaN .*; at fault too: task 'dan', task 'eve'"):
        model.embed({"ann": good, "bob": nan, "cat": good, "dan": np.zeros((2, 5, 16, 16)), "eve": []})
    with pytest.raises(DataError, match=r"task 0: .*; at fault too: task 1, task 2, task 3, task 4, task 5, and 3 more"):
        model.embed([nan] * 9)


def test_arrays_by_name_are_tasks_of_these_names(model: tt.PTM, data: tt.Dataset) -> None:
    named = model.embed({"ann": data.x[:2], "bob": data.x[2:7]})
    assert named.columns["name"] == ["ann", "bob"]
    np.testing.assert_array_equal(named.concentration, model.embed([data.x[:2], data.x[2:7]]).concentration)


def test_of_a_data_set_with_parts_the_training_part_is_fitted_to(data: tt.Dataset) -> None:
    both = tt.DataSplit("both", data, dataclasses.replace(data, x=255 - data.x))
    split, train = (tt.PTM(settings=SMALL).fit(given, 8, progress=False) for given in (both, data))
    assert split.fingerprint == train.fingerprint
    assert split.refit(both, progress=False).fingerprint == train.refit(data, progress=False).fingerprint


def test_features_of_any_units_are_standardised_where_that_is_asked_for(tmp_path: Path) -> None:
    vectors = small_vectors()
    widened = dataclasses.replace(vectors, x=vectors.x * np.array([1, 1e6, 1, 1, 1, 1e-4], dtype=np.float32))
    plain, wide = (tt.PTM(settings=SMALL, standardise=True).fit(given, 40, progress=False) for given in (vectors, widened))
    wide.save(tmp_path / "model")
    loaded = tt.PTM.load(tmp_path / "model")
    assert loaded.fingerprint == wide.fingerprint
    episodes = [given.episodes(ways=2, shots=5, n=6, seed=1) for given in (vectors, widened)]
    np.testing.assert_allclose(loaded.embed(episodes[1]).concentration, plain.embed(episodes[0]).concentration, rtol=1e-3)
    points = plain.point_embeddings(vectors.episodes(ways=4, shots=12, n=2))
    np.testing.assert_allclose(points.reshape(-1, 6).std(axis=0), 1.0, atol=0.3)
    with pytest.warns(TrainingWarning, match="one feature varies .* set standardise=true"):
        tt.PTM(settings=SMALL).fit(widened, 8, progress=False)
    with pytest.raises(SettingsError, match="standardise is for feature vectors"):
        tt.PTM(settings=SMALL, standardise=True).fit(small_images(), 8, progress=False)


def test_episodes_and_tasks_say_in_a_line_what_they_are(data: tt.Dataset) -> None:
    assert repr(data.episodes(ways=2, shots=3, n=7)) == "Episodes(7 tasks of 'small', up to 6 data points in each)"
    assert repr(Tasks(torch.arange(3), gamma=torch.ones(3, 2))) == "Tasks(3 tasks, with gamma)"


def test_fitting_on_the_wrong_thing_says_what_to_do(data: tt.Dataset) -> None:
    with pytest.raises(DataError, match="got one array"):
        tt.PTM().fit(data.x)
    with pytest.raises(SettingsError, match="not both"):
        tt.PTM(preset="paper", settings=SMALL)
    with pytest.raises(SettingsError, match="classification_weight = 0"):
        tt.PTM(preset="paper").fit([data.x[:9]], progress=False)
    with pytest.raises(SettingsError, match="at least 1, got 0"):
        tt.PTM().fit(data, tasks=0)
    with pytest.raises(SettingsError, match="do not divide by 16"):
        tt.PTM().fit([np.zeros((4, 1, 24, 24))], progress=False)
    with pytest.raises(SettingsError, match="identity encoder does not take"):
        tt.PTM(settings=SMALL.changed({"encoder": "identity"})).fit(data, progress=False)
    with pytest.raises(SettingsError, match="unknown device 'tpu9'"):
        tt.PTM(device="tpu9")


@pytest.mark.parametrize("themes", [10, 10**9])
def test_more_themes_than_data_points_is_an_error_before_the_training(themes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "run", None)
    with pytest.raises(DataError, match=f"{themes} themes need at least as many data points to start from, got 9"):
        tt.PTM(themes, settings=SMALL).fit([np.eye(9)], progress=False)


def test_more_themes_than_data_points_is_an_error_of_a_refit_too() -> None:
    model = tt.PTM(settings=SMALL, device="cpu").fit([np.eye(9)] * 3, tasks=8, progress=False)
    with pytest.raises(DataError, match="1000000000 themes need at least as many data points to start from, got 9"):
        model.refit([np.eye(9)], themes=10**9, progress=False)


def test_theme_distances_are_those_of_the_themes_covariances(model: tt.PTM) -> None:
    Sigma = model.themes.moments.Sigma.double()
    Sigma = Sigma + model.settings.covariance_floor * Sigma.diagonal(dim1=-2, dim2=-1).mean() * torch.eye(Sigma.shape[-1])
    mu, found = model.themes.mu.double(), model.theme_distances()
    for i, j in ((0, 1), (1, 0), (1, 1)):
        values = torch.linalg.eigvals(Sigma[i] @ Sigma[j]).real.clamp_min(0.0)  # their roots sum to the trace of the root
        squared = (mu[i] - mu[j]).square().sum() + Sigma[i].trace() + Sigma[j].trace() - 2.0 * values.sqrt().sum()
        assert found[i, j] ** 2 == pytest.approx(float(squared), rel=1e-3, abs=1e-5)
    assert (np.diag(found) == 0.0).all()


def test_embedded_tasks_know_their_prior(model: tt.PTM, data: tt.Dataset) -> None:
    tasks = model.embed(data.episodes(ways=2, shots=3, n=5, seed=0))
    assert tasks.prior is not None
    np.testing.assert_allclose(tasks.concentration.sum(axis=1) - tasks.prior.sum(), tasks.sizes, rtol=1e-4)
    np.testing.assert_allclose(tasks.resized(6).concentration, tasks.concentration, rtol=1e-3)


def test_refit_finds_planted_themes_and_leaves_the_encoder_alone() -> None:
    generator = np.random.default_rng(0)
    centres = np.array([[6.0, 0.0], [-6.0, 0.0], [0.0, 6.0], [0.0, -6.0]])
    which = [generator.choice(4, size=2, replace=False) for _ in range(40)]
    tasks = [centres[generator.choice(pair, size=30)] + generator.normal(size=(30, 2)) for pair in which]
    coarse = tt.PTM(settings=tt.Settings(themes=2), device="cpu").fit(tasks, tasks=20, progress=False)
    before = coarse.fingerprint
    fine = coarse.refit(tasks, themes=4, covariance="diagonal", progress=False)
    assert coarse.fingerprint == before
    assert (coarse.settings.themes, fine.settings.themes, fine.settings.covariance) == (2, 4, "diagonal")
    apart = np.linalg.norm(fine.embed_points(centres)[:, None] - fine.themes.mu.cpu().numpy()[None], axis=-1)
    assert sorted(apart.argmin(axis=1)) == [0, 1, 2, 3]
    assert apart.min(axis=1).max() < 0.2  # some 300 points of deviation 1 are in each
    shares = fine.embed(tasks).mean_mixture()[np.arange(40)[:, None], apart.argmin(axis=1)[np.array(which)]].sum(axis=1)
    assert shares.min() > 0.85  # 30 points of two themes, and alpha for each of four


def test_refit_to_episodes_is_one_to_their_very_data_points(model: tt.PTM, data: tt.Dataset) -> None:
    episodes = data.episodes(ways=(2, 3), shots=(2, 4), n=7, seed=3)
    points = [data.x[rows[mask].numpy()] for rows, mask in zip(episodes.batch.rows, episodes.batch.mask, strict=True)]
    ours = model.refit(episodes, themes=3, progress=False)
    assert_same_weights(ours, model.refit(points, themes=3, progress=False))
    assert weights(ours)["themes.mu"].ne(weights(model.refit(points[:-1], themes=3, progress=False))["themes.mu"]).any()
    assert ours.trained_on["themes_refitted_to"] == data.name


def test_any_setting_by_its_name() -> None:
    model = tt.PTM(4, settings=SMALL, batch_tasks=2, filters=[4])
    assert model.settings == SMALL.changed({"themes": 4, "batch_tasks": 2, "filters": (4,)})
    with pytest.raises(SettingsError, match="unknown setting 'theme'; did you mean 'themes'"):
        tt.PTM(theme=4)


def test_vectors_show_their_own_dimension() -> None:
    model = tt.PTM(settings=SMALL, latent_dim=9).fit(small_vectors(), tasks=8, progress=False)
    assert repr(model).startswith("PTM(themes=3, latent_dim=6, fitted on 8 tasks")


def test_refit_to_many_tasks_takes_some_of_them_whole(model: tt.PTM, data: tt.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[TaskPoints] = []

    def look(settings: tt.Settings, embedded: TaskPoints, **how: Any) -> Themes:
        seen.append(embedded)
        return start_themes(settings, embedded, **how)

    monkeypatch.setattr("tasktheme.training.loop.start_themes", look)
    tasks = [data.x[5 * i : 5 * i + 5 + i // 5] for i in range(14)]  # in the order of their size
    for polish_tasks in (14, 9):  # as many as there are, and fewer
        model.refit(tasks, themes=2, polish_tasks=polish_tasks, progress=False)
        sizes = sorted(int(task.sum()) for part in seen[-1].tasks for task in part.mask)
        assert len(sizes) == polish_tasks
        assert set(sizes) == {5, 6, 7}
        assert not Counter(sizes) - Counter(map(len, tasks))
    model.refit(tasks, themes=2, polish_tasks=0, progress=False)
    assert len(torch.cat([part.mask.any(dim=1) for part in seen[-1].tasks])) == 14


def test_refit_keeps_the_encoder_to_the_bit_and_is_saved_like_any_model(model: tt.PTM, data: tt.Dataset, tmp_path: Path) -> None:
    wide = model.refit(data, themes=5, covariance="diagonal", polish_tasks=6, progress=False)
    ours, theirs = weights(wide), weights(model)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours if not name.startswith("themes."))
    assert ours["themes.Sigma"].shape == (5, 5)
    assert wide.trained_on["themes_refitted_to"] == "small"
    assert repr(wide).endswith("of 'small', themes refitted to 'small')")
    assert repr(model).endswith("of 'small')")
    wide.save(tmp_path / "wide")
    assert_same_weights(tt.PTM.load(tmp_path / "wide"), wide)
    assert_same_weights(model.refit(data, themes=5, covariance="diagonal", polish_tasks=6, progress=False), wide)


def test_refit_refuses_what_it_cannot_change(model: tt.PTM, data: tt.Dataset) -> None:
    with pytest.raises(SettingsError, match="leaves the encoder as it is, and so cannot change 'latent_dim'"):
        model.refit(data, latent_dim=7)
    with pytest.raises(SettingsError, match="unknown setting 'theme'; did you mean 'themes'"):
        model.refit(data, theme=7)
    with pytest.raises(DataError, match="of shape"):
        model.refit(small_vectors())
    with pytest.raises(NotFittedError):
        tt.PTM().refit(data)


def test_log_likelihoods_are_those_of_the_themes_mixture() -> None:
    rng = np.random.default_rng(0)
    tasks = [rng.normal(size=(size, 3)) for size in (4, 9, 1)]
    model = tt.PTM(2, device="cpu").fit(tasks * 5, tasks=20, progress=False)
    whitening = model.themes.whitening.double().numpy()
    covariance = [np.linalg.inv(factor.T @ factor) for factor in whitening]
    for x, found in zip(tasks, model.embed(tasks).log_likelihood, strict=True):
        density = sum(
            share * stats.multivariate_normal(mu, Sigma).pdf(x)
            for share, mu, Sigma in zip(model.themes.share.numpy(), model.themes.mu.numpy(), covariance, strict=True)
        )
        assert found == pytest.approx(np.log(density).mean(), rel=1e-3)


def test_aspects_are_models_of_every_so_many_th_dimension() -> None:
    generator = np.random.default_rng(0)
    centres = generator.normal(scale=4.0, size=(5, 6))
    tasks = [centres[generator.choice(5, size=20 + i)] + generator.normal(size=(20 + i, 6)) for i in range(12)]

    def fitted(columns: slice) -> tt.PTM:
        return tt.PTM(settings=tt.Settings(themes=2), device="cpu").fit([x[:, columns] for x in tasks], tasks=20, progress=False)

    how = {"themes": 4, "covariance": "diagonal", "unused_themes": "keep", "covariance_floor": 0.1}
    whole = fitted(slice(None)).refit(tasks, aspects=2, progress=False, **how)
    found = whole.embed(tasks)
    assert (found.aspects, whole.themes.mu.shape) == (2, (8, 3))
    assert repr(whole).startswith("PTM(themes=4 in each of 2 aspects, latent_dim=6,")
    parts = []
    for columns in (slice(0, None, 2), slice(1, None, 2)):
        own = [x[:, columns] for x in tasks]
        parts.append(fitted(columns).refit(own, progress=False, **how).embed(own))
    np.testing.assert_allclose(found.concentration, np.concatenate([part.concentration for part in parts], axis=1), rtol=1e-4)
    assert found.log_likelihood is not None
    np.testing.assert_allclose(found.log_likelihood, sum(part.log_likelihood for part in parts), rtol=1e-4)
    np.testing.assert_allclose(found.kl(found), sum(part.kl(part) for part in parts), rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(found.converged, np.logical_and(*(part.converged for part in parts)))


def test_a_model_of_aspects_is_saved_embeds_decodes_and_sums_up(model: tt.PTM, data: tt.Dataset, tmp_path: Path) -> None:
    fine = model.refit(data, themes=2, aspects=5, polish_tasks=6, polish_start="tasks", progress=False)
    fine.save(tmp_path / "fine")
    loaded = tt.PTM.load(tmp_path / "fine")
    assert_same_weights(loaded, fine)
    episodes = data.episodes(ways=2, shots=3, n=6, seed=1)
    np.testing.assert_array_equal(loaded.embed(episodes).concentration, fine.embed(episodes).concentration)
    np.testing.assert_array_equal(fine.mean_embedding(episodes), model.mean_embedding(episodes))
    np.testing.assert_array_equal(fine.point_embeddings(episodes), model.point_embeddings(episodes))
    decoded = fine.decode_themes()
    assert decoded is not None
    assert decoded.shape == (10, *data.point_shape)
    summary = {theme.theme: theme for theme in fine.summary(data)}
    assert sum(theme.share for theme in summary.values()) == pytest.approx(5.0)  # in each aspect 1
    assert [summary[k].aspect for k in range(10)] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    for aspect in range(5):  # each data point has one likeliest theme of each aspect
        assert summary[2 * aspect].typical or summary[2 * aspect + 1].typical
    found = evaluate(fine, data, ways=2, shots=3, n=20)
    assert found.bound is not None
    assert found.bound["ln_p_x"] == pytest.approx(model.held_out_bound(data.episodes(2, 3, 20, seed=1), seed=1)["ln_p_x"])
    assert 0.5 <= found.largest_share <= 1.0  # of two themes in each aspect
    again = fine.refit(data, themes=3, aspects=1, polish_tasks=6, polish_start="themes", progress=False)
    assert_same_weights(again, model.refit(data, themes=3, polish_tasks=6, progress=False))


def test_a_training_with_aspects_is_one_without_and_a_refit(model: tt.PTM, data: tt.Dataset) -> None:
    whole = tt.PTM(settings=TOLD_APART, aspects=5).fit(data, tasks=40, progress=False)
    assert_same_weights(whole, model.refit(data, aspects=5, progress=False))
    assert whole.settings == TOLD_APART.changed({"aspects": 5})
    assert_same_weights(whole.fit(data, tasks=40, progress=False), model.refit(data, aspects=5, progress=False))


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_themes_of_different_aspects_are_infinitely_far_apart(model: tt.PTM, data: tt.Dataset, covariance: str) -> None:
    fine = model.refit(data, aspects=5, covariance=covariance, covariance_floor=0.0, progress=False)
    found, themes = fine.theme_distances(), fine.themes
    assert found.shape == (15, 15)
    mu, deviation = themes.mu[:, 0].numpy(), themes.moments.Sigma.flatten(1)[:, 0].sqrt().numpy()  # in one dimension each
    for i in range(15):
        for j in range(15):
            if i // 3 != j // 3:
                assert found[i, j] == np.inf
            else:
                assert found[i, j] == pytest.approx(np.hypot(mu[i] - mu[j], deviation[i] - deviation[j]), abs=1e-5)


def test_aspects_that_cannot_be_say_so(model: tt.PTM, data: tt.Dataset) -> None:
    with pytest.raises(
        SettingsError, match="of 5 dimensions cannot be dealt out to 2 aspects alike: take a number that divides 5"
    ):
        model.refit(data, aspects=2)
    with pytest.raises(SettingsError, match="of 5 dimensions cannot be dealt out to 2 aspects alike"):
        tt.PTM(settings=SMALL, aspects=2).fit(data, tasks=8, progress=False)
    with pytest.raises(DataError, match="themes"):  # before the training
        tt.PTM(settings=SMALL, aspects=5, themes=300, initialisation="random").fit(data, tasks=8, progress=False)
    with pytest.raises(SettingsError, match="'aspects' must be at least 1"):
        tt.Settings(aspects=0)
    few = np.random.default_rng(0).normal(size=(40, 4))
    few[:, 3] = few[:, 1] = np.sign(few[:, 1])
    vectors = tt.PTM(settings=SMALL).fit(list(few.reshape(8, 5, 4)), tasks=8, progress=False)
    with pytest.raises(DataError, match=r"^aspect 2 of 2: 3 themes need .* got 2; take fewer themes, or fewer aspects"):
        vectors.refit(list(few.reshape(8, 5, 4)), aspects=2, progress=False)


def test_a_model_file_whose_aspects_do_not_divide_its_dimensions_is_damaged(
    model: tt.PTM, data: tt.Dataset, tmp_path: Path
) -> None:
    model.refit(data, themes=2, aspects=5, polish_tasks=6, progress=False).save(tmp_path / "fine")
    file = tmp_path / "fine" / "model.json"
    file.write_text(file.read_text().replace('"aspects": 5', '"aspects": 2'))
    with pytest.raises(ModelFileError, match="damaged"):
        tt.PTM.load(tmp_path / "fine")
