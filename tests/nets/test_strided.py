"""Products of patches are torch's convolutions, in value and gradient, and each other's transposes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tasktheme.nets.strided import Doubling, Halving, _Overlay, _Patches

CHANNELS = [1, 3]


def images(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


def assert_same_with_gradients(found: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    """Channels last against channels first."""
    expected = expected.permute(0, 2, 3, 1)
    torch.testing.assert_close(found, expected)
    slope = images(*expected.shape).detach()
    gradients = [torch.autograd.grad(value, inputs, slope, retain_graph=True) for value in (found, expected)]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("channels", CHANNELS)
def test_halving_is_torchs_convolution(channels: int) -> None:
    layer, x = Halving(channels, 5).double(), images(2, 6, 10, channels)
    expected = F.conv2d(x.permute(0, 3, 1, 2), layer.weight, stride=2, padding=1)
    for found in (layer(x), layer.by_products(x)):
        assert_same_with_gradients(found, expected, [x, layer.weight])


@pytest.mark.parametrize("channels", CHANNELS)
def test_doubling_is_torchs_transposed_convolution(channels: int) -> None:
    layer, x = Doubling(5, channels).double(), images(2, 3, 5, 5)
    expected = F.conv_transpose2d(x.permute(0, 3, 1, 2), layer.weight, stride=2, padding=1)
    for found in (layer(x), layer.by_products(x)):
        assert_same_with_gradients(found, expected, [x, layer.weight])


def test_patches_and_overlay_are_each_others_transposes() -> None:
    x, patches = images(2, 6, 10, 3), images(2, 3, 5, 48)
    torch.testing.assert_close((_Patches.apply(x) * patches).sum(), (x * _Overlay.apply(patches)).sum())
    assert torch.autograd.gradcheck(_Patches.apply, x)
    assert torch.autograd.gradcheck(_Overlay.apply, patches)
