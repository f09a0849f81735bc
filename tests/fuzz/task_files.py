"""Files of tasks: Parquet, CSV and NumPy, damaged, foreign, or of wrong values."""

from __future__ import annotations

import io
import json
import math
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tasktheme as tt
from fuzz.arrays import Mine
from fuzz.cases import Box, Case, Random, pick, spoil

ODD = (
    None,
    True,
    -1,
    0,
    999,
    1e308,
    math.nan,
    math.inf,
    10**400,
    "",
    "x",
    [],
    {},
    [[[]]],
    {"a": 1},
    [1, "x"],
    [None],
    [-1.0] * 3,
    [math.nan] * 3,
)

_PLOTS = ("entropy", "mixtures", "intervals", "simplex", "map", "distances")


def _table(box: Box) -> pa.Table:
    return pq.read_table(box.stock / "tasks.parquet")


def _odd_about(table: pa.Table, random: Random) -> pa.Table:
    """The file says odd things about itself."""
    about = json.loads(table.schema.metadata[b"tasktheme"])
    way = int(random.integers(4))
    if way == 0:
        text = json.dumps({**about, str(pick(random, list(about))): pick(random, ODD)})
    elif way == 1:
        text = json.dumps(pick(random, ODD))
    elif way == 2:
        del about[str(pick(random, list(about)))]
        text = json.dumps(about)
    else:
        text = str(pick(random, ["", "{", "[" * 100_000, '{"format": ' + "[" * 100_000, "null", "\0"]))
    return table.replace_schema_metadata({"tasktheme": text})


def _odd_gamma(table: pa.Table, random: Random) -> pa.Table:
    """Other concentrations."""
    count = table.num_rows
    good = random.random((count, 3)) + 1.0
    hole = good.copy()
    hole[int(random.integers(count)), 0] = pick(random, [math.nan, math.inf, -1.0, 0.0, -math.inf])
    choices = {
        "a hole": pa.FixedSizeListArray.from_arrays(pa.array(hole.reshape(-1)), 3),
        "lists": pa.array(good.tolist()),
        "uneven lists": pa.array([[1.0] * (i + 1) for i in range(count)]),
        "numbers": pa.array(good[:, 0]),
        "texts": pa.array(["a"] * count),
        "lists of texts": pa.array([["a", "b", "c"]] * count),
        "records": pa.array([{"a": 1.0}] * count),
        "nulls": pa.nulls(count),
        "a null": pa.array([None, *good[1:].tolist()], pa.list_(pa.float64(), 3)),
        "no theme": pa.array([[]] * count, pa.list_(pa.float64())),
        "whole numbers": pa.FixedSizeListArray.from_arrays(pa.array([1] * 3 * count), 3),
        "half": pa.FixedSizeListArray.from_arrays(pa.array(np.ones(3 * count, dtype=np.float16)), 3),
        "booleans": pa.FixedSizeListArray.from_arrays(pa.array([True] * 3 * count), 3),
        "more themes": pa.FixedSizeListArray.from_arrays(pa.array([1.0] * 4 * count), 4),
        "huge": pa.FixedSizeListArray.from_arrays(pa.array([1e308] * 3 * count), 3),
        "tiny": pa.FixedSizeListArray.from_arrays(pa.array([5e-324] * 3 * count), 3),
    }
    return _replaced(table, "concentration", choices[str(pick(random, list(choices)))])


