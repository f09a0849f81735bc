"""All pictures as files: whole, of the right size, and of the right model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from PIL import Image

import tasktheme as tt
from tasktheme.errors import DataError, OutputError
from tasktheme.report.pictures import write_pictures

NAMES = ["map", "distances", "themes", "mixtures", "entropy", "training"]


def test_pictures_as_files(tmp_path: Path, model: tt.PTM, tasks: tt.TaskSet, drawings: tt.Dataset) -> None:
    written = write_pictures(tmp_path / "pictures", model=model, tasks=tasks, data=drawings)
    assert [file.name for file in written] == [f"{name}.png" for name in NAMES]
    assert sorted((tmp_path / "pictures").iterdir()) == sorted(written)
    for file in written:
        with Image.open(file) as image:
            assert image.info["dpi"][0] >= 149.0
            assert image.width >= 5.4 * 150


def test_vectors_have_no_gallery(tmp_path: Path, vector_model: tt.PTM, vectors: tt.Dataset) -> None:
    tasks = vector_model.embed([vectors.x[:7], vectors.x[7:20]])
    written = write_pictures(tmp_path, model=vector_model, tasks=tasks, data=vectors)
    assert [file.stem for file in written] == [name for name in NAMES if name != "themes"]


def test_tasks_of_another_model_are_refused(tmp_path: Path, model: tt.PTM, tasks: tt.TaskSet, drawings: tt.Dataset) -> None:
    foreign = dataclasses.replace(tasks, fingerprint="another")
    with pytest.raises(DataError, match="not embedded by this model"):
        write_pictures(tmp_path / "pictures", model=model, tasks=foreign, data=drawings)


def test_a_file_in_the_way_of_the_folder_is_named(tmp_path: Path, model: tt.PTM, tasks: tt.TaskSet, drawings: tt.Dataset) -> None:
    (tmp_path / "file").write_text("old", encoding="utf-8")
    with pytest.raises(OutputError, match="cannot make the folder"):
        write_pictures(tmp_path / "file" / "below", model=model, tasks=tasks, data=drawings)
