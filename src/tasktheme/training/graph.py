"""A training step as one CUDA graph: a single launch instead of hundreds, and nothing read back by the host."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

_EAGER_CALLS = 3  # before the capture: libraries choose their algorithms, the optimiser makes its state


class CapturedStep:
    """Calls ``body`` a few times as it is, then records it once and replays the record ever after.

    ``body`` must read and write the same tensors at each call and never wait for the device.
    """

    def __init__(self, body: Callable[[], None]) -> None:
        self._body = body
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Run the step once."""
        if self._graph is not None:
            self._graph.replay()
            return
        if self._calls < _EAGER_CALLS:
            self._calls += 1
            own, side = torch.cuda.current_stream(), torch.cuda.Stream()
            side.wait_stream(own)
            with torch.cuda.stream(side):
                self._body()
            own.wait_stream(side)
            return
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._body()
        self._graph = graph
        graph.replay()


class Beside:
    """A context for work that a GPU may do at the same time as what follows, until :meth:`wait`; a CPU does it at once.

    What the work reads must neither change nor be freed before the wait.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._context: AbstractContextManager[object] = nullcontext()

    def __enter__(self) -> None:
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
            self._context = torch.cuda.stream(self._stream)
        self._context.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)

    def wait(self) -> None:
        """Let what follows use the results."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
