"""The two primitives of per-task convolutions as Triton kernels: no patches are written out, each map is read from the cache.

A convolution is nine products of a tile of pixels, shifted, with a task's weights; a correlation is the sum over pixels of
such products the other way round. Feature maps are (tasks, points, height, width, channels), contiguous.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_SMALLEST = 16  # sides of the blocks that tl.dot takes
_PIXELS = 128  # in a tile
_SPLITS = 1024  # programs over which the pixels of all tasks are spread in a correlation, at least


@triton.jit
def _convolve_kernel(
    x_at, w_at, y_at, height, width, pixels,
    A: tl.constexpr, B: tl.constexpr, A_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr, M: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of M pixels of one task: y[m, b] = sum over the 9 neighbours k and channels a of x[m + k, a] w[k, a, b]."""
    task = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * M + tl.arange(0, M)
    a, b = tl.arange(0, A_BLOCK), tl.arange(0, B_BLOCK)
    column, row = m % width, (m // width) % height
    total = tl.zeros((M, B_BLOCK), dtype=tl.float32)
    x_at += task * pixels * A
    w_at += task * 9 * A * B
    for k in range(9):
        down, right = k // 3 - 1, k % 3 - 1
        inside = (m < pixels) & (row + down >= 0) & (row + down < height) & (column + right >= 0) & (column + right < width)
        neighbour = m + down * width + right
        x = tl.load(x_at + neighbour[:, None] * A + a[None, :], mask=inside[:, None] & (a[None, :] < A), other=0.0)
        w = tl.load(w_at + (k * A + a[:, None]) * B + b[None, :], mask=(a[:, None] < A) & (b[None, :] < B), other=0.0)
        total = tl.dot(x, w, total, input_precision=PRECISION)
    kept = (m[:, None] < pixels) & (b[None, :] < B)
    tl.store(y_at + (task * pixels + m[:, None]) * B + b[None, :], total.to(y_at.dtype.element_ty), mask=kept)


@triton.jit
def _correlate_kernel(
    x_at, y_at, w_at, height, width, pixels, tiles,
    A: tl.constexpr, B: tl.constexpr, A_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr, M: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """``tiles`` tiles of one task and one neighbour k: w[k, a, b] = sum over pixels m of x[m + k, a] y[m, b]."""
    split, k, task = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    a, b = tl.arange(0, A_BLOCK), tl.arange(0, B_BLOCK)
    down, right = k // 3 - 1, k % 3 - 1
    total = tl.zeros((A_BLOCK, B_BLOCK), dtype=tl.float32)
    x_at += task * pixels * A
    y_at += task * pixels * B
    for tile in range(tiles):
        m = (split * tiles + tile) * M + tl.arange(0, M)
        column, row = m % width, (m // width) % height
        inside = (m < pixels) & (row + down >= 0) & (row + down < height) & (column + right >= 0) & (column + right < width)
        neighbour = m + down * width + right
        x = tl.load(x_at + neighbour[None, :] * A + a[:, None], mask=inside[None, :] & (a[:, None] < A), other=0.0)
        y = tl.load(y_at + m[:, None] * B + b[None, :], mask=(m[:, None] < pixels) & (b[None, :] < B), other=0.0)
        total = tl.dot(x, y, total, input_precision=PRECISION)
    place = ((task * tl.num_programs(0) + split) * 9 + k) * A * B
    tl.store(w_at + place + a[:, None] * B + b[None, :], total, mask=(a[:, None] < A) & (b[None, :] < B))


def convolve(x: Tensor, weight: Tensor) -> Tensor:
    """(T, N, H, W, B) of images (T, N, H, W, A) and weights (T, B, A, 3, 3)."""
    return _convolved(x.contiguous(), weight.permute(0, 3, 4, 2, 1).contiguous())


def correlate(x: Tensor, y: Tensor) -> Tensor:
    """(T, B, A, 3, 3) of images (T, N, H, W, A) and maps (T, N, H, W, B)."""
    return _correlated(x.contiguous(), y.contiguous()).sum(dim=1).permute(0, 4, 3, 1, 2).to(x.dtype)


# The kernels as operators: a compiler calls them as they are, and fuses what is above with its surroundings.
@torch.library.custom_op("tasktheme::triton_convolve", mutates_args=())
def _convolved(x: Tensor, matrix: Tensor) -> Tensor:
    """(T, N, H, W, B) of images and weights (T, 3, 3, A, B)."""
    tasks, points, height, width, channels = x.shape
    filters, pixels = matrix.shape[-1], points * height * width
    y = x.new_empty((tasks, points, height, width, filters))
    grid = (triton.cdiv(pixels, _PIXELS), tasks)
    _convolve_kernel[grid](x, matrix, y, height, width, pixels, channels, filters, **_blocks(channels, filters))
    return y


@_convolved.register_fake
def _(x: Tensor, matrix: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:4], matrix.shape[-1]))


@torch.library.custom_op("tasktheme::triton_correlate", mutates_args=())
def _correlated(x: Tensor, y: Tensor) -> Tensor:
    """(T, splits, 3, 3, A, B) in float32, to be summed over the splits, of images and maps."""
    tasks, points, height, width, channels = x.shape
    filters, pixels = y.shape[-1], points * height * width
    splits, tiles = _split(tasks, pixels)
    parts = torch.empty((tasks, splits, 3, 3, channels, filters), dtype=torch.float32, device=x.device)
    blocks = _blocks(channels, filters)
    _correlate_kernel[(splits, 9, tasks)](x, y, parts, height, width, pixels, tiles, channels, filters, **blocks)
    return parts


@_correlated.register_fake
def _(x: Tensor, y: Tensor) -> Tensor:
    splits, _ = _split(len(x), x.shape[1] * x.shape[2] * x.shape[3])
    return x.new_empty((len(x), splits, 3, 3, x.shape[-1], y.shape[-1]), dtype=torch.float32)


def _split(tasks: int, pixels: int) -> tuple[int, int]:
    """Into how many parts a task's pixels are split, and how many tiles each has."""
    all_tiles = triton.cdiv(pixels, _PIXELS)
    tiles = triton.cdiv(all_tiles, min(all_tiles, max(1, triton.cdiv(_SPLITS, 9 * tasks))))
    return triton.cdiv(all_tiles, tiles), tiles


def _blocks(channels: int, filters: int) -> dict[str, Any]:
    """Blocks of channels are powers of two; products are rounded as torch is told to round its own."""
    exact = torch.get_float32_matmul_precision() == "highest"
    return {
        "A_BLOCK": max(_SMALLEST, triton.next_power_of_2(channels)),
        "B_BLOCK": max(_SMALLEST, triton.next_power_of_2(filters)),
        "M": _PIXELS,
        "PRECISION": "ieee" if exact else "tf32",
    }
