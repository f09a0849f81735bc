"""Arrays of wrong shapes, kinds and values, in memory and in .npz files; headers that lie; pickles that would run."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np

import tasktheme as tt
from fuzz.archives import bomb, pack_raw
from fuzz.cases import Box, Case, Random, pick, spoil

_WAYS = (
    "values, values, labels, lying, lying, lying, spoiled, spoiled, keys, foreign, bomb, small claim, twice, encrypted, method, "
    "mine, mine, folder, outside"
).split(", ")


class Mine:
    """An object whose unpickling makes the file ``pwned`` in the working directory."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch pwned",)


def _odd_values(random: Random) -> tuple[str, object]:
    """Points that are no data points."""
    x = random.normal(size=(16, 5))
    hole = x.copy()
    hole[int(random.integers(16)), int(random.integers(5))] = pick(random, [np.nan, np.inf, -np.inf, 1e39, -1e300])
    images = random.integers(0, 255, (16, 1, 16, 16))
    choices = {
        "a hole": hole,
        "huge": np.full((16, 5), float(pick(random, [1e25, 3e38, -1e30]))),
        "no axis": np.float64(3.0),
        "one axis": x[:, 0],
        "five axes": x.reshape(2, 2, 2, 2, 5),
        "empty": x[:0],
        "no feature": x[:, :0],
        "objects": np.array([[{}] * 5] * 16, dtype=object),
        "a mine": np.array([Mine()] * 16, dtype=object),
        "texts": np.full((16, 5), "a"),
        "bytes": np.full((16, 5), b"a"),
        "complex": x + 1j,
        "dates": np.full((16, 5), np.datetime64("2020-01-01")),
        "spans": np.full((16, 5), np.timedelta64(3, "s")),
        "records": np.zeros((16, 5), dtype=[("a", "f4"), ("b", "i4")]),
        "void": np.zeros((16, 5), dtype="V7"),
        "int images": images.astype(np.int32),
        "float images": images.astype(np.float64),
        "channels last": np.zeros((16, 16, 16, 3), dtype=np.uint8),
        "two channels": np.zeros((16, 2, 16, 16), dtype=np.uint8),
        "other features": random.normal(size=(16, 7)),
        "long double": np.full((16, 5), np.longdouble("1e4000")),
    }
    name = str(pick(random, list(choices)))
    return name, choices[name]


def _odd_labels(random: Random) -> tuple[str, object]:
    y = np.arange(16) // 4
    choices = {
        "short": y[:-1],
        "two axes": y.reshape(4, 4),
        "a hole": np.where(y == 1, np.nan, y),
        "objects": np.array([0, "a", None, 1.5] * 4, dtype=object),
        "a mine": np.array([Mine()] * 16, dtype=object),
        "no axis": np.int64(3),
        "empty": y[:0],
        "one class": y * 0,
    }
    name = str(pick(random, list(choices)))
    return name, choices[name]


def bad_array(random: Random, box: Box) -> Case:
    """Bad arrays in memory."""
    good, y = random.normal(size=(16, 5)), np.arange(16) // 4
    if box.number % 3 == 0:
        name, labels = _odd_labels(random)
        asks = [lambda: tt.load_dataset((good, labels)), lambda: tt.Dataset.from_arrays(good, y, labels)]
        ask = asks[int(random.integers(2))]
        return Case(f"labels, {name}", ask, may_load=name == "one class" and ask is asks[1])
    name, x = _odd_values(random)
    model = box.stocked("vectors")
    asks = [
        lambda: tt.load_dataset((x, y)),
        lambda: tt.load_tasks([good, x]),
        lambda: tt.PTM.load(model).embed([x]),
        lambda: tt.PTM.load(model).embed_points(x),
        lambda: tt.PTM(themes=2).fit([x, x], tasks=2, progress=False),
    ]
    number = int(random.integers(len(asks)))
    sound = ("other features", *(("int images", "float images") if number == 2 else ()))  # of another shape only
    return Case(f"array, {name}", asks[number], may_load=name in sound and number in (0, 4))


def _header(text: str, version: tuple[int, int] = (1, 0), length: int | None = None) -> bytes:
    """An .npy file that says anything of itself."""
    body = text.encode("latin1") + b"\n"
    claimed = len(body) if length is None else length
    size = claimed.to_bytes(2 if version[0] == 1 else 4, "little")
    return b"\x93NUMPY" + bytes(version) + size + body + bytes(80)


