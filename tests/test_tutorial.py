"""The tutorial's commands and Python run as printed, on small generated images and with a short training."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tasktheme import cli

TUTORIAL = Path(__file__).parent.parent / "docs" / "tutorial.md"
TEXT = TUTORIAL.read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL) for line in block.splitlines()]
[PYTHON] = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
QUICK = ["filters=[2,2,2,2]", "latent_dim=4", "polish_tasks=6", "polish_sweeps=2", "t_shots=3", "v_shots=3", "ways=[2,3]"]


def make_photos(folder: Path) -> None:
    """Four groups of four classes of seven striped pictures."""
    rng = np.random.default_rng(0)
    for group in range(4):
        for label in range(4):
            place = folder / f"group {group}" / f"class {label}"
            place.mkdir(parents=True)
            for i in range(7):
                x, y = np.meshgrid(np.arange(30), np.arange(20))
                wave = 127.0 + 100.0 * np.sin((x if group % 2 else y) * (0.3 + 0.2 * label)) + rng.normal(0.0, 20.0, x.shape)
                Image.fromarray(np.clip(wave, 0, 255).astype(np.uint8)).save(place / f"{i}.png")


def test_everything_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TASKTHEME_CACHE", str(tmp_path / "cache"))
    make_photos(tmp_path / "photos")
    assert len(COMMANDS) == 9
    for command in COMMANDS:
        program, *words = shlex.split(command)
        assert program == "tasktheme"
        if words[0] == "fit":  # the same command, in less time
            words = [{"4000": "20"}.get(word, word) for word in words] + [part for set_ in QUICK for part in ("--set", set_)]
        monkeypatch.setattr(sys, "argv", ["tasktheme", *words])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        assert not leaving.value.code, command
    exec(compile(PYTHON, "tutorial.md", "exec"), {})
    pages = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.glob("*.html")}
    assert set(pages) == {"atlas.html", "tasks.html", "own.html", "small.html", "again.html", "mine.html"}
    samples = {name: re.findall(r'"samples":"([^"]+)"', page) for name, page in pages.items()}
    assert samples["small.html"] == []
    assert len(samples["tasks.html"]) == 1
    assert samples["again.html"] == samples["mine.html"] == samples["tasks.html"]
    assert '"tasks":4,' in pages["atlas.html"]
    assert '"tasks":200,' in pages["tasks.html"]
