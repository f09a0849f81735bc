from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import typer
from PIL import Image

import tasktheme as tt
from oracles.small import small_images
from tasktheme import cli
from tasktheme.task_tables import warn_of_collapse, warn_of_sizes

TINY = ["filters=[2,2,2,2]", "latent_dim=3", "themes=3", "polish_tasks=4", "polish_sweeps=2", "t_shots=3", "v_shots=3"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "model"
    settings = tt.Settings(
        filters=(2, 2, 2, 2),
        latent_dim=3,
        themes=3,
        polish_tasks=4,
        polish_sweeps=2,
        t_shots=3,
        v_shots=3,
        batch_tasks=5,
        network_start="data",  # without, so short a training leaves all tasks alike
    )
    tt.PTM(settings=settings).fit(tt.load_dataset("glyphs", progress=False).train, tasks=10, progress=False).save(folder)
    return folder


@pytest.fixture(scope="module")
def tasks(model: Path) -> Path:
    file = model.parent / "tasks.parquet"
    data = tt.load_dataset("glyphs", progress=False).test
    tt.PTM.load(model).embed(data.episodes(ways=3, shots=4, n=12, seed=1)).save(file)
    return file


def test_fit_writes_a_model_with_the_settings_asked_for(run, tmp_path: Path) -> None:
    toml = tmp_path / "run.toml"
    toml.write_text('bound_weight = 2\nnorm = "batch"\n')
    changes = [word for setting in TINY for word in ("--set", setting)]
    code, out, err = run(
        "fit", "glyphs", "--out", tmp_path / "m", "--tasks", 20, "--settings", toml, "--seed", 7, "--themes", 2, *changes
    )
    assert code == 0, err
    settings = tt.PTM.load(tmp_path / "m").settings
    assert (settings.bound_weight, settings.norm, settings.seed, settings.themes) == (2.0, "batch", 7, 2)
    assert "next:" in out


def test_fit_chooses_the_number_of_themes_and_says_so(run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])
    z = np.concatenate([rng.choice(4, size=30, p=mixture) for mixture in rng.dirichlet(np.ones(4), size=40)])
    x = (centres[z] + rng.normal(size=(1200, 2))).astype(np.float32)
    np.savez(tmp_path / "points.npz", x=x, y=np.arange(1200) // 30, groups=np.repeat(list("abcde"), 240))
    small = ["--set", "ways=[3,3]", "--set", "polish_tasks=20", "--set", "batch_tasks=5"]
    code, out, err = run(
        "fit", tmp_path / "points.npz", "--held-out", "e", "--out", tmp_path / "m", "--tasks", 20, "--themes", "auto", *small
    )
    assert code == 0, err
    assert "chose 4 themes, the fewest within one standard error of the best held-out bound (2: " in out
    assert tt.PTM.load(tmp_path / "m").settings.themes == 4
    code, _, err = run("fit", "glyphs", "--out", tmp_path / "n", "--themes", "many")
    assert code == 2
    assert "'many' is neither a whole number nor auto" in err


@pytest.mark.filterwarnings("always::tasktheme.errors.TrainingWarning")
def test_fit_warns_of_a_collapse_in_one_line(run, tmp_path: Path) -> None:
    changes = [word for setting in (*TINY, "bound_weight=1000", "learning_rate=0.05") for word in ("--set", setting)]
    code, _, err = run("fit", "glyphs", "--out", tmp_path / "m", "--tasks", 200, "-q", *changes)
    assert code == 0, err
    lines = [line for line in err.splitlines() if "collapsed" in line]
    assert [line.startswith("tasktheme: the embedding has collapsed") for line in lines] == [True]


def test_embed_writes_what_the_library_gives(run, model: Path, tasks: Path, tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    code, out, _ = run("embed", model, "glyphs", "--out", file, "-n", 12, "--ways", 3, "--shots", 4, "--seed", 1)
    assert code == 0
    assert "strongest themes" in out
    ours, theirs = tt.TaskSet.load(file), tt.TaskSet.load(tasks)
    np.testing.assert_array_equal(ours.concentration, theirs.concentration)
    assert ours.fingerprint == theirs.fingerprint == tt.PTM.load(model).fingerprint


def test_refit_writes_a_model_with_other_themes_on_the_same_encoder(run, model: Path, tmp_path: Path) -> None:
    words = ["refit", model, "glyphs", "--out", tmp_path / "wide", "--themes", 5]
    code, out, err = run(*words, "--set", "covariance=diagonal", "--set", "polish_tasks=10", "--set", "polish_sweeps=2")
    assert code == 0, err
    assert "wrote" in out
    wide, narrow = tt.PTM.load(tmp_path / "wide"), tt.PTM.load(model)
    assert (wide.settings.themes, wide.settings.covariance) == (5, "diagonal")
    x = np.zeros((1, *wide.point_shape), dtype=np.uint8)
    np.testing.assert_array_equal(wide.embed_points(x), narrow.embed_points(x))
    code, _, err = run(*words)
    assert code == 2
    assert "exists already" in err
    code, _, err = run(*words, "--overwrite", "--set", "norm=batch")
    assert code == 2
    assert "cannot change 'norm'" in err


def test_turned_images_are_trained_on_too(run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tt.Dataset] = []
    fit, refit = tt.PTM.fit, tt.PTM.refit
    monkeypatch.setattr(tt.PTM, "fit", lambda self, data, *words, **named: taken.append(data) or fit(self, data, *words, **named))
    monkeypatch.setattr(tt.PTM, "refit", lambda self, data, **named: taken.append(data) or refit(self, data, **named))
    changes = [word for setting in TINY for word in ("--set", setting)]
    code, _, err = run("fit", "glyphs", "--turned", "--out", tmp_path / "fitted", "--tasks", 8, *changes)
    assert code == 0, err
    code, _, err = run("refit", model, "glyphs", "--turned", "--out", tmp_path / "refitted", "--set", "polish_tasks=10")
    assert code == 0, err
    groups = 8 * len(tt.load_dataset("glyphs").train.group_names)
    assert [len(data.group_names) for data in taken] == [groups, groups]
    assert tt.PTM.load(tmp_path / "fitted").trained_on["turned"]
    assert tt.PTM.load(tmp_path / "refitted").trained_on["themes_turned"]


def test_embed_streams_many_tasks_to_the_same_file(
    run, model: Path, tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasktheme.model_commands._MANY", 11)
    monkeypatch.setattr("tasktheme.ptm._TASKS_IN_PART", 5)
    file = tmp_path / "t.parquet"
    code, out, _ = run("embed", model, "glyphs", "--out", file, "-n", 12, "--ways", 3, "--shots", 4, "--seed", 1)
    assert code == 0
    assert out == f"wrote {file}: 12 tasks\n"
    ours, theirs = tt.TaskSet.load(file), tt.TaskSet.load(tasks)
    np.testing.assert_allclose(ours.concentration, theirs.concentration, rtol=1e-5)
    assert ours.columns == theirs.columns
    assert list(tmp_path.iterdir()) == [file]


def test_embed_takes_each_sub_folder_as_a_task_at_the_size_of_the_model(run, model: Path, tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for task, count in (("cats", 3), ("dogs", 5)):
        (tmp_path / "photos" / task).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(rng.integers(0, 256, (20, 30), dtype=np.uint8)).save(tmp_path / "photos" / task / f"{i}.png")
    assert run("embed", model, tmp_path / "photos", "--out", tmp_path / "t.csv")[0] == 0
    loaded = tt.TaskSet.load(tmp_path / "t.csv")
    assert (loaded.columns["name"], loaded.sizes.tolist()) == (["cats", "dogs"], [3, 5])
    code, out, _ = run("embed", model, tmp_path / "photos", "-q")
    assert code == 0
    frame = pd.read_csv(io.StringIO(out))
    assert frame["name"].tolist() == ["cats", "dogs"]
    np.testing.assert_allclose(frame[["gamma_0", "gamma_1", "gamma_2"]], loaded.concentration)
    assert run("embed", model, tmp_path / "photos", "--labelled", "--out", tmp_path / "u.csv")[0] == 2


def test_embed_takes_a_list_of_tasks(run, model: Path, tmp_path: Path) -> None:
    data = tt.load_dataset("glyphs", progress=False).test
    full = [f"{data.group_names[g]}/{name}" for g, name in zip(data.class_group, data.class_names, strict=True)]
    listed = [full[:3], full[5:7], [full[0], full[-1]]]
    csv, file = tmp_path / "tasks.csv", tmp_path / "t.parquet"
    csv.write_text("".join(",".join(names) + "\n" for names in listed), encoding="utf-8")
    code, out, err = run("embed", model, "glyphs", "--tasks-file", csv, "--shots", "2-4", "--out", file)
    assert code == 0, err
    assert "3 tasks" in out
    written = tt.TaskSet.load(file)
    assert written.columns["classes"] == [" ".join(name.split("/")[1] for name in names) for names in listed]
    assert written.columns["group"][2] == "mixed"
    expected = tt.PTM.load(model).embed(data.episodes(tasks=listed, shots=(2, 4), seed=1))
    np.testing.assert_array_equal(written.concentration, expected.concentration)
    assert run("evaluate", model, "glyphs", "--tasks-file", csv, "--shots", 4)[0] == 0


def test_embed_goes_through_all_combinations(run, model: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (36, 1, 64, 64), dtype=np.uint8)
    np.savez(tmp_path / "six.npz", x=x, y=np.repeat(list("abcdef"), 6))
    file = tmp_path / "t.parquet"
    words = ("embed", model, tmp_path / "six.npz", "--held-out", 0.67, "--all-combinations", "--shots", 5, "--out", file)
    assert run(*words, "--ways", 2)[0] == 0
    names = tt.load_dataset(tmp_path / "six.npz", split=0.67).test.class_names
    pairs = [f"{a} {b}" for i, a in enumerate(names) for b in names[i + 1 :]]
    assert tt.TaskSet.load(file).columns["classes"] == pairs
    assert len(pairs) == 6
    code, _, err = run(*words, "--overwrite")
    assert (code, "ways must be a whole number from 1 to 4" in err) == (2, True)


def test_ranges_of_ways_and_shots(run, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    assert run("embed", model, "glyphs", "--ways", "2-4", "--shots", "3-6", "-n", 30, "--out", file)[0] == 0
    episodes = tt.load_dataset("glyphs", progress=False).test.episodes(ways=(2, 4), shots=(3, 6), n=30, seed=1)
    assert tt.TaskSet.load(file).sizes.tolist() == episodes.batch.mask.sum(dim=1).tolist()
    assert set(episodes.class_mask.sum(dim=1).tolist()) == {2, 3, 4}


def test_the_data_folder_given_is_named_where_the_data_is_missing(
    run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKTHEME_DATA", "/some/where")
    words = ("embed", model, "mini-imagenet", "--out", tmp_path / "t.parquet")
    for folder, options in ((tmp_path / "given", ["--data-dir", tmp_path / "given"]), (Path("/some/where"), [])):
        code, _, err = run(*words, *options)
        assert code == 2
        assert err.count("\n") == 1
        assert f"mini-imagenet is not in {str(folder / 'mini-imagenet')!r}; put the official train.csv" in err


@pytest.mark.parametrize("ending", ["csv", "npy", "parquet"])
def test_distances_are_written_by_file_ending(run, tasks: Path, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"kl.{ending}"
    assert run("distances", tasks, "--out", file)[0] == 0
    readers = {"npy": np.load, "csv": lambda f: np.loadtxt(f, delimiter=","), "parquet": lambda f: pd.read_parquet(f).to_numpy()}
    written = readers[ending](file)
    loaded = tt.TaskSet.load(tasks)
    np.testing.assert_allclose(written, loaded.kl(loaded), rtol=1e-4, atol=1e-6)


def test_distances_have_the_tasks_names_where_all_have_one(run, tasks: Path, tmp_path: Path) -> None:
    loaded = tt.TaskSet.load(tasks)
    names = [f"set {i}, {'b' * (i % 3)}" for i in range(len(loaded))]
    loaded.with_columns(name=names).save(tmp_path / "named.parquet")
    loaded[:2].with_columns(name=["first", "first"]).save(tmp_path / "twice.parquet")
    for ending, read in (("csv", pd.read_csv), ("parquet", pd.read_parquet)):
        assert run("distances", tmp_path / "named.parquet", "--out", tmp_path / f"kl.{ending}")[0] == 0
        frame = read(tmp_path / f"kl.{ending}").set_index("task")
        assert list(frame.columns) == list(frame.index) == names
        np.testing.assert_array_equal(frame.to_numpy(), loaded.kl(loaded))
    _, out, _ = run("distances", tmp_path / "named.parquet")
    assert out.startswith('"task","set 0, ",')
    _, out, _ = run("distances", tmp_path / "named.parquet", tmp_path / "twice.parquet")
    assert len(out.splitlines()) == len(loaded)  # names that tell nothing apart: numbers alone


def test_nearest_shows_the_neighbours(run, tasks: Path) -> None:
    code, out, _ = run("nearest", tasks, tasks, "-k", 1, terminal=True)
    loaded = tt.TaskSet.load(tasks)
    assert code == 0
    first = loaded.nearest(loaded, k=1).indices[0, 0]
    assert f"{first} {loaded.columns['group'][first]}" in out.splitlines()[1]


@pytest.mark.parametrize("kind", ["reverse-kl", "symmetric-kl", "hellinger", "jensen-shannon", "earth-mover"])
def test_distances_of_each_kind_go_through_a_pipe(run, model: Path, tasks: Path, kind: str) -> None:
    code, out, _ = run("distances", tasks, "--kind", kind, *(["--model", model] if kind == "earth-mover" else []))
    assert code == 0
    loaded = tt.TaskSet.load(tasks)
    expected = {
        "reverse-kl": lambda: loaded.kl(loaded).T,
        "symmetric-kl": lambda: loaded.symmetric_kl(loaded),
        "hellinger": lambda: loaded.hellinger(loaded),
        "jensen-shannon": lambda: loaded.jensen_shannon(loaded),
        "earth-mover": lambda: loaded.earth_mover(loaded, tt.PTM.load(model).theme_distances()),
    }[kind]()
    np.testing.assert_allclose(np.loadtxt(io.StringIO(out), delimiter=","), expected, rtol=1e-4, atol=1e-6)


def test_what_embed_pipes_the_others_read(run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("embed", model, "glyphs", "-n", 3, "--ways", 3, "--shots", 4, "-q")
    piped = run(*words)[1]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped.encode())))
    frame = pd.read_csv(io.StringIO(run("summary", "-")[1]))
    tasks = tt.PTM.load(model).embed(tt.load_dataset("glyphs", progress=False).test.episodes(ways=3, shots=4, n=3, seed=1))
    np.testing.assert_allclose(frame["entropy"], tasks.entropy())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"nonsense")))
    code, _, err = run("summary", "-")
    assert code == 2
    assert "'standard input' is not a task file" in err


def test_pictures_and_the_explorer_take_any_file_of_tasks_and_a_pipe(
    run, model: Path, tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = tt.TaskSet.load(tasks)
    for name in ("t.csv", "t.npz", "T.PARQUET"):
        loaded.save(tmp_path / name)
        assert run("explore", model, tmp_path / name, "--out", tmp_path / f"{name}.html")[0] == 0
        assert explored(tmp_path / f"{name}.html")["tasks"] == len(loaded)
    for words in (("plot", "map", "-", "--out", tmp_path / "p.png"), ("explore", model, "-", "--out", tmp_path / "p.html")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(tasks.read_bytes())))
        assert run(*words)[0] == 0
    assert explored(tmp_path / "p.html")["facts"][0] == ["Tasks from", "a pipe"]


def test_tasks_that_are_all_alike_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    gamma = np.random.default_rng(0).gamma(2.0, size=(2, 3)) + 0.1
    for rows, said in (([0, 1], ""), ([0, 0], "all 2 tasks are alike"), ([0], "")):
        warn_of_collapse(tt.TaskSet(gamma[rows], np.ones(len(rows), dtype=np.int64), np.ones(len(rows), dtype=np.bool_)))
        err = capsys.readouterr().err
        assert said in err if said else err == ""


def test_tasks_of_different_sizes_that_are_all_alike_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    sizes, prior = np.array([1, 8, 500]), np.full(3, 1.1)
    for share, said in (([[0.0, 1.0, 0.0]] * 3, "all 3 tasks are alike"), (np.eye(3), "")):
        warn_of_collapse(tt.TaskSet(prior + sizes[:, None] * share, sizes, np.ones(3, dtype=np.bool_), prior=prior))
        err = capsys.readouterr().err
        assert said in err if said else err == ""


def test_commands_that_compare_tasks_tell_once_that_all_are_alike(run, model: Path, tasks: Path, tmp_path: Path) -> None:
    first, same = tt.TaskSet.load(tasks)[[0]], tmp_path / "same.parquet"
    tt.TaskSet.concatenate([first] * 6).save(same)
    for words in (["nearest", same, same], ["novelty", same, same], ["distances", same]):
        code, _, err = run(*words)
        assert (code, err.count("all 6 tasks are alike"), len(err.splitlines())) == (0, 1, 1), err
    for words in (["plot", "map", same], ["plot", "distances", same], ["explore", model, same]):
        code, _, err = run(*words, "--out", tmp_path / f"p.{'html' if words[0] == 'explore' else 'png'}", "--overwrite")
        assert (code, err.count("all 6 tasks are alike"), len(err.splitlines())) == (0, 1, 1), err
    assert run("nearest", tasks, same)[2] == ""


def test_pictures_of_distances_tell_sizes_and_compare_by_content(run, tasks: Path, tmp_path: Path) -> None:
    small = tt.TaskSet.load(tasks)
    tt.TaskSet.concatenate([small[:6], small[6:].resized(90)]).save(tmp_path / "mixed.parquet")
    for kind in ("map", "distances"):
        words = ["plot", kind, tmp_path / "mixed.parquet", "--out", tmp_path / f"{kind}.png", "--overwrite"]
        assert "12 to 90 data points" in run(*words)[2]
        assert run(*words, "--resized", 12)[2] == ""


def test_themes_are_drawn_by_data_without_labels(run, model: Path, tmp_path: Path) -> None:
    glyphs = tt.load_dataset("glyphs", progress=False).test.x
    np.savez(tmp_path / "tasks.npz", ann=glyphs[:20], bob=glyphs[400:420])
    words = ["plot", "themes", model, tmp_path / "tasks.npz", "--out", tmp_path / "themes.png"]
    code, _, err = run(*words)
    assert code == 2
    assert "--unlabelled of fit, refit, embed, explore and plot themes" in err
    assert run(*words, "--unlabelled")[0] == 0
    assert "--part: data without labels" in run(*words, "--unlabelled", "--part", "train", "--overwrite")[2]


def test_damaged_images_name_the_option_that_leaves_them_out(run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "photos" / "a").mkdir(parents=True)
    Image.new("L", (8, 8)).save(tmp_path / "photos" / "a" / "0.png")
    (tmp_path / "photos" / "a" / "1.png").write_bytes((tmp_path / "photos" / "a" / "0.png").read_bytes()[:40])
    code, _, err = run("embed", model, tmp_path / "photos")
    assert code == 2
    assert "(--allow-damaged)" in err


def test_tasks_of_very_different_sizes_are_told_where_distances_are_compared(run, tasks: Path, tmp_path: Path) -> None:
    tt.TaskSet.load(tasks).resized(24).save(tmp_path / "large.parquet")
    tt.TaskSet.load(tasks).resized(23).save(tmp_path / "larger.parquet")
    for command in ("nearest", "novelty", "distances"):
        assert "12 to 24 data points, " in run(command, tasks, tmp_path / "large.parquet")[2]
        assert run(command, tasks, tmp_path / "large.parquet", "--resized", 12)[2] == ""
        assert run(command, tasks, tmp_path / "larger.parquet")[2] == ""


def _points(file: Path, *, labelled: bool) -> Path:
    x, y = np.random.default_rng(0).normal(size=(64, 2)), np.arange(64) // 4
    if labelled:
        np.savez(file, x=x, y=y, groups=np.repeat(list("abcd"), 16))
    else:
        np.savez(file, **{f"customer {i}": x[y == i] for i in range(16)})
    return file


def test_fit_says_what_is_next_as_it_can_be_run(run, tmp_path: Path) -> None:
    data = _points(tmp_path / "my points.npz", labelled=False)
    code, out, err = run("fit", data, "--unlabelled", "--out", tmp_path / "my model", "--tasks", 10)
    assert code == 0, err
    for command in out.partition("next:  ")[2].split("   or   "):
        words = shlex.split(command)
        code, _, err = run(*words[1:-1], tmp_path / words[-1])
        assert code == 0, err
    assert tt.TaskSet.load(tmp_path / "tasks.parquet").columns["name"][:2] == ["customer 0", "customer 1"]


@pytest.mark.parametrize(
    ("classes", "groups", "images", "expected"),
    [
        (8, 1, False, "evaluate {} --shots 4"),  # two held out
        (24, 8, False, "evaluate {} --ways 3 --shots 4"),  # two groups
        (2, 1, False, "explore {} --ways 1 --shots 4 --out atlas.html"),  # one class
        (2, 1, True, "explore {} --out atlas.html"),  # each folder is a task
    ],
)
def test_fit_suggests_what_few_classes_and_data_points_allow(
    run, tmp_path: Path, classes: int, groups: int, images: bool, expected: str
) -> None:
    names = [(f"group{c * groups // classes}", f"class{c}") for c in range(classes) for _ in range(8)]
    data, model = tmp_path / ("images" if images else "points.npz"), tmp_path / "m"
    small = ["--set", "ways=[1,2]", "--set", "t_shots=2", "--set", "v_shots=2", "--tasks", 4, "--themes", 2]
    if images:
        for i, (group, label) in enumerate(names):
            (folder := data / group / label).mkdir(parents=True, exist_ok=True)
            Image.new("L", (4, 4), i).save(folder / f"{i}.png")
        small += ["--size", 4, "--set", "filters=[2,2]", "--set", "latent_dim=2"]
    else:
        x = np.random.default_rng(0).normal(size=(len(names), 2))
        np.savez(data, x=x, y=[label for _, label in names], groups=[group for group, _ in names])
    code, out, err = run("fit", data, "--out", model, *small)
    assert code == 0, err
    look, embedding = out.partition("next:  ")[2].strip().split("   or   ")
    assert look == f"tasktheme {expected.format(shlex.join([str(model), str(data)]))}"
    for command in (look, embedding):
        words = shlex.split(command)[1:]
        code, _, err = run(*words[:-1], tmp_path / words[-1]) if "--out" in words else run(*words)
        assert code == 0, err


def test_what_the_training_held_out_stays_held_out(run, tmp_path: Path) -> None:
    data, model, file = _points(tmp_path / "points.npz", labelled=True), tmp_path / "m", tmp_path / "t.parquet"
    tasks = ["--ways", 2, "--shots", 2, "-n", 30, "--out", file, "--overwrite", "-q"]
    small = ["--tasks", 10, "--set", "ways=[2,4]", "--set", "t_shots=2", "--set", "v_shots=2", "-q"]
    for first, second in ("ab", "cd"):  # one of the two is not what the default quarter takes
        held_out = ["--held-out", first, "--held-out", second]
        assert run("fit", data, "--out", model, "--overwrite", *held_out, *small)[0] == 0
        assert run("embed", model, data, *tasks)[0] == 0
        assert set(tt.TaskSet.load(file).columns["group"]) == {first, second}
        assert run("embed", model, data, "--held-out", "c", *tasks)[0] == 0
        assert set(tt.TaskSet.load(file).columns["group"]) == {"c"}
    assert run("refit", model, data, "--held-out", "a", "--out", tmp_path / "r", "-q")[0] == 0
    assert run("embed", tmp_path / "r", data, *tasks)[0] == 0
    assert set(tt.TaskSet.load(file).columns["group"]) == {"a"}
    other = _points(tmp_path / "other.npz", labelled=True)
    assert run("embed", model, other, *tasks)[0] == 0
    assert len(set(tt.TaskSet.load(file).columns["group"])) == 1  # of other data a quarter


def test_images_in_an_npz_are_resized_where_told_and_then_to_the_size_of_the_model(run, tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (64, 1, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "digits.npz", x=x, y=np.arange(64) // 8)
    small = [word for setting in (*TINY, "ways=[2,4]") for word in ("--set", setting)]
    words = ["fit", tmp_path / "digits.npz", "--out", tmp_path / "m", "--tasks", 2, "-q", *small]
    code, _, err = run(*words)
    assert (code, "28x28 do not divide" in err) == (2, True)
    assert run(*words, "--size", 32)[0] == 0
    assert tt.PTM.load(tmp_path / "m").point_shape == (1, 32, 32)
    file = tmp_path / "t.parquet"
    code, _, err = run("embed", tmp_path / "m", tmp_path / "digits.npz", "--ways", 2, "--shots", 3, "-n", 4, "--out", file)
    assert code == 0, err


def test_the_folder_of_an_output_is_made(run, tasks: Path, tmp_path: Path) -> None:
    for words in (["distances", tasks, "--out"], ["plot", "simplex", tasks, "--out"]):
        file = tmp_path / words[0] / "a" / ("kl.csv" if words[0] == "distances" else "s.png")
        code, _, err = run(*words, file)
        assert (code, file.is_file()) == (0, True), err


def test_a_link_to_itself_is_no_data_set(run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    code, _, err = run("explore", model, tmp_path / "loop", "--out", tmp_path / "x.html")
    assert (code, err.count("\n")) == (2, 1)
    assert "there is no file or folder" in err


def test_fit_says_how_to_train_on_few_images_or_classes(run, tmp_path: Path) -> None:
    np.savez(tmp_path / "few.npz", x=np.zeros((24, 3)), y=np.repeat(np.arange(8), 3))
    np.savez(tmp_path / "narrow.npz", x=np.zeros((80, 3)), y=np.repeat(np.arange(4), 20))
    code, _, err = run("fit", tmp_path / "few.npz", "--out", tmp_path / "m")
    assert (code, "--set t_shots=3 --set v_shots=3" in err) == (2, True)
    code, _, err = run("fit", tmp_path / "narrow.npz", "--out", tmp_path / "m")
    assert (code, "--set 'ways=[2,5]'" in err) == (2, True)
    data = _points(tmp_path / "points.npz", labelled=True)
    small = [word for setting in ("ways=[2,4]", "t_shots=2", "v_shots=2") for word in ("--set", setting)]
    assert run("fit", data, "--out", tmp_path / "m", "--tasks", 5, *small, "-q")[0] == 0
    code, _, err = run("refit", tmp_path / "m", data, "--out", tmp_path / "r", "--set", "ways=[5,5]")
    assert (code, "--set 'ways=[2,5]'" in err) == (2, True)


def test_fit_says_how_to_train_on_a_single_class(run, tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", x=np.random.default_rng(0).normal(size=(40, 3)), y=np.repeat(np.arange(2), 20))
    code, _, err = run("fit", tmp_path / "two.npz", "--out", tmp_path / "m")
    assert code == 2
    assert "group 'two' of 'two' has 1 class, but tasks ask for 5 ways; ask for tasks of one class, --set ways=1, or" in err
    words = ["--tasks", 5, "--themes", 2, "--set", "ways=1", "-q"]
    assert run("fit", tmp_path / "two.npz", "--out", tmp_path / "m", *words)[0] == 0


@pytest.mark.filterwarnings("always:1 folder holds no image")
def test_a_folder_without_an_image_is_named_and_the_work_goes_on(run, model: Path, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / "letters" / name).mkdir(parents=True)
    Image.new("L", (8, 8), 200).save(tmp_path / "letters/a/1.png")
    code, out, err = run("embed", model, tmp_path / "letters", "--no-invert", "-q")
    assert (code, pd.read_csv(io.StringIO(out))["name"].tolist()) == (0, ["a"])
    assert err == f"tasktheme: 1 folder holds no image and is no task of {str(tmp_path / 'letters')!r}: 'b'\n"


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    gamma = np.random.default_rng(0).gamma(2.0, size=(300, 3)) + 0.1
    tt.TaskSet(gamma, np.ones(300, dtype=np.int64), np.ones(300, dtype=np.bool_)).save(tmp_path / "t.parquet")
    writer = subprocess.Popen(
        [sys.executable, "-m", "tasktheme", "distances", str(tmp_path / "t.parquet")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    assert writer.stdout.readline().count(b",") == 299
    writer.stdout.close()
    assert writer.stderr.read() == b""
    writer.stderr.close()
    assert writer.wait() == 0


def test_the_status_of_an_error_is_the_same_where_its_line_cannot_be_written() -> None:
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "tasktheme", "select", "no-such.parquet"]
        assert subprocess.run(words, stderr=full, check=False).returncode == 2


def test_a_remark_that_cannot_be_written_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []

    def full(line: object, **_: object) -> None:
        tried.append(line)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("typer.echo", full)
    sizes = np.array([5, 500])
    warn_of_sizes(tt.TaskSet(np.ones((2, 2)), sizes, np.ones(2, dtype=np.bool_)))
    cli._show_warning("collapsed")
    assert ["5 to 500 data points" in str(tried[0]), "collapsed" in str(tried[-1]), len(tried)] == [True, True, 2]


def test_distances_on_a_terminal_are_a_corner_of_the_matrix(run, tasks: Path) -> None:
    code, out, _ = run("distances", tasks, "--kind", "hellinger", terminal=True)
    assert code == 0
    assert "hellinger from row to column, 12 x 12, median" in out
    assert len(out.splitlines()) < 20


def test_distances_as_text_are_read_back_to_the_bit(run, tasks: Path, tmp_path: Path) -> None:
    loaded = tt.TaskSet.load(tasks)
    matrix = loaded.kl(loaded)
    assert run("distances", tasks, "--out", tmp_path / "kl.csv")[0] == 0
    for text in ((tmp_path / "kl.csv").read_text(), run("distances", tasks)[1]):
        read = [[float(value) for value in line.split(",")] for line in text.splitlines()]
        np.testing.assert_array_equal(read, matrix)


def test_distances_can_compare_by_content(run, tasks: Path) -> None:
    _, out, _ = run("distances", tasks, "--resized", 7)
    resized = tt.TaskSet.load(tasks).resized(7)
    np.testing.assert_allclose(np.loadtxt(io.StringIO(out), delimiter=","), resized.kl(resized), rtol=1e-4, atol=1e-6)


def test_nearest_through_a_pipe_is_a_line_for_each_neighbour(run, tasks: Path, tmp_path: Path) -> None:
    code, out, _ = run("nearest", tasks, tasks, "-k", 2, "--direction", "reverse")
    assert code == 0
    frame = pd.read_csv(io.StringIO(out))
    loaded = tt.TaskSet.load(tasks)
    found = loaded.nearest(loaded, k=2, direction="reverse")
    assert list(frame.columns) == ["task", "group", "rank", "neighbour", "neighbour_group", "distance"]
    np.testing.assert_array_equal(frame["neighbour"], found.indices.reshape(-1))
    np.testing.assert_allclose(frame["distance"], found.distances.reshape(-1))
    assert frame["neighbour_group"].tolist() == [loaded.columns["group"][j] for j in found.indices.reshape(-1)]
    assert frame["rank"].tolist() == [1, 2] * 12
    for ending in ("parquet", "npz"):
        assert run("nearest", tasks, tasks, "--out", tmp_path / f"n.{ending}", "-k", 2, "--direction", "reverse")[0] == 0
    np.testing.assert_array_equal(pd.read_parquet(tmp_path / "n.parquet")["neighbour"], frame["neighbour"])
    np.testing.assert_array_equal(np.load(tmp_path / "n.npz")["neighbour"], frame["neighbour"])


def test_nearest_of_few_tasks_takes_all_there_are(run, tasks: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.parquet"
    tt.TaskSet.load(tasks)[:3].save(few)
    for known, ranks in ((few, [1, 2]), (tasks, [1, 2, 3, 4, 5])):
        code, out, err = run("nearest", known, few)
        assert code == 0, err
        assert pd.read_csv(io.StringIO(out))["rank"].tolist() == ranks * 3
    assert run("nearest", few, few, "-k", 5)[0] == 2


def test_novelty_tells_the_most_unlike_first_and_writes_all(run, tasks: Path, tmp_path: Path) -> None:
    loaded = tt.TaskSet.load(tasks)
    known = tmp_path / "known.parquet"
    loaded[:8].save(known)
    found = loaded.novelty(tt.TaskSet.load(known))
    code, out, _ = run("novelty", known, tasks, terminal=True)
    assert code == 0
    most = int(found.distances.argmax())
    assert out.splitlines()[1].startswith(f"{most} {loaded.columns['group'][most]}")
    frame = pd.read_csv(io.StringIO(run("novelty", known, tasks)[1]))
    np.testing.assert_allclose(frame["percentile"], found.percentile)
    np.testing.assert_array_equal(frame["nearest"], found.indices)


def test_summary_is_an_overview_or_a_row_for_each_task(run, tasks: Path, tmp_path: Path) -> None:
    code, out, _ = run("summary", tasks, terminal=True)
    assert code == 0
    assert "12, of 12 data points" in out
    loaded = tt.TaskSet.load(tasks)
    low, middle, high = np.quantile(loaded.entropy(), [0.0, 0.5, 1.0])
    assert f"{low:.2f} to {high:.2f} nats, median {middle:.2f}" in out
    mixed, single = tmp_path / "mixed.parquet", tmp_path / "single.parquet"
    tt.TaskSet.concatenate([loaded.resized(1), loaded]).save(mixed)
    loaded.resized(1).save(single)
    assert "24, of 1 to 12 data points" in run("summary", mixed, terminal=True)[1]
    assert "12, of 1 data point \n" in re.sub(" +\n", " \n", run("summary", single, terminal=True)[1])
    frame = pd.read_csv(io.StringIO(run("summary", tasks, "--top", 2)[1]))
    loaded = tt.TaskSet.load(tasks)
    np.testing.assert_allclose(frame["entropy"], loaded.entropy())
    np.testing.assert_array_equal(frame[["theme_1", "theme_2"]], loaded.top_themes(2))
    np.testing.assert_allclose(frame["share_1"], loaded.mean_mixture().max(axis=1))


def test_summary_keeps_columns_that_are_called_like_its_own(run, tasks: Path, tmp_path: Path) -> None:
    loaded = tt.TaskSet.load(tasks)
    own = {name: [f"{name} of {i}" for i in range(12)] for name in ("entropy", "theme_1", "task", "entropy_given", "owner")}
    loaded.with_columns(**own).save(tmp_path / "own.parquet")
    frame = pd.read_csv(io.StringIO(run("summary", tmp_path / "own.parquet")[1]))
    np.testing.assert_allclose(frame["entropy"], loaded.entropy())
    assert frame["task"].tolist() == list(range(12))
    np.testing.assert_array_equal(frame["theme_1"], loaded.top_themes(1)[:, 0])
    kept = {"entropy": "entropy_given_given", "theme_1": "theme_1_given", "task": "task_given"}
    for name, values in own.items():
        assert frame[kept.get(name, name)].tolist() == values


@pytest.mark.parametrize(
    ("kind", "ending"),
    [("simplex", "svg"), ("map", "png"), ("distances", "png"), ("entropy", "pdf"), ("mixtures", "png"), ("intervals", "pdf")],
)
def test_plot_draws_tasks(run, tasks: Path, tmp_path: Path, kind: str, ending: str) -> None:
    file = tmp_path / f"p.{ending}"
    assert run("plot", kind, tasks, "--out", file)[0] == 0
    start = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[ending]
    first = file.read_bytes()
    assert first.startswith(start)
    assert run("plot", kind, tasks, "--out", file, "--overwrite")[0] == 0
    assert file.read_bytes() == first


@pytest.mark.parametrize("words", ["training {model}", "themes {model} glyphs --columns 2", "distances {tasks} --clustered"])
def test_plot_draws_a_model_and_a_tree(run, model: Path, tasks: Path, tmp_path: Path, words: str) -> None:
    file = tmp_path / "p.png"
    assert run("plot", *(word.format(model=model, tasks=tasks) for word in words.split()), "--out", file)[0] == 0
    assert file.read_bytes().startswith(b"\x89PNG")


def test_evaluate_prints_and_writes_the_same_numbers(run, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "e.json"
    code, out, _ = run("evaluate", model, "glyphs", "-n", 40, "--shots", 4, "--out", file)
    measured = json.loads(file.read_text())
    assert code == 0
    assert f"{measured['auc']:.3f}" in out
    assert measured["tasks"] == 40


def test_evaluate_takes_images_at_the_size_of_the_model(run, tmp_path: Path) -> None:
    settings = tt.Settings(filters=(2, 2, 2, 2), latent_dim=3, themes=3, polish_tasks=4, polish_sweeps=2, t_shots=3, v_shots=3)
    data = tt.load_dataset("glyphs", size=32, progress=False).train
    assert data.point_shape == (1, 32, 32)
    tt.PTM(settings=settings).fit(data, tasks=10, progress=False).save(tmp_path / "m")
    code, _, err = run("evaluate", tmp_path / "m", "glyphs", "-n", 20, "--shots", 4, "--quiet")
    assert code == 0, err


def explored(file: Path) -> dict[str, Any]:
    """What an explorer page knows."""
    html = file.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="payload">(.*?)</script>', html, flags=re.DOTALL)[1])


def test_explore_draws_the_tasks_of_embed(run, model: Path, tasks: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.html"
    words = ["-n", 12, "--ways", 3, "--shots", 4, "--title", "Scripts & <signs>"]
    code, out, _ = run("explore", model, "glyphs", "--out", file, *words)
    assert code == 0
    assert file.as_uri() in out
    page = explored(file)
    assert (page["tasks"], page["title"]) == (12, "Scripts & <signs>")
    assert page["columns"]["classes"] == tt.TaskSet.load(tasks).columns["classes"]
    assert page["images"]["samples"] is not None


def test_explore_shows_stored_tasks_and_with_their_data_the_same_images(run, model: Path, tasks: Path, tmp_path: Path) -> None:
    plain, full, drawn = (tmp_path / name for name in ("plain.html", "full.html", "drawn.html"))
    assert run("explore", model, tasks, "--out", plain)[0] == 0
    assert explored(plain)["images"]["samples"] is None
    sampling = ["--ways", 3, "--shots", 4]
    assert run("explore", model, tasks, "--data", "glyphs", "--out", full, *sampling)[0] == 0
    assert run("explore", model, "glyphs", "--out", drawn, "-n", 12, *sampling)[0] == 0
    assert explored(full)["images"] == explored(drawn)["images"]


def test_explore_takes_a_folder_of_tasks(run, model: Path, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 30, 20), dtype=np.uint8)
    for i, task in enumerate(["ann", "bob", "bob", "bob", "<img onerror=x>"]):
        (tmp_path / "customers" / task).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[i]).save(tmp_path / "customers" / task / f"{i}.png")
    customers, file = tmp_path / "customers", tmp_path / "t.parquet"
    code, _, err = run("explore", model, customers, "--out", tmp_path / "a.html", "--quiet")
    assert code == 0, err
    page = explored(tmp_path / "a.html")
    assert page["columns"]["name"] == ["<img onerror=x>", "ann", "bob"]
    assert run("embed", model, customers, "--out", file, "--quiet")[0] == 0
    assert run("explore", model, file, "--data", customers, "--out", tmp_path / "b.html", "--quiet")[0] == 0
    assert explored(tmp_path / "b.html")["images"] == page["images"]
    assert "the tasks have 1 to 3 data points" in err  # which tells sizes apart; so, unless all count as one size:
    code, _, err = run("explore", model, file, "--out", tmp_path / "c.html", "--resized", 2)
    assert (code, err, explored(tmp_path / "c.html")["resized"]) == (0, "", 2)


def test_version_and_help(run) -> None:
    assert run("--version")[1] == f"tasktheme {tt.__version__}\n"
    code, out, _ = run("fit", "--help")
    assert code == 0
    assert "Example" in out
    assert "--preset" in out


def test_help_version_and_a_misspelt_command_do_not_wait_for_torch() -> None:
    commands = typer.main.get_command(cli.app).commands
    asked = [["--help"], ["--version"], ["frobnicate"], *([name, "--help"] for name in commands)]
    asked += [[name, inner, "--help"] for name in ("experiment", "plot") for inner in commands[name].commands]
    program = f"""
import sys
from tasktheme.cli import main
for words in {asked!r}:
    sys.argv = ["tasktheme", *words]
    try:
        main()
    except SystemExit as end:
        assert end.code == (2 if words == ["frobnicate"] else 0), words
    assert "torch" not in sys.modules, words
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("words", [[], ["plot"], ["experiment"]])
def test_a_command_with_nothing_after_it_shows_its_help_and_no_more(run, words: list[str]) -> None:
    code, out, err = run(*words)
    assert (code, err) == (2, "")
    assert "Usage" in out


def test_the_public_names_are_all_there_before_they_are_used() -> None:
    program = """
import tasktheme as tt
assert set(tt.__all__) <= set(dir(tt))
assert tt.PTM.__name__ == "PTM"
from tasktheme import *
assert select.__name__ == "select"
assert not hasattr(tt, "absent")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fit nothing --out {tmp}/m", "nothing"),
        ("fit glyphs --out {tmp}/m --themes 0", "'themes' must be at least 1"),
        ("fit glyphs --out {tmp}/m --set rate=3", "unknown setting 'rate'"),
        ("fit glyphs --out {tmp}/m --set themes", "NAME=VALUE"),
        ("fit glyphs --out {tmp}/m --settings {tmp}/absent.toml", "absent.toml"),
        ("fit glyphs --out {model}", "exists already"),
        ("fit glyphs --out .", "'.' cannot be a model's folder"),
        ("meta-train maml glyphs --out /", "'/' cannot be a model's folder"),
        ("fit glyphs --out {tmp}/m --ways 3", "No such option"),
        ("fit glyphs --out {tmp}/m --preset papper", "papper"),
        ("embed {tmp}/absent glyphs --out {tmp}/t.parquet", "no model folder"),
        ("embed {model} glyphs --out {tmp}/t.parquet --shots 21", "has 20 data points"),
        ("embed {model} glyphs --out {tmp}/t.parquet --ways 27", "ask for 27 ways"),
        ("embed {model} glyphs --out {tmp}/t.parquet -n 0", "at least 1, got 0"),
        ("embed {model} glyphs --out {tmp}/t.csv -n 1000000000", "1,000,000,000 tasks of 100 data points are too many"),
        ("embed {model} glyphs --out {tmp}/t.parquet --ways 5-", "neither a whole number nor a range like 5-20"),
        ("embed {model} glyphs --out {tmp}/t.parquet --ways -3", "ways must be a positive whole number"),
        ("embed {model} glyphs --out {tmp}/t.parquet --tasks-file {tmp}/absent.csv", "no file"),
        ("embed {model} glyphs --out {tmp}/t.parquet --tasks-file {model}/model.json", "model.json"),
        ("embed {model} glyphs --out {tmp}/t.parquet --tasks-file t.csv --ways 3", "either ways"),
        (
            "embed {model} glyphs --out {tmp}/t.parquet --tasks-file {model}/model.json",
            "the part 'test' (--part) of 'glyphs' has",
        ),
        ("embed {model} glyphs --out {tmp}/t.parquet --tasks-file t.csv --unlabelled", "exclude each other"),
        ("embed {model} glyphs --out {tmp}/t.parquet --tasks-file t.csv --all-combinations", "exclude each other"),
        ("embed {model} glyphs --out {tmp}/t.parquet --all-combinations", "draw tasks at random"),
        ("embed {model} glyphs --out {tmp}/t.parquet --all-combinations --ways 2-3", "got (2, 3)"),
        ("embed {model} {tmp} --out {tmp}/t.parquet --shots 20 -n 5", "--shots and -n: each folder (or array) of "),
        ("embed {model} {tmp} --out {tmp}/t.parquet --part train", "--labelled draws tasks from its classes"),
        ("embed {model} {tmp} --out {tmp}/t.parquet --held-out 0.5", "--held-out goes with classes"),
        ("fit {tmp} --unlabelled --out {tmp}/m --held-out ann", "--held-out goes with classes"),
        ("refit {model} {tmp} --unlabelled --out {tmp}/m --held-out ann", "--held-out goes with classes"),
        ("explore {model} {tmp} --out {tmp}/a.html --ways 3", "--ways: each folder"),
        ("embed {model} glyphs --out {tasks}", "exists already"),
        ("embed {model} glyphs --out {tasks}/t.parquet", "cannot make the folder"),
        ("distances {tmp}/absent.parquet", "no task file"),
        ("distances {model}/model.json", "not a task file"),
        ("distances {tasks} --out {tmp}/kl.xls", ".npy, .csv or .parquet"),
        ("distances {tasks} --kind earth-mover", "--model"),
        ("distances {tasks} --kind earth-mover --model {tmp}/absent", "no model folder"),
        ("distances {tasks} --model {model}", "--model: this goes with --kind earth-mover"),
        ("distances {tasks} --resized 0", "--resized"),
        ("explore {model} {tasks} --out {tmp}/a.html --resized 0", "--resized"),
        ("embed {model} glyphs --out {tmp}/t.txt", ".parquet, .csv, .npz"),
        ("evaluate {model} glyphs --out {tmp}/m.csv", "m.csv': the ending must be .json"),
        ("nearest {tasks} {tasks} --out {tasks}", "exists already"),
        ("nearest {tasks} {tasks} --out {tmp}/n.npy", ".parquet, .csv, .npz"),
        ("nearest {tasks} {tasks} --direction up", "'--direction': 'up' is not one of"),
        ("fit glyphs --out {tmp}/m --set themes=aut", """must be a whole number of at most 2^32, or "auto", got 'aut'"""),
        ("novelty {tmp}/absent.csv {tasks}", "no task file"),
        ("summary {tmp}/absent.npz", "no task file"),
        ("summary {model} glyphs --top 2 --resized 5", "--top and --resized: this goes with tasks"),
        ("summary {tasks} --part train --data-dir .", "--part and --data-dir: this goes with a model and DATA"),
        (
            "plot map {tasks} --out {tmp}/map.png --group nosuch",
            "no column 'nosuch' to group tasks by: they have the columns group",
        ),
        ("plot map {tasks} --out {tmp}/map.gif", ".png, .pdf or .svg"),
        ("plot simplex {tasks} --out {tmp}/s.png --themes 0,1", "three different themes from 0 to 2"),
        ("plot simplex {tasks} --out {tmp}/s.png --themes a,b,c", "three numbers with commas"),
        ("plot pie {tasks} --out {tmp}/s.png", "pie"),
        ("nearest {tasks} {tasks} -k 12", "between 1 and 11"),
        ("explore {model} {tasks} --out {tasks}", "exists already"),
        ("explore {model} {tmp}/absent.parquet --out {tmp}/a.html", "no task file"),
        ("explore {model} {tasks} --data glyphs --out {tmp}/a.html", "repeat the options"),
        (
            "explore {model} {tasks} --out {tmp}/a.html -n 9 --part train --ways 3",
            "--part and --ways and -n: this goes with DATA",
        ),
        ("explore {model} {tasks} --out {tmp}/a.html --labelled --size 9", "--size and --unlabelled/--labelled: this goes"),
        ("explore {model} glyphs --data glyphs --out {tmp}/a.html", "leave it out"),
        ("explore {model} absent --out {tmp}/a.html", "absent"),
        ("embed {model} glyphs --ways 500", "but tasks ask for 500 ways; ask for fewer ways\n"),
        ("experiment distance-matrix glyphs --model {model} --groups 99 --out {tmp}/dm", "99 were asked for: --groups "),
        ("experiment distance-matrix nothing --model {model} --out {tmp}/new/dm", "nothing"),
        ("experiment entropy-accuracy glyphs --learner {tmp}/absent --model {model} --out {tmp}/ea", "absent"),
        ("embed {model} nothing --out {tmp}/new/t.parquet", "nothing"),
        ("frobnicate", "frobnicate"),
    ],
)
def test_bad_input_is_one_line_and_exit_2_and_leaves_nothing(
    run, model: Path, tasks: Path, tmp_path: Path, words: str, expected: str
) -> None:
    code, out, err = run(*(word.format(tmp=tmp_path, model=model, tasks=tasks) for word in words.split()))
    assert code == 2
    assert err.startswith("tasktheme: ")
    assert err.count("\n") == 1
    assert expected in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_traceback(run) -> None:
    with pytest.raises(tt.TaskThemeError):
        run("--debug", "fit", "nothing", "--out", "m")
    cli._state["debug"] = False


FULL = (
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.99 GiB.\nSee documentation"),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
)


@pytest.mark.parametrize("error", FULL)
def test_a_full_gpu_is_one_line_and_exit_1(error: Exception, run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(tt.PTM, "fit", full)
    code, _, err = run("fit", "glyphs", "--out", tmp_path / "m", "--tasks", "10", "--quiet")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("tasktheme: the GPU has no memory left")


@pytest.mark.parametrize("error", FULL)
def test_a_full_gpu_is_no_damage_to_what_is_loaded(
    error: Exception, run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = tt.MetaLearner("maml", device="cpu", ways=2, queries=1, filters=2, modules=1, batch_tasks=1)
    learner.fit(small_images(), 1, progress=False).save(tmp_path / "run")

    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(torch.nn.Module, "to", full)
    for words in (("embed", model, "glyphs", "--out", tmp_path / "t.parquet"), ("meta-test", tmp_path / "run", "glyphs")):
        code, _, err = run(*words, "--quiet")
        assert (code, err.count("\n")) == (1, 1)
        assert err.startswith("tasktheme: the GPU has no memory left")


def test_summary_of_a_model_tells_what_its_themes_are_made_of(run, model: Path, tasks: Path) -> None:
    code, out, _ = run("summary", model, "glyphs")
    rows = pd.read_csv(io.StringIO(out))
    assert code == 0
    assert sorted(rows["theme"]) == [0, 1, 2]
    assert set(rows["aspect"]) == {0}
    shown = run("summary", model, "glyphs", terminal=True)[1]
    assert shown.count("decoded") >= 3
    assert "aspect" not in shown
    code, _, err = run("summary", model)
    assert (code, err.count("\n")) == (2, 1)
    assert "name the data" in err
    assert run("summary", tasks, "glyphs")[0] == 2


def test_models_and_tasks_of_aspects_do_all_that_others_do(run, model: Path, tmp_path: Path) -> None:
    fine, tasks = tmp_path / "fine", tmp_path / "t.parquet"
    short = ["--latent-dim", 4, "--set", "ways=2", "--set", "t_shots=2", "--set", "v_shots=2", "--set", "polish_tasks=10"]
    assert run("fit", "glyphs", "--out", fine, "--size", 16, "--tasks", 8, "--themes", 2, "--aspects", 4, *short, "-q")[0] == 0
    assert (tt.PTM.load(fine).themes.aspects, tt.PTM.load(fine).settings.themes) == (4, 2)
    shutil.rmtree(fine)
    words = ["--themes", 2, "--aspects", 3, "--set", "polish_tasks=10", "-q"]
    assert run("refit", model, "glyphs", "--out", fine, *words)[0] == 0
    rows = pd.read_csv(io.StringIO(run("summary", fine, "glyphs")[1]))
    assert rows["aspect"].tolist() == (rows["theme"] // 2).tolist()
    assert "aspect" in run("summary", fine, "glyphs", terminal=True)[1]
    assert run("embed", fine, "glyphs", "--out", tasks, "-n", 3, "--ways", 2, "--shots", 2, "-q")[0] == 0
    found = tt.TaskSet.load(tasks)
    code, out, _ = run("distances", tasks, "--kind", "earth-mover", "--model", fine)
    assert code == 0
    expected = found.earth_mover(found, tt.PTM.load(fine).theme_distances())
    np.testing.assert_array_equal(np.loadtxt(io.StringIO(out), delimiter=","), expected)
    code, out, _ = run("select", tasks, "-k", 1)
    assert code == 0
    assert pd.read_csv(io.StringIO(out))["task"].tolist() == [found.entropy().argmax()]


def test_evaluate_draws_its_measures_and_refuses_other_files(run, model: Path, tmp_path: Path) -> None:
    words = ["evaluate", model, "glyphs", "-n", 12, "--shots", 4, "--picture"]
    assert run(*words, tmp_path / "e.png", "-q")[:2] == (0, "")
    assert (tmp_path / "e.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = run(*words, tmp_path / "e.txt")
    assert (code, "pictures are written as" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], ["^themes +8 +K, the number", "One of full, diagonal"]),
        (["--preset", "paper"], ["^norm +batch "]),
        (["maml"], ["^inner_rate +0.01 "]),
        (["lifelong"], ["^pool +200 +Tasks to choose from"]),
    ],
)
def test_settings_are_listed_with_their_meaning(run, monkeypatch: pytest.MonkeyPatch, words: list[str], shown: list[str]) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    code, out, _ = run("settings", *words)
    assert code == 0
    for line in shown:
        assert re.search(line, out, flags=re.MULTILINE), line


def test_a_preset_is_one_of_task_models(run) -> None:
    code, _, err = run("settings", "maml", "--preset", "paper")
    assert (code, err) == (2, "tasktheme: --preset: this goes with the settings of a task model\n")
