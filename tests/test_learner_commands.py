from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tasktheme as tt
from oracles.small import SMALL, small_images
from tasktheme.learners.testing import Accuracies

TINY = ["filters=4", "modules=3", "batch_tasks=2", "inner_steps=1", "test_steps=1"]
SETTINGS = [word for setting in TINY for word in ("--set", setting)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "small.npz"
    images = small_images()
    np.savez(file, x=images.x, y=np.repeat(np.arange(8), 10), groups=np.repeat(np.arange(2), 40))
    return file


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    values = dict(setting.split("=") for setting in TINY)
    learner = tt.MetaLearner("maml", device="cpu", ways=3, queries=4, **{k: int(v) for k, v in values.items()})
    learner.fit(tt.load_dataset(data, split=0.5), 4, progress=False).save(folder)
    return folder


def test_meta_train_and_meta_test(run, data: Path, tmp_path: Path) -> None:
    folder, table, picture = tmp_path / "run", tmp_path / "a.parquet", tmp_path / "h.png"
    words = ["--tasks", 6, "--ways", 3, "--queries", 4, "--held-out", 0.5, "--weight-decay", 0.01, "--seed", 3, "-q", *SETTINGS]
    code, _, err = run("meta-train", "maml", data, "--out", folder, *words)
    assert code == 0, err
    loaded = tt.MetaLearner.load(folder)
    assert (loaded.settings.ways, loaded.settings.weight_decay, loaded.settings.seed) == (3, 0.01, 3)
    assert not (tmp_path / "run.checkpoint").exists()
    code, out, err = run(
        "meta-test", folder, data, "--tasks", "all", "--held-out", 0.5, "--out", table, "--picture", picture, "-q"
    )
    assert code == 0, err
    found = Accuracies.load(table)
    assert len(found) == 4  # all choices of 3 of the 4 held-out classes
    assert f"accuracy {100 * found.mean:.2f} %" in out
    assert "wrote" not in out
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (2, "tasks of 5 ways: 1 to train on, 1 held out; tasks of 2 ways (--set ways=2) need 2 classes in either part"),
        (4, "3 to train on, 1 held out; hold out 2 or more of them and keep as many (--held-out), with --set ways=2"),
    ],
)
def test_too_few_classes_are_those_of_the_parts(run, tmp_path: Path, classes: int, said: str) -> None:
    np.savez(tmp_path / "few.npz", x=small_images().x[: 10 * classes], y=np.repeat(np.arange(classes), 10))
    code, _, err = run("meta-train", "maml", tmp_path / "few.npz", "--out", tmp_path / "run", "-q", *SETTINGS)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err


def test_meta_test_holds_out_what_the_training_held_out(run, data: Path, tmp_path: Path) -> None:
    words = ["--tasks", 2, "--ways", 3, "--queries", 4, "-q", *SETTINGS]
    for held_out in "01":
        folder = tmp_path / held_out
        assert run("meta-train", "maml", data, "--out", folder, "--held-out", held_out, *words)[0] == 0
        again = [run("meta-test", folder, data, "--tasks", 20, "-q", *named)[1] for named in ((), ("--held-out", held_out))]
        assert again[0] == again[1] != ""
        found = []
        for name, named in {"a": (), "b": ("--held-out", held_out)}.items():
            options = ["--learner", folder, "--out", folder / name, "--tasks", 20, "-q", *named]
            assert run("experiment", "accuracy-histogram", data, *options)[0] == 0
            found.append((folder / name / "accuracy-histogram.json").read_text())
        assert found[0] == found[1]
        picks = run("select", data, "--policy", "worst-case", "--learner", folder, "-n", 9, "-q")[1]
        classes = {label for name in pd.read_csv(io.StringIO(picks))["name"] for label in name.split()}
        assert classes <= set(map(str, range(4, 8) if held_out == "0" else range(4)))


