"""How much memory embedding one large task takes beyond its images, on the CPU: each case in a process of its own.

    python -m tasktheme.bench.memory [--images 60000] [--channels 1 3] [--norms group batch] [--out memory.json]

The figure is the highest resident memory of the process (VmHWM) less what it held once the model and the images were
loaded, so it counts everything: PyTorch's workspaces, copies, results. K = 8, D = 128; grey images go through the Omniglot
network (8 to 64 filters), coloured ones through the mini-ImageNet network (32 to 256). For Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tasktheme.data.dataset import Dataset
from tasktheme.ptm import PTM
from tasktheme.settings import Settings
from tasktheme.storage import versions

FILTERS = {1: (8, 16, 32, 64), 3: (32, 64, 128, 256)}
GIB = 2**30


def main() -> None:
    """Print a table of all cases."""
    parser = argparse.ArgumentParser(prog="python -m tasktheme.bench.memory", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--channels", type=int, nargs="+", default=[1, 3], choices=[1, 3])
    parser.add_argument("--norms", nargs="+", default=["group", "batch"], choices=["group", "batch"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)  # the process that is measured: model, images, channels
    arguments = parser.parse_args()
    if arguments.child:
        model, images, channels = arguments.child
        print(json.dumps(embed_one_task(Path(model), int(images), int(channels))))
        return
    print("| channels | norm | images, GiB | beyond the images, GiB | seconds |\n|---|---|---|---|---|")
    cases = []
    for channels in arguments.channels:
        for norm in arguments.norms:
            case = measure(arguments.images, channels, norm)
            cases.append(case)
            print(
                f"| {channels} | {norm} | {case['images_bytes'] / GIB:.2f} | {case['extra_bytes'] / GIB:.2f} "
                f"| {case['seconds']:.0f} |",
                flush=True,
            )
    if arguments.out is not None:
        record = {"machine": platform.machine(), "cores": os.cpu_count(), "versions": versions(), "cases": cases}
        arguments.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def measure(images: int, channels: int, norm: str) -> dict[str, Any]:
    """Embed one task of random images in a new process, and say what that took."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        _save_model(model, channels, norm)
        command = [sys.executable, "-m", "tasktheme.bench.memory", "--child", str(model), str(images), str(channels)]
        ran = subprocess.run(command, check=True, capture_output=True, text=True)
    return {"channels": channels, "norm": norm, "images": images, **json.loads(ran.stdout)}


def embed_one_task(model: Path, images: int, channels: int) -> dict[str, float]:
    """Run in the measured process: memory in bytes and time of one embedding."""
    loaded = PTM.load(model, device="cpu")
    x = np.random.default_rng(0).integers(0, 256, (images, channels, 64, 64), dtype=np.uint8)
    held = _memory("VmRSS")
    start = time.perf_counter()
    tasks = loaded.embed([x])
    seconds = time.perf_counter() - start
    assert tasks.sizes.tolist() == [images]
    return {"images_bytes": x.nbytes, "extra_bytes": _memory("VmHWM") - held, "seconds": seconds}


def _save_model(folder: Path, channels: int, norm: str) -> None:
    tiny = {"batch_tasks": 2, "polish_tasks": 8, "ways": (2, 2), "t_shots": 4, "v_shots": 4}
    settings = Settings(themes=8, latent_dim=128, filters=FILTERS[channels]).changed({"norm": norm, **tiny})
    x = np.random.default_rng(1).integers(0, 256, (80, channels, 64, 64), dtype=np.uint8)
    data = Dataset.from_arrays(x, np.arange(80) // 10)
    PTM(settings=settings, device="cpu").fit(data, tasks=4, progress=False).save(folder)


def _memory(field: str) -> int:
    """VmRSS, the memory held now, or VmHWM, the most held so far.

    Not getrusage: there a process starts with the highest figure of the one that started it.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    [value] = [line.split()[1] for line in lines if line.startswith(f"{field}:")]
    return int(value) * 1024


if __name__ == "__main__":
    main()
