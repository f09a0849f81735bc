from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tasktheme as tt
from oracles.selection import make_gamma
from oracles.small import TOLD_APART, small_images
from tasktheme.selection.build import POLICIES
from tasktheme.selection_commands import PolicyName


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pool and targets in files, data, and models trained on it."""
    place = tmp_path_factory.mktemp("selection")
    for name, count, size in (("pool", 30, 60), ("targets", 4, 60), ("large", 4, 90)):
        gamma = make_gamma(count, seed=count, size=float(size)).numpy()
        columns = {"name": [f"{name} {i}" for i in range(count)]}
        known = {"columns": columns, "prior": np.full(4, 1.1)}
        tt.TaskSet(gamma, np.full(count, size), np.ones(count, dtype=np.bool_), **known).save(place / f"{name}.parquet")
    images = small_images()
    np.savez(place / "data.npz", x=images.x, y=np.repeat(np.arange(8), 10), groups=np.repeat(np.arange(2), 40))
    split = tt.load_dataset(place / "data.npz", split=0.5)
    tt.PTM(settings=TOLD_APART, device="cpu").fit(split.train, 8, progress=False).save(place / "model")
    learner = tt.MetaLearner("maml", device="cpu", ways=3, queries=4, filters=4, modules=2, batch_tasks=2, test_steps=1)
    learner.fit(split.train, 2, progress=False).save(place / "run")
    return place


def test_every_policy_has_its_name_on_the_command_line() -> None:
    assert {name.value for name in PolicyName} == set(POLICIES)


def test_a_file_of_tasks_is_ranked_with_reasons(run, folder: Path, tmp_path: Path) -> None:
    pool, targets = (tt.TaskSet.load(folder / f"{name}.parquet") for name in ("pool", "targets"))
    code, out, err = run("select", folder / "pool.parquet", "-k", 3)
    assert (code, err) == (0, "")
    frame = pd.read_csv(io.StringIO(out))
    expected = tt.select(pool, k=3)
    assert frame["rank"].tolist() == [1, 2, 3]
    assert frame["task"].tolist() == expected.indices.tolist()
    assert frame["name"].tolist() == [f"pool {i}" for i in expected.indices]
    assert frame["reason"].tolist() == list(expected.reasons)
    table = tmp_path / "picks.parquet"
    code, out, _ = run("select", folder / "pool.parquet", "--targets", folder / "targets.parquet", "-k", 2, "--out", table)
    assert out == f"wrote {table}: 2 tasks\n"
    assert pd.read_parquet(table)["task"].tolist() == tt.select(pool, k=2, targets=targets).indices.tolist()
    code, out, _ = run("select", folder / "pool.parquet", "--targets", folder / "large.parquet", terminal=True)
    assert code == 0
    assert "10 picks of 30 tasks; compared as if each had 60 data points" in " ".join(out.split())


def test_earlier_picks_and_sizes(run, folder: Path) -> None:
    pool = tt.TaskSet.load(folder / "pool.parquet")
    words = [
        "select",
        folder / "pool.parquet",
        "--policy",
        "diverse",
        "--recent",
        folder / "targets.parquet",
        "--resized",
        20,
        "-k",
        4,
    ]
    frame = pd.read_csv(io.StringIO(run(*words)[1]))
    last = tt.TaskSet.load(folder / "targets.parquet").resized(20)
    assert frame["task"].tolist() == tt.select(pool.resized(20), "diverse", 4, recent=last).indices.tolist()


@pytest.mark.parametrize("ending", ["parquet", "csv", "npz"])
def test_picks_are_tasks_for_the_next_selection(run, folder: Path, tmp_path: Path, ending: str) -> None:
    first, second = (tmp_path / f"{name}.{ending}" for name in ("first", "second"))
    words = ["select", folder / "pool.parquet", "--policy", "diverse", "-k", 5, "--resized", 20]
    assert run(*words, "--out", first)[0] == 0
    pool, picks = tt.TaskSet.load(folder / "pool.parquet"), tt.TaskSet.load(first)
    expected = tt.select(pool.resized(20), "diverse", 5)
    np.testing.assert_array_equal(picks.concentration, pool[expected.indices].concentration)  # not brought to another size
    assert picks.columns["task"] == expected.indices.tolist()
    assert picks.columns["rank"] == [1, 2, 3, 4, 5]
    assert picks.columns["reason"] == list(expected.reasons)
    code, _, err = run(*words, "--recent", first, "--out", second)
    assert code == 0, err
    after = tt.select(pool.resized(20), "diverse", 5, recent=picks.resized(20))
    assert tt.TaskSet.load(second).columns["task"] == after.indices.tolist() != expected.indices.tolist()
    code, out, _ = run("select", first, "--policy", "diverse", "--recent", second)  # none of which is in this pool
    assert (code, len(pd.read_csv(io.StringIO(out)))) == (0, 5)
    again = run("select", first, "-k", 2)[1]  # picks are a pool too
    assert pd.read_csv(io.StringIO(again))["rank"].tolist() == [1, 2]
    assert run("select", first, "-k", 2, "--out", second, "--overwrite")[0] == 0


def test_one_pick_at_a_time_takes_all_files_of_picks(run, folder: Path, tmp_path: Path) -> None:
    pool = tt.TaskSet.load(folder / "pool.parquet")
    earlier: list[object] = []
    for number in range(4):
        out = tmp_path / f"picks{number}.parquet"
        code, _, err = run("select", folder / "pool.parquet", "--policy", "diverse", "-k", 1, *earlier, "--out", out)
        assert code == 0, err
        earlier += ["--recent", out]
    picked = [tt.TaskSet.load(tmp_path / f"picks{number}.parquet").columns["task"][0] for number in range(4)]
    assert picked == tt.select(pool, "diverse", 4).indices.tolist()


def test_earlier_picks_are_known_by_what_all_their_files_tell(run, folder: Path, tmp_path: Path) -> None:
    pool = tt.TaskSet.load(folder / "pool.parquet")
    pool[[3]].save(tmp_path / "named.parquet")
    dataclasses.replace(pool[[5]], columns={}).save(tmp_path / "plain.parquet")
    files = [word for name in ("named", "plain") for word in ("--recent", tmp_path / f"{name}.parquet")]
    frame = pd.read_csv(io.StringIO(run("select", folder / "pool.parquet", "--policy", "diverse", "-k", 28, *files)[1]))
    assert set(range(30)) - set(frame["task"]) == {3, 5}


def test_earlier_picks_of_different_models_are_named(run, folder: Path, tmp_path: Path) -> None:
    pool, other = folder / "pool.parquet", tmp_path / "other.parquet"
    dataclasses.replace(tt.TaskSet.load(pool), fingerprint="another").save(other)
    code, _, err = run("select", pool, "--policy", "diverse", "--recent", pool, "--recent", other)
    assert code == 2
    assert err.startswith(f"tasktheme: --recent {pool} and {other}: the two task sets come from different models")
    assert err.count("\n") == 1


@pytest.mark.parametrize("policy", ["worst-case", "task2vec", "predicted"])
@pytest.mark.parametrize("aims", [[], ["--targets", "{data}", "--target-number", 2]])
def test_policies_that_look_at_images_draw_them_from_data(run, folder: Path, policy: str, aims: list[object]) -> None:
    data = folder / "data.npz"
    words = [str(word).format(data=data) for word in aims]
    models = ["--learner", folder / "run", *(["--model", folder / "model"] if policy == "predicted" else [])]
    code, out, err = run("select", data, "--policy", policy, *words, *models, "-n", 6, "-k", 3, "--held-out", 0.5, "-q")
    assert code == 0, err
    frame = pd.read_csv(io.StringIO(out))
    learner, split = tt.MetaLearner.load(folder / "run"), tt.load_dataset(data, split=0.5)
    model = tt.PTM.load(folder / "model") if policy == "predicted" else None
    pool = tt.draw_tasks(split.train, learner, 6, seed=0, model=model)
    targets = tt.draw_tasks(split.test, learner, 2, seed=1, model=model) if aims else None
    expected = tt.select(pool, policy, 3, targets=targets, learner=learner)
    assert frame["task"].tolist() == expected.indices.tolist()
    assert frame["name"].str.split(" ").map(len).tolist() == [3, 3, 3]


def test_policies_take_models_of_several_aspects(run, folder: Path, tmp_path: Path) -> None:
    split = tt.load_dataset(folder / "data.npz", split=0.5)
    fine = tt.PTM.load(folder / "model").refit(split.train, themes=2, aspects=5, progress=False)
    fine.save(tmp_path / "fine")
    words = [folder / "data.npz", "--learner", folder / "run", "-n", 4, "-k", 2, "--held-out", 0.5, "-q"]
    for policy in ("random", "worst-case"):
        plain = run("select", *words, "--policy", policy)
        assert plain[0] == 0
        assert run("select", *words, "--policy", policy, "--model", tmp_path / "fine") == plain
    learner = tt.MetaLearner.load(folder / "run")
    pool = tt.draw_tasks(split.train, learner, 4, seed=0, model=fine)
    assert pool.aspects == 5
    for policy in ("ptm", "predicted"):
        code, out, err = run("select", *words, "--policy", policy, "--model", tmp_path / "fine")
        assert code == 0, err
        expected = tt.select(pool, policy, 2, learner=learner)
        assert pd.read_csv(io.StringIO(out))["task"].tolist() == expected.indices.tolist()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("{pool} --policy worst-case", "a file of tasks, has none: give DATA in its place, with --learner RUN\n"),
        ("{pool} --policy task2vec --learner {run}", "give DATA in its place, with --learner RUN\n"),
        ("{pool} --policy predicted", "give DATA in its place, with --learner RUN and --model MODEL\n"),
        ("{pool} --learner {run}", "--learner: this goes with DATA"),
        ("{pool} -n 5 --part test --held-out 0.5", "-n and --part and --held-out: this goes with DATA"),
        ("{pool} --targets {pool} --target-number 3 --data-dir .", "--target-number and --data-dir: this goes with DATA"),
        ("{data} --learner {run} --target-number 3", "--target-number: there are no targets"),
        ("{pool} --targets {data}", "must both be files of tasks"),
        ("{data}", "is no file of tasks that embed wrote, and tasks drawn from DATA need"),
        ("{data} --learner {run} --resized 3", "--resized: this goes with a file of tasks"),
        ("{data} --learner {run} --policy ptm -n 4 --held-out 0.5", "or draw them with one (model, --model)"),
        ("{pool} -k 31", "from 1 to 30"),
        ("{pool} --recent {pool}", "all tasks of the pool were picked before"),
        ("{pool} --out {pool}", "exists already"),
        ("{pool} --out picks.txt", "the ending must be one of"),
        ("absent.parquet", "no task file"),
        ("absent.npz", "there is no file or folder 'absent.npz'"),
        ("{pool} --targets absent.parqet", "there is no file or folder 'absent.parqet'"),
    ],
)
def test_bad_input_gets_one_line(run, folder: Path, words: str, said: str) -> None:
    places = {"pool": folder / "pool.parquet", "run": folder / "run", "data": folder / "data.npz"}
    code, _, err = run("select", *words.format(**places).split())
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
