"""The cache: all or nothing, safe against other writers, and honest about damage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tasktheme.data import cache
from tasktheme.errors import DataError, MissingDataError, OutputError

ARRAYS: cache.Arrays = {"x": np.arange(600, dtype=np.uint8).reshape(100, 6), "y": np.linspace(0.0, 1.0, 7)}
INFO = {"names": ["א", "ב"], "size": 2}


def test_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TASKTHEME_CACHE", str(tmp_path / "mine"))
    assert cache.cache_folder() == tmp_path / "mine"


@pytest.mark.parametrize("value", [None, ""])
def test_folder_is_the_users_cache_otherwise(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is None:
        monkeypatch.delenv("TASKTHEME_CACHE", raising=False)
    else:
        monkeypatch.setenv("TASKTHEME_CACHE", value)
    folder = cache.cache_folder()
    assert folder.is_absolute()
    assert "tasktheme" in folder.parts


def test_round_trip_is_exact_and_read_only(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "set"
    cache.write_arrays(folder, ARRAYS, INFO)
    arrays, info = cache.read_arrays(folder)
    assert info == INFO
    assert arrays.keys() == ARRAYS.keys()
    for name, array in arrays.items():
        assert array.dtype == ARRAYS[name].dtype
        np.testing.assert_array_equal(array, ARRAYS[name])
        assert isinstance(array, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_objects_are_never_pickled(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pickle"):
        cache.write_arrays(tmp_path / "set", {"x": np.array([{}], dtype=object)}, {})
    assert list(tmp_path.iterdir()) == []


def test_failure_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    save = np.save

    def full_disk(path: Path, array: np.ndarray[Any, Any], **options: Any) -> None:
        if path.name == "y.npy":
            raise OSError("no space left on device")
        save(path, array, **options)

    monkeypatch.setattr(np, "save", full_disk)
    with pytest.raises(OutputError, match=r"no space left.*TASKTHEME_CACHE"):
        cache.write_arrays(tmp_path / "set", ARRAYS, INFO)
    assert list(tmp_path.iterdir()) == []


def test_missing_folder_is_missing_data(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError):
        cache.read_arrays(tmp_path / "nothing")


def _shorten(folder: Path) -> None:
    content = (folder / "x.npy").read_bytes()
    (folder / "x.npy").write_bytes(content[:-1])


def _empty(folder: Path) -> None:
    (folder / "x.npy").write_bytes(b"")


def _remove(folder: Path) -> None:
    (folder / "y.npy").unlink()


def _remove_info(folder: Path) -> None:
    (folder / "info.json").unlink()


def _cut_info(folder: Path) -> None:
    content = (folder / "info.json").read_text(encoding="utf-8")
    (folder / "info.json").write_text(content[:-2], encoding="utf-8")


def _foreign_info(folder: Path) -> None:
    (folder / "info.json").write_text(json.dumps([1, 2]), encoding="utf-8")


def _other_array(folder: Path) -> None:
    np.save(folder / "x.npy", np.zeros(3))


@pytest.mark.parametrize("damage", [_shorten, _empty, _remove, _remove_info, _cut_info, _foreign_info, _other_array])
def test_damage_is_noticed_and_rebuilt(tmp_path: Path, damage: Any) -> None:
    folder = tmp_path / "set"
    built = []

    def build() -> tuple[cache.Arrays, cache.Info]:
        built.append(True)
        return dict(ARRAYS), dict(INFO)

    cache.load_or_build(folder, build)
    cache.load_or_build(folder, build)
    assert len(built) == 1
    damage(folder)
    with pytest.raises(DataError):
        cache.read_arrays(folder)
    arrays, info = cache.load_or_build(folder, build)
    assert len(built) == 2
    assert info == INFO
    np.testing.assert_array_equal(arrays["x"], ARRAYS["x"])
    assert list(tmp_path.iterdir()) == [folder]


def test_the_first_sound_copy_stays(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    cache.write_arrays(folder, {"x": np.zeros(3)}, {"writer": 1})
    held, _ = cache.read_arrays(folder)
    cache.write_arrays(folder, {"x": np.ones(3)}, {"writer": 2})
    arrays, info = cache.read_arrays(folder)
    assert info == {"writer": 1}
    assert not arrays["x"].any()
    assert not held["x"].any()
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("damaged", [False, True])
def test_many_writers_at_once_leave_one_whole_copy(tmp_path: Path, damaged: bool) -> None:
    folder = tmp_path / "set"
    if damaged:
        folder.mkdir()
        (folder / "info.json").write_text("{", encoding="utf-8")
    writers = 8
    together = threading.Barrier(writers)
    failures: list[Exception] = []

    def write(writer: int) -> None:
        together.wait()
        try:
            cache.write_arrays(folder, {"x": np.full(1000, writer), "y": np.full(10, writer)}, {"writer": writer})
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    arrays, info = cache.read_arrays(folder)
    assert (arrays["x"] == info["writer"]).all()
    assert (arrays["y"] == info["writer"]).all()
    assert list(tmp_path.iterdir()) == [folder]


def test_unwritable_cache_is_told_before_building(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")

    def build() -> tuple[cache.Arrays, cache.Info]:
        raise AssertionError("built although it could not be kept")

    with pytest.raises(OutputError, match="TASKTHEME_CACHE"):
        cache.load_or_build(tmp_path / "file" / "set", build)


def test_rows_are_appended_piece_by_piece(tmp_path: Path) -> None:
    rows = np.arange(24_000, dtype=np.uint8).reshape(12_000, 1, 2)

    def fill(fresh: Path) -> cache.Info:
        with cache.append_rows(fresh / "x.npy", (1, 2), np.uint8) as append:
            for part in (rows[:9], rows[9:9], rows[9:][::1]):
                append(part)
        return {"rows": len(rows)}

    arrays, info = cache.load_or_fill(tmp_path / "set", fill)
    assert info == {"rows": 12_000}
    np.testing.assert_array_equal(arrays["x"], rows)
    assert (tmp_path / "set" / "x.npy").stat().st_size % 64 == rows.nbytes % 64  # the data stayed aligned
    again, _ = cache.load_or_fill(tmp_path / "set", lambda fresh: pytest.fail("filled although it was there"))
    np.testing.assert_array_equal(again["x"], rows)


def test_rows_of_another_form_are_refused(tmp_path: Path) -> None:
    with cache.append_rows(tmp_path / "x.npy", (2,), np.uint8) as append:
        for wrong in (np.zeros((1, 3), dtype=np.uint8), np.zeros((1, 2))):
            with pytest.raises(ValueError, match="are wanted"):
                append(wrong)


_KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from tasktheme.data import cache

def fill(fresh):
    np.save(fresh / "x.npy", np.zeros(3))
    os.kill(os.getpid(), signal.SIGKILL)

cache.load_or_fill(Path(sys.argv[1]), fill)
"""


