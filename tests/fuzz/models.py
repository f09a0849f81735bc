"""Folders of models and meta-learners that are damaged, foreign, or altered by someone who mended the checksum."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load, save

import tasktheme as tt
from fuzz.arrays import Mine
from fuzz.cases import Box, Case, Random, pick, spoil

ODD = (
    None,
    True,
    -1,
    0,
    1e308,
    math.nan,
    math.inf,
    10**400,
    2**40,
    "",
    "x",
    "\ud800",
    [],
    {},
    [[[]]],
    {"a": 1},
    [1, "x"],
    [None],
)


def _seal(folder: Path) -> None:
    """Make the description say that these weights are the right ones."""
    about = json.loads((folder / "model.json").read_text())
    about["weights_sha256"] = hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest()
    (folder / "model.json").write_text(json.dumps(about))


def _alter(tree: object, random: Random) -> object:
    """Another value somewhere in a tree of JSON, or a key less."""
    if isinstance(tree, dict) and tree and random.integers(6):
        key = pick(random, list(tree))
        changed = dict(tree)
        if random.integers(5) == 0:
            del changed[key]
        else:
            changed[key] = _alter(tree[key], random)
        return changed
    if isinstance(tree, list) and tree and random.integers(3):
        return [_alter(tree[0], random), *tree[1:]]
    return pick(random, ODD)


def _set(folder: Path, **values: object) -> None:
    about = json.loads((folder / "model.json").read_text())
    for name, value in values.items():
        if name in about["settings"]:
            about["settings"][name] = value
        else:
            about[name] = value
    (folder / "model.json").write_text(json.dumps(about))


def _tensors(folder: Path, random: Random) -> str:
    """Other tensors, with a right checksum."""
    file = folder / "weights.safetensors"
    tensors = load(file.read_bytes())
    name = str(pick(random, sorted(tensors)))
    value = tensors[name]
    way = str(
        pick(
            random,
            ["less", "renamed", "shape", "kind", "nan", "infinite", "huge", "negative", "more", "scalar", "longer", "empty"],
        )
    )
    if way in ("less", "renamed"):
        del tensors[name]
    if way == "renamed":
        tensors["other"] = value
    changed = {
        "shape": lambda: value.reshape(-1),
        "kind": lambda: value.to(pick(random, [torch.float64, torch.int64, torch.float16, torch.bool, torch.complex64])),
        "nan": lambda: torch.full_like(value, math.nan) if value.is_floating_point() else value[..., :0].clone(),
        "infinite": lambda: torch.full_like(value, math.inf) if value.is_floating_point() else value[..., :0].clone(),
        "huge": lambda: torch.full_like(value, 3e38) if value.is_floating_point() else value[..., :0].clone(),
        "negative": lambda: -value - 1,
        "scalar": lambda: torch.zeros(()),
        "longer": lambda: torch.cat([value.reshape(1, -1)] * 2),
        "empty": lambda: torch.zeros((0, 3)),
    }
    if way in changed:
        tensors[name] = changed[way]().contiguous()
    if way == "more":
        tensors["more"] = torch.zeros(3)
    file.write_bytes(save(tensors, metadata={"tasktheme": "{}"}))
    _seal(folder)
    return f"tensor {way}"


def _header(folder: Path, random: Random) -> str:
    """A safetensors header that lies."""
    file = folder / "weights.safetensors"
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    first = next(name for name in header if name != "__metadata__")
    way = str(pick(random, ["shape", "offsets", "dtype", "metadata", "length", "deep", "tree", "short"]))
    if way == "shape":
        header[first]["shape"] = pick(random, [[2**40], [-1], [2**63, 2**63], "x", [0], []])
    elif way == "offsets":
        header[first]["data_offsets"] = pick(random, [[0, 2**50], [-1, 4], [8, 4], [], ["a", "b"], [0, 0]])
    elif way == "dtype":
        header[first]["dtype"] = pick(random, ["F8_E4M3", "X", 3, None, "object", "F4"])
    elif way == "metadata":
        header["__metadata__"] = pick(random, [None, {}, {"tasktheme": "{"}, {"tasktheme": 3}, {"tasktheme": "[" * 100_000}, []])
    elif way == "tree":
        header = _alter(header, random)
    text = b"[" * 100_000 if way == "deep" else json.dumps(header).encode()
    claimed = int(pick(random, [0, 2**63, 2**40, len(text) + 10, 1])) if way == "length" else len(text)
    file.write_bytes(claimed.to_bytes(8, "little") + text + (body[:10] if way == "short" else body))
    _seal(folder)
    return f"header {way}"


def _place(folder: Path, random: Random, box: Box) -> str:
    """Something else in the place of a file."""
    file = folder / str(pick(random, ["model.json", "weights.safetensors"]))
    way = str(pick(random, ["none", "folder", "empty", "device", "pipe", "broken link", "link out", "loop"]))
    content = file.read_bytes()
    file.unlink()
    if way == "folder":
        file.mkdir()
    elif way == "empty":
        file.write_bytes(b"")
    elif way == "pipe":
        os.mkfifo(file)
    elif way == "link out":
        (box.folder / "elsewhere").write_bytes(content)
        file.symlink_to(box.folder / "elsewhere")
    elif way != "none":
        file.symlink_to({"device": "/dev/zero", "broken link": "/nowhere", "loop": str(file)}[way])
    return f"{file.name} {way}"


def _claims(folder: Path, random: Random) -> str:
    """Settings of a network that would fill any memory."""
    _set(
        folder,
        **pick(
            random,
            [
                {"latent_dim": 10**9},
                {"themes": 10**12},
                {"filters": [10**6, 10**6]},
                {"filters": 10**6, "modules": 3},
                {"filters": [2] * 2000},
                {"modules": 10**9},
                {"point_shape": [1, 10**6, 10**6]},
                {"point_shape": [10**9, 16, 16]},
                {"point_shape": [1, 0, 16]},
                {"point_shape": [1, -16, 16]},
                {"point_shape": [10**10]},
                {"point_shape": "abc"},
                {"point_shape": [1, 16.5, 16]},
                {"encoder": "vector", "hidden": [10**9], "point_shape": [5]},
                {"ways": [10**9, 10**9]},
            ],
        ),
    )
    return "claims"


def bad_model(random: Random, box: Box) -> Case:
    """The folder of a model or a meta-learner."""
    kind = str(box.turn(["model", "vectors", "model", "learner"]))
    folder = box.folder / "given"
    shutil.copytree(box.stock / kind, folder)
    ways = ["json", "json", "json", "tree", "tree", "tree", "weights", "sealed", "tensor", "tensor", "tensor", "header", "header"]
    way = str(pick(random, [*ways, "place", "place", "claims", "claims", "foreign", "mine", "deep"]))
    about, weights = folder / "model.json", folder / "weights.safetensors"
    may_load = way in ("json", "tree", "tensor", "header", "claims", "sealed")
    if way == "json":
        about.write_bytes(spoil(about.read_bytes(), random))
    elif way == "tree":
        about.write_text(json.dumps(_alter(json.loads(about.read_text()), random)))
    elif way in ("weights", "sealed"):
        before = weights.read_bytes()
        after = spoil(before, random)
        weights.write_bytes(after)
        may_load = may_load or after == before
        if way == "sealed":
            _seal(folder)
    elif way == "tensor":
        way = _tensors(folder, random)
    elif way == "header":
        way = _header(folder, random)
    elif way == "place":
        way = _place(folder, random, box)
        may_load = way.endswith("link out")
    elif way == "claims":
        way = _claims(folder, random)
    elif way == "deep":
        depth = 100_000
        about.write_text(str(pick(random, ["[" * depth, '{"a":' * depth, "[" * depth + "]" * depth, '{"kind": ' + "[" * depth])))
    elif way == "mine":
        pickle.dump(Mine(), weights.open("wb")) if random.integers(2) else torch.save({"a": torch.zeros(3)}, weights)
        _seal(folder)
    elif way == "foreign":
        shutil.rmtree(folder)
        shutil.copytree(box.stock / ("model" if kind == "learner" else "learner"), folder)
    asks = _learner_asks(box, folder) if kind == "learner" else _model_asks(box, folder, kind)
    return Case(f"{kind}, {way}", asks[int(random.integers(len(asks)))], may_load)


def _model_asks(box: Box, folder: Path, kind: str) -> list:
    data = box.stocked("photos" if kind == "model" else "features.npz")
    points = np.zeros((3, 1, 16, 16), dtype=np.uint8) if kind == "model" else np.ones((3, 5))
    asks = [
        lambda: tt.PTM.load(folder).embed([points]),
        [
            "embed",
            str(folder),
            data,
            "--out",
            str(box.out / "tasks.parquet"),
            "--quiet",
            "--labelled",
            "--ways",
            "2",
            "--shots",
            "2",
        ],
        ["plot", "training", str(folder), "--out", str(box.out / "training.svg")],
        ["summary", str(folder), data, "--out", str(box.out / "themes.csv")],
    ]
    return asks if box.number % 5 == 0 else asks[:2]  # pictures take their time


def _learner_asks(box: Box, folder: Path) -> list:
    x = np.zeros((2, 1, 16, 16), dtype=np.uint8)
    return [
        lambda: tt.MetaLearner.load(folder).predict(x, [0, 1], x),
        [
            "meta-test",
            str(folder),
            box.stocked("photos"),
            "--size",
            "16",
            "--tasks",
            "2",
            "--out",
            str(box.out / "accuracy.parquet"),
        ],
    ]
