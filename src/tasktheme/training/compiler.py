"""torch's compiler, set up for the training step."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import torch

from tasktheme.errors import SettingsError

P = ParamSpec("P")
R = TypeVar("R")

_TASKS_WORTH_COMPILING = 400_000  # an H200 trains as many in the two minutes that compiled code takes, its making included

_MIXED_ORDERS = "triton.mix_order_reduction"


def compile_step(function: Callable[P, R], *, mixed_orders: bool = True) -> Callable[P, R]:
    """``function`` compiled for the shapes that it is first called with.

    ``mixed_orders`` fuses sums over unlike axes, which torch 2.11 cannot do of batch norm's gradient (an assertion fails).
    """
    from torch._inductor import list_options

    options: dict[str, str | int | bool | Callable[..., Any]] = {"force_layout_optimization": True}  # channels stay last
    if not mixed_orders and _MIXED_ORDERS in list_options():
        options[_MIXED_ORDERS] = False
    return torch.compile(function, dynamic=False, options=options)


def compiler_fault(device: torch.device) -> str | None:
    """Why torch cannot compile for a device here (no C compiler, no Triton, too old a GPU), in one line; None where it can."""
    try:
        with silent_compiler():
            compile_step(_add_one)(torch.zeros(1, device=device))
    except Exception as error:  # whatever torch and its compilers raise
        return first_line(error)
    return None


def first_line(error: Exception) -> str:
    """Of what an error says, or its kind where it says nothing."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def is_compiled(asked: bool | None, device: torch.device, tasks: int) -> bool:
    """Whether a training of ``tasks`` tasks is compiled: as asked, or else where it pays and torch can."""
    if asked:
        require_compiler(device)
    if asked is None:
        return device.type == "cuda" and tasks >= _TASKS_WORTH_COMPILING and compiler_fault(device) is None
    return asked


def require_compiler(device: torch.device) -> None:
    """An error where torch cannot compile for a device."""
    if (fault := compiler_fault(device)) is not None:
        raise SettingsError(f"torch cannot compile the step here: {fault}; go without compiling it")


def compiler_failures() -> tuple[type[Exception], ...]:
    """What torch raises where it cannot compile a program."""
    from torch._dynamo.exc import TorchDynamoException

    return (TorchDynamoException,)


def _add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1.0


@contextmanager
def silent_compiler() -> Iterator[None]:
    """Keeps the compiler's remarks about itself, which help nobody who trains a model, from the terminal."""
    logger = logging.getLogger("torch._dynamo")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)