def test_an_experiment_holds_out_what_its_model_did_or_the_one_before_it(run, tmp_path: Path) -> None:
    data, model, out = tmp_path / "noise.npz", tmp_path / "model", tmp_path / "out"
    x = np.random.default_rng(0).integers(0, 256, size=(160, 1, 16, 16), dtype=np.uint8)
    np.savez(data, x=x, y=np.arange(160) // 16, groups=np.repeat(list("ab"), 80))
    split = tt.load_dataset(data)
    [held_out] = split.train.group_names  # not what the default holds out
    made = tt.PTM(settings=SMALL, device="cpu").fit(split.test, 4, progress=False)
    made.trained_on["held_out"] = [held_out]
    made.save(model)
    for name, options in {"entropy-accuracy": ["--model", model], "accuracy-histogram": []}.items():
        code, _, err = run("experiment", name, data, "--out", out, "--learner-tasks", 1, "--tasks", 9, "-q", *options)
        assert code == 0, err
    assert tt.MetaLearner.load(out / "learner").trained_on["held_out"] == [held_out]
    tested = run("meta-test", out / "learner", data, "--held-out", held_out, "--tasks", 9, "-q")[1]
    found = json.loads((out / "accuracy-histogram.json").read_text())
    assert f"accuracy {100 * found['mean']:.2f} %" in tested


def test_meta_test_takes_images_at_the_size_of_the_learner(run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ["--size", 16, "--tasks", 2, "--queries", 4, "-q", *SETTINGS]
    assert run("meta-train", "maml", "glyphs", "--out", folder, *words)[0] == 0
    code, out, err = run("meta-test", folder, "glyphs", "--tasks", 3, "-q")
    assert code == 0, err
    assert "over 3 tasks" in out
    assert run("meta-test", folder, "glyphs", "--tasks", 1, "-q")[1].endswith("% on 1 task\n")
    code, _, err = run("meta-test", folder, "glyphs", "--tasks", 3, "-q", "--size", 32)
    assert (code, "(1, 16, 16), got (1, 32, 32)" in err) == (2, True)
    common = ["glyphs", "--learner", folder, "--tasks", 3, "--out", tmp_path / "out", "-q"]
    code, _, err = run("experiment", "accuracy-histogram", *common)
    assert code == 0, err
    code, _, err = run("experiment", "entropy-accuracy", *common, "--model", "omniglot-default")
    assert (code, "take images of different sizes: 16 and 64 pixels" in err) == (2, True)


def test_experiments_train_what_is_missing_once(run, data: Path, trained: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "out"
    split = tt.load_dataset(data, split=0.5)
    tt.PTM(settings=SMALL, device="cpu").fit(split.train, 8, progress=False).save(model)
    common = [data, "--out", out, "--learner", trained, "--held-out", 0.5, "-q", "--training-tasks", 12]
    for name in ("entropy-accuracy", "distance-accuracy"):
        code, _, err = run("experiment", name, *common, "--model", model, "--tasks", 120)
        assert code == 0, err
        result = json.loads((out / f"{name}.json").read_text())
        assert result["as in the paper"]["tasks"] == 100
        assert result["all tasks"]["tasks"] == len(result["x"]) == len(result["accuracy"]) == 120
        assert (out / f"{name}.png").stat().st_size > 1000
    code, _, err = run("experiment", "accuracy-histogram", *common)
    assert code == 0, err
    assert json.loads((out / "accuracy-histogram.json").read_text())["tasks"] == 4


def test_an_experiment_takes_the_accuracies_of_an_earlier_test(run, data: Path, trained: Path, tmp_path: Path) -> None:
    model, table = tmp_path / "model", tmp_path / "a.parquet"
    tt.PTM(settings=SMALL, device="cpu").fit(tt.load_dataset(data, split=0.5).train, 8, progress=False).save(model)
    assert run("meta-test", trained, data, "--tasks", 110, "--seed", 5, "--held-out", 0.5, "--out", table, "-q")[0] == 0
    common = ["experiment", "entropy-accuracy", data, "--learner", trained, "--model", model, "--held-out", 0.5, "-q"]
    assert run(*common, "--tasks", 110, "--seed", 5, "--out", tmp_path / "tested")[0] == 0
    code, _, err = run(*common, "--accuracies", table, "--out", tmp_path / "known")
    assert code == 0, err
    tested, known = (json.loads((tmp_path / name / "entropy-accuracy.json").read_text()) for name in ("tested", "known"))
    assert known == tested
    other = tt.MetaLearner.load(trained)
    next(iter(other.learner.parameters())).data += 0.1
    other.save(tmp_path / "other")
    common[4] = tmp_path / "other"
    code, _, err = run(*common, "--accuracies", table, "--out", tmp_path / "no")
    assert code == 2
    assert "of another test: fingerprint" in err
    code, _, err = run(*common, "--accuracies", table, "--tasks", 110, "--out", tmp_path / "no")
    assert code == 2
    assert "--accuracies" in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("meta-train mamml {data} --out {tmp}/r", "mamml"),
        ("meta-train maml nothing --out {tmp}/r", "nothing"),
        ("meta-train maml {data} --out {tmp}/r --set inner_step=2", "did you mean 'inner_steps'"),
        ("meta-train protonet {data} --out {tmp}/r --set device=cpu", "unknown setting 'device'"),
        ("meta-train maml {data} --out {run}", "exists already"),
        ("meta-train maml {data} --out {tmp}/r --ways 9 --queries 3", "tasks of 9 ways: 4 to train on"),
        ("meta-train maml {data} --out {tmp}/r --ways 3 --queries 30", "ask for fewer queries (30) or shots (1)"),
        (
            "meta-train protonet {data} --out {tmp}/r --ways 2 --queries 3",
            "training tasks ask for 20 ways; set train_ways to fewer",
        ),
        ("meta-train maml {data} --out {tmp}/r --ways 3 --queries 3 --patience 2 --set modules=2", "validation classes"),
        ("meta-test {tmp}/absent {data}", "no model folder"),
        ("meta-test {run} {data} --tasks many", "a number or 'all'"),
        ("meta-test {run} {data} --tasks 0", "at least 1, got 0"),
        ("meta-test {run} {data} --picture {tmp}/a.xls", ".png, .pdf or .svg"),
        ("meta-test {run} {data} --out {tmp}/a.csv", "a.csv': the ending must be .parquet"),
        ("meta-test {run} {data} --out {data}/a.parquet", "cannot make the folder"),
        ("experiment accuracy {data}", "accuracy"),
    ],
)
def test_bad_input_is_one_line_and_exit_2_and_leaves_nothing(
    run, data: Path, trained: Path, tmp_path: Path, words: str, expected: str
) -> None:
    code, out, err = run(*(word.format(tmp=tmp_path, data=data, run=trained) for word in words.split()))
    assert code == 2
    assert err.startswith("tasktheme: ")
    assert err.count("\n") == 1
    assert expected in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []
