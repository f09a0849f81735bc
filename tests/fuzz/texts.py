"""Settings, lists of tasks and lists of images as text files, and values on the command line."""

from __future__ import annotations

import shutil

import tasktheme as tt
from fuzz.cases import Box, Case, Random, pick, spoil

VALUES = (
    *"nan inf -inf 1e400 -1 0 1.5 'x' true [] {} [1] [1,2,3] [-1,2] [2,1] 1979-05-27 0x7fffffffffffffff [[1],[2]] [.5,2]".split(),
    *("9" * 30, "9" * 400, "9" * 5000, "{a = 1}", "'" + "x" * 5000 + "'", '"\\u0000"'),
)
NAMES = ["themes", "latent_dim", "concentration", "filters", "hidden", "ways", "seed", "norm", "preset", "warm_up", "encoder"]


def bad_settings(random: Random, box: Box) -> Case:
    """A TOML file of settings, or one setting on the command line. The data does not exist: good settings are refused too."""
    name, value = str(pick(random, NAMES)), str(pick(random, VALUES))
    out = str(box.out / "model")
    if box.number % 4 == 0:
        command = pick(random, [["fit"], ["meta-train", "maml"]])
        return Case(f"--set {name}={value[:20]}", [*command, "nowhere", "--out", out, "--set", f"{name}={value}"])
    file = box.folder / "settings.toml"
    sound = (box.stock / "settings.toml").read_text()
    content = pick(
        random,
        [
            spoil(sound.encode(), random),
            spoil(sound.encode(), random),
            f"{name} = {value}\n".encode(),
            f"{name} = {value}\n".encode(),
            f"{name} = {value}\n".encode(),
            f"{sound}themes = 4\n".encode(),
            b"a = " + b"[" * int(pick(random, [500, 5000, 100_000])),
            b"a = " + b"{a=" * 5000,
            b"[" + b"a." * 5000 + b"a]",
            b"\xff\xfe\0",
            sound.encode("utf-16"),
            b"unknown = 1",
            b"theems = 1",
            b"[themes]\na = 1",
            b"__class__ = 1",
            b"= 1",
            b"\0",
        ],
    )
    file.write_bytes(content)
    if box.number % 2:
        return Case("settings file", lambda: tt.Settings.from_toml(file), may_load=True)
    return Case("settings file", ["fit", "nowhere", "--out", out, "--settings", str(file)])


def bad_list(random: Random, box: Box) -> Case:
    """A CSV list of tasks, or the lists that come with mini-ImageNet."""
    if box.number % 3 == 0:
        return _bad_image_list(random, box)
    file = box.folder / "list.csv"
    sound = (box.stock / "list.csv").read_bytes()
    content = pick(
        random,
        [
            spoil(sound, random),
            spoil(sound, random),
            b"",
            b"\n\n,,,\n",
            b"0/0,0/0\n",
            b"nothing\n",
            b'"0/0\n',
            b'"0/0"x,1\n',
            b"0/0," + b"x" * 200_000,
            b"x" * 100_000,
            b"a,b,c\n" * 3,
            sound.decode().encode("utf-16"),
            b"\xff\xfe",
            b"\0\0\0",
            b"0/0\r0/1\r",
            b"0/0;0/1\n",
            b"-1,0\n",
            b"99999999999999999999\n",
        ],
    )
    file.write_bytes(content)
    data = tt.load_dataset(box.stocked("features.npz"), split=["1"]).train if box.number % 2 else None
    if data is not None:
        return Case("list of tasks", lambda: data.episodes(tasks=file, shots=2), may_load=True)
    arguments = ["embed", box.stocked("vectors"), box.stocked("features.npz"), "--part", "train", "--shots", "2", "--quiet"]
    return Case("list of tasks", [*arguments, "--tasks-file", str(file), "--out", str(box.out / "tasks.parquet")], may_load=True)


def _bad_image_list(random: Random, box: Box) -> Case:
    root = box.folder / "lists"
    shutil.copytree(box.stock / "lists", root)
    file = root / "mini-imagenet" / f"{pick(random, ['train', 'val', 'test'])}.csv"
    content = pick(
        random,
        [
            spoil(file.read_bytes(), random),
            spoil(file.read_bytes(), random),
            b"",
            b"filename,label\n",
            b"a,b\n1,2\n",
            b"filename,label\nx0.png\n",
            b"filename,label\n../../x0.png,x\n",
            b"filename,label\n/etc/passwd,x\n",
            b"filename,label\nx0.png,w\nx0.png,x\n",
            b"filename,label\n\0,\0\n",
            b"filename,label\n" + b"x" * 200_000 + b",x\n",
            file.read_bytes() * 2,
            b"\xff\xfe",
        ],
    )
    if random.integers(8) == 0:
        file.unlink()
        file.mkdir()
    else:
        file.write_bytes(content)
    if random.integers(2):
        ask: object = lambda: tt.load_dataset("mini-imagenet", data_dir=root, size=16, progress=False)  # noqa: E731
    else:
        ask = [
            "fit",
            "mini-imagenet",
            "--data-dir",
            str(root),
            "--size",
            "16",
            "--out",
            str(box.out / "model"),
            "-q",
            "--set",
            "ways=50",
        ]
    return Case("list of images", ask, may_load=callable(ask))