def _lying(random: Random) -> bytes:
    form = "{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"
    shapes = [
        (10**12,),
        (2**40, 2**40),
        (-1, 5),
        (10**30,),
        (1 << 34, 5),
        "'a'",
        "None",
        "(" * 300,
        "[5, 5]",
        (True, 5),
        (2**63, 1),
        (5.5,),
    ]
    descrs = [
        "'<f8'",
        "'|O'",
        "'<f999'",
        "'<U999999999'",
        "'V99999999999'",
        "[('a', '<f8')]",
        "None",
        "'x'",
        "'<M8[zz]'",
        "object",
    ]
    texts = [
        form.format(descr="'<f8'", order="False", shape=pick(random, shapes)),
        form.format(descr=pick(random, descrs), order="False", shape="(4, 5)"),
        form.format(descr="'<f8'", order="3", shape="(4, 5)"),
        "__import__('os').system('touch pwned')",
        "{'descr': __import__('os').system('touch pwned')}",
        "[" * 50_000,
        "{}",
        "",
        "\0" * 50,
    ]
    text = str(pick(random, texts))
    version = tuple(pick(random, [(1, 0), (1, 0), (2, 0), (3, 0), (9, 9)]))
    long = len(text) > 60_000
    length = int(pick(random, [0, 10, 60_000])) if random.integers(5) == 0 and not long else None
    return _header(text, version, length)


def bad_npz(random: Random, box: Box) -> Case:
    """Bad arrays in a file."""
    file = box.folder / "data.npz"
    way = str(box.turn(_WAYS))
    sound = (box.stock / "features.npz").read_bytes()
    may_load = way in ("spoiled", "twice", "outside")
    unlabelled = bool(random.integers(2))
    if way == "values":
        name, x = _odd_values(random)
        _savez(file, x=x, y=np.arange(np.shape(x)[0] if np.ndim(x) else 1) // 4)
        may_load = may_load or name in ("other features",)
        if unlabelled:  # the array y, of one axis, is no task
            _savez(file, x=x)
    elif way == "labels":
        name, y = _odd_labels(random)
        _savez(file, x=random.normal(size=(16, 5)), y=y)
        may_load = False
    elif way in ("lying", "mine", "method", "encrypted", "twice", "outside"):
        _members(file, way, random)
    elif way == "bomb":
        header = _header(f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({3 << 30},), }}")[:-80]
        raw = b"\0" + len(header).to_bytes(2, "little") + (len(header) ^ 0xFFFF).to_bytes(2, "little") + header  # a stored block
        pack_raw(file, "x.npy", raw + bomb(3 << 10), (3 << 30) + len(header))
    elif way == "small claim":
        pack_raw(file, "x.npy", bomb(3 << 10), 100)
    elif way == "keys":
        keys = pick(random, [[], ["a"], ["x"], ["y"], ["x", "y", "z"], ["X", "Y"], ["x.npy", "y"], ["tasktheme", "x"]])
        np.savez(file, **{key: random.normal(size=16) for key in keys})
    elif way == "folder":
        file.mkdir()
    else:
        foreign = [
            b"",
            b"PK",
            b"\x93NUMPY",
            (box.stock / "one.npy").read_bytes(),
            pickle.dumps(Mine()),
            random.bytes(99),
            b"PK\x05\x06" + bytes(18),
        ]
        file.write_bytes(spoil(sound, random) if way == "spoiled" else pick(random, foreign))
    model, out = box.stocked("vectors"), str(box.out / "tasks.parquet")
    asks = [
        lambda: tt.load_tasks(file) if unlabelled else tt.load_dataset(file, progress=False),
        [
            "embed",
            model,
            str(file),
            "--out",
            out,
            *(["--unlabelled"] if unlabelled else ["--ways", "2", "--shots", "2"]),
            "--quiet",
        ],
        ["explore", model, str(file), "--out", str(box.out / "page.html"), "--quiet", "--ways", "2", "--shots", "2"],
    ]
    return Case(f"npz, {way}", asks[int(random.integers(3))], may_load)


def _savez(file: Path, **arrays: object) -> None:
    np.savez(file, **arrays)  # objects are pickled: what an attacker would do


def _members(file: Path, way: str, random: Random) -> None:
    """A zip of .npy files with one bad member."""
    plain = io.BytesIO()
    np.save(plain, random.normal(size=(16, 5)))
    labels = io.BytesIO()
    np.save(labels, np.arange(16) // 4)
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("y.npy", labels.getvalue())
        if way == "lying":
            made.writestr("x.npy", _lying(random))
        elif way == "mine":
            mine = io.BytesIO()
            np.save(mine, np.array([Mine()], dtype=object), allow_pickle=True)
            made.writestr("x.npy", mine.getvalue())
        else:
            made.writestr("../x.npy" if way == "outside" else "x.npy", plain.getvalue())
        entry = made.filelist[-1]
        if way == "twice":
            made.filelist.append(entry)
        elif way == "method":
            entry.compress_type = int(pick(random, [9, 12, 14, 99]))
        elif way == "encrypted":
            entry.flag_bits |= 1
        made._didModify = True
