"""A step written down as one program, and compiled: the numbers of the plain step, with nothing left in it that changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tasktheme as tt
from oracles.learners import NAMES
from oracles.small import small_images
from tasktheme.errors import SettingsError
from tasktheme.learners import whole_step
from tasktheme.learners.arms import stack_arms
from tasktheme.learners.base import Noise, Points
from tasktheme.learners.build import build_learner
from tasktheme.learners.pooling import _COMPARING, _LIBRARY
from tasktheme.learners.testing import random_classes, task_accuracies
from tasktheme.learners.training import MetaTrainer, resume_meta_training, save_meta_training
from tasktheme.learners.whole_step import WholeStep, adapted_accuracy, adapted_losses, arm_gradients, meta_gradients
from tasktheme.training import compiler

CPU = torch.device("cpu")
ONE = {"modules": 1, "inner_steps": 1, "test_steps": 1}
CASES: dict[str, tuple[str, whole_step.Step, dict[str, Any]]] = {
    "second order": ("maml", meta_gradients, ONE | {"modules": 2}),
    "first order": ("maml", meta_gradients, ONE | {"inner_steps": 2, "first_order": True}),
    "learned rates": ("maml", meta_gradients, ONE | {"inner_steps": 2, "learn_rates": True}),
    "abml": ("abml", meta_gradients, ONE),
    "protonet": ("protonet", meta_gradients, {"modules": 2}),
    "arms": ("maml", arm_gradients, ONE),
    "learned rates, tested": ("maml", adapted_accuracy, ONE | {"modules": 2, "test_steps": 2, "learn_rates": True}),
    "abml, tested": ("abml", adapted_accuracy, ONE | {"test_samples": 2}),
    "protonet, tested": ("protonet", adapted_accuracy, {"modules": 1}),
    "looked at": ("maml", adapted_losses, ONE),
}


def points(seed: int, each: int) -> Points:
    """Images of few grey levels, as drawings are: many neighbours are equal."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(3, (2, 3 * each, 10, 9, 1), generator=generator).double().movedim(-1, 2)
    return Points(x, torch.arange(3 * each).remainder(3).repeat(2, 1), 3)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("case", CASES)
