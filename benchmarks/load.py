"""Memory over time while `tasktheme embed` writes many tasks as a stream: python benchmarks/load.py --tasks 100000 1000000."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import tasktheme as tt

_EVERY = 0.2  # seconds between two looks at the process


def make_model(folder: Path) -> None:
    """5,000 points of 16 features in 100 classes, and a model of four themes."""
    random = np.random.default_rng(0)
    x = random.normal(size=(5000, 16)) + 2.0 * random.normal(size=(100, 16)).repeat(50, axis=0)
    np.savez(folder / "features.npz", x=x.astype(np.float32), y=np.arange(5000) // 50)
    settings = tt.Settings(themes=4, covariance="diagonal", polish_tasks=200)
    train = tt.load_dataset(folder / "features.npz").train
    tt.PTM(settings=settings).fit(train, tasks=2000, progress=False).save(folder / "model")


def watch(folder: Path, tasks: int) -> tuple[list[int], float, int]:
    """Bytes held at each look while the tasks are embedded, seconds, and bytes of the file."""
    out = folder / f"{tasks}.parquet"
    words = ["embed", str(folder / "model"), str(folder / "features.npz"), "--part", "train", "--ways", "2", "--shots", "5"]
    line = [sys.executable, "-m", "tasktheme", *words, "-n", str(tasks), "--out", str(out), "--quiet"]
    held = []
    start = time.perf_counter()
    process = subprocess.Popen(line, env={**os.environ, "OMP_NUM_THREADS": "1"})
    while process.poll() is None:
        if any(folder.glob(".*.tmp")):  # the file has been begun: everything is loaded
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            held.append(pages * os.sysconf("SC_PAGE_SIZE"))
        time.sleep(_EVERY)
    if process.returncode:
        sys.exit(f"embed ended with {process.returncode}")
    return held, time.perf_counter() - start, out.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=[100_000, 1_000_000])
    chosen = parser.parse_args()
    print(f"{'tasks':>10}{'first MiB':>11}{'median':>8}{'last':>6}{'most':>6}{'seconds':>9}{'file MiB':>10}")
    with tempfile.TemporaryDirectory() as scratch:
        make_model(Path(scratch))
        for tasks in chosen.tasks:
            held, seconds, size = watch(Path(scratch), tasks)
            first, median, last, most = (round(value / 2**20) for value in (held[0], np.median(held), held[-1], max(held)))
            print(f"{tasks:>10}{first:>11}{median:>8}{last:>6}{most:>6}{seconds:>9.0f}{size / 2**20:>10.1f}", flush=True)


if __name__ == "__main__":
    main()
