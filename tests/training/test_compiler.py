"""Compiled steps: the same numbers, and one clear line, or none, where nothing can be compiled."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.exc import TorchDynamoException

import tasktheme as tt
from oracles.small import SMALL, small_images
from tasktheme.errors import SettingsError, TrainingWarning
from tasktheme.training import compiler, health, loop
from tasktheme.training.compiler import is_compiled, silent_compiler

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.filterwarnings("ignore")  # of torch's own, on import
def test_asking_for_a_compiled_step_without_a_compiler_is_one_clear_line() -> None:
    from torch._inductor import config

    # by torch's own way to change it: after monkeypatch's undoing nothing more could be compiled
    nowhere = config.patch({"force_disable_caches": True, "cpp.cxx": ("/nowhere/c++",)})
    with nowhere, pytest.raises(SettingsError, match=r"torch cannot compile the step here: .*No working C") as caught:
        tt.PTM(settings=SMALL, device="cpu").fit(small_images(), tasks=4, progress=False, compiled=True)
    assert "\n" not in str(caught.value)


def test_only_long_trainings_on_a_gpu_with_a_compiler_are_compiled_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    many = compiler._TASKS_WORTH_COMPILING
    monkeypatch.setattr(compiler, "compiler_fault", lambda device: None)
    assert is_compiled(None, GPU, many)
    assert not is_compiled(None, GPU, many - 1)
    assert not is_compiled(None, CPU, many)
    assert is_compiled(True, CPU, 1)
    assert not is_compiled(False, GPU, many)
    monkeypatch.setattr(compiler, "compiler_fault", lambda device: "no compiler")
    assert not is_compiled(None, GPU, many)
    with pytest.raises(SettingsError, match="no compiler"):
        is_compiled(True, GPU, 1)


@pytest.mark.parametrize("late", [False, True], ids=["first step", "after the warm-up"])
def test_a_step_that_torch_fails_to_compile_is_taken_without(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    failing = "_updated_themes" if late else "_forward"

    def compile_all_but_one(function: Any, **options: bool) -> Any:
        def fail(*inputs: Any) -> None:
            raise TorchDynamoException("1280 v.s. 64\nand where in the compiler that was")

        return fail if function.__name__ == failing else function

    def trained(compiled: bool) -> tt.PTM:
        return tt.PTM(settings=SMALL, device="cpu").fit(small_images(), tasks=40, progress=False, compiled=compiled)

    monkeypatch.setattr(compiler, "compiler_fault", lambda device: None)
    monkeypatch.setattr(loop, "compile_step", compile_all_but_one)
    with pytest.warns(TrainingWarning) as said:
        ours = trained(compiled=True)
    [line] = [str(one.message) for one in said if "compile" in str(one.message)]
    assert line == "torch cannot compile this training's step (1280 v.s. 64): it goes on without, and more slowly"
    with pytest.warns(TrainingWarning, match="the embedding has collapsed"):
        expected = trained(compiled=False)
    torch.testing.assert_close(ours.themes.mu, expected.themes.mu, rtol=0, atol=0)


def test_a_compiled_training_warns_of_collapsed_themes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "compiler_fault", lambda device: None)
    monkeypatch.setattr(loop, "compile_step", lambda function, **options: function)
    monkeypatch.setattr(health, "_LARGEST_SHARE", 0.0)
    with pytest.warns(TrainingWarning, match="collapsed"):
        tt.PTM(settings=SMALL, device="cpu").fit(small_images(), tasks=40, progress=False, compiled=True)


def test_silence_ends_with_the_training() -> None:
    logger = logging.getLogger("torch._dynamo")
    before, filters = logger.level, list(warnings.filters)
    with silent_compiler():
        warnings.warn("about itself", stacklevel=1)  # an error in these tests, were it heard
        assert not logger.isEnabledFor(logging.WARNING)
    assert logger.level == before
    assert warnings.filters == filters


# What the compiler makes of the step, run by torch itself: code for a CPU would take minutes to make. In a process of its own:
# the compiler does not see through the checks of shapes that tests put around every function.
_COMPILED_TRAININGS = """
import sys, torch
from pathlib import Path
from oracles.small import SMALL, small_images
from tasktheme.nets.build import Networks
from tasktheme.training.checkpoint import resume_training, save_training
from tasktheme.training import loop
from tasktheme.training.loop import Trainer

loop.compile_step = lambda function, **options: torch.compile(function, dynamic=False, backend="aot_eager")

def trainer(compiled):
    settings, data, cpu = SMALL.changed({"training_aspects": int(sys.argv[2])}), small_images(), torch.device("cpu")
    return Trainer(settings, Networks(settings, data.point_shape, cpu), data, 8, cpu, compiled)

eager, compiled, stopped, resumed = (trainer(flag) for flag in (False, True, False, True))
for _ in range(stopped.warm_up_steps):
    stopped.train_step()
file = Path(sys.argv[1])
save_training(stopped, file)
resume_training(resumed, file)
for whole in (eager, compiled, resumed):
    whole.run(progress=False)
for ours in (compiled, resumed):
    torch.testing.assert_close(ours.themes.mu, eager.themes.mu, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(ours.history[-1]["loss"], eager.history[-1]["loss"], rtol=1e-3, atol=1e-4)
"""


@pytest.mark.slow
@pytest.mark.parametrize("aspects", ["1", "5"])
def test_a_traced_training_gives_the_same_numbers_and_resumes(aspects: str, tmp_path: Path) -> None:
    quiet = ("-W", "ignore:the embedding has collapsed")
    command = [sys.executable, *quiet, "-c", _COMPILED_TRAININGS, str(tmp_path / "state"), aspects]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


# The code that the compiler makes for a CPU, of colour images, whose decoder starts with logits near 0.
_COMPILED_GRADIENTS = """
import torch
import tasktheme as tt
from oracles.small import SMALL, small_images
from tasktheme.nets.build import Networks
from tasktheme.training.compiler import silent_compiler
from tasktheme.training.loop import Trainer

grey, cpu = small_images(), torch.device("cpu")
colours = torch.cat([grey.tensor, 255 - grey.tensor, grey.tensor // 2], dim=1)
data = tt.Dataset.from_arrays(colours.numpy(), [label for label in range(8) for _ in range(10)], name="colours")

def step(compiled):
    networks = Networks(SMALL, data.point_shape, cpu)
    with torch.no_grad():
        networks.decoder.convolutions[-1].weight *= 1e-6
    trainer = Trainer(SMALL, networks, data, 8, cpu, compiled)
    with silent_compiler():
        result = trainer._forward(*trainer._draw(trainer._counter))
    return result, torch.autograd.grad(result.loss, list(networks.parameters()))

(ours, found), (plain, expected) = step(True), step(False)
torch.testing.assert_close(ours.terms, plain.terms, rtol=1e-5, atol=1e-4)
for slope, other in zip(found, expected, strict=True):
    assert (slope - other).norm() <= 1e-4 * other.norm()
"""


@pytest.mark.slow
def test_a_step_compiled_for_a_cpu_gives_the_gradients_of_colour_images() -> None:
    command = [sys.executable, "-c", _COMPILED_GRADIENTS]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
