from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tasktheme as tt
from oracles.learners import NAMES
from oracles.small import small_images, small_vectors
from tasktheme.data.dataset import DataSplit
from tasktheme.data.episodes import EpisodeSampler
from tasktheme.errors import DataError, Interrupted, ModelFileError, OutputError, SettingsError, TrainingError
from tasktheme.learners.base import Noise, Points
from tasktheme.learners.build import build_learner
from tasktheme.learners.training import MetaTrainer, resume_meta_training, save_meta_training
from tasktheme.selection.task2vec import Task2Vec

CPU = torch.device("cpu")
TINY: dict[str, Any] = {"ways": 3, "queries": 3, "filters": 4, "modules": 3, "batch_tasks": 2, "validate_every": 8}


def changes(name: str, **more: Any) -> dict[str, Any]:
    own = {"train_ways": 3} if name == "protonet" else {"inner_steps": 2, "test_steps": 2}
    return TINY | own | {"validation_tasks": 4} | more


def trainer(name: str, steps: int = 10, **more: Any) -> MetaTrainer:
    data = small_images()
    learner = build_learner(name, changes(name, **more), data.point_shape)
    return MetaTrainer(learner, data, steps, CPU, small_images(seed=1))


@pytest.mark.parametrize("name", NAMES)
def test_a_training_is_a_plain_loop_over_fresh_tasks(name: str) -> None:
    """Queries are what is learned from; a bound on the gradient that is reached; a rate that falls."""
    value, steps = trainer(name, steps=3, gradient_clip=0.5, learning_rate=0.05, seed=3), 3
    value.validation = None
    value.run(progress=False)
    data = small_images()
    learner = build_learner(name, changes(name, seed=3), data.point_shape)
    adam = torch.optim.Adam(learner.parameters())
    sampler = EpisodeSampler(data, ways=3, shots=4, seed=3, within_group=False)
    norms = []
    for step in range(steps):
        tasks = torch.tensor([2 * step, 2 * step + 1])
        support, query = (
            Points(torch.from_numpy(data.x[part.rows.numpy()] / 255.0).float(), part.labels, 3)
            for part in sampler.draw(tasks, 1, 3)
        )
        adam.zero_grad()
        learner.meta_loss(support, query, Noise(3, tasks))[0].mean().backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(learner.parameters(), 0.5)))
        adam.param_groups[0]["lr"] = 0.05 * np.cos(np.pi * step / (2 * steps)) ** 2
        adam.step()
    assert max(norms) > 0.5
    for (key, ours), theirs in zip(value.learner.named_parameters(), learner.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4, msg=lambda text, key=key: f"{key}: {text}")


def test_each_part_of_a_split_has_its_own_use() -> None:
    split = DataSplit("small", *(small_images(seed=seed) for seed in range(3)))
    learner = tt.MetaLearner("protonet", device="cpu", **changes("protonet", validation_tasks=20)).fit(split, 4, progress=False)
    train, test, val = (learner.test(part, 20, seed=1).mean for part in (split.train, split.test, split.val) if part is not None)
    assert learner.validations == [(2, val)]  # of the last weights, on tasks of the seed after the training's
    assert learner.test(split, 20, seed=1).mean == test
    assert len({train, test, val}) == 3


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("step", [2, 5])
def test_interrupted_and_resumed_gives_the_same_bits(name: str, step: int, tmp_path: Path) -> None:
    whole, first, second = (trainer(name) for _ in range(3))
    whole.run(progress=False)
    file = tmp_path / "state"
    original = first.train_step

    def interrupt() -> None:
        if first.step == step:
            signal.raise_signal(signal.SIGINT)
        original()

    first.train_step = interrupt  # type: ignore[method-assign]
    with pytest.raises(Interrupted, match=f"after {2 * (step + 1)} of 20 tasks"):
        first.run(progress=False, checkpoint=lambda: save_meta_training(first, file))
    resume_meta_training(second, file)
    assert second.step == step + 1
    second.run(progress=False)
    for (key, ours), theirs in zip(whole.learner.state_dict().items(), second.learner.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), key
    assert second.history == whole.history
    assert second.validations == whole.validations
    assert len(whole.validations) == 3  # after 8 and 16 tasks, and at the end


