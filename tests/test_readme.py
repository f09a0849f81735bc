"""The README's Python runs as printed, on small data."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tasktheme as tt

README = Path(__file__).parent.parent / "README.md"
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
    monkeypatch.setattr(tt.PTM, "fit", lambda self, data, tasks: fit(self, data, tasks=tasks // 1000, progress=False))
    x = np.zeros((3, 1, 64, 64), dtype=np.uint8)
    names = {"x1": x[:1], "x2": x[:2], "x3": x}
    exec(compile(BLOCKS[0], "README.md", "exec"), names)
    model, tasks = names["model"], names["tasks"]
    assert isinstance(model, tt.PTM)
    assert isinstance(tasks, tt.TaskSet)
    assert len(tasks) == 100
    assert model.trained_on == {"data": "glyphs", "tasks": 20}


@pytest.mark.parametrize("line", [line for line in BLOCKS[1].splitlines() if line.startswith("tt.") and "omniglot" not in line])
def test_each_line_of_own_data_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.chdir(tmp_path)
    make_images(tmp_path / "photos", depth=2)
    make_images(tmp_path / "customers", depth=1)
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(60, 5)), np.arange(60) // 5
    np.savez(tmp_path / "features.npz", x=x, y=y)
    loaded = eval(line.partition("#")[0], {"tt": tt, "x": x, "y": y, "groups": y // 3})
    if "load_tasks" in line:
        assert loaded.unlabelled
        assert len(loaded.class_names) == 4
    else:
        assert len(loaded.train) > len(loaded.test) > 0


@pytest.mark.data
def test_omniglot_by_name_runs() -> None:
    line = next(line for line in BLOCKS[1].splitlines() if "omniglot" in line)
    loaded = eval(line.partition("#")[0], {"tt": tt})
    assert (len(loaded.train.class_names), len(loaded.test.class_names)) == (964, 659)
