"""The authors' own values as tensors."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

_VALUES = json.loads(Path(__file__).with_name("authors_values.json").read_text(encoding="utf-8"))

CASES: list[dict[str, Tensor]] = [
    {name: torch.tensor(value, dtype=torch.float64) for name, value in case.items()} for case in _VALUES["cases"]
]
