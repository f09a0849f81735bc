from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tasktheme as tt
from tasktheme.bundled import bundled_models, find_model, model_card, model_measures
from tasktheme.errors import ModelFileError
from tasktheme.options import parse_changes

NAMES = bundled_models()
ROOT = Path(__file__).parent.parent


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """Two folders of characters as a scanner gives them: dark ink on white paper, in colour, larger than the model's images."""
    data = tt.load_dataset("glyphs", progress=False).test
    for task in range(2):
        (tmp_path / "letters" / f"task{task}").mkdir(parents=True)
        for i in range(4):
            ink = Image.fromarray(255 - data.x[400 * task + 20 * i, 0]).resize((128, 128))
            ink.convert("RGB").save(tmp_path / "letters" / f"task{task}" / f"{i}.png")
    return tmp_path / "letters"


def test_there_is_a_model_for_omniglot() -> None:
    assert "omniglot-default" in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_as_good_as_the_folder(run, name: str, tmp_path: Path) -> None:
    drawn = ["glyphs", "-n", 6, "--ways", 3, "--shots", 4]
    by_name, by_path = tmp_path / "name.parquet", tmp_path / "path.parquet"
    assert run("embed", name, *drawn, "--out", by_name)[0] == 0
    assert run("embed", find_model(name), *drawn, "--out", by_path)[0] == 0
    assert by_name.read_bytes() == by_path.read_bytes()
    episodes = tt.load_dataset("glyphs", progress=False).test.episodes(ways=3, shots=4, n=6, seed=1)
    np.testing.assert_array_equal(tt.TaskSet.load(by_name).concentration, tt.PTM.load(name).embed(episodes).concentration)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_small_and_its_card_says_how_it_was_made_and_how_good_it_is(name: str) -> None:
    folder, card, measures = find_model(name), model_card(name), model_measures(name)
    assert sum(file.stat().st_size for file in folder.iterdir()) < 5e6
    model = tt.PTM.load(name)
    made = re.search(r"tasktheme fit {data} --out (\S+) --tasks {tasks}( .*)?\n".format(**model.trained_on), card)
    assert made
    if made[1] == name:  # not a refit of another: the options are all that is not a default
        changes = re.findall(r"--set (\S+)", made[2] or "")
        assert model.settings == tt.Settings().changed(parse_changes(changes))
    assert f"--out {name} " in card.replace("\n", " ")
    aspects = f"each of {model.settings.aspects} aspects of " if model.settings.aspects > 1 else ""
    assert f"{model.settings.themes} themes in {aspects}a {model.settings.latent_dim}-dimensional" in card
    for figure in (measures["auc"], measures["mean_average_precision"], measures["prototype_accuracy"]):
        assert f"{figure:.3f}" in card
    assert "licence" in card


@pytest.mark.data
@pytest.mark.parametrize("name", [NAMES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])])
def test_the_measures_are_those_of_the_model(run, name: str, tmp_path: Path) -> None:
    code, _, err = run("evaluate", name, tt.PTM.load(name).trained_on["data"], "--out", tmp_path / "m.json", "-q")
    assert code == 0, err
    found, kept = json.loads((tmp_path / "m.json").read_text()), model_measures(name)
    assert found.keys() == kept.keys()
    assert [name for name in found if found[name] is None] == [name for name in kept if kept[name] is None]
    for measure in ("auc", "mean_average_precision", "nearest_same_group", "prototype_accuracy"):
        assert found[measure] == pytest.approx(kept[measure], abs=5e-3)  # another machine rounds otherwise


def test_models_are_listed_and_shown(run) -> None:
    code, out, _ = run("models")
    assert code == 0
    assert all(re.search(rf"^{name} .*{model_measures(name)['auc']:.3f} *$", out, flags=re.MULTILINE) for name in NAMES)
    assert run("models", NAMES[0])[1] == model_card(NAMES[0])


