"""The continuous Bernoulli against torch's own, numerical integrals, and its limits at logit zero and far out."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import Tensor

from tasktheme.maths import continuous_bernoulli
from tasktheme.maths.continuous_bernoulli import log_partition, log_prob

SWITCH = continuous_bernoulli._SMALL_LOGIT
NEAR_ZERO = (0.0, 1e-300, 1e-9, 1e-4, -1e-4, 0.999 * SWITCH, -0.999 * SWITCH, 1.001 * SWITCH, -1.001 * SWITCH, 0.03)
LOGITS = (*NEAR_ZERO, -0.7, 0.7, -5.0, 5.0, -15.0, 15.0, -40.0, 40.0)
FAR = (1e2, 1e3, 1e4)


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def moment(logit: float, power: int) -> float:
    """The integral of x^power sigmoid(l)^x sigmoid(-l)^(1 - x) over [0, 1], without a closed form."""
    log_weight = np.logaddexp(0.0, logit)
    value, _ = integrate.quad(lambda x: x**power * np.exp(x * logit - log_weight), 0.0, 1.0, epsabs=0.0, epsrel=1e-13, limit=200)
    return value


def grid(logits: tuple[float, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Each of x = 0, 0.3, 1 with each logit."""
    return torch.meshgrid(torch.tensor([0.0, 0.3, 1.0], dtype=dtype), torch.tensor(logits, dtype=dtype), indexing="ij")


@pytest.mark.parametrize("logit", [-10.0, -3.0, -0.2, -1e-3, 0.0, 1e-3, 0.2, 3.0, 10.0])
def test_density_is_torchs(logit: float) -> None:
    x = torch.linspace(0.0, 1.0, 11, dtype=torch.float64)
    expected = torch.distributions.ContinuousBernoulli(logits=tensor(logit)).log_prob(x)
    torch.testing.assert_close(log_prob(x, torch.full_like(x, logit)), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("logit", LOGITS)
def test_density_integrates_to_one(logit: float) -> None:
    def density(x: float) -> float:
        return float(log_prob(tensor(x), tensor(logit)).exp())

    assert integrate.quad(density, 0.0, 1.0, limit=200)[0] == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("logit", LOGITS)
def test_partition_is_the_integral_of_the_exponential(logit: float) -> None:
    expected = np.log(moment(logit, 0)) + np.logaddexp(0.0, logit)
    assert float(log_partition(tensor(logit))) == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("logit", LOGITS)
def test_slope_of_the_density_is_x_less_the_mean(logit: float) -> None:
    logits = tensor(logit).requires_grad_()
    (slope,) = torch.autograd.grad(log_prob(tensor(0.3), logits).sum(), logits)
    assert float(slope) == pytest.approx(0.3 - moment(logit, 1) / moment(logit, 0), abs=1e-12)


@pytest.mark.parametrize("logit", LOGITS)
def test_mean_is_the_integral_of_x(logit: float) -> None:
    expected = moment(logit, 1) / moment(logit, 0)
    assert float(continuous_bernoulli.mean(tensor(logit))) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("logit", [*NEAR_ZERO, -8.0, 8.0])
def test_gradient_is_that_of_finite_differences(logit: float) -> None:
    x, logits = (part.clone().requires_grad_() for part in grid((logit,), torch.float64))
    assert torch.autograd.gradcheck(log_prob, (x, logits))


def test_values_and_gradients_are_finite_and_right_far_out_in_float32() -> None:
    def value_and_gradient(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        x, logits = grid((*FAR, *(-logit for logit in FAR)), dtype)
        logits.requires_grad_()
        value = log_prob(x, logits)
        return value.detach(), torch.autograd.grad(value.sum(), logits)[0]

    for found, expected in zip(value_and_gradient(torch.float32), value_and_gradient(torch.float64), strict=True):
        assert found.isfinite().all()
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


def test_float32_gradient_is_right_on_both_sides_of_the_switch() -> None:
    logits = torch.linspace(-3.0 * SWITCH, 3.0 * SWITCH, 1001).requires_grad_()
    (slope,) = torch.autograd.grad(log_prob(torch.zeros_like(logits), logits).sum(), logits)
    exact = logits.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad(log_prob(torch.zeros_like(exact), exact).sum(), exact)
    # the closed form of the mean carries 1 / l times the rounding
    torch.testing.assert_close(slope.double(), expected, rtol=0.0, atol=2.0 * torch.finfo(torch.float32).eps / SWITCH)


# In a process of its own: the compiler does not see through the checks of shapes that tests put around every function.
_NO_COMPILER = 77
_COMPILED_DENSITY = f"""
import sys, torch
from tasktheme.maths.continuous_bernoulli import log_prob
from tasktheme.training.compiler import compile_step, compiler_fault

if compiler_fault(torch.device("cpu")) is not None:
    sys.exit({_NO_COMPILER})

def value_and_slope(function, dtype):
    size = torch.logspace(-44, 3, 941, dtype=torch.float64).float()
    logits = torch.cat([torch.zeros(1), size, -size]).to(dtype).requires_grad_()
    value = function(torch.full_like(logits, 0.3), logits)
    return value.detach().double(), torch.autograd.grad(value.sum(), logits)[0].double()

found, expected = value_and_slope(compile_step(log_prob), torch.float32), value_and_slope(log_prob, torch.float64)
torch.testing.assert_close(found[0], expected[0], rtol=1e-6, atol=2e-7)
torch.testing.assert_close(found[1], expected[1], rtol=0.0, atol=5e-6)
"""


def test_compiled_for_a_cpu_it_loses_no_digits_near_logit_zero() -> None:
    done = subprocess.run([sys.executable, "-c", _COMPILED_DENSITY], capture_output=True, text=True, check=False)
    if done.returncode == _NO_COMPILER:
        pytest.skip("no compiler")
    assert done.returncode == 0, done.stderr


def test_mean_stays_in_the_unit_interval_far_out_in_float32() -> None:
    logits = torch.tensor([-logit for logit in FAR] + list(FAR))
    expected = [1.0 / logit for logit in FAR] + [1.0 - 1.0 / logit for logit in FAR]
    torch.testing.assert_close(continuous_bernoulli.mean(logits), torch.tensor(expected), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("logit", [-30.0, -3.0, -0.01, 0.0, 0.5, 12.0])
def test_logit_of_a_mean_gives_it_back(logit: float) -> None:
    mean = moment(logit, 1) / moment(logit, 0)
    assert float(continuous_bernoulli.logit_of_mean(tensor(mean))) == pytest.approx(logit, abs=1e-6)


def test_logits_of_black_and_white_are_bounded() -> None:
    assert continuous_bernoulli.logit_of_mean(tensor(0.0, 1.0)).tolist() == [-100.0, 100.0]
