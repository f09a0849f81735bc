"""The whole plan on data of a moment, in the names of the real data sets."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

import tasktheme as tt
from tasktheme import cli
from tasktheme.data import loading
from tasktheme.reproduce import plan

_LEARNER = "--set filters=4 --set modules=2 --set queries=2"
_STEPS = "--set inner_steps=1 --set test_steps=1"
_MODEL = (
    "--tasks 8 --themes 3 --latent-dim 4 --set filters=[4,4] --set batch_tasks=4 --set t_shots=2 --set v_shots=2 "
    "--set polish_tasks=4 --set polish_sweeps=1"
)
_MAML = f"--tasks 4 --set batch_tasks=2 --set validation_tasks=2 {_LEARNER} {_STEPS}"
INSTANT = plan.Scale(
    about="a blink",
    omniglot="omniglot",
    mini_imagenet="mini-imagenet",
    size=8,
    model={"omniglot": _MODEL, "mini-imagenet": _MODEL},
    maml={"omniglot": _MAML, "mini-imagenet": _MAML},
    tested={"omniglot": "12", "mini-imagenet": "12"},
    known=10,
    lifelong="--policies ptm,random --seeds 2 --steps 2 --tasks 5 --set pool=3 --set evaluate_every=1 --set test_tasks=2 "
    + _LEARNER,
    learners={"maml": _STEPS, "protonet": "", "abml": _STEPS},
    worst_case=_STEPS,
)


def _part(groups: int, seed: int) -> tt.Dataset:
    """Groups of five classes of twenty 8x8 images: noise around a picture of the class's own."""
    generator = np.random.default_rng(seed)
    pictures = generator.integers(0, 256, size=(5 * groups, 1, 8, 8)).repeat(20, axis=0)
    x = np.clip(pictures + generator.integers(-60, 60, size=pictures.shape), 0, 255).astype(np.uint8)
    places = np.arange(5 * groups).repeat(20)
    return tt.Dataset.from_arrays(x, [f"class {i}" for i in places], [f"group {i // 5}" for i in places], name="small")


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch) -> plan.Scale:
    """The scale tiny becomes one that takes seconds."""
    split = tt.data.dataset.DataSplit(name="small", train=_part(2, 0), test=_part(10, 1))
    monkeypatch.setattr(loading, "_NAMED", {name: lambda *_: split for name in ("omniglot", "mini-imagenet")})
    monkeypatch.setitem(plan.SCALES, "tiny", INSTANT)
    return INSTANT


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tasktheme", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        said = capsys.readouterr()
        return int(leaving.value.code or 0), said.out, said.err

    return call
