"""3x3 convolutions in which every task has weights of its own, differentiable any number of times.

A convolution is linear in the image and in the weights, and its two derivatives are again a convolution and a correlation:

- y = convolve(x, w):  dx = convolve(dy, mirrored(w)),  dw = correlate(x, dy)
- w = correlate(x, y): dx = convolve(y, mirrored(dw)),  dy = convolve(x, dw)

So two primitives are closed under differentiation, and a way of computing them (the setting ``convolution``) is two
functions of plain tensors. Feature maps are (tasks, points, height, width, channels), channels last in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from tasktheme.errors import SettingsError

Maps = Float[Tensor, "T N H W A"]
Weights = Float[Tensor, "T B A 3 3"]


def per_task_conv2d(x: Maps, weight: Weights, *, implementation: str = "auto") -> Float[Tensor, "T N H W B"]:
    """Each task's images with each task's weights: 3x3, stride 1, zeros around the image."""
    return _convolve(x, weight, _choose(implementation, x))


def shared_conv2d(x: Maps, weight: Float[Tensor, "B A 3 3"]) -> Float[Tensor, "T N H W B"]:
    """The same with one set of weights for all tasks: a plain convolution."""
    return _last(F.conv2d(_first(x.flatten(0, 1)), weight, padding=1)).unflatten(0, x.shape[:2])


@dataclass(frozen=True)
class Implementation:
    """The two primitives, on tensors without gradients."""

    convolve: Callable[[Tensor, Tensor], Tensor]
    correlate: Callable[[Tensor, Tensor], Tensor]


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, by: Implementation) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.by = by
        return by.convolve(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), [dy] = ctx.saved_tensors, gradients
        dx = _convolve(dy, _mirrored(weight), ctx.by) if ctx.needs_input_grad[0] else None
        dw = _correlate(x, dy, ctx.by) if ctx.needs_input_grad[1] else None
        return dx, dw, None


class _Correlate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, by: Implementation) -> Tensor:
        ctx.save_for_backward(x, y)
        ctx.by = by
        return by.correlate(x, y)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, y), [dw] = ctx.saved_tensors, gradients
        dx = _convolve(y, _mirrored(dw), ctx.by) if ctx.needs_input_grad[0] else None
        dy = _convolve(x, dw, ctx.by) if ctx.needs_input_grad[1] else None
        return dx, dy, None


def _convolve(x: Tensor, weight: Tensor, by: Implementation) -> Tensor:
    return _Convolve.apply(x, weight, by)  # type: ignore[no-untyped-call]


def _correlate(x: Tensor, y: Tensor, by: Implementation) -> Tensor:
    return _Correlate.apply(x, y, by)  # type: ignore[no-untyped-call]


def _mirrored(weight: Tensor) -> Tensor:
    """Weights of the adjoint convolution: channels exchanged, turned by half a turn."""
    return weight.transpose(1, 2).flip(-1, -2)


def _first(x: Tensor) -> Tensor:
    """(points, H, W, channels) as torch's convolutions see it; the memory stays as it is."""
    return x.permute(0, 3, 1, 2)


def _last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)


# One library convolution for each task. On a CPU the fastest by far: each is large enough to keep a core busy.
def _loop_convolve(x: Tensor, weight: Tensor) -> Tensor:
    return _joined([_last(F.conv2d(_first(images), own, padding=1)) for images, own in zip(x, weight, strict=True)])


def _loop_correlate(x: Tensor, y: Tensor) -> Tensor:
    return _joined([_weight_gradient(_first(images), _first(maps), groups=1) for images, maps in zip(x, y, strict=True)])


def _joined(parts: list[Tensor]) -> Tensor:
    """The tasks' results along a first axis; that of one task is not copied."""
    return (parts[0].unsqueeze(0) if len(parts) == 1 else torch.stack(parts)).contiguous()


# As operators, so that a compiler sees one node for all tasks.
_traced_convolve = torch.library.custom_op(
    "tasktheme::loop_convolve", _loop_convolve, mutates_args=(), schema="(Tensor x, Tensor weight) -> Tensor"
)
_traced_correlate = torch.library.custom_op(
    "tasktheme::loop_correlate", _loop_correlate, mutates_args=(), schema="(Tensor x, Tensor y) -> Tensor"
)
_traced_convolve.register_fake(lambda x, weight: x.new_empty((*x.shape[:4], weight.shape[1])))
_traced_correlate.register_fake(lambda x, y: x.new_empty((len(x), y.shape[-1], x.shape[-1], 3, 3)))


