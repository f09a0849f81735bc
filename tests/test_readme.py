"""The README's Python and its first commands run as printed, on small data."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch.utils.data
from PIL import Image

import tasktheme as tt

README = Path(__file__).parent.parent / "README.md"
FIRST = README.read_text(encoding="utf-8").split("## Your own data")[0]
COMMANDS = [shlex.split(line, comments=True)[1:] for line in re.findall(r"^    (tasktheme .*)$", FIRST, flags=re.MULTILINE)]
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def make_images(folder: Path, *, depth: int) -> None:
    """Class folders (depth 1) or group and class folders (depth 2) of small random images."""
    generator = np.random.default_rng(0)
    for group in range(4 if depth == 2 else 1):
        for label in range(4):
            place = folder / f"group{group}" / f"class{label}" if depth == 2 else folder / f"class{label}"
            place.mkdir(parents=True)
            for i in range(3):
                Image.fromarray(generator.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(place / f"{i}.png")


def test_the_ten_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fit = tt.PTM.fit

    def fit_briefly(self: tt.PTM, data: tt.Dataset, tasks: int) -> tt.PTM:
        self.settings = self.settings.changed({"polish_tasks": 20})
        return fit(self, data, tasks=tasks // 1000, progress=False)

    monkeypatch.setattr(tt.PTM, "fit", fit_briefly)
    x = np.zeros((3, 1, 64, 64), dtype=np.uint8)
    names = {"x1": x[:1], "x2": x[:2], "x3": x}
    exec(compile(BLOCKS[0], "README.md", "exec"), names)
    model, tasks = names["model"], names["tasks"]
    assert isinstance(model, tt.PTM)
    assert isinstance(tasks, tt.TaskSet)
    assert len(tasks) == 100
    assert model.trained_on == {"data": "glyphs", "tasks": 20}


def test_the_first_commands_run_one_after_the_other_in_a_fresh_folder(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = [f"--set={change}" for change in ("filters=[2,2,2,2]", "latent_dim=3", "polish_tasks=4", "polish_sweeps=2")]
    assert COMMANDS[0][:2] == ["explore", "omniglot-default"]
    assert {"fit", "embed", "nearest", "distances", "novelty", "plot", "evaluate"} <= {command[0] for command in COMMANDS}
    for command in COMMANDS:
        words = [word.replace("20000", "20") for word in command] + (small if command[0] == "fit" else [])
        code, _, err = run(*words)
        assert code == 0, (command, err)
    written = {command[command.index("--out") + 1] for command in COMMANDS if "--out" in command}
    assert written == {file.name for file in tmp_path.iterdir()}


NAMED = [line for line in BLOCKS[1].splitlines() if '"omniglot"' in line or '"mini-imagenet"' in line]
OWN = [line for line in BLOCKS[1].splitlines() if line not in NAMED]


class Pictures(torch.utils.data.Dataset):
    """A map-style torch data set of pictures."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, i: int) -> tuple[Image.Image, str]:
        return Image.new("RGB", (20, 30), (i, 0, 0)), f"class{i // 3}"