@pytest.mark.parametrize("command", ["embed {} glyphs", "summary {} glyphs", "plot themes {} glyphs --out x.png", "models {}"])
def test_an_unknown_name_is_one_line_that_says_which_there_are(run, command: str) -> None:
    code, out, err = run(*command.format("omniglot-defalt").split())
    assert (code, out) == (2, "")
    if not command.startswith("summary"):  # which takes files of tasks too
        expected = "there is no model folder 'omniglot-defalt', and the models by name are"
        assert err == f"tasktheme: {expected} {', '.join(NAMES)}; did you mean omniglot-default?\n"
    with pytest.raises(ModelFileError, match="no model folder 'omniglot-defalt'"):
        tt.PTM.load("omniglot-defalt")


def test_a_folder_goes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = tt.PTM.load(NAMES[0])
    model.trained_on["data"] = "my own"
    model.save(NAMES[0])
    assert tt.PTM.load(NAMES[0]).trained_on["data"] == "my own"
    Path(NAMES[0]).rename(f".{NAMES[0]}.old")  # as a kill in the middle of a saving leaves it
    assert tt.PTM.load(NAMES[0]).trained_on["data"] == "my own"


def test_summary_tells_the_themes_of_a_model_by_name(run) -> None:
    code, out, _ = run("summary", "omniglot-default", "glyphs")
    assert code == 0
    assert len(out.splitlines()) == 1 + tt.PTM.load("omniglot-default").settings.themes


@pytest.mark.filterwarnings("always:the images are negatives")
def test_image_files_become_like_those_that_the_model_knows(run, letters: Path, tmp_path: Path) -> None:
    ink, light, as_they_are = (tmp_path / f"{name}.parquet" for name in ("ink", "light", "as-they-are"))
    code, _, err = run("embed", "omniglot-default", letters, "--out", ink)
    assert (code, err.count("tasktheme: ")) == (0, 1)
    assert "negatives" in err
    assert run("embed", "omniglot-default", letters, "--no-invert", "--out", as_they_are)[0] == 0
    for file in letters.rglob("*.png"):
        Image.fromarray(255 - np.asarray(Image.open(file))).save(file)
    code, _, err = run("embed", "omniglot-default", letters, "--out", light)
    assert (code, err.count("tasktheme: ")) == (0, 0)
    found, expected, other = (tt.TaskSet.load(file).concentration for file in (ink, light, as_they_are))
    np.testing.assert_allclose(found, expected, atol=0.05)  # grey of an inverted colour is the inverted grey, to rounding
    assert np.abs(other - expected).max() > 1.0
    with pytest.raises(tt.TaskThemeError, match=r"size=64, channels=1"):
        tt.PTM.load("omniglot-default").embed(tt.load_tasks(letters, progress=False))


@pytest.mark.filterwarnings("always:the images are negatives")
def test_labelled_files_are_inverted_in_all_parts(run, letters: Path, tmp_path: Path) -> None:
    options = ["--labelled", "--held-out", "task1", "--ways", 1, "--shots", 4, "-n", 2, "-q"]
    rows = {}
    for part in ("train", "test"):
        assert run("embed", "omniglot-default", letters, *options, "--part", part, "--out", tmp_path / f"{part}.npz")[0] == 0
        rows[part] = tt.TaskSet.load(tmp_path / f"{part}.npz").concentration[0]
    tasks = tt.load_tasks(letters, channels=1, progress=False)
    expected = tt.PTM.load("omniglot-default").embed(tasks.inverted()).concentration
    np.testing.assert_allclose([rows["train"], rows["test"]], expected, atol=1e-3)


def test_the_wheel_holds_the_models(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77")
    source = tmp_path / "source"  # a build leaves its own folders behind
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(tmp_path), str(source)]
    subprocess.run(build, check=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        for name in NAMES:
            for file in find_model(name).iterdir():
                assert packed.read(f"tasktheme/trained/{name}/{file.name}") == file.read_bytes()
