"""All meta-learners by name."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from tasktheme.errors import SettingsError
from tasktheme.learners.abml import ABML
from tasktheme.learners.base import Learner
from tasktheme.learners.maml import MAML
from tasktheme.learners.protonet import ProtoNet

LEARNERS: Mapping[str, type[Learner]] = {kind.name: kind for kind in (MAML, ProtoNet, ABML)}


def find_learner(name: str) -> type[Learner]:
    """The learner called ``name``."""
    if name not in LEARNERS:
        close = get_close_matches(name, LEARNERS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise SettingsError(f"unknown meta-learner {name!r}; there are {', '.join(LEARNERS)}{hint}")
    return LEARNERS[name]


def learner_title(name: str) -> str:
    """What pictures and pages call a learner; one that is not of ours by its name."""
    return LEARNERS[name].__name__ if name in LEARNERS else name


def build_learner(name: str, changes: Mapping[str, Any], point_shape: tuple[int, ...]) -> Learner:
    """A new learner with its default settings changed by ``changes``."""
    kind = find_learner(name)
    return kind(kind.Settings().changed(changes), point_shape)