@pytest.mark.parametrize("more", [{}, {"patience": 1, "validate_every": 2}], ids=["whole", "stopped early"])
@pytest.mark.parametrize("name", NAMES)
def test_from_each_state_of_a_run_the_rest_is_the_same_to_the_bit(
    name: str, more: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasktheme.learners.training._RECORDS", 4)  # a row of history every second step
    whole, states = trainer(name, steps=8, **more), []
    whole.checkpoint_every = 0.0

    def keep() -> None:
        states.append(tmp_path / str(whole.step))
        save_meta_training(whole, states[-1])

    whole.run(progress=False, checkpoint=keep)
    assert [path.name for path in states] == [str(step + 1) for step in range(whole.step)]
    assert (whole.step < 8) == bool(more)
    for path in states:
        second = trainer(name, steps=8, **more)
        resume_meta_training(second, path)
        second.run(progress=False)
        save_meta_training(second, tmp_path / "again")
        save_meta_training(whole, tmp_path / "whole")  # after the best weights were taken
        assert (tmp_path / "again").read_bytes() == (tmp_path / "whole").read_bytes(), path.name


def test_a_state_is_kept_where_patience_ends_the_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    value = trainer("protonet", steps=40, patience=1)
    monkeypatch.setattr("tasktheme.learners.training.task_accuracies", lambda *_, **__: np.array([0.5]))
    kept: list[tuple[int, bool]] = []
    value.run(progress=False, checkpoint=lambda: kept.append((value.step, value.finished)))
    assert kept == [(8, True)]


def test_the_best_validated_weights_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    value = trainer("protonet", steps=12)
    scores = iter([0.5, 0.9, 0.4])
    seen = []

    def score(learner: Any, *_: Any, **__: Any) -> np.ndarray:
        seen.append({name: weight.clone() for name, weight in learner.state_dict().items()})
        return np.array([next(scores)])

    monkeypatch.setattr("tasktheme.learners.training.task_accuracies", score)
    value.run(progress=False)
    for name, weight in value.learner.state_dict().items():
        assert torch.equal(weight, seen[1][name])
        assert name.startswith("weights.shift") or not torch.equal(weight, seen[2][name])


def test_patience_ends_the_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    value = trainer("protonet", steps=40, patience=2)
    scores = iter([0.5, 0.6, 0.55, 0.6, 0.9])
    monkeypatch.setattr("tasktheme.learners.training.task_accuracies", lambda *_, **__: np.array([next(scores)]))
    value.run(progress=False)
    assert [accuracy for _, accuracy in value.validations] == [0.5, 0.6, 0.55, 0.6]
    assert value.step == 16


def test_the_rate_falls_along_a_cosine_to_zero() -> None:
    rates = []
    value = trainer("protonet", steps=4)
    for _ in range(4):
        value.train_step()
        rates.append(value.optimiser.param_groups[0]["lr"])
    np.testing.assert_allclose(rates, 1e-3 * np.cos(np.pi * np.arange(4) / 8) ** 2)


def test_l2_pulls_weights_in() -> None:
    norms = []
    for decay in (0.0, 10.0):
        value = trainer("protonet", steps=30, weight_decay=decay, learning_rate=1e-2, gradient_clip=1e-6)
        value.run(progress=False)
        norms.append(float(value.learner.state_dict()["weights.convolution_0"].norm()))
    assert norms[1] < 0.8 * norms[0]


def test_a_loss_that_is_not_finite_stops_the_training_before_a_checkpoint(tmp_path: Path) -> None:
    value = trainer("maml", steps=4)
    with torch.no_grad():
        value.learner.state_dict()["weights.head"].fill_(float("nan"))
    saved: list[int] = []
    with pytest.raises(TrainingError, match="loss"):
        value.run(progress=False, checkpoint=lambda: saved.append(1))
    assert not saved


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "state"
    value = trainer("maml")
    value.train_step()
    save_meta_training(value, file)
    for other in (trainer("maml", steps=11), trainer("maml", inner_rate=0.5), trainer("protonet")):
        with pytest.raises(ModelFileError, match="cannot be resumed"):
            resume_meta_training(other, file)
    file.write_bytes(b"nothing")
    with pytest.raises(ModelFileError, match="damaged"):
        resume_meta_training(value, file)


def shrunk(data: tt.Dataset) -> tt.Dataset:
    """Glyphs at a quarter of their size, for speed."""
    small = data.x.reshape(len(data), 1, 16, 4, 16, 4).astype(np.float32).mean(axis=(3, 5)).astype(np.uint8)
    return tt.Dataset.from_arrays(small, np.repeat(np.arange(len(data.counts)), data.counts), name="small glyphs")


@pytest.mark.parametrize(
    ("name", "tasks", "own"),
    [
        ("maml", 64, {"inner_rate": 0.1, "inner_steps": 3, "test_steps": 3}),
        ("protonet", 80, {"train_ways": 5, "filters": 16}),
        ("abml", 96, {"inner_rate": 0.1, "inner_steps": 2, "kl_weight": 1e-3, "samples": 1, "test_samples": 3, "test_steps": 3}),
    ],
)
def test_it_learns_to_learn_scripts_it_never_saw(name: str, tasks: int, own: dict[str, Any]) -> None:
    """5 ways, one labelled drawing each: chance is 20 %."""
    data = tt.load_dataset("glyphs", progress=False)
    common = {"filters": 16, "modules": 3, "queries": 5, "batch_tasks": 8, "anneal": False, "learning_rate": 3e-3}
    learner = tt.MetaLearner(name, device="cpu", **(common | own)).fit(shrunk(data.train), tasks, progress=False)
    found = learner.test(shrunk(data.test), 40)
    assert found.mean - found.interval > 0.4
    assert learner.history[-1]["loss"] < learner.history[0]["loss"]


@pytest.mark.slow
def test_a_compiled_training_gives_the_same_numbers() -> None:
    plain, compiled = (
        tt.MetaLearner("protonet", device="cpu", **changes("protonet")).fit(small_images(), 8, progress=False, compiled=choice)
        for choice in (False, True)
    )
    np.testing.assert_allclose([row["loss"] for row in compiled.history], [row["loss"] for row in plain.history], rtol=1e-4)


@pytest.fixture(scope="module")
def fitted() -> tt.MetaLearner:
    return tt.MetaLearner("maml", device="cpu", **changes("maml")).fit(small_images(), 8, progress=False)


def test_saved_and_loaded_it_predicts_the_same_bits(fitted: tt.MetaLearner, tmp_path: Path) -> None:
    fitted.save(tmp_path / "run")
    again = tt.MetaLearner.load(tmp_path / "run", device="cpu")
    assert again.fingerprint == fitted.fingerprint
    assert again.settings == fitted.settings
    data = small_images()
    np.testing.assert_array_equal(again.test(data, 5).accuracy, fitted.test(data, 5).accuracy)
    with pytest.raises(OutputError, match="exists already"):
        fitted.save(tmp_path / "run")
    with pytest.raises(ModelFileError, match="is not a model"):
        tt.PTM.load(tmp_path / "run")


def test_a_run_of_a_gpu_is_used_as_this_machine_can(fitted: tt.MetaLearner, tmp_path: Path) -> None:
    on_gpu = fitted.settings.changed({"convolution": "triton", "precision": "bfloat16"})
    with pytest.MonkeyPatch.context() as patch:  # as a GPU would have saved it
        patch.setattr(fitted, "settings", on_gpu)
        fitted.save(tmp_path / "run")
    loaded = tt.MetaLearner.load(tmp_path / "run", device="cpu")
    data = small_images()
    np.testing.assert_array_equal(loaded.test(data, 5).accuracy, fitted.test(data, 5).accuracy)
    x, y = data.x[:30:10], [0, 1, 2]
    np.testing.assert_array_equal(loaded.predict(x, y, x), fitted.predict(x, y, x))  # in float32, to the bit
    tasks = tt.draw_tasks(data, loaded, 3)
    probes = (Task2Vec(each.learner, samples=1).describe(tasks) for each in (loaded, fitted))
    assert torch.equal(*probes)
    assert loaded.settings == on_gpu  # what it was trained with, and is saved with
    loaded.save(tmp_path / "again")
    assert tt.MetaLearner.load(tmp_path / "again", device="cpu").settings == on_gpu
    with pytest.raises(SettingsError, match="'triton' needs a GPU"):  # a choice, in training
        tt.MetaLearner("maml", device="cpu", **changes("maml", convolution="triton")).fit(data, 2, progress=False)


def test_precision_is_chosen_by_the_device() -> None:
    learners = {
        kind: build_learner("maml", changes("maml", precision=kind), (1, 16, 16)) for kind in ("auto", "bfloat16", "tf32")
    }
    x = torch.rand((2, 3, 1, 16, 16))
    found = {kind: learner.network.logits(dict(learner.weights), x) for kind, learner in learners.items()}  # type: ignore[call-overload]
    assert torch.equal(found["auto"], found["tf32"])
    assert not torch.equal(found["bfloat16"], found["tf32"])


def test_predict_takes_plain_arrays(fitted: tt.MetaLearner) -> None:
    data = small_images()
    probabilities = fitted.predict(data.x[[0, 10, 20]], [0, 1, 2], data.x[[1, 11, 21, 2]])
    assert probabilities.shape == (4, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    real = fitted.predict(data.x[[0, 10, 20]] / 255.0, [0, 1, 2], data.x[[1, 11, 21, 2]] / 255.0)
    np.testing.assert_allclose(real, probabilities, rtol=1e-4)
    turned = fitted.predict(data.x[[20, 10, 0]][::-1], np.array([2, 1, 0])[::-1], (data.x[[1, 11, 21, 2]] / 255.0).astype(">f4"))
    np.testing.assert_allclose(turned, probabilities, rtol=1e-4)  # neither strides nor bytes the usual way round


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([0, 1, 3],), "from 0 to 2"),
        (([0, 1, 1],), "needs a labelled point"),
        (([0, 1, 2, 2],), "a label for each of the 3"),
        ((["a", "b", "c"],), "whole numbers from 0 to 2"),
        (([0, 1.5, 2],), "whole numbers from 0 to 2"),
        (([0, np.nan, 2],), "whole numbers from 0 to 2"),
    ],
)
def test_bad_labels(fitted: tt.MetaLearner, arguments: tuple[Any], words: str) -> None:
    x = small_images().x
    with pytest.raises(DataError, match=words):
        fitted.predict(x[:3], *arguments, x[:2])


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        (np.full((2, 1, 16, 16), np.nan), "query: data point 0 holds a NaN"),
        (np.zeros((0, 1, 16, 16)), "query: is empty; at least one data point"),
        ([], "query: is empty; at least one data point"),
        (np.zeros((2, 1, 8, 8)), r"query: expected images of shape \(1, 16, 16\), got an array of shape \(2, 1, 8, 8\)"),
        (np.full((2, 1, 16, 16), 255.0), r"query: images of dtype float64 must lie in \[0, 1\]"),
    ],
)
def test_bad_queries(fitted: tt.MetaLearner, queries: Any, words: str) -> None:
    x = small_images().x
    with pytest.raises(DataError, match=words):
        fitted.predict(x[[0, 10, 20]], [0, 1, 2], queries)


