"""A training step as one CUDA graph: a single launch instead of hundreds, and nothing read back by the host."""

from __future__ import annotations

from collections.abc import Callable

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