def bad_option(random: Random, box: Box) -> Case:
    """Numbers, names and words that no command can do anything with."""
    number = str(
        pick(random, ["-1", "0", "nan", "1.5", "x", "", "9" * 30, "1e3", "-5-3", "5-", "3-2", "0x10", "٣", "1 2", "99999999"])
    )
    embed = [
        "embed",
        box.stocked("vectors"),
        box.stocked("features.npz"),
        "--out",
        str(box.out / "tasks.parquet"),
        "--quiet",
        "--part",
        "train",
    ]
    tasks = box.stocked("tasks.parquet")
    photos = box.stocked("photos")
    word = str(pick(random, ["", "x", "\n", "--", "9" * 5000, "ü", "nan"]))
    choices = [
        [*embed, "--ways", number],
        [*embed, "--ways", "2", "--shots", number],
        [*embed, "--ways", "2", "--shots", "2", "--held-out", word],
        [*embed, "--ways", "2", "--shots", "2", "--held-out", number],
        [*embed, "--all-combinations", "--ways", number],
        [*embed, "--ways", "2", "--shots", "2", "--seed", pick(random, ["-1", "x", "1.5", ""])],
        [*embed, "--ways", "2", "--shots", "2", "-n", pick(random, ["-1", "0", "x", "", "nan", "9" * 20])],
        [*embed, "--part", pick(random, ["val", "x", ""])],
        [*embed, "--device", pick(random, ["x", "cuda:99", ""])],
        [
            "embed",
            box.stocked("model"),
            photos,
            "--size",
            pick(random, ["0", "-1", "99999", "x", "17"]),
            "--out",
            str(box.out / "t.csv"),
            "-q",
        ],
        ["nearest", tasks, tasks, "-k", pick(random, ["0", "-1", "8", "9" * 30, "x"])],
        ["summary", tasks, "--resized", pick(random, ["0", "-1", "x", "1.5"])],
        ["summary", tasks, "--top", pick(random, ["0", "-1", "x"])],
        ["distances", tasks, "--kind", pick(random, ["x", "earth-mover", "KL!"])],
        [
            "plot",
            "simplex",
            tasks,
            "--themes",
            pick(random, ["0", "a,b,c", "0,1,99", "0,0,1", "-1,0,1", ""]),
            "--out",
            str(box.out / "p.svg"),
        ],
        ["plot", "intervals", tasks, "--level", pick(random, ["0", "1", "nan", "x", "-3"]), "--out", str(box.out / "p.svg")],
        ["plot", "entropy", tasks, "--out", str(box.out / f"p.{pick(random, ['gif', 'svg.exe', 'x'])}")],
        ["plot", "entropy", tasks, "--group", word, "--out", str(box.out / "p.svg")]
        if word not in ("", "\n")
        else ["plot", "nothing"],
        ["meta-test", box.stocked("learner"), photos, "-q", "--size", "16", "--tasks", pick(random, ["0", "-1", "all!", "1.5"])],
        ["meta-test", box.stocked("learner"), photos, "-q", "--size", pick(random, ["0", "64", "-16"])],
        ["fit", photos, "--out", str(box.out / "m"), "--tasks", pick(random, ["0", "-1", "x", "1.5"])],
        ["fit", photos, "--out", str(box.out / "m"), "--themes", pick(random, ["0", "-1", "x"])],
        ["fit", photos, "--out", str(box.out / "m"), "-q", "--set", "t_shots=99"],
        ["experiment", pick(random, ["x", ""]), photos],
        ["meta-train", pick(random, ["x", ""]), photos, "--out", str(box.out / "m")],
        [str(pick(random, ["", "x", "--x", "-", "fitt", "\n", "--debug=3"]))],
        ["embed"],
        ["evaluate", box.stocked("vectors"), box.stocked("features.npz"), "--shots", number, "--ways", "2"],
    ]
    ask = [str(word) for word in choices[box.number % len(choices)]]
    return Case(f"option of {ask[0][:20]}", ask, may_load=True)
