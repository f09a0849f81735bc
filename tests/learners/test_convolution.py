from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tasktheme.errors import SettingsError
from tasktheme.learners import convolution
from tasktheme.learners.convolution import IMPLEMENTATIONS, per_task_conv2d, shared_conv2d

NAMES = sorted(set(IMPLEMENTATIONS) - {"triton"})  # tested on GPUs, in float32


def problem(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn((3, 2, 5, 4, 3), generator=generator, dtype=torch.float64)
    weight = torch.randn((3, 6, 3, 3, 3), generator=generator, dtype=torch.float64)
    return x.requires_grad_(), weight.requires_grad_()


def one_at_a_time(x: Tensor, weight: Tensor) -> Tensor:
    images = x.permute(0, 1, 4, 2, 3)
    return torch.stack([F.conv2d(a, b, padding=1) for a, b in zip(images, weight, strict=True)]).permute(0, 1, 3, 4, 2)


@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_are_those_of_one_convolution_for_each_task(name: str) -> None:
    x, weight = problem()
    ours, plain = per_task_conv2d(x, weight, implementation=name), one_at_a_time(x, weight)
    torch.testing.assert_close(ours, plain)
    direction = torch.randn_like(plain)
    for got, expected in zip(
        torch.autograd.grad(ours, (x, weight), direction), torch.autograd.grad(plain, (x, weight), direction), strict=True
    ):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("name", NAMES)
def test_first_and_second_derivatives_against_finite_differences(name: str) -> None:
    x, weight = problem(1)
    x, weight = x[:2, :1, :3, :3, :2].detach().requires_grad_(), weight[:2, :2, :2].detach().requires_grad_()

    def convolve(x: Tensor, weight: Tensor) -> Tensor:
        return per_task_conv2d(x, weight, implementation=name)

    assert torch.autograd.gradcheck(convolve, (x, weight))
    assert torch.autograd.gradgradcheck(convolve, (x, weight))


def test_shared_weights_are_the_same_weights_in_every_task() -> None:
    x, weight = problem(2)
    torch.testing.assert_close(shared_conv2d(x, weight[0]), per_task_conv2d(x, weight[:1].expand_as(weight)))


@pytest.mark.parametrize(
    ("device", "dtype", "installed", "expected"),
    [
        ("cpu", torch.float32, True, "loop"),
        ("cpu", torch.bfloat16, True, "loop"),
        ("cuda", torch.bfloat16, True, "triton"),
        ("cuda", torch.bfloat16, False, "patches"),
        ("cuda", torch.float32, True, "patches"),
    ],
)
def test_the_fastest_is_chosen(device: str, dtype: torch.dtype, installed: bool, expected: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(convolution, "find_spec", lambda name: name if installed else None)
    assert convolution.fastest(torch.device(device), dtype) == expected


def test_triton_without_a_gpu_is_one_clear_line() -> None:
    with pytest.raises(SettingsError, match="needs a GPU"):
        per_task_conv2d(*problem(), implementation="triton")


def test_triton_kernels_in_the_interpreter() -> None:
    """Where triton is installed, its kernels run on a CPU too, slowly, in a process of their own."""
    pytest.importorskip("triton")
    code = """
import torch
from tasktheme.learners.convolution import IMPLEMENTATIONS
torch.set_float32_matmul_precision("highest")
plain, ours = IMPLEMENTATIONS["loop"], IMPLEMENTATIONS["triton"]
for tasks, points, height, width, a, b in ((2, 3, 7, 5, 3, 20), (1, 5, 8, 8, 16, 5)):
    x, y = torch.randn(tasks, points, height, width, a), torch.randn(tasks, points, height, width, b)
    weight = torch.randn(tasks, b, a, 3, 3)
    torch.testing.assert_close(ours.convolve(x, weight), plain.convolve(x, weight), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.correlate(x, y), plain.correlate(x, y), rtol=1e-4, atol=1e-3)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