def test_one_program_gives_the_numbers_of_the_step(case: str) -> None:
    name, step, own = CASES[case]
    learner = build_learner(name, {"ways": 3, "filters": 4} | own, (1, 10, 9)).double()
    if step is arm_gradients:
        learner = stack_arms([learner, build_learner(name, learner.settings.as_dict() | {"seed": 1}, (1, 10, 9)).double()])
    whole = WholeStep(step)
    for turn in range(2):  # other parameters, images and tasks: the program is the same
        support, query, tasks = points(turn, 1), points(turn + 5, 2), torch.tensor([turn, 9])
        expected = step(learner, support, query, Noise(3, tasks))
        for ours, plain in zip(whole(learner, support, query, 3, tasks), expected, strict=True):
            torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-12)
            assert not ours.requires_grad
        with torch.no_grad():
            for parameter in learner.parameters():
                parameter.mul_(torch.linspace(0.5, 1.5, parameter.numel(), dtype=torch.float64).view_as(parameter))
    assert len(whole.made) == 1
    if step is adapted_accuracy:
        whole(learner, support, query, 4, tasks)  # another seed: another program where there is chance
        assert len(whole.made) == (2 if name == "abml" else 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler's own
@pytest.mark.parametrize("name", ["maml", "protonet"])
def test_a_program_compiled_for_a_cpu_gives_the_gradients_of_colour_images(name: str) -> None:
    own = ONE if name == "maml" else {"modules": 1}
    learner = build_learner(name, {"ways": 3, "filters": 4} | own, (3, 10, 9))
    parts = [
        Points(grey.x.float() * torch.tensor([0.1, -0.2, 0.3]).view(3, 1, 1), grey.y, 3) for grey in (points(0, 1), points(5, 2))
    ]
    tasks = torch.arange(2)
    expected = meta_gradients(learner, *parts, Noise(3, tasks))
    for ours, plain in zip(WholeStep(meta_gradients)(learner, *parts, 3, tasks), expected, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [(6, 4), (7, 5)])
def test_maxima_by_comparisons_are_those_of_the_library(size: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(3, (2, 3, *size, 4), generator=generator).double()
    pooled, places = _COMPARING.find(y)
    expected, pixels = _LIBRARY.find(y)
    assert torch.equal(pooled, expected)
    assert torch.equal(_COMPARING.take(y + 0.1, places), expected + 0.1)
    added = torch.randn(pooled.shape, generator=generator, dtype=torch.float64)
    ours, library = _COMPARING.add(y, added, places), _LIBRARY.add(y.clone(), added, pixels)
    assert torch.equal(ours, library)
    assert torch.equal(_COMPARING.take(ours, places), _LIBRARY.take(library, pixels))
    images = y.flatten(0, 1).permute(0, 3, 1, 2).requires_grad_()
    flat = added.flatten(0, 1).permute(0, 3, 1, 2)
    [slope] = torch.autograd.grad(F.max_pool2d(images, 2), images, flat)
    torch.testing.assert_close((ours - y).flatten(0, 1).permute(0, 3, 1, 2), slope)


def trainer(name: str, *, compiled: bool) -> MetaTrainer:
    own = {"train_ways": 3} if name == "protonet" else {"inner_steps": 1, "test_steps": 1}
    common = {
        "ways": 3,
        "queries": 3,
        "filters": 4,
        "modules": 1,
        "batch_tasks": 2,
        "validate_every": 4,
        "augment": True,
        "validation_tasks": 4,
    }
    data = small_images()
    return MetaTrainer(build_learner(name, common | own, data.point_shape), data, 4, CPU, small_images(seed=1), compiled)


def weights(made: MetaTrainer) -> list[Tensor]:
    return list(made.learner.state_dict().values())


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("name", NAMES)
def test_a_training_by_programs_is_the_training_and_resumes_to_the_same_bits(name: str, tmp_path: Path) -> None:
    plain, whole, stopped, resumed = (trainer(name, compiled=flag) for flag in (False, True, True, True))
    for each in (stopped, resumed):  # their own programs would be the same
        each._whole, each._tester = whole._whole, whole._tester
    for _ in range(2):
        stopped.train_step()
    stopped._validate()  # which the others do after two steps
    save_meta_training(stopped, tmp_path / "state")
    resume_meta_training(resumed, tmp_path / "state")
    for each in (plain, whole, resumed):
        each.run(progress=False)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(weights(resumed), weights(whole), strict=True))
    assert resumed.validations == whole.validations
    for ours, theirs in zip(weights(whole), weights(plain), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-5)


@pytest.mark.usefixtures("uncompiled")
def test_testing_by_programs_gives_the_same_accuracies(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, data = trainer("maml", compiled=False).learner.double(), small_images()
    classes = random_classes(data, learner.settings, 7, seed=0)
    program = WholeStep(adapted_accuracy)
    monkeypatch.setattr("tasktheme.learners.testing.tasks_at_once", lambda *_: 3)  # parts of 3, 3 and 1
    plain, ours = (task_accuracies(learner.float(), data, classes, seed=0, compiled=each) for each in (None, program))
    np.testing.assert_array_equal(ours, plain)
    assert len(program.made) == 1


def test_no_compiler_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(function: object) -> object:
        raise RuntimeError("No working C++ compiler\nat all")

    monkeypatch.setattr(compiler, "compile_step", broken)
    with pytest.raises(SettingsError, match=r"cannot compile the step here: No working C\+\+ compiler; go without"):
        tt.MetaLearner("maml", device="cpu", filters=4).fit(small_images(), 4, progress=False, compiled=True)


# In a process of its own: the checks of shapes that tests put around every function are no work for the compiler.
_COMPILED = """
import sys
import torch
from oracles.small import small_images
from tasktheme.learners.base import Noise, Points
from tasktheme.learners.build import build_learner
from tasktheme.learners.whole_step import WholeStep, meta_gradients

own = {"inner_steps": 1} if sys.argv[1] != "protonet" else {}
learner = build_learner(sys.argv[1], {"ways": 2, "filters": 2, "modules": 1, **own}, (1, 6, 5)).double()
labels = torch.arange(4).remainder(2).repeat(2, 1)
support, query = (Points(torch.rand(2, n, 1, 6, 5, dtype=torch.float64), labels[:, :n], 2) for n in (2, 4))
tasks = torch.tensor([3, 10**9])
expected = meta_gradients(learner, support, query, Noise(5, tasks))
for ours, plain in zip(WholeStep(meta_gradients)(learner, support, query, 5, tasks), expected, strict=True):
    torch.testing.assert_close(ours, plain, rtol=1e-6, atol=1e-9)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_compiled_code_gives_the_numbers_of_the_step(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COMPILED, name],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
