"""Encoders and decoders: shapes, which data points see each other, densities, seeds, and settings that do not fit."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oracles.small import SMALL, small_images, small_vectors
from tasktheme.errors import SettingsError
from tasktheme.nets.build import Networks
from tasktheme.nets.norm import ImageGroupNorm, TaskBatchNorm, normalise_groups
from tasktheme.nets.vector import Standardise, VectorDecoder, VectorEncoder
from tasktheme.settings import Settings

CPU = torch.device("cpu")
LATENT = 3
NORMS = ("group", "batch")


def image_networks(*, channels: int = 1, norm: str = "group", seed: int = 0) -> Networks:
    settings = Settings(filters=(4, 8), latent_dim=LATENT, norm=norm, seed=seed)
    return Networks(settings, (channels, 16, 16), CPU).requires_grad_(False)


def vector_networks(data: Tensor) -> Networks:
    networks = Networks(Settings(encoder="vector", hidden=(8, 6), latent_dim=LATENT), tuple(data.shape[1:]), CPU).requires_grad_(
        False
    )
    networks.standardise_by(data)
    return networks


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def everyone(tasks: int, points: int) -> Tensor:
    return torch.ones(tasks, points, dtype=torch.bool)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("channels", [1, 3])
def test_shapes_of_image_networks(channels: int, norm: str) -> None:
    networks = image_networks(channels=channels, norm=norm)
    x, mask = random(2, 5, channels, 16, 16), everyone(2, 5)
    m, s = networks.encoder(x, mask)
    assert m.shape == s.shape == (2, 5, LATENT)
    assert (s > 0.0).all()
    assert networks.decoder.log_prob(m, x, mask).shape == (2, 5)
    picture = networks.decoder.mean(m, mask)
    assert picture.shape == x.shape
    assert ((picture > 0.0) & (picture < 1.0)).all()
    assert networks.decoder.dimensions == channels * 256


def test_the_default_network_takes_the_papers_images() -> None:
    networks = Networks(Settings(), (3, 64, 64), CPU)
    m, _ = networks.encoder(random(1, 2, 3, 64, 64), everyone(1, 2))
    assert m.shape == (1, 2, 64)
    assert networks.decoder.mean(m, everyone(1, 2)).shape == (1, 2, 3, 64, 64)


def test_group_norm_embeds_an_image_independently_of_its_batch() -> None:
    encoder = image_networks().encoder
    assert encoder.independent
    x = random(2, 4, 1, 16, 16)
    together = encoder(x, torch.tensor([[True, True, False, True], [True] * 4]))
    for found, alone in zip(together, encoder(x.reshape(8, 1, 1, 16, 16), everyone(8, 1)), strict=True):
        torch.testing.assert_close(found.flatten(0, 1), alone.flatten(0, 1))


def test_batch_norm_uses_the_tasks_own_statistics() -> None:
    encoder = image_networks(norm="batch").encoder
    assert not encoder.independent
    x = random(2, 4, 1, 16, 16)
    m, _ = encoder(x, everyone(2, 4))
    alone, _ = encoder(x[:1], everyone(1, 4))
    torch.testing.assert_close(m[0], alone[0])
    other, _ = encoder(torch.cat([x[:1, :3], x[1:, :1]], dim=1), everyone(1, 4))
    assert (other[0, :3] - m[0, :3]).abs().max() > 1e-3, "another image in the task changes the others' embeddings"


@pytest.mark.parametrize("norm", NORMS)
def test_padded_images_do_not_count(norm: str) -> None:
    networks = image_networks(norm=norm)
    x, mask = random(2, 5, 1, 16, 16), torch.tensor([[True] * 5, [True, True, True, False, False]])
    x[~mask] = 9.0
    m, s = networks.encoder(x, mask)
    m_alone, s_alone = networks.encoder(x[1:, :3], everyone(1, 3))
    torch.testing.assert_close((m[1, :3], s[1, :3]), (m_alone[0], s_alone[0]))
    density = networks.decoder.log_prob(m, x, mask)[1, :3]
    torch.testing.assert_close(density, networks.decoder.log_prob(m_alone, x[1:, :3], everyone(1, 3))[0])


def with_slopes(layer: nn.Module, normalise: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, ...]:
    """What ``normalise`` makes of ``x``, and the gradient of a sum of it, each number with a weight of its own."""
    x = x.clone().requires_grad_()
    found = normalise(x)
    weight = random(*found.shape, seed=1).double()
    return found, *torch.autograd.grad((weight * found).sum(), [x, *layer.parameters()])


def scaled(layer: nn.Module) -> nn.Module:
    """The layer in float64 with scales and shifts that differ between channels."""
    with torch.no_grad():
        for number, parameter in enumerate(layer.double().parameters()):
            parameter.copy_(0.2 + random(len(parameter), seed=number))
    return layer


def test_task_batch_norm_and_its_gradient_are_torchs_for_each_task() -> None:
    layer, counts = scaled(TaskBatchNorm(3)), (4, 2)
    x, mask = 40.0 + random(8, 3, 5, 4).double(), torch.tensor([[True] * 4, [True, True, False, False]])
    real = mask.flatten()

    def torchs(x: Tensor) -> Tensor:
        tasks = x[real].split(counts)
        return torch.cat([F.batch_norm(t, None, None, layer.weight, layer.bias, training=True, eps=layer.eps) for t in tasks])

    ours, theirs = (with_slopes(layer, normalise, x) for normalise in (lambda x: layer(x, mask)[real], torchs))
    torch.testing.assert_close(ours, theirs)
    assert ours[1][~real].abs().max() == 0.0


@pytest.mark.parametrize("channels", [3, 24])
def test_groups_written_out_and_their_gradient_are_torchs_group_norm(channels: int) -> None:
    layer = scaled(ImageGroupNorm(channels))
    x = 40.0 + random(4, channels, 6, 5).double()  # torch loses digits to an offset in float32
    written_out, torchs = (lambda x: normalise_groups(x, layer.norm)), (lambda x: layer(x, everyone(2, 2)))
    torch.testing.assert_close(with_slopes(layer, written_out, x), with_slopes(layer, torchs, x))


def test_what_padded_images_are_made_of_does_not_reach_the_others_gradient() -> None:
    layer = scaled(TaskBatchNorm(3))
    x, mask = random(4, 3, 5, 4).double(), torch.tensor([[True, True, True, False]])
    found = [with_slopes(layer, lambda x: layer(x, mask)[:3], torch.cat([x[:3], last])) for last in (x[3:], 9.0 + x[3:])]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(("channels", "groups"), [(8, 1), (17, 1), (20, 2), (28, 2), (30, 3), (60, 6), (64, 8), (100, 10)])
def test_any_number_of_filters_falls_into_groups(channels: int, groups: int) -> None:
    layer = ImageGroupNorm(channels)
    assert layer.norm.num_groups == groups
    assert layer(random(2, channels, 4, 4), everyone(1, 2)).isfinite().all()


def test_an_empty_task_gives_finite_numbers() -> None:
    m, s = image_networks(norm="batch").encoder(random(1, 2, 1, 16, 16), ~everyone(1, 2))
    assert m.isfinite().all()
    assert s.isfinite().all()


def test_bytes_are_pixels_from_zero_to_one() -> None:
    networks = image_networks()
    pixels = (255.0 * random(1, 2, 1, 16, 16)).to(torch.uint8)
    before = pixels.clone()
    unit, mask = pixels.double().div(255.0).float(), everyone(1, 2)
    torch.testing.assert_close(networks.encoder(pixels, mask), networks.encoder(unit, mask))
    u = random(1, 2, LATENT)
    torch.testing.assert_close(networks.decoder.log_prob(u, pixels, mask), networks.decoder.log_prob(u, unit, mask))
    assert torch.equal(pixels, before)


def test_image_density_is_torchs_continuous_bernoulli() -> None:
    decoder = image_networks(channels=3).decoder
    u, x, mask = random(2, 3, LATENT), random(2, 3, 3, 16, 16, seed=1), everyone(2, 3)
    pixels = torch.distributions.ContinuousBernoulli(logits=decoder.logits(u, mask).double())
    expected = pixels.log_prob(x.flatten(0, 1).double()).flatten(1).sum(dim=1).reshape(2, 3)
    torch.testing.assert_close(decoder.log_prob(u, x, mask).double(), expected, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(decoder.mean(u, mask).flatten(0, 1).double(), pixels.mean, rtol=1e-4, atol=1e-4)


def test_scale_stays_within_bounds() -> None:
    encoder = image_networks().encoder
    encoder.head.weight.mul_(1e4)
    _, s = encoder(random(1, 20, 1, 16, 16), everyone(1, 20))
    assert float(s.min()) == pytest.approx(math.exp(-6.0))
    assert float(s.max()) == pytest.approx(math.exp(3.0))


def test_seed_alone_decides_the_weights_and_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(123)
    before = torch.get_rng_state()
    first = image_networks(seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(321)
    second, other = image_networks(seed=5), image_networks(seed=6)
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name])
    assert not torch.equal(first.encoder.head.weight, other.encoder.head.weight)


@pytest.mark.parametrize(
    ("size", "larger", "filters"),
    [((24, 16), 32, "8,16,32"), ((16, 24), 32, "8,16,32"), ((28, 28), 32, "8,16"), ((8, 8), 16, "8,16,32"), ((33, 32), 48, "")],
)
def test_images_that_cannot_be_halved_are_an_error_that_says_what_fits(size: tuple[int, int], larger: int, filters: str) -> None:
    with pytest.raises(SettingsError) as error:
        Networks(Settings(), (1, *size), CPU)
    fewer = f", or change the setting: filters=[{filters}]" if filters else ""
    told = f"{size[0]}x{size[1]} do not divide by 16, as 4 modules of stride 2 need; load them with size={larger}{fewer}"
    assert str(error.value).endswith(told)
    Networks(Settings(), (1, larger, larger), CPU)
    if filters:
        Networks(Settings().changed({"filters": [int(f) for f in filters.split(",")]}), (1, *size), CPU)


@pytest.mark.parametrize(("encoder", "shape"), [("identity", (1, 16, 16)), ("vector", (1, 16, 16)), ("convolutional", (5,))])
def test_an_encoder_for_other_data_is_an_error(encoder: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(SettingsError, match=f"the {encoder} encoder does not take"):
        Networks(Settings(encoder=encoder), shape, CPU)


@pytest.mark.parametrize("encoder", ["auto", "identity"])
def test_identity_is_certain_of_its_input_and_has_no_decoder(encoder: str) -> None:
    networks = Networks(Settings(encoder=encoder), (5,), CPU)
    x = random(2, 3, 5)
    m, s = networks.encoder(x, everyone(2, 3))
    assert torch.equal(m, x)
    assert (s == 0.0).all()
    assert networks.decoder is None
    assert networks.encoder.independent


def test_vector_networks_do_not_see_the_units() -> None:
    data = random(50, 4) * torch.tensor([1.0, 10.0, 100.0, 1e-3])
    shift, stretch = torch.tensor([5.0, -3.0, 0.0, 40.0]), torch.tensor([0.5, 2.0, 30.0, 1e3])
    networks, other = vector_networks(data), vector_networks(data * stretch + shift)
    assert isinstance(networks.encoder, VectorEncoder)
    assert isinstance(networks.decoder, VectorDecoder)
    x, mask = data[None], everyone(1, 50)
    found, expected = other.encoder(x * stretch + shift, mask), networks.encoder(x, mask)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    u = expected[0]
    torch.testing.assert_close(
        other.decoder.mean(u, mask), networks.decoder.mean(u, mask) * stretch + shift, rtol=1e-4, atol=1e-3
    )


def test_standardised_training_data_has_mean_zero_and_deviation_one() -> None:
    data = 3.0 + 7.0 * random(200, 3)
    standard = vector_networks(data).encoder.standardise(data)
    torch.testing.assert_close(standard.mean(dim=0), torch.zeros(3), rtol=0.0, atol=1e-5)
    torch.testing.assert_close(standard.std(dim=0, correction=0), torch.ones(3), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1234.567])
def test_a_constant_feature_is_not_blown_up(constant: float) -> None:
    data = torch.cat([random(20, 1), torch.full((20, 1), constant)], dim=1)
    standard = vector_networks(data).encoder.standardise(data + torch.tensor([0.0, 0.01]))
    assert standard[:, 1].abs().max() < 0.02


def test_standardisation_travels_with_the_weights() -> None:
    source, target = vector_networks(5.0 + random(30, 4)), vector_networks(random(30, 4))
    target.load(source.state_dict())
    x = random(1, 3, 4)
    torch.testing.assert_close(target.encoder(x, everyone(1, 3)), source.encoder(x, everyone(1, 3)))


def test_vector_density_is_torchs_normal_in_standard_units() -> None:
    standardise = Standardise(torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0]))
    decoder = VectorDecoder(standardise, (4,), LATENT).requires_grad_(False)
    u, x, mask = random(2, 3, LATENT), random(2, 3, 2, seed=1), everyone(2, 3)
    standard = (x - torch.tensor([1.0, -2.0])) / torch.tensor([0.5, 3.0])
    prediction = (decoder.mean(u, mask) - torch.tensor([1.0, -2.0])) / torch.tensor([0.5, 3.0])
    expected = torch.distributions.Normal(prediction, 1.0).log_prob(standard).sum(dim=-1)
    torch.testing.assert_close(decoder.log_prob(u, x, mask), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["images", "vectors"])
def test_networks_start_at_the_data(kind: str) -> None:
    """m has mean 0 and deviation 1 over the data, s is about 0.1, and the first image decoded is as bright as the data."""
    data = small_images().tensor if kind == "images" else small_vectors().tensor.float()
    settings = SMALL.changed({"encoder": "auto" if kind == "images" else "vector"})
    networks = Networks(settings, tuple(data.shape[1:]), CPU)
    networks.standardise_by(data)
    mask = torch.ones((1, len(data)), dtype=torch.bool)
    with torch.no_grad():
        before, _ = networks.encoder(data.unsqueeze(0), mask)
        networks.start_at(data)
        m, s = networks.encoder(data.unsqueeze(0), mask)
    torch.testing.assert_close(m[0].mean(dim=0), torch.zeros(5), rtol=0.0, atol=1e-4)
    torch.testing.assert_close(m[0].std(dim=0, correction=0), torch.ones(5), rtol=1e-4, atol=0.0)
    assert float(before.std(dim=1).max()) < 0.9  # which it was not by itself
    assert 0.03 < float(s.median()) < 0.3
    if kind == "images":
        assert networks.decoder is not None
        grey = torch.full((1, 1, 16, 16), networks.decoder.bias.item())
        drawn = torch.distributions.ContinuousBernoulli(logits=grey.double()).mean.mean()
        assert float(drawn) == pytest.approx(float(data.double().mean()) / 255.0, rel=1e-3)


def test_a_start_at_constant_images_is_finite() -> None:
    networks = Networks(SMALL, (1, 16, 16), CPU)
    networks.start_at(torch.full((7, 1, 16, 16), 255, dtype=torch.uint8))
    assert all(bool(value.isfinite().all()) for value in networks.parameters())