class HuggingFace:
    """What is used of a Hugging Face data set, whose package need not be there; the real one is tried where it is."""

    column_names = ("img", "fine", "coarse")
    features = MappingProxyType({"fine": SimpleNamespace(names=[f"fine{i}" for i in range(8)])})

    def __len__(self) -> int:
        return 24

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for i in range(24):
            yield {"img": Image.new("L", (20, 30), i), "fine": i // 3, "coarse": i // 6}


def real_hugging_face() -> Any:
    datasets = pytest.importorskip("datasets", exc_type=ImportError)
    features = datasets.Features(
        {
            "img": datasets.Image(),
            "fine": datasets.ClassLabel(names=[f"fine{i}" for i in range(8)]),
            "coarse": datasets.Value("int64"),
        }
    )
    columns = {name: [row[name] for row in HuggingFace()] for name in HuggingFace.column_names}
    return datasets.Dataset.from_dict(columns, features=features)


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The files and the names that the lines speak of."""
    monkeypatch.chdir(tmp_path)
    make_images(tmp_path / "photos", depth=2)
    make_images(tmp_path / "customers", depth=1)
    shutil.make_archive("photos", "zip", "photos")
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(60, 5)), np.arange(60) // 5
    np.savez(tmp_path / "features.npz", x=x, y=y)
    (tmp_path / "tasks.csv").write_text("group0/class1,group0/class2\ngroup1/class0,group2/class0,group2/class3\n")
    names = {"x": x, "y": y, "groups": np.where(y < 4, "lab", "field"), "x1": x[:3], "x2": x[3:5], "x3": x[5:]}
    return {"tt": tt, "torch_data": Pictures(), "hf_data": HuggingFace(), **names}


def run(line: str, names: dict[str, Any]) -> Any:
    return eval(line.partition("#")[0], names)


@pytest.mark.parametrize("line", OWN)
def test_each_line_of_own_data_runs(surroundings: dict[str, Any], line: str) -> None:
    loaded = run(line, surroundings)
    if "load_tasks" in line:
        assert loaded.unlabelled
        assert len(loaded.class_names) == (3 if "[" in line else 4)
    else:
        assert len(loaded.train) > len(loaded.test) > 0
        assert loaded.test.group_names == ("lab",) or "split=" not in line
        assert loaded.test.point_shape[-1] == 32 or "size=" not in line


def test_the_hugging_face_line_runs_on_the_real_thing(surroundings: dict[str, Any]) -> None:
    [line] = [line for line in OWN if "hf_data" in line]
    ours, theirs = run(line, surroundings), run(line, surroundings | {"hf_data": real_hugging_face()})
    assert ours.test.class_names == theirs.test.class_names
    np.testing.assert_array_equal(ours.train.x, theirs.train.x)


def test_listed_tasks_run(surroundings: dict[str, Any]) -> None:
    first, *lines = BLOCKS[2].splitlines()
    exec(first, surroundings)
    # the file may name classes that are held out: here all groups are there
    split = surroundings["data"]
    surroundings["data"] = tt.load_dataset("photos/", split=["group3"]).train
    assert len(split.class_names) == len(surroundings["data"].class_names) == 12
    ranged, every, listed = (run(line, surroundings) for line in lines)
    assert len(ranged) == 50
    assert len(every) == 220
    assert listed.class_names() == [["class1", "class2"], ["class0", "class0", "class3"]]


def test_which_task_next_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    fit, draw = tt.MetaLearner.fit, tt.draw_tasks
    monkeypatch.setattr(tt.MetaLearner, "fit", lambda self, data, tasks: fit(self, data, tasks // 1000, progress=False))
    monkeypatch.setattr(tt, "draw_tasks", lambda data, learner, n, model: draw(data, learner, n // 20, model=model))
    generator = np.random.default_rng(0)
    x, y = generator.integers(0, 256, (160, 1, 16, 16), dtype=np.uint8), np.arange(160) // 16
    tasks = tt.TaskSet(1.1 + generator.gamma(1.0, 5.0, size=(100, 3)), np.full(100, 20), np.ones(100, dtype=np.bool_))
    data = tt.load_dataset((x, y), split=0.1)
    settings = {"filters": (2, 2), "latent_dim": 3, "themes": 2, "polish_tasks": 4, "t_shots": 2, "v_shots": 2}
    model = tt.PTM(device="cpu", **settings).fit(data.train, 20, progress=False)
    names = {"tt": tt, "data": data, "model": model, "tasks": tasks}
    found = [run(line, names) for line in BLOCKS[3].splitlines() if line.startswith("tt.") or exec(line, names)]
    assert [len(selection) for selection in found] == [10, 10, 10, 10]
    assert len({tuple(selection.indices) for selection in found}) == 4
    for policy in re.findall('"([^"]*)"', BLOCKS[3].partition("also")[2]):  # what the last line names besides
        assert len(tt.select(names["images"], policy, k=10, learner=names["learner"])) == 10
    *own, last = BLOCKS[4].strip().splitlines()
    exec("\n".join(own), names)
    share = (tasks.concentration.max(axis=1) / tasks.concentration.sum(axis=1))[:80]
    np.testing.assert_array_equal(run(last, names).indices, np.argsort(-share)[:10])


@pytest.mark.data
@pytest.mark.parametrize("line", NAMED)
def test_named_sets_run(line: str) -> None:
    loaded = run(line, {"tt": tt})
    classes = len(loaded.train.class_names), len(loaded.test.class_names)
    assert classes == ((964, 659) if "omniglot" in line else (64, 20))
