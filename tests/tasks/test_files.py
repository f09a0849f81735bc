"""Task sets and tables in Parquet, CSV and NumPy files."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tasktheme as tt
from tasktheme.errors import DataError, ModelFileError, OutputError
from tasktheme.tasks.files import make_table, write_table

ENDINGS = ("parquet", "csv", "npz")


def make(count: int = 30, themes: int = 4) -> tt.TaskSet:
    generator = np.random.default_rng(0)
    gamma = generator.gamma(2.0, 3.0, size=(count, themes)) + 0.1
    columns = {"name": [f"task {i}" for i in range(count)], "level": list(range(count))}
    sizes, converged = generator.integers(1, 50, count), generator.random(count) < 0.5
    return tt.TaskSet(gamma, sizes, converged, columns, "m", np.full(themes, 0.1), generator.normal(size=count))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("count", [1, 30])
def test_a_file_brings_back_the_same(tmp_path: Path, ending: str, count: int) -> None:
    tasks = make(count).with_columns(group=['א, "b"\n', "<b>"][:count] * max(1, count // 2))
    tasks.save(tmp_path / f"t.{ending}")
    loaded = tt.TaskSet.load(tmp_path / f"t.{ending}")
    np.testing.assert_array_equal(loaded.concentration, tasks.concentration)
    np.testing.assert_array_equal(loaded.sizes, tasks.sizes)
    np.testing.assert_array_equal(loaded.converged, tasks.converged)
    assert dict(loaded.columns) == dict(tasks.columns)
    assert loaded.fingerprint == "m"
    assert loaded.prior is not None
    np.testing.assert_array_equal(loaded.prior, np.full(4, 0.1))
    np.testing.assert_array_equal(loaded.log_likelihood, tasks.log_likelihood)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_keeps_the_number_of_aspects(tmp_path: Path, ending: str) -> None:
    dataclasses.replace(make(), aspects=2).save(tmp_path / f"t.{ending}")
    assert tt.TaskSet.load(tmp_path / f"t.{ending}").aspects == 2


def test_tasks_of_a_file_that_does_not_say_have_one_aspect(tmp_path: Path) -> None:
    make().save(tmp_path / "t.csv")
    content = (tmp_path / "t.csv").read_text(encoding="utf-8")
    assert ', ""aspects"": 1' in content
    (tmp_path / "t.csv").write_text(content.replace(', ""aspects"": 1', ""), encoding="utf-8")
    assert tt.TaskSet.load(tmp_path / "t.csv").aspects == 1


def test_a_file_whose_aspects_do_not_divide_its_themes_is_refused(tmp_path: Path) -> None:
    dataclasses.replace(make(), aspects=2).save(tmp_path / "t.csv")
    content = (tmp_path / "t.csv").read_text(encoding="utf-8")
    for aspects in ("3", "0"):
        (tmp_path / "t.csv").write_text(content.replace('""aspects"": 2', f'""aspects"": {aspects}'), encoding="utf-8")
        with pytest.raises(DataError, match=f"4 themes cannot be those of {aspects} aspects"):
            tt.TaskSet.load(tmp_path / "t.csv")
    for aspects in ("[]", "2.5"):
        (tmp_path / "t.csv").write_text(content.replace('""aspects"": 2', f'""aspects"": {aspects}'), encoding="utf-8")
        with pytest.raises(ModelFileError, match="damaged"):
            tt.TaskSet.load(tmp_path / "t.csv")


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_without_a_prior_or_likelihoods_is_read(tmp_path: Path, ending: str) -> None:
    tasks = tt.TaskSet(make().concentration, make().sizes, make().converged, {}, "old")
    tasks.save(tmp_path / f"t.{ending}")
    loaded = tt.TaskSet.load(tmp_path / f"t.{ending}")
    assert loaded.prior is None
    assert loaded.log_likelihood is None


def test_lists_and_absent_texts_are_kept_by_parquet_and_written_plainly_elsewhere(tmp_path: Path) -> None:
    tasks = make(2).with_columns(tags=[["a", "b"], []], group=[None, "g"])
    for ending in ENDINGS:
        tasks.save(tmp_path / f"t.{ending}")
    columns = [dict(tt.TaskSet.load(tmp_path / f"t.{ending}").columns) for ending in ENDINGS]
    assert (columns[0]["tags"], columns[0]["group"]) == ([["a", "b"], []], [None, "g"])
    for others in columns[1:]:
        assert (others["tags"], others["group"]) == (["a b", ""], ["", "g"])


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_dictionaries_and_bytes_are_written_as_texts(tmp_path: Path, ending: str) -> None:
    tasks = make()
    owner, key = [{"city": "Ulm", "age": i} for i in range(len(tasks))], [b"\xff\x00"] * len(tasks)
    tasks.with_columns(owner=owner, key=key).save(tmp_path / f"t.{ending}")
    found = tt.TaskSet.load(tmp_path / f"t.{ending}").columns
    assert list(found["owner"]) == [str(one) for one in owner]
    assert list(found["key"]) == [str(one) for one in key]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("names", [["007", "010"], ["true", "false"], ["2024-01-01", "2024-01-02"], ["", ""], ["nan", "NULL"]])
def test_a_name_that_looks_like_something_else_stays_a_text(tmp_path: Path, ending: str, names: list[str]) -> None:
    make(2).with_columns(name=names, tags=[[1], [2]]).save(tmp_path / f"t.{ending}")
    assert tt.TaskSet.load(tmp_path / f"t.{ending}").columns["name"] == names


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", ["file", "allow_pickle", "a/b", "x.npy", "ключ"])
def test_a_column_may_have_any_name_that_is_not_the_task_sets_own(tmp_path: Path, ending: str, name: str) -> None:
    make(2).with_columns(**{name: ["one", "two"]}).save(tmp_path / f"t.{ending}")
    assert tt.TaskSet.load(tmp_path / f"t.{ending}").columns[name] == ["one", "two"]


def test_other_tools_read_the_files(tmp_path: Path) -> None:
    tasks = make()
    for ending in ENDINGS:
        tasks.save(tmp_path / f"t.{ending}")
    assert pd.read_parquet(tmp_path / "t.parquet")["concentration"][4].tolist() == tasks.concentration[4].tolist()
    frame = pd.read_csv(tmp_path / "t.csv")
    np.testing.assert_allclose(frame["gamma_2"], tasks.concentration[:, 2], rtol=1e-14)
    np.testing.assert_array_equal(np.load(tmp_path / "t.npz")["gamma_1"], tasks.concentration[:, 1])


def test_a_file_of_the_first_form_is_read(tmp_path: Path) -> None:
    """Without a prior in its metadata, as the first version wrote it."""
    make().save(tmp_path / "t.parquet")
    table = pq.read_table(tmp_path / "t.parquet")
    pq.write_table(table.replace_schema_metadata({"tasktheme": '{"format": 1, "fingerprint": "x"}'}), tmp_path / "t.parquet")
    loaded = tt.TaskSet.load(tmp_path / "t.parquet")
    assert (loaded.fingerprint, loaded.prior) == ("x", None)


def test_columns_that_another_tool_put_in_another_order_are_the_same_tasks(tmp_path: Path) -> None:
    tasks = make(themes=12)
    tasks.save(tmp_path / "t.csv")
    table = pd.read_csv(tmp_path / "t.csv").sort_index(axis=1)  # gamma_10 before gamma_2
    assert list(table.columns).index("gamma_10") < list(table.columns).index("gamma_2")
    table.to_csv(tmp_path / "t.csv", index=False)
    np.testing.assert_array_equal(tt.TaskSet.load(tmp_path / "t.csv").concentration, tasks.concentration)
    table.drop(columns="gamma_3").to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ModelFileError, match="damaged"):
        tt.TaskSet.load(tmp_path / "t.csv")


def test_an_unknown_ending_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"one of .parquet, .csv, .npz"):
        make().save(tmp_path / "t.xls")
    with pytest.raises(OutputError, match=r"one of .parquet, .csv, .npz"):
        write_table(make_table({"a": [1]}), tmp_path / "t.txt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_damaged_or_foreign_file_says_so(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"t.{ending}"
    write_table(make_table({"a": [1, 2]}), file)
    with pytest.raises(ModelFileError, match="not a task file"):
        tt.TaskSet.load(file)
    make().save(file, overwrite=True)
    whole = file.read_bytes()
    for cut in (0, 10, len(whole) // 2):
        file.write_bytes(whole[:cut])
        with pytest.raises(ModelFileError, match="not a task file"):
            tt.TaskSet.load(file)


def test_a_csv_that_lost_its_last_lines_says_so(tmp_path: Path) -> None:
    make().save(tmp_path / "t.csv")
    lines = (tmp_path / "t.csv").read_bytes().splitlines(keepends=True)
    (tmp_path / "t.csv").write_bytes(b"".join(lines[:-2]))
    with pytest.raises(ModelFileError, match=r"written with 30 tasks and has 28 now: rows are missing.*TaskSet\.load"):
        tt.TaskSet.load(tmp_path / "t.csv")


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_rows_that_another_tool_kept_say_how_to_keep_them(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"t.{ending}"
    make().save(file)
    if ending == "csv":
        pd.read_csv(file).iloc[3:].to_csv(file, index=False)
    else:
        pd.read_parquet(file).iloc[3:].to_parquet(file)
    with pytest.raises(ModelFileError, match=r"has lost what tasktheme writes beside the tasks.*\[rows\]\.save"):
        tt.TaskSet.load(file)
    make()[np.arange(30) > 2].save(file, overwrite=True)
    assert len(tt.TaskSet.load(file)) == 27


def test_no_pickle_is_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", tasktheme=np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ModelFileError, match="not a task file"):
        tt.TaskSet.load(tmp_path / "t.npz")


def test_a_column_of_several_kinds_is_refused_when_saved(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="column 'mixed' cannot be stored"):
        make(count=2).with_columns(mixed=[1, "a"]).save(tmp_path / "t.parquet")
    assert list(tmp_path.iterdir()) == []


def test_parquet_brings_back_the_same_and_other_tools_read_it(tmp_path: Path) -> None:
    tasks = make().with_columns(group=["א", "<b>"] * 15)
    file = tmp_path / "tasks.parquet"
    tasks.save(file)
    loaded = tt.TaskSet.load(file)
    np.testing.assert_array_equal(loaded.concentration, tasks.concentration)
    np.testing.assert_array_equal(loaded.sizes, tasks.sizes)
    np.testing.assert_array_equal(loaded.converged, tasks.converged)
    assert dict(loaded.columns) == dict(tasks.columns)
    assert loaded.fingerprint == "m"
    plain = pq.read_table(file).to_pydict()
    assert plain["concentration"][4] == tasks.concentration[4].tolist()
    assert plain["group"][:2] == ["א", "<b>"]


def test_save_makes_the_folder(tmp_path: Path) -> None:
    make().save(tmp_path / "a" / "b" / "tasks.parquet")
    assert len(tt.TaskSet.load(tmp_path / "a" / "b" / "tasks.parquet")) == len(make())


def test_save_does_not_overwrite_unasked(tmp_path: Path) -> None:
    file = tmp_path / "tasks.parquet"
    make().save(file)
    with pytest.raises(OutputError, match=r"exists already.*overwrite=True"):
        make().save(file)
    make(count=3).save(file, overwrite=True)
    assert len(tt.TaskSet.load(file)) == 3
    with pytest.raises(OutputError, match="cannot make the folder"):
        make().save(file / "tasks.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.parquet"]


def test_loading_something_else_says_so(tmp_path: Path) -> None:
    file = tmp_path / "tasks.parquet"
    with pytest.raises(ModelFileError, match="no task file"):
        tt.TaskSet.load(file)
    pq.write_table(pa.table({"a": [1]}), file)
    with pytest.raises(ModelFileError, match="not a task file"):
        tt.TaskSet.load(file)
    file.write_bytes(b"PAR1nonsense")
    with pytest.raises(ModelFileError, match="not a task file"):
        tt.TaskSet.load(file)
    make().save(file, overwrite=True)
    table = pq.read_table(file)
    pq.write_table(table.replace_schema_metadata({"tasktheme": '{"format": 9, "fingerprint": ""}'}), file)
    with pytest.raises(ModelFileError, match="newer than this tasktheme reads"):
        tt.TaskSet.load(file)


def test_a_program_that_was_refused_a_csv_file_ends_in_peace() -> None:
    """pyarrow's reading thread must not outlive the refusal: it would abort the interpreter at its end, most of the time."""
    refused = """
from tasktheme.errors import ModelFileError
from tasktheme.tasks.files import parse_tasks
for _ in range(5):
    try:
        parse_tasks(b"a,b\\n" + b"1,2\\n" * 1000, "table.csv")
    except ModelFileError:
        pass
"""
    done = subprocess.run([sys.executable, "-c", refused], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_reading_thread_is_left_with_a_python_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that still holds it when the program ends after an error aborts the program."""
    sources: list[object] = []
    original = pq.ParquetFile
    monkeypatch.setattr(pq, "ParquetFile", lambda source: (sources.append(source), original(source))[1])
    make().save(tmp_path / "tasks.parquet")
    tt.TaskSet.load(tmp_path / "tasks.parquet")
    assert [type(source) for source in sources] == [pa.BufferReader]
