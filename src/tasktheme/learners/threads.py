"""Pieces of work side by side on a CPU: a thread of ours for each of torch's.

torch's own threads share each operation, one after another, and wait for each other after every one; so its maps go from core
to core. A thread that goes through a whole piece by itself waits for nobody, and what it computes does not depend on how many
there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


def each_piece(work: Callable[[Tensor], Result], pieces: Sequence[Tensor]) -> Iterator[Result]:
    """What ``work`` makes of each piece, in their order; on a CPU by as many threads as torch has, which share torch's own.

    A thread begins with torch's default state: gradients are on.
    """
    threads = torch.get_num_threads()
    workers = min(threads, len(pieces))
    if workers == 1 or pieces[0].is_cuda:
        yield from map(work, pieces)
        return
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads // workers,)) as pool:
            yield from pool.map(work, pieces)
    finally:
        torch.set_num_threads(threads)  # each thread has its own number, but new ones and MKL take the one set last
