from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tasktheme as tt
from tasktheme.errors import SettingsError, TaskThemeError
from tasktheme.experiments.lifelong.settings import LifelongSettings
from tasktheme.learners.build import LEARNERS
from tasktheme.settings import CheckedSettings


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"themes": 0}, "'themes' must be at least 1, got 0"),
        ({"latent_dim": -3}, "'latent_dim' must be at least 1"),
        ({"learning_rate": -1e-3}, "'learning_rate' must be above 0"),
        ({"concentration": 0.0}, "'concentration' must be above 0"),
        ({"rate_power": 0.4}, "'rate_power' must be in [0.5, 1]"),
        ({"warm_up": 1.0}, "below 1"),
        ({"ways": (7, 5)}, "'ways' must be (fewest, most)"),
        ({"ways": (5, 6, 7)}, "'ways' must be two whole numbers"),
        ({"filters": ()}, "'filters' must be at least one layer"),
        ({"seed": 2**32}, "'seed' must be below 2^32"),
        ({"themes": 2.5}, "'themes' must be a whole number"),
        ({"themes": "aut"}, """'themes' must be a whole number of at most 2^32, or "auto", got 'aut'"""),
        ({"themes": True}, "'themes' must be a whole number"),
        ({"bound_weight": float("nan")}, "'bound_weight' must be a finite number"),
        ({"learn_concentration": 1}, "'learn_concentration' must be true or false"),
        ({"covariance": "ful"}, "did you mean 'full'?"),
        ({"precision": "float16"}, "did you mean 'bfloat16'?"),
        ({"theme": 4}, "unknown setting 'theme'; did you mean 'themes'?"),
        ({"validation_responsibilities": "reused", "t_shots": 3}, "t_shots = v_shots"),
    ],
)
def test_a_bad_setting_is_one_clear_line(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        tt.Settings().changed(change)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, TaskThemeError)
    assert isinstance(caught.value, ValueError)


def test_numbers_of_numpy_are_numbers() -> None:
    import numpy as np

    settings = tt.Settings(themes=np.int64(4), learning_rate=np.float32(0.5))
    assert (type(settings.themes), settings.themes, settings.learning_rate) == (int, 4, 0.5)


def test_the_paper_preset_is_the_literal_recipe() -> None:
    paper = tt.Settings.preset("paper")
    assert (paper.update, paper.initialisation, paper.validation_responsibilities) == ("parameters", "random", "reused")
    assert (paper.norm, paper.classification_weight, paper.squared_distance) == ("batch", 1.0, False)
    assert (paper.rate_offset, paper.rate_power, paper.e_step_iterations) == (1e6, 0.5, 5)
    assert (paper.ways, paper.t_shots, paper.v_shots, paper.batch_tasks) == ((5, 20), 10, 10, 20)
    assert (paper.concentration, paper.learning_rate, paper.gradient_clip) == (1.1, 2e-4, 10.0)
    assert (paper.warm_up, paper.polish_sweeps, paper.polish_start) == (0.0, 0, "themes")
    assert (paper.covariance_floor, paper.covariance_prior) == (0.0, 0.0)


def test_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(SettingsError, match="there are default, paper"):
        tt.Settings.preset("papper")


def test_toml_changes_a_preset(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('preset = "paper"\nthemes = 12\nways = 7\nfilters = [4, 8]\n')
    assert tt.Settings.from_toml(file) == tt.Settings.preset("paper").changed({"themes": 12, "ways": (7, 7), "filters": (4, 8)})
    assert tt.Settings.from_toml(file, preset="default").update == "statistics"


@pytest.mark.parametrize("text", ["themes = ", "preset = 3", "themez = 3", '"themes" = "many"'])
def test_a_bad_toml_file_is_one_clear_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "run.toml"
    file.write_text(text)
    with pytest.raises(SettingsError):
        tt.Settings.from_toml(file)


def test_a_missing_toml_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.toml"):
        tt.Settings.from_toml(tmp_path / "absent.toml")


def test_settings_survive_json() -> None:
    import json

    settings = tt.Settings(ways=(3, 9), filters=(4, 8), covariance="diagonal")
    assert tt.Settings().changed(json.loads(json.dumps(settings.as_dict()))) == settings


def test_whole_numbers_of_numpy_are_numbers() -> None:
    found = tt.Settings(ways=np.int64(7), filters=(np.int64(4), 8), themes=np.int64(3))  # type: ignore[arg-type]
    assert found == tt.Settings(ways=(7, 7), filters=(4, 8), themes=3)
    assert {type(value) for value in (*found.ways, *found.filters, found.themes)} == {int}


@pytest.mark.parametrize("kind", [tt.Settings, LifelongSettings, *(learner.Settings for learner in LEARNERS.values())])
def test_every_setting_has_a_meaning(kind: type[CheckedSettings]) -> None:
    meanings = kind.meanings()
    assert list(meanings) == [field.name for field in dataclasses.fields(kind)]
    assert all(text.endswith(".") and "\n" not in text for text in meanings.values())
