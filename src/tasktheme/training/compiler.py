"""torch's compiler, set up for the training step."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def compile_step(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` compiled for the shapes that it is first called with."""
    return torch.compile(function, dynamic=False, options={"force_layout_optimization": True})  # channels stay last


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
