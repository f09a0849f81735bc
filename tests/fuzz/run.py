"""Feed bad inputs to the loaders and the command line, and count the answers: python tests/fuzz/run.py --inputs 2000."""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from fuzz import archives, arrays, images, models, paths, task_files, texts
from fuzz.cases import Box, Kind
from fuzz.harness import clear, judge
from fuzz.stock import make_stock

KINDS: dict[str, tuple[Kind, int]] = {  # with how many of a hundred inputs each has
    "images": (images.bad_image, 14),
    "zips": (archives.bad_zip, 12),
    "arrays": (arrays.bad_array, 10),
    ".npz files": (arrays.bad_npz, 12),
    "models and meta-learners": (models.bad_model, 16),
    "task files": (task_files.bad_tasks, 14),
    "settings": (texts.bad_settings, 6),
    "lists": (texts.bad_list, 6),
    "options": (texts.bad_option, 4),
    "paths to read": (paths.bad_input_path, 4),
    "paths to write": (paths.bad_output_path, 2),
    "files without access": (paths.unreadable, 1),
}
_ADDRESSES = 12 << 30  # bytes of address space: what claims more fails here, instead of taking the machine with it


def run(inputs: int, seed: int, *, processes: int = 0, only: str = "") -> tuple[Counter[str], Counter[str], list[str]]:
    """How many inputs of each kind were tried and how many refused, and what went wrong."""
    tried: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    faults = []
    started = 0  # commands so far
    with tempfile.TemporaryDirectory(prefix="tasktheme-fuzz-") as scratch:
        home = Path(scratch).resolve()
        os.environ["TASKTHEME_CACHE"] = str(home / "stock-cache")
        stock = home / "stock"
        stock.mkdir()
        make_stock(stock)
        order = [kind for kind, (_, share) in KINDS.items() for _ in range(share)]
        order = [order[place] for place in np.random.default_rng(0).permutation(len(order))]  # kinds evenly mixed
        for number in range(inputs):
            kind = order[number % len(order)]
            if only and only != kind:
                continue
            folder = home / "case"
            (folder / "out").mkdir(parents=True)
            os.environ["TASKTHEME_CACHE"] = str(folder / "cache")
            box = Box(folder, stock, tried[kind])
            with warnings.catch_warnings():  # of zipfile, which notices what is being made
                warnings.simplefilter("ignore")
                case = KINDS[kind][0](np.random.default_rng([seed, number]), box)
            answer = judge(case, folder, process=not callable(case.ask) and started < processes)
            started += not callable(case.ask)
            tried[kind] += 1
            refused[kind] += answer.refused
            if answer.fault:
                faults.append(f"input {number}: {case.name}: {answer.fault}")
            clear(folder)
    return tried, refused, faults


def main() -> int:
    """Print a table; 1 where an input was not answered."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=0, help="so many of the commands run in a process of their own")
    parser.add_argument("--only", default="", choices=["", *KINDS])
    chosen = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
    tried, refused, faults = run(chosen.inputs, chosen.seed, processes=chosen.processes, only=chosen.only)
    print(f"{'kind of input':28}{'tried':>8}{'refused':>9}{'read':>7}{'failed':>8}")
    for kind in KINDS:
        print(f"{kind:28}{tried[kind]:>8}{refused[kind]:>9}{tried[kind] - refused[kind]:>7}")
    print(f"{'all':28}{tried.total():>8}{refused.total():>9}{tried.total() - refused.total():>7}{len(faults):>8}")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
