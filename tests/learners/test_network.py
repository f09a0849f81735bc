from __future__ import annotations

import math

import pytest
import torch

from oracles.meta import plain_features, plain_logits
from tasktheme.errors import SettingsError
from tasktheme.learners import network as network_file
from tasktheme.learners.network import Network
from tasktheme.learners.settings import LearnerSettings


def weights_of_tasks(network: Network, tasks: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    first = network.initial_weights(0)
    return {
        name: torch.randn((tasks, *value.shape), generator=generator, dtype=torch.float64).requires_grad_()
        for name, value in first.items()
    }


@pytest.mark.parametrize("at_once", [1, 4, 6])
@pytest.mark.parametrize("size", [(16, 16), (21, 10)])
def test_a_module_is_pooled_rectified_normalised_convolution_with_gradients(
    size: tuple[int, int], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the first maps are computed some images at a time."""
    monkeypatch.setattr(network_file, "_MAP", at_once * 3 * math.prod(size) * 5)
    network = Network(LearnerSettings(filters=5, modules=3), (2, *size), 4)
    weights = weights_of_tasks(network, 3)
    x = torch.rand((3, 6, 2, *size), dtype=torch.float64)
    ours = network.logits(weights, x)
    own = [{name: value[t] for name, value in weights.items()} for t in range(3)]
    plain = torch.stack([plain_logits(own[t], x[t]) for t in range(3)])
    torch.testing.assert_close(ours, plain)
    direction = torch.randn_like(plain)
    for (name, ours_), plain_ in zip(
        zip(weights, torch.autograd.grad(ours, list(weights.values()), direction), strict=True),
        torch.autograd.grad(plain, list(weights.values()), direction),
        strict=True,
    ):
        torch.testing.assert_close(ours_, plain_, msg=name)


@pytest.mark.parametrize("at_once", [3, 4])
def test_shared_weights_see_each_task_alone(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_file, "_MAP", at_once * 3 * 64 * 5)
    network = Network(LearnerSettings(filters=5, modules=2), (1, 8, 8), None)
    weights = {name: value[0] for name, value in weights_of_tasks(network, 1).items()}
    x = torch.rand((3, 4, 1, 8, 8), dtype=torch.float64)
    plain = torch.stack([plain_features(weights, images) for images in x])
    torch.testing.assert_close(network.features(weights, x), plain)


@pytest.mark.parametrize("at_once", [2, 3])
def test_second_derivatives_against_finite_differences(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_file, "_MAP", at_once * 2 * 16 * 2)
    network = Network(LearnerSettings(filters=2, modules=1), (1, 4, 4), None)
    weights = weights_of_tasks(network, 2)
    x = torch.rand((2, 3, 1, 4, 4), dtype=torch.float64)

    def features(*values: torch.Tensor) -> torch.Tensor:
        return network.features(dict(zip(weights, values, strict=True)), x)

    assert torch.autograd.gradgradcheck(features, tuple(weights.values()))


def test_the_last_map_of_the_usual_network_is_4_by_4() -> None:
    network = Network(LearnerSettings(), (3, 64, 64), 5)
    assert network.initial_weights(0)["head"].shape == (5, 32 * 4 * 4)


def test_bfloat16_is_near() -> None:
    exact, rough = (Network(LearnerSettings(filters=8, precision=p), (1, 32, 32), 3) for p in ("float32", "bfloat16"))
    weights = {name: value.expand(2, *value.shape) for name, value in exact.initial_weights(0).items()}
    x = torch.rand((2, 4, 1, 32, 32))
    near = (rough.features(weights, x) - exact.features(weights, x)).abs().mean() / exact.features(weights, x).abs().mean()
    assert 0 < near < 0.05


@pytest.mark.parametrize(("shape", "words"), [((1, 8, 8), "too small for 4 modules"), ((5,), "take images")])
def test_data_that_it_cannot_take(shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        Network(LearnerSettings(), shape, 5)
