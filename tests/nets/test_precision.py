"""bfloat16 in the products of convolutional networks and nowhere else: not in what they return, nor in embedding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

import tasktheme as tt
from oracles.small import SMALL, small_images
from tasktheme.nets.build import Networks
from tasktheme.nets.norm import ImageGroupNorm, TaskBatchNorm, normalise_groups
from tasktheme.nets.precision import bfloat16_products
from tasktheme.nets.strided import Doubling, Halving
from tasktheme.settings import Precision, Settings

CPU = torch.device("cpu")


@contextmanager
def kinds_of_products(networks: Networks) -> Iterator[set[torch.dtype]]:
    """Collects the types of what the convolutions return."""
    seen: set[torch.dtype] = set()
    layers = [layer for layer in networks.modules() if isinstance(layer, Halving | Doubling)]
    hooks = [layer.register_forward_hook(lambda _, __, output: seen.add(output.dtype)) for layer in layers]
    yield seen
    for hook in hooks:
        hook.remove()


def there_and_back(networks: Networks, x: Tensor, precision: Precision) -> tuple[Tensor, Tensor, Tensor]:
    mask = torch.ones(x.shape[:2], dtype=torch.bool)
    with networks.products(precision):
        m, s = networks.encoder(x, mask)
        return m, s, networks.decoder.log_prob(m, x, mask)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_rounded_products_give_nearly_the_same_numbers_and_gradients_in_float32(norm: str) -> None:
    networks = Networks(Settings(filters=(4, 8), latent_dim=3, norm=norm), (3, 16, 16), CPU)
    x = torch.rand((2, 6, 3, 16, 16), generator=torch.Generator().manual_seed(0))
    found: dict[str, tuple[Tensor, ...]] = {}
    gradients: dict[str, Tensor] = {}
    for precision in ("bfloat16", "float32", "auto"):
        with kinds_of_products(networks) as kinds:
            found[precision] = there_and_back(networks, x, precision)
        assert kinds == {torch.bfloat16 if precision == "bfloat16" else torch.float32}
        slopes = torch.autograd.grad(sum(part.mean() for part in found[precision]), list(networks.parameters()))
        gradients[precision] = torch.cat([slope.flatten() for slope in slopes])
    for rounded, exact, chosen in zip(*found.values(), strict=True):
        assert rounded.dtype == torch.float32
        assert not torch.equal(rounded, exact)
        assert (rounded - exact).norm() <= 0.02 * exact.norm()
        assert torch.equal(chosen, exact)  # "auto" on a CPU
    assert torch.cosine_similarity(gradients["bfloat16"], gradients["float32"], dim=0) > 0.99


def test_norms_widen_what_they_are_given() -> None:
    x = (40.0 + torch.rand((4, 8, 6, 6), generator=torch.Generator().manual_seed(0))).bfloat16()
    mask = torch.ones((2, 2), dtype=torch.bool)
    batch, group = TaskBatchNorm(8), ImageGroupNorm(8).norm
    assert torch.equal(batch(x, mask), batch(x.float(), mask))
    assert torch.equal(normalise_groups(x, group), normalise_groups(x.float(), group))


def test_networks_of_vectors_are_never_rounded() -> None:
    networks = Networks(Settings(encoder="vector", hidden=(8,), latent_dim=3), (5,), CPU)
    x = torch.rand((2, 6, 5), generator=torch.Generator().manual_seed(0))
    for rounded, exact in zip(there_and_back(networks, x, "bfloat16"), there_and_back(networks, x, "float32"), strict=True):
        assert torch.equal(rounded, exact)


@pytest.mark.parametrize("layer", [Halving(3, 5), Doubling(3, 5)], ids=["halving", "doubling"])
def test_products_of_patches_are_rounded_like_convolutions(layer: Halving | Doubling) -> None:
    x = torch.rand((2, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    with bfloat16_products(CPU, enabled=True):
        ours, theirs = layer.by_products(x), layer(x)
    assert ours.dtype == theirs.dtype == torch.bfloat16
    torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02)


def test_a_model_trained_in_bfloat16_embeds_in_float32(tmp_path) -> None:
    data = small_images()
    model = tt.PTM(settings=SMALL.changed({"precision": "bfloat16"}), device="cpu").fit(data, tasks=8, progress=False)
    with kinds_of_products(model._require_fitted().networks) as kinds:
        model.embed(data.episodes(ways=2, shots=3, n=3))
    assert kinds == {torch.float32}
    model.save(tmp_path / "model")
    assert tt.PTM.load(tmp_path / "model").settings.precision == "bfloat16"