def test_bad_input(fitted: tt.MetaLearner, tmp_path: Path) -> None:
    images, vectors = small_images(), small_vectors()
    with pytest.raises(SettingsError, match="did you mean 'maml'"):
        tt.MetaLearner("mamel")
    with pytest.raises(SettingsError, match="did you mean 'inner_steps'"):
        tt.MetaLearner("maml", inner_step=3)
    with pytest.raises(SettingsError, match="'ways' must be at least 2"):
        tt.MetaLearner("maml", ways=1)
    with pytest.raises(SettingsError, match="take images"):
        tt.MetaLearner("maml").fit(vectors, 4)
    with pytest.raises(DataError, match="ask for 30 of each class"):
        tt.MetaLearner("maml", queries=29).fit(images, 4)
    with pytest.raises(SettingsError, match="validation classes"):
        tt.MetaLearner("maml", patience=1, **TINY).fit(images, 4)
    with pytest.raises(SettingsError, match="tasks, the number"):
        tt.MetaLearner("maml").fit(images, 0)
    with pytest.raises(DataError, match="has 8 classes, but tasks ask for 1000 ways"):
        tt.MetaLearner("protonet", **changes("protonet", ways=1000)).fit(images, 4)
    with pytest.raises(DataError, match="no labels"):
        tt.MetaLearner("maml").fit(tt.Dataset.from_tasks([images.x[:4]]), 4)
    with pytest.raises(tt.TaskThemeError, match="not trained"):
        tt.MetaLearner("maml").test(images)
    with pytest.raises(DataError, match="takes images of shape"):
        fitted.test(tt.Dataset.from_arrays(images.x[:, :, :8], np.arange(80) // 10))
    with pytest.raises(DataError, match="'all' or a whole number"):
        fitted.test(images, 0)
    with pytest.raises(ModelFileError, match="no model folder"):
        tt.MetaLearner.load(tmp_path / "absent")


def test_augmenting_changes_what_is_learned_and_not_what_is_validated() -> None:
    plain, augmented = trainer("protonet"), trainer("protonet", augment=True)
    for each in (plain, augmented):
        each._validate()
        each.train_step()
    assert plain.validations == augmented.validations
    assert plain._means()["loss"] != augmented._means()["loss"]
