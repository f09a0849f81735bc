"""Trained models that come with tasktheme, found by their names: a folder each in ``trained/``, with a card and its measures."""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tasktheme.errors import ModelFileError
from tasktheme.storage import is_there

_HOME = Path(__file__).parent / "trained"
_CARD, _MEASURES = "README.md", "measures.json"


def bundled_models() -> list[str]:
    """Their names."""
    return sorted(card.parent.name for card in _HOME.glob(f"*/{_CARD}"))


def find_model(given: str | Path) -> Path:
    """The folder of a model: a path that exists, else that of the bundled model of this name, else the path as it was given.

    A bare name that is neither is an error that says which there are.
    """
    path = Path(given)
    if is_there(path):
        return path
    if str(path) in bundled_models():
        return _HOME / path
    if path.name == str(given) and not path.suffix:
        raise _unknown(path.name)
    return path


def model_card(name: str) -> str:
    """What a bundled model is, how it was made and how good it is, in Markdown."""
    if name not in bundled_models():
        raise _unknown(name)
    return (_HOME / name / _CARD).read_text(encoding="utf-8")


def model_measures(name: str) -> dict[str, Any]:
    """What ``tasktheme evaluate`` wrote about a bundled model, on the data set that it was trained on."""
    measures: dict[str, Any] = json.loads((_HOME / name / _MEASURES).read_text(encoding="utf-8"))
    return measures


def _unknown(name: str) -> ModelFileError:
    names = bundled_models()
    nearest = get_close_matches(name.lower(), names, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return ModelFileError(f"there is no model folder {name!r}, and the models by name are {', '.join(names)}{hint}")
