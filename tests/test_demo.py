from __future__ import annotations

import re
from pathlib import Path

import pytest

import tasktheme as tt
from tasktheme import demo


def run(out: Path, **changes: object) -> str:
    """Run the demo and return what it said, tables left out."""
    said: list[str] = []
    demo.run_demo(out, seed=0, device="cpu", progress=False, say=lambda message: said.append(str(message)))
    return "\n".join(said)


def test_a_short_demo_writes_everything_and_says_what_to_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "TASKS", 20)
    monkeypatch.setattr(demo, "SETTINGS", demo.SETTINGS.changed({"filters": (2, 2, 2, 2), "themes": 4, "polish_tasks": 10}))
    said = run(tmp_path / "demo")
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == ["model", "pictures", "report.html", "tasks.parquet"]
    assert len(list((tmp_path / "demo" / "pictures").glob("*.png"))) == 6
    tasks = tt.TaskSet.load(tmp_path / "demo" / "tasks.parquet")
    assert tasks.fingerprint == tt.PTM.load(tmp_path / "demo" / "model").fingerprint
    assert set(tasks.columns["group"]) == set(tt.load_dataset("glyphs").test.group_names)
    report = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert "AUC of same script by KL distance" in report
    assert report.count("data:image/webp;base64,") >= 3  # sheets of images
    assert re.search(r"AUC of same script by KL distance: 0\.\d{3}", said)
    assert said.splitlines()[-2].startswith("try    tasktheme nearest")


@pytest.mark.slow
def test_the_demo_reaches_its_figures(tmp_path: Path) -> None:
    said = run(tmp_path / "demo")
    auc, share = (float(number) for number in re.findall(r"(?:distance|share): (0\.\d+)", said))
    assert auc >= 0.85
    assert share <= 0.5
