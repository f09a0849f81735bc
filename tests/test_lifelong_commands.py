from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import tasktheme as tt
from oracles.small import SMALL, small_images
from tasktheme.lifelong_commands import _left_out

TINY = [
    "ways=3",
    "queries=3",
    "filters=4",
    "modules=3",
    "inner_steps=1",
    "test_steps=1",
    "pool=5",
    "evaluate_every=2",
    "test_tasks=4",
]
SETTINGS = [word for setting in TINY for word in ("--set", setting)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Data, a task model and a probe."""
    folder = tmp_path_factory.mktemp("made")
    images = small_images()
    np.savez(folder / "small.npz", x=images.x, y=np.repeat(np.arange(8), 10), groups=np.repeat(np.arange(2), 40))
    split = tt.load_dataset(folder / "small.npz", split=0.5)
    tt.PTM(settings=SMALL, device="cpu").fit(split.train, 8, progress=False).save(folder / "model")
    probe = tt.MetaLearner("maml", device="cpu", ways=3, queries=3, filters=4, modules=3, inner_steps=1, test_steps=1)
    probe.fit(split, 2, progress=False).save(folder / "probe")
    return folder / "small.npz", folder / "model", folder / "probe"


def test_every_policy_in_both_settings(run, made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    data, model, probe = made
    common = [data, "--held-out", 0.5, "--seeds", 2, "--steps", 4, "--out", tmp_path / "out", *SETTINGS, "--device", "cpu"]
    common += ["--model", model, "--probe", probe]
    code, out, err = run("experiment", "lifelong", *common, "--policies", "ptm,task2vec,worst-case,random,predicted,diverse")
    assert code == 0, err
    result = json.loads((tmp_path / "out" / "maml-induction" / "lifelong.json").read_text())
    assert list(result["policies"]) == ["ptm", "task2vec", "worst-case", "random", "diverse", "predicted"]
    assert result["final_tasks"] == 4  # all choices of 3 of 4 classes
    assert len(result["comparisons"]) == 15
    assert "ptm less random" in out
    assert "over seeds (+- " in out
    assert "to read all pairs)" in out
    assert "% of their tasks are the same" in out
    code, _, err = run("experiment", "lifelong", *common, "--policies", "worst-case,ptm", "--setting", "transduction", "-q")
    assert code == 0, err
    assert (tmp_path / "out" / "maml-transduction" / "final.parquet").exists()
    assert (tmp_path / "out" / "lifelong.png").read_bytes().startswith(b"\x89PNG")


def test_picks_that_were_not_learned_from_are_told(run, made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    common = [made[0], "--held-out", 0.5, "--seeds", 2, "--policies", "random", "--out", tmp_path / "out", *SETTINGS]
    code, out, err = run("experiment", "lifelong", *common, "--steps", 30, "--set", "skip=true", "--set", "skip_margin=0.0")
    assert code == 0, err
    policy = json.loads((tmp_path / "out" / "maml-induction" / "lifelong.json").read_text())["policies"]["random"]
    assert sum(policy["skipped"]) > 0
    assert f"after 30 steps ({sum(policy['skipped'])} of 60 picks not learned from), on" in out
    stopped = policy | {"stopped": [True, False]}
    assert _left_out(stopped).endswith("picks not learned from, 1 of 2 runs stopped early)")


def test_what_the_trainings_held_out_stays_held_out(run, made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    data = tmp_path / "four.npz"
    images = small_images()
    np.savez(data, x=images.x, y=np.repeat(np.arange(8), 10), groups=np.repeat(list("ab"), 40))
    for kind, loaded in {"model": tt.PTM.load(made[1]), "probe": tt.MetaLearner.load(made[2])}.items():
        for group in "ab":
            loaded.trained_on |= {"data": "four", "held_out": [group]}
            loaded.save(tmp_path / f"{kind}-{group}")
    common = [data, "--seeds", 1, "--steps", 1, *SETTINGS, "--device", "cpu", "--policies", "random", "-q"]
    for group, numbers in {"a": {"0", "1", "2", "3"}, "b": {"4", "5", "6", "7"}}.items():  # one is not the default part
        for kind in ("model", "probe"):
            out = tmp_path / f"{kind}-{group}-out"
            code, _, err = run("experiment", "lifelong", *common, f"--{kind}", tmp_path / f"{kind}-{group}", "--out", out)
            assert code == 0, err
            tested = pq.read_table(out / "maml-induction" / "final.parquet")["classes"].to_pylist()
            assert {name for task in tested for name in task.split()} == numbers
    unlike = ["--model", tmp_path / "model-a", "--probe", tmp_path / "probe-b"]
    code, _, err = run("experiment", "lifelong", *common, *unlike, "--out", tmp_path / "out")
    assert (code, err.count("\n")) == (2, 1)
    assert "held out different parts of 'four' ('a' or 'b'): say which with --held-out" in err
    code, _, err = run("experiment", "lifelong", *common, *unlike, "--held-out", "a", "--out", tmp_path / "out")
    assert code == 0, err


def test_no_compiler_is_one_line(run, made: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasktheme.training.compiler.compiler_fault", lambda device: "no C++ compiler")
    common = ["experiment", "lifelong", made[0], "--held-out", 0.5, "--seeds", 1, "--steps", 1, *SETTINGS, "--device", "cpu"]
    common += ["--policies", "random", "--out", tmp_path / "out"]
    code, _, err = run(*common, "--compile")
    assert code == 2
    assert "no C++ compiler; go without compiling" in err
    assert err.count("\n") == 1
    code, _, err = run(*common, "-q")
    assert code == 0, err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policies", "ptm"], "needs a task model"),
        (["--policies", "task2vec"], "needs a probe network: give --probe, "),
        (["--policies", "random", "--set", "ways=5"], "tasks of 5 ways: 4 to train on, 4 held out; ask for fewer (--set ways=4)"),
        (["--policies", "random", "--tasks", "few"], "a number or 'all'"),
        (["--policies", "random", "--set", "pool=0"], "'pool' must be at least 1"),
        (["--policies", "random", "--tasks", "0"], "at least 1"),
    ],
)
def test_bad_input(run, made: tuple[Path, Path, Path], tmp_path: Path, arguments: list[str], words: str) -> None:
    code, _, err = run(
        "experiment", "lifelong", made[0], "--held-out", 0.5, "--out", tmp_path / "out", *SETTINGS[:18], *arguments
    )
    assert code == 2
    assert words in err
    assert err.count("\n") == 1


def test_what_cannot_be_run_is_said_before_any_data_is_read(run, tmp_path: Path) -> None:
    code, _, err = run("experiment", "lifelong", tmp_path / "no data", "--policies", "randon", "--out", tmp_path / "out")
    assert (code, err.count("\n")) == (2, 1)
    assert "did you mean 'random'?" in err
