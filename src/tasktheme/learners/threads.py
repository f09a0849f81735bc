"""Tasks in pieces side by side on a CPU: a thread of ours for each of torch's.

torch's own threads share each operation and wait for each other after it, thousands of times in a step, longest where others
use the cores too. A thread that goes through a whole piece by itself waits for nobody, and its feature maps stay in its cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from jaxtyping import Int64
from torch import Tensor

Result = TypeVar("Result")


def each_piece(work: Callable[[Tensor], Result], tasks: Int64[Tensor, " T"], most: int) -> Iterator[Result]:
    """What ``work`` makes of the tasks, in order, in pieces of at most so many; on a CPU at least one for each thread of torch.

    A piece is worked on in a thread of its own, with its share of torch's threads; gradients are on there, as in any new one.
    """
    threads = 1 if tasks.is_cuda else torch.get_num_threads()
    pieces = tasks.split(min(most, -(-len(tasks) // threads)))
    workers = min(threads, len(pieces))
    if workers == 1:
        yield from map(work, pieces)
        return
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads // workers,)) as pool:
            yield from pool.map(work, pieces)
    finally:
        torch.set_num_threads(threads)  # each thread has its own number, but a new one takes the last that any was given
