"""Means of named numbers over steps, kept on the device until somebody asks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class RunningMeans:
    """Sums up the terms of each step; nothing is read back from the device before :meth:`read`."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._sums: Tensor | None = None  # the terms' sums and, last, the number of steps

    def add(self, terms: Mapping[str, Tensor]) -> None:
        """Add the terms of one step, in place after the first."""
        values = torch.stack([*terms.values(), torch.ones_like(next(iter(terms.values())))])
        if self._sums is None:
            self._names, self._sums = list(terms), torch.zeros_like(values)
        self._sums += values

    def read(self) -> dict[str, float]:
        """The means since the last :meth:`clear`, with one read from the device."""
        assert self._sums is not None, "a step comes before its means"
        *values, steps = self._sums.tolist()
        return {name: value / steps for name, value in zip(self._names, values, strict=True)}

    def clear(self) -> None:
        """Begin anew."""
        if self._sums is not None:
            self._sums.zero_()

    def tensors(self) -> dict[str, Tensor]:
        """The sums, for a checkpoint, each under its name."""
        if self._sums is None:
            return {}
        return {f"running.{name}": total for name, total in zip([*self._names, "steps"], self._sums, strict=True)}

    def load(self, tensors: Mapping[str, Tensor], names: list[str], device: torch.device) -> None:
        """Take over the sums of the given names among ``tensors``."""
        if names:
            self._names = names
            self._sums = torch.stack([tensors[f"running.{name}"] for name in (*names, "steps")]).to(device)

    @property
    def names(self) -> list[str]:
        """The terms, in order."""
        return self._names
