"""Data sets by name."""

from __future__ import annotations

from tasktheme.data.dataset import DataSplit
from tasktheme.data.glyphs import load_glyphs
from tasktheme.errors import MissingDataError


def load_dataset(name: str, *, progress: bool = True) -> DataSplit:
    """A data set by name: ``glyphs``, writing systems drawn from fonts, which needs no download."""
    if name == "glyphs":
        return load_glyphs(progress=progress)
    raise MissingDataError(f"there is no data set {name!r}; there is glyphs")