def _age(folder: Path, hours: float) -> None:
    then = time.time() - 3600 * hours
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (then, then))


def test_what_a_killed_process_left_goes_once_nobody_works_in_it(tmp_path: Path) -> None:
    """Whatever it was to become: the images that were decoded may have changed since."""
    subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path / "one")], check=False, timeout=100)
    [left] = tmp_path.iterdir()
    _age(left, 25)
    (left / "fresh" / "x.npy").touch()  # somebody writes in it still
    cache.write_arrays(tmp_path / "two", ARRAYS, INFO)
    assert left in tmp_path.iterdir()
    _age(left, 23)
    cache.write_arrays(tmp_path / "three", ARRAYS, INFO)
    assert left in tmp_path.iterdir()
    _age(left, 25)
    cache.write_arrays(tmp_path / "four", ARRAYS, INFO)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["four", "three", "two"]


@pytest.mark.parametrize("name", [".config-backup01", "one-abcdefgh.tasktheme", ".tasktheme"])
def test_nothing_else_goes_from_the_cache_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / name / "fresh").mkdir(parents=True)
    _age(tmp_path / name, 1000)
    cache.write_arrays(tmp_path / "set", ARRAYS, INFO)
    assert (tmp_path / name / "fresh").exists()


def test_errors_of_the_filling_are_not_blamed_on_the_cache(tmp_path: Path) -> None:
    def fill(fresh: Path) -> cache.Info:
        raise MissingDataError("the source is gone")  # which is an OSError too

    with pytest.raises(MissingDataError, match="the source is gone"):
        cache.load_or_fill(tmp_path / "set", fill)
    assert list(tmp_path.iterdir()) == []


_OPEN = """
import hashlib, sys, time
from pathlib import Path
import tasktheme.data.loading as loading
Path(sys.argv[2]).touch()
while len(list(Path(sys.argv[2]).parent.glob("ready-*"))) < int(sys.argv[3]):
    time.sleep(0.01)
split = loading.load_dataset(sys.argv[1], size=16, progress=False)
print(hashlib.sha256(split.train.x.tobytes() + split.test.x.tobytes()).hexdigest(), len(split.train), len(split.test))
"""


@pytest.mark.parametrize("count", [4, pytest.param(10, marks=pytest.mark.slow)])
def test_many_processes_open_one_cache_at_once(count: int, tmp_path: Path) -> None:
    photos, folder = tmp_path / "photos", tmp_path / "cache"
    for i in range(200):
        (photos / str(i % 4)).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (i, 100, 200)).save(photos / str(i % 4) / f"{i}.png")
    environment = {**os.environ, "TASKTHEME_CACHE": str(folder), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _OPEN, str(photos), str(tmp_path / f"ready-{i}"), str(count)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(count)
    ]
    said = [process.communicate(timeout=300) for process in started]
    assert [process.returncode for process in started] == [0] * count, said
    assert {err for _, err in said} == {""}
    assert len({out for out, _ in said}) == 1
    assert said[0][0].split()[1:] == ["150", "50"]
    [kept] = (folder / "images").iterdir()  # and no scratch
    assert sorted(file.name for file in kept.iterdir()) == ["info.json", "x.npy"]