def _odd_column(table: pa.Table, random: Random) -> pa.Table:
    """Other sizes, flags or texts."""
    count = table.num_rows
    values = [
        pa.array([None] * count, pa.int64()),
        pa.array([None, *range(1, count)]),
        pa.array([-1] * count),
        pa.array([1.5] * count),
        pa.array([math.nan] * count),
        pa.array([1e300] * count),
        pa.array(["a"] * count),
        pa.array(["5"] * count),
        pa.array([b"\xff"] * count),
        pa.array([[1, 2]] * count),
        pa.array([{"a": 1}] * count),
        pa.array([2**63 + 5] * count, pa.uint64()),
        pa.array([True] * count),
        pa.array([0] * count, pa.timestamp("s")),
        pa.array(["a", None] * (count // 2)),
        pa.array([None] * count),
        pa.array(["x" * 5000] * count),
        pa.array([["a", None], None] * (count // 2)),
        pa.array(["a\nb", "[red]"] * (count // 2)),
        pa.array([5] * count, pa.int8()),
        pa.array(["a"] * count).dictionary_encode(),
    ]
    name = str(pick(random, ["size", "converged", "group", "name", "classes"]))
    return _replaced(table, name, values[int(random.integers(len(values)))])


def _replaced(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    metadata = table.schema.metadata
    place = table.column_names.index(name)
    return table.set_column(place, name, values).replace_schema_metadata(metadata)


def _odd_columns(table: pa.Table, random: Random) -> pa.Table:
    """Columns missing, doubled, or called like the task set's own."""
    way = int(random.integers(5))
    if way == 0:
        return table.drop_columns([str(pick(random, table.column_names))])
    if way == 1:
        return table.append_column(str(pick(random, table.column_names)), pa.array(range(table.num_rows)))
    if way == 2:
        return table.append_column(
            str(pick(random, ["gamma_0", "tasktheme", "", "\n", "a" * 5000])), pa.array(range(table.num_rows))
        )
    if way == 3:
        return table.slice(0, 0)
    return pa.table({"a": [1, 2]}).replace_schema_metadata(table.schema.metadata)


def _csv(random: Random, box: Box) -> bytes:
    content = (box.stock / "tasks.csv").read_text()
    lines = content.splitlines(keepends=True)
    way = int(random.integers(6))
    if way == 0:
        return spoil(content.encode(), random)
    if way == 1:
        return "".join(lines[:1]).encode()
    if way == 2:
        return "".join([*lines, "a,b\n"]).encode()
    if way == 3:
        return content.replace(lines[1].split(",")[-4], str(pick(random, ["nan", "-1", "inf", "", "a", "1e999"])), 1).encode()
    if way == 4:
        return content.encode("utf-16")
    return content.replace("gamma_1", str(pick(random, ["gamma_0", "gamma_x", "size", "other"]))).encode()


def _npz(random: Random, box: Box) -> bytes:
    with np.load(box.stock / "tasks.npz", allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    way = int(random.integers(6))
    name = str(pick(random, list(arrays)))
    if way == 0:
        return spoil((box.stock / "tasks.npz").read_bytes(), random)
    if way == 1:
        del arrays[name]
    elif way == 2:
        arrays[name] = np.array([Mine()] * 8, dtype=object)
    elif way == 3:
        arrays[name] = pick(
            random, [np.zeros(3), np.zeros((8, 2)), np.float64(3), np.full(8, math.nan), np.array(["a"] * 8), np.zeros(0)]
        )
    elif way == 4:
        about = json.loads(str(arrays["tasktheme"][0])) | {
            str(pick(random, ["format", "prior", "tasks", "fingerprint"])): pick(random, ODD)
        }
        arrays["tasktheme"] = np.array([json.dumps(about), *[""] * 7])
    else:
        arrays["gamma_0"] = arrays["gamma_0"] * float(pick(random, [-1.0, 0.0, math.nan, math.inf]))
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def bad_tasks(random: Random, box: Box) -> Case:
    """A file of tasks."""
    way = str(
        box.turn(
            [
                "spoiled",
                "about",
                "gamma",
                "column",
                "columns",
                "csv",
                "npz",
                "spoiled",
                "about",
                "gamma",
                "column",
                "foreign",
                "npz",
            ]
        )
    )
    table = _table(box)
    tables = {"about": _odd_about, "gamma": _odd_gamma, "column": _odd_column, "columns": _odd_columns}
    may_load = True  # most of what is odd here is legal too; what is wrong is told by its own list below
    if way in tables:
        buffer = io.BytesIO()
        pq.write_table(tables[way](table, random), buffer)
        content = buffer.getvalue()
    elif way in ("csv", "npz"):
        content = _csv(random, box) if way == "csv" else _npz(random, box)
    elif way == "spoiled":
        content = spoil((box.stock / "tasks.parquet").read_bytes(), random)
    else:
        foreign = [
            b"",
            b"PAR1",
            b"PAR1PAR1",
            b"PAR1" + bytes(100) + b"PAR1",
            b"PK",
            random.bytes(500),
            b"a,b\n1,2\n",
            pickle.dumps(Mine()),
            b"\n\n\n",
        ]
        content, may_load = pick(random, foreign), False
    file = box.folder / f"tasks.{pick(random, ['parquet', 'csv', 'npz'])}"
    file.write_bytes(content)
    return _question(random, box, file, way, may_load, content)


def _question(random: Random, box: Box, file: Path, way: str, may_load: bool, content: bytes) -> Case:
    sound, out = box.stocked("tasks.parquet"), str(box.out / "table.csv")
    asks: list = [
        lambda: repr(tt.TaskSet.load(file).entropy()),
        lambda: tt.TaskSet.load(file).nearest(tt.TaskSet.load(file), k=1),
        ["summary", str(file), "--out", out],
        ["nearest", sound, str(file), "-k", "1", "--out", out],
        ["nearest", str(file), sound, "-k", "1"],
        ["novelty", str(file), sound, "--out", str(box.out / "table.npz")],
        ["distances", str(file), sound, "--out", str(box.out / "kl.npy")],
        ["distances", sound, str(file), "--kind", "hellinger", "--resized", "5", "--out", out],
        ["summary", "-", "--out", str(box.out / "table.parquet")],
    ]
    if box.number % 6 == 0:  # pictures and pages take their time
        asks = [
            ["plot", str(pick(random, _PLOTS)), str(file), "--out", str(box.out / "picture.svg")],
            ["explore", box.stocked("model"), str(file), "--out", str(box.out / "page.html"), "--quiet"],
        ]
    ask = asks[int(random.integers(len(asks)))]
    return Case(f"tasks, {way}", ask, may_load, stdin=content if "-" in (ask if isinstance(ask, list) else ()) else b"")
