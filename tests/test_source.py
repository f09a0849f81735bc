from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tasktheme as tt
from tasktheme.source import Source

TINY = {"ways": 2, "queries": 2, "filters": 4, "modules": 2, "batch_tasks": 1, "train_ways": 2}


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight classes of five drawings: dark ink on white paper, in colour; beside them the folder light, their negatives."""
    place = tmp_path_factory.mktemp("ink")
    for row in range(40):
        ink = np.full((64, 64, 3), 255, dtype=np.uint8)
        ink[8 : 40 + row % 5, 4 + 6 * (row // 5) :][:, :5] = 0
        for name, image in (("letters", ink), ("light", 255 - ink)):
            (place / name / f"class{row // 5}").mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place / name / f"class{row // 5}" / f"{row}.png")
    return place / "letters"


@pytest.fixture
def learner(letters: Path) -> tt.MetaLearner:
    return trained_on(letters, channels=1)


@pytest.fixture
def model() -> tt.PTM:
    return tt.PTM.load("omniglot-default", device="cpu")


def trained_on(letters: Path, *, channels: int) -> tt.MetaLearner:
    split = tt.load_dataset(letters, channels=channels, progress=False)
    return tt.MetaLearner("protonet", device="cpu", **TINY).fit(split, 1, progress=False)


def source(letters: Path, *trained: tt.PTM | tt.MetaLearner | None, invert: bool | None = None) -> Source:
    return Source(str(letters), None, None, None, False, True, invert=invert, trained=trained)


def test_images_become_like_those_that_a_task_model_beside_a_learner_knows(letters: Path, model: tt.PTM) -> None:
    with pytest.warns(UserWarning, match="negatives of those that the model knows and were inverted"):
        split, inverted = source(letters, model, None).split_and_way()
    assert inverted
    assert split.train.point_shape == model.point_shape
    assert max(split.train.x.mean(), split.test.x.mean()) < 80
    assert source(letters, model, None, invert=False).split().train.x.mean() > 180


def test_a_learner_of_the_same_images_as_they_are_is_at_odds(letters: Path, model: tt.PTM, learner: tt.MetaLearner) -> None:
    learner.trained_on["inverted"] = False
    assert source(letters, None, learner).split().train.x.mean() > 180
    with pytest.raises(tt.TaskThemeError, match=r"trained on the images of 'letters' as they are.*meta-train --invert"):
        source(letters, model, learner).split()
    assert source(letters, model, learner, invert=True).split().train.x.mean() < 80
    learner.trained_on["data"] = "others"
    with pytest.warns(UserWarning, match="were inverted"):
        assert source(letters, model, learner).split_and_way()[1]


def test_a_learner_of_inverted_images_gets_them_so(letters: Path, model: tt.PTM, learner: tt.MetaLearner) -> None:
    learner.trained_on["inverted"] = True
    for themes in (None, model):
        with pytest.warns(UserWarning, match="the meta-learner was trained on inverted images, and these were inverted"):
            assert source(letters, themes, learner).split().train.x.mean() < 80
    learner.trained_on["data"] = "light"
    with pytest.raises(tt.TaskThemeError, match=r"the images of 'light' inverted, .* trained without --invert, or"):
        source(letters.with_name("light"), model, learner).split()


def test_models_of_grey_and_of_colour_are_at_odds(letters: Path, model: tt.PTM) -> None:
    colour = trained_on(letters, channels=3)
    with pytest.raises(tt.TaskThemeError, match="take images of 1 and 3 channels"):
        source(letters, model, colour).split()


@pytest.mark.filterwarnings("always:the images are negatives")
def test_lifelong_learning_from_ink_on_paper(run, letters: Path, tmp_path: Path) -> None:
    changes = ["ways=2", "queries=2", "filters=4", "modules=2", "pool=6", "evaluate_every=2", "test_tasks=2"]
    words = ["--seeds", 1, "--steps", 4, "--out", tmp_path / "out", *(word for one in changes for word in ("--set", one))]
    words += ["--learner", "protonet", "--policies", "ptm", "--model", "omniglot-default", "--device", "cpu", "-q"]
    code, _, err = run("experiment", "lifelong", letters, *words)
    assert code == 0, err
    assert err.count("were inverted; --no-invert leaves them as they are") == 1


@pytest.mark.filterwarnings("always:the meta-learner")
def test_meta_train_keeps_whether_images_were_inverted(run, letters: Path, tmp_path: Path) -> None:
    words = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    code, _, err = run("meta-train", "protonet", letters, "--invert", "--tasks", 1, "--out", tmp_path / "run", "-q", *words)
    assert code == 0, err
    assert tt.MetaLearner.load(tmp_path / "run").trained_on["inverted"] is True
    code, _, err = run("meta-test", tmp_path / "run", letters, "--tasks", 2, "-q")
    assert code == 0, err
    assert "was trained on inverted images" in err
