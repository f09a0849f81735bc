"""Every path that a command takes, in turn a path that is wrong, odd or impossible."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import tasktheme as tt
from fuzz.cases import Box, Case, Random, pick

_WAYS = (
    "none, empty text, folder, empty file, long, deep, newline, unicode, spaces, no text, broken link, loop, home, under a file, "
    "dot, root, null, dash, proc, kernel"
).split(", ")


def _odd_path(random: Random, home: Path) -> tuple[str, str]:
    """What it is, and the path."""
    home.mkdir()
    way = str(pick(random, _WAYS))
    (home / "file").write_bytes(b"")
    if way == "folder":
        (home / "folder").mkdir()
    if way == "broken link":
        (home / "broken link").symlink_to("/nowhere/at/all")
    if way == "loop":
        (home / "loop").symlink_to(home / "loop")
    text = {
        "none": "nothing here.parquet",
        "empty text": "",
        "empty file": str(home / "file"),
        "long": "n" * 5000,
        "deep": "d/" * 2500,
        "newline": "new\nline.parquet",
        "unicode": "日本\u202e語",
        "spaces": "  ",
        "no text": os.fsdecode(b"\xff\xfe.parquet"),
        "home": "~nosuchuser/x",
        "under a file": str(home / "file" / "x.parquet"),
        "dot": ".",
        "root": "/",
        "null": "/dev/null",
        "dash": "--",
        "proc": "/proc/self/mem",
        "kernel": "/proc/self/environ/x",
    }.get(way, str(home / way))
    return way, text


def bad_input_path(random: Random, box: Box) -> Case:
    """A path to read from."""
    way, path = _odd_path(random, box.folder / "odd")
    tasks, out = box.stocked("tasks.parquet"), ["--out", str(box.out / "table.csv")]
    model, photos, learner = box.stocked("model"), box.stocked("photos"), box.stocked("learner")
    choices: list = [
        ["summary", path, *out],
        ["summary", path, photos, *out],
        ["nearest", tasks, path, *out],
        ["novelty", path, tasks, *out],
        ["distances", tasks, path, *out],
        ["distances", tasks, "--kind", "earth-mover", "--model", path, *out],
        ["embed", path, photos, *out, "-q"],
        ["embed", model, path, *out, "-q"],
        ["embed", model, path, "--unlabelled", *out, "-q"],
        ["embed", model, photos, "--labelled", "--tasks-file", path, *out, "-q"],
        ["embed", model, "mini-imagenet", "--data-dir", path, *out, "-q"],
        ["evaluate", path, photos],
        ["evaluate", model, path],
        ["explore", path, photos, "--out", str(box.out / "page.html")],
        ["explore", model, path, "--out", str(box.out / "page.html"), "-q"],
        ["explore", model, tasks, "--data", path, "--out", str(box.out / "page.html"), "-q"],
        ["plot", "entropy", path, "--out", str(box.out / "p.svg")],
        ["plot", "themes", path, photos, "--out", str(box.out / "p.svg")],
        ["plot", "training", path, "--out", str(box.out / "p.svg")],
        ["fit", path, "--out", str(box.out / "m"), "-q"],
        ["fit", photos, "--settings", path, "--out", str(box.out / "m"), "-q"],
        ["meta-train", "maml", path, "--out", str(box.out / "m"), "-q"],
        ["meta-test", path, photos],
        ["meta-test", learner, path],
        ["experiment", "entropy-accuracy", path, "--out", str(box.out / "e"), "-q"],
        lambda: tt.load_dataset(path, progress=False),
        lambda: tt.load_tasks(path, progress=False),
        lambda: tt.PTM.load(path),
        lambda: tt.MetaLearner.load(path),
        lambda: tt.TaskSet.load(path),
        lambda: tt.Settings.from_toml(path),
        lambda: tt.load_dataset("\0", progress=False),
        lambda: tt.PTM.load("a\0b"),
        lambda: tt.TaskSet.load("a\0b"),
    ]
    ask = choices[box.number % len(choices)]
    names = [" ".join(ask)[:20]] if isinstance(ask, list) else ["library"]
    empty_settings = way in ("empty file", "null", "loop") and (callable(ask) or "--settings" in ask)
    sound_experiment = isinstance(ask, list) and ask[0] == "experiment"
    case = Case(f"path, {way}, {names[0]}", ask, may_load=empty_settings)
    if sound_experiment:
        (box.out / "e").mkdir()
    return case


def bad_output_path(random: Random, box: Box) -> Case:
    """A path to write to."""
    way, path = _odd_path(random, box.out / "odd")
    if way == "none":
        path = f"no folder/{path}"
    if not path.startswith(str(box.folder)) and way not in ("dot", "root", "null", "empty text"):
        path = f"{box.out}/{path}"
    ending = str(pick(random, ["", ".parquet", ".svg", ".html", ".json"]))
    path = (
        path
        if way in ("dot", "root", "null", "empty text", "empty file", "folder", "loop", "broken link") or path.endswith("/")
        else path + ending
    )
    tasks, model, photos = box.stocked("tasks.parquet"), box.stocked("model"), box.stocked("photos")
    more = ["--overwrite"] if random.integers(2) else []
    small = ["--set", "t_shots=1", "--set", "v_shots=1", "--set", "ways=2", "--set", "filters=[1]", "--tasks", "1", "--size", "8"]
    choices = [
        ["summary", tasks, "--out", path],
        ["nearest", tasks, tasks, "-k", "1", "--out", path],
        ["distances", tasks, "--out", path],
        ["embed", model, photos, "--out", path, "-q"],
        ["plot", "training", model, "--out", path],
        ["explore", model, tasks, "--out", path, "-q"],
        ["fit", photos, "--out", path, "-q", *small],
        ["evaluate", model, photos, "--ways", "2", "--shots", "2", "--out", path, "-q"],
    ]
    ask = [*choices[box.number % len(choices)], *more]
    return Case(f"output, {way}, {ask[0]}", ask, may_load=True)


def unreadable(random: Random, box: Box) -> Case:
    """Files that may not be read; root reads them all the same."""
    name = str(pick(random, ["tasks.parquet", "features.npz", "photos.zip", "settings.toml", "list.csv"]))
    file = box.folder / name
    shutil.copy(box.stock / name, file)
    file.chmod(0)
    root = os.geteuid() == 0
    asks = {
        "tasks.parquet": lambda: tt.TaskSet.load(file),
        "features.npz": lambda: tt.load_dataset(file),
        "photos.zip": lambda: tt.load_dataset(file, size=16, progress=False),
        "settings.toml": lambda: tt.Settings.from_toml(file),
        "list.csv": lambda: tt.load_dataset(box.stocked("features.npz")).train.episodes(tasks=file, shots=2),
    }
    return Case(f"unreadable {name}", asks[name], may_load=root)
