from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import tasktheme as tt
from tasktheme import cli

TINY = ["filters=[2,2,2,2]", "latent_dim=3", "themes=3", "polish_tasks=4", "polish_sweeps=2", "t_shots=3", "v_shots=3"]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory):
    """Run the command line in this process: exit code, standard output, standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tasktheme", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        said = capsys.readouterr()
        return int(leaving.value.code or 0), said.out, said.err

    return call


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "model"
    settings = tt.Settings(
        filters=(2, 2, 2, 2), latent_dim=3, themes=3, polish_tasks=4, polish_sweeps=2, t_shots=3, v_shots=3, batch_tasks=5
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


def test_embed_writes_what_the_library_gives(run, model: Path, tasks: Path, tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    code, out, _ = run("embed", model, "glyphs", "--out", file, "-n", 12, "--ways", 3, "--shots", 4, "--seed", 1)
    assert code == 0
    assert "strongest themes" in out
    ours, theirs = tt.TaskSet.load(file), tt.TaskSet.load(tasks)
    np.testing.assert_array_equal(ours.concentration, theirs.concentration)
    assert ours.fingerprint == theirs.fingerprint == tt.PTM.load(model).fingerprint


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


@pytest.mark.parametrize("ending", ["csv", "npy"])
def test_distances_are_written_by_file_ending(run, tasks: Path, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"kl.{ending}"
    assert run("distances", tasks, "--out", file)[0] == 0
    written = np.load(file) if ending == "npy" else np.loadtxt(file, delimiter=",")
    loaded = tt.TaskSet.load(tasks)
    np.testing.assert_allclose(written, loaded.kl(loaded), rtol=1e-4, atol=1e-6)


def test_nearest_shows_the_neighbours(run, tasks: Path) -> None:
    code, out, _ = run("nearest", tasks, tasks, "-k", 1)
    loaded = tt.TaskSet.load(tasks)
    assert code == 0
    first = loaded.nearest(loaded, k=1).indices[0, 0]
    assert f"{first} {loaded.columns['group'][first]}" in out.splitlines()[1]


def test_evaluate_prints_and_writes_the_same_numbers(run, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "e.json"
    code, out, _ = run("evaluate", model, "glyphs", "-n", 40, "--shots", 4, "--out", file)
    measured = json.loads(file.read_text())
    assert code == 0
    assert f"{measured['auc']:.3f}" in out
    assert measured["tasks"] == 40


def test_version_and_help(run) -> None:
    assert run("--version")[1] == f"tasktheme {tt.__version__}\n"
    code, out, _ = run("fit", "--help")
    assert code == 0
    assert "Example" in out
    assert "--preset" in out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fit nothing --out {tmp}/m", "nothing"),
        ("fit glyphs --out {tmp}/m --themes 0", "'themes' must be at least 1"),
        ("fit glyphs --out {tmp}/m --set rate=3", "unknown setting 'rate'"),
        ("fit glyphs --out {tmp}/m --set themes", "NAME=VALUE"),
        ("fit glyphs --out {tmp}/m --settings {tmp}/absent.toml", "absent.toml"),
        ("fit glyphs --out {model}", "exists already"),
        ("fit glyphs --out {tmp}/m --ways 3", "No such option"),
        ("fit glyphs --out {tmp}/m --preset papper", "papper"),
        ("embed {tmp}/absent glyphs --out {tmp}/t.parquet", "no model folder"),
        ("embed {model} glyphs --out {tmp}/t.parquet --shots 21", "has 20 data points"),
        ("embed {model} glyphs --out {tmp}/t.parquet --ways 27", "ask for 27 ways"),
        ("embed {model} glyphs --out {tmp}/t.parquet -n 0", "at least 1, got 0"),
        ("embed {model} glyphs --out {tmp}/t.parquet --ways 5-", "neither a whole number nor a range like 5-20"),
        ("embed {model} glyphs --out {tmp}/t.parquet --ways -3", "ways must be a positive whole number"),
        ("embed {model} glyphs --out {tmp}/t.parquet --tasks-file {tmp}/absent.csv", "no file"),
        ("embed {model} glyphs --out {tmp}/t.parquet --tasks-file {model}/model.json", "model.json"),
        ("embed {model} glyphs --out {tmp}/t.parquet --tasks-file t.csv --ways 3", "either ways"),
        ("embed {model} glyphs --out {tmp}/t.parquet --tasks-file t.csv --unlabelled", "exclude each other"),
        ("embed {model} glyphs --out {tmp}/t.parquet --tasks-file t.csv --all-combinations", "exclude each other"),
        ("embed {model} glyphs --out {tmp}/t.parquet --all-combinations", "draw tasks at random"),
        ("embed {model} glyphs --out {tmp}/t.parquet --all-combinations --ways 2-3", "got (2, 3)"),
        ("embed {model} glyphs --out {tasks}", "exists already"),
        ("embed {model} glyphs --out {tmp}/no/t.parquet", "folder does not exist"),
        ("distances {tmp}/absent.parquet", "no task file"),
        ("distances {model}/model.json", "not a task file"),
        ("distances {tasks} --out {tmp}/kl.xls", ".csv or .npy"),
        ("nearest {tasks} {tasks} -k 12", "between 1 and 11"),
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
