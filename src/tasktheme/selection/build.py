"""All policies by name."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from tasktheme.errors import SettingsError
from tasktheme.learners.base import Learner
from tasktheme.selection.base import Policy
from tasktheme.selection.diverse import Diverse
from tasktheme.selection.predicted import Predicted
from tasktheme.selection.ptm import PTMPolicy
from tasktheme.selection.random import Random
from tasktheme.selection.task2vec import Task2Vec
from tasktheme.selection.worst_case import WorstCase

POLICIES: Mapping[str, type[Policy]] = {kind.name: kind for kind in (PTMPolicy, Task2Vec, WorstCase, Random, Predicted, Diverse)}


def policy_title(name: str) -> str:
    """What pictures and pages call a policy; one that is not of ours by its name."""
    return POLICIES[name].title if name in POLICIES else name


def build_policy(name: str, *, probe: Learner | None = None) -> Policy:
    """The policy called ``name`` with its default settings; Task2Vec needs a probe."""
    if name not in POLICIES:
        close = get_close_matches(name, POLICIES, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise SettingsError(f"unknown policy {name!r}; there are {', '.join(POLICIES)}{hint}")
    kind = POLICIES[name]
    if kind is not Task2Vec:
        return kind()
    if probe is None:
        raise SettingsError("task2vec needs a probe network: give a meta-learner trained by maml")
    return Task2Vec(probe)