def _weight_gradient(x: Tensor, y: Tensor, *, groups: int) -> Tensor:
    shape = x.new_empty(()).expand(y.shape[1], x.shape[1] // groups, 3, 3)  # only the shape of the weights matters
    geometry = ([1, 1], [1, 1], [1, 1], False, [0, 0], groups)
    return torch.ops.aten.convolution_backward(y, x, shape, None, *geometry, [False, True, False])[1]


# All tasks in one grouped convolution, the tasks side by side in the channels: what torch.vmap makes of it.
def _grouped_convolve(x: Tensor, weight: Tensor) -> Tensor:
    y = F.conv2d(_beside(x), weight.flatten(0, 1), padding=1, groups=len(x))
    return _last(y).unflatten(-1, (len(x), -1)).movedim(3, 0).contiguous()


def _grouped_correlate(x: Tensor, y: Tensor) -> Tensor:
    return _weight_gradient(_beside(x), _beside(y), groups=len(x)).unflatten(0, (len(x), -1))


def _beside(x: Tensor) -> Tensor:
    """(N, T x channels, H, W), channels last in memory."""
    return _first(x.movedim(0, 3).flatten(3))


# All 3x3 neighbourhoods written out, then one batched matrix product.
def _patches(x: Tensor) -> Tensor:
    """(T, N x H x W, 9 x channels); neighbours in a row and their channels lie together in memory and are copied at once."""
    tasks, points, height, width, channels = x.shape
    padded = F.pad(x.contiguous(), (0, 0, 1, 1, 1, 1))
    *strides, _ = padded.stride()
    windows = padded.as_strided((tasks, points, height, width, 3, 3 * channels), (*strides, strides[2], 1))
    return windows.reshape(tasks, points * height * width, 9 * channels)


def _patches_convolve(x: Tensor, weight: Tensor) -> Tensor:
    matrix = weight.permute(0, 3, 4, 2, 1).flatten(1, 3)  # (T, 9 x A, B)
    return torch.bmm(_patches(x), matrix).view(*x.shape[:4], weight.shape[1])


def _patches_correlate(x: Tensor, y: Tensor) -> Tensor:
    matrix = torch.bmm(_patches(x).transpose(1, 2), y.flatten(1, 3))
    return matrix.view(len(x), 3, 3, x.shape[-1], y.shape[-1]).permute(0, 4, 3, 1, 2)


# Triton kernels that read the neighbourhoods from the maps themselves; only where triton is, that is on GPUs.
def _triton_convolve(x: Tensor, weight: Tensor) -> Tensor:
    from tasktheme.learners import triton_convolution

    return triton_convolution.convolve(x, weight)


def _triton_correlate(x: Tensor, y: Tensor) -> Tensor:
    from tasktheme.learners import triton_convolution

    return triton_convolution.correlate(x, y)


IMPLEMENTATIONS = {
    "loop": Implementation(_loop_convolve, _loop_correlate),
    "grouped": Implementation(_grouped_convolve, _grouped_correlate),
    "patches": Implementation(_patches_convolve, _patches_correlate),
    "triton": Implementation(_triton_convolve, _triton_correlate),
}
_TRACED_LOOP = Implementation(_traced_convolve, _traced_correlate)


def triton_runs(device: torch.device) -> bool:
    """Whether convolutions by triton can be computed on a device."""
    return device.type == "cuda" and find_spec("triton") is not None


def fastest(device: torch.device, dtype: torch.dtype) -> str:
    """The implementation that "auto" takes (docs/results.md has the measurement)."""
    if device.type != "cuda":
        return "loop"
    return "triton" if dtype == torch.bfloat16 and triton_runs(device) else "patches"


def _choose(name: str, x: Tensor) -> Implementation:
    if name == "auto":
        name = fastest(x.device, x.dtype)
    if name == "loop" and get_proxy_mode() is not None:
        return _TRACED_LOOP
    if name == "triton" and not triton_runs(x.device):
        raise SettingsError("convolution = 'triton' needs a GPU and triton; use 'auto'")
    return IMPLEMENTATIONS[name]
