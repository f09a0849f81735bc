"""The shapes that functions state are checked while tests run."""

from __future__ import annotations

import pytest
import torch

from tasktheme.maths.dirichlet import entropy

pytest.importorskip("beartype")  # what checks them


def test_a_wrong_shape_is_refused() -> None:
    with pytest.raises(Exception, match=r"[Tt]ype-check"):
        entropy(torch.tensor(1.0))
