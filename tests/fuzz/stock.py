"""Sound files of every kind, made once: the cases spoil copies of them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import tasktheme as tt

IMAGE_SETTINGS = tt.Settings(
    themes=3, latent_dim=4, filters=(2, 4), ways=(2, 2), t_shots=2, v_shots=2, batch_tasks=2, polish_tasks=4, polish_sweeps=1
)


def make_stock(folder: Path) -> None:
    """Models of images and of features, a meta-learner, tasks in three kinds of file, a folder, a zip and arrays."""
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    for group in "ab":
        for label in "xyzw":
            home = folder / "photos" / group / label
            home.mkdir(parents=True)
            for i in range(4):
                Image.fromarray(random.integers(0, 255, (16, 16), dtype=np.uint8)).save(home / f"{i}.png")
    with zipfile.ZipFile(folder / "photos.zip", "w") as packed:
        for file in sorted((folder / "photos").rglob("*.png")):
            packed.write(file, file.relative_to(folder / "photos").as_posix())
    x, y = random.normal(size=(64, 5)).astype(np.float32), np.arange(64) // 8
    np.savez(folder / "features.npz", x=x, y=y, groups=y // 4)
    np.save(folder / "one.npy", x)

    images = tt.load_dataset(folder / "photos", size=16, progress=False)
    settings = IMAGE_SETTINGS.changed({"network_start": "data"})  # else all tasks were alike to it, and commands would say so
    model = tt.PTM(settings=settings).fit(images.train, tasks=4, progress=False)
    model.save(folder / "model")
    tasks = model.embed(images.train.episodes(ways=2, shots=2, n=8))
    tasks = tasks.with_columns(name=[f"task {i}" for i in range(8)])
    for ending in ("parquet", "csv", "npz"):
        tasks.save(folder / f"tasks.{ending}")
    features = tt.load_dataset(folder / "features.npz")
    settings = IMAGE_SETTINGS.changed({"encoder": "identity", "latent_dim": 5})
    tt.PTM(settings=settings).fit(features.train, tasks=4, progress=False).save(folder / "vectors")
    learner = tt.MetaLearner("maml", filters=2, modules=2, ways=2, queries=1, batch_tasks=2, inner_steps=1)
    learner.fit(images.train, 2, progress=False).save(folder / "learner")

    home = folder / "lists" / "mini-imagenet"
    (home / "images").mkdir(parents=True)
    for part, labels in (("train", "xy"), ("val", "z"), ("test", "w")):
        lines = ["filename,label"]
        for label in labels:
            (home / "images" / label).mkdir()
            for i in range(2):
                Image.new("RGB", (16, 16), (i, 10, 20)).save(home / "images" / label / f"{label}{i}.png")
                lines.append(f"{label}{i}.png,{label}")
        (home / f"{part}.csv").write_text("\n".join(lines) + "\n")
    (folder / "settings.toml").write_text('themes = 3\nconcentration = 1.5\nnorm = "batch"\nways = [2, 3]\nfilters = [2, 4]\n')
    (folder / "list.csv").write_text("0/0,0/1\n1/5,1/6\n")
