"""How long a data set takes to be ready: decoded for the first time by several numbers of threads, and from the cache.

    python benchmarks/decoding.py omniglot mini-imagenet --threads 1 2 4

"chosen" is the number of threads that the library takes by itself. The cache is in a folder of its own, which is removed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable

import tasktheme as tt
from tasktheme.data import decoding
from tasktheme.data.files import ImageFiles

chosen = decoding._threads


def first_and_cached(data: str, threads: Callable[[ImageFiles], int]) -> tuple[float, float]:
    """Seconds of the first load and of the second."""
    decoding._threads = threads
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TASKTHEME_CACHE"] = cache
        seconds = []
        for _ in range(2):
            begun = time.perf_counter()
            tt.load_dataset(data, progress=False)
            seconds.append(time.perf_counter() - begun)
    return seconds[0], seconds[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    words = parser.parse_args()
    for data in words.data:
        for name, threads in [("chosen", chosen), *((str(n), lambda files, n=n: n) for n in words.threads)]:
            first, cached = first_and_cached(data, threads)
            print(f"{data:<20}{name:>8} threads  first {first:6.2f} s  cached {cached:5.2f} s", flush=True)


if __name__ == "__main__":
    main()
