"""Encoder and decoder for given settings and data points, as one pair that moves, saves and loads together."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tasktheme.errors import SettingsError
from tasktheme.nets.convolutional import ConvolutionalDecoder, ConvolutionalEncoder
from tasktheme.nets.precision import bfloat16_products
from tasktheme.nets.vector import IdentityEncoder, Standardise, VectorDecoder, VectorEncoder
from tasktheme.settings import Precision, Settings

_STARTING_POINTS = 500  # data points that the networks start at
_STARTING_SCALE = 0.1  # s of q(u) at the start: little noise on what the decoder sees
_CONSTANT = 1e-6  # a feature that varies less than this part of its mean is constant

Encoder = ConvolutionalEncoder | VectorEncoder | IdentityEncoder
Decoder = ConvolutionalDecoder | VectorDecoder


class Networks(nn.Module):
    """An encoder and its decoder (None with the identity encoder), weights drawn from the settings' seed."""

    def __init__(self, settings: Settings, point_shape: tuple[int, ...], device: torch.device) -> None:
        super().__init__()
        self.point_shape = point_shape
        with torch.random.fork_rng(devices=[]):  # layers draw their weights from the global generator: borrow it
            torch.default_generator.manual_seed(settings.seed)
            self.encoder, self.decoder = _build(settings, point_shape)
        self.to(device)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # feature maps follow

    def products(self, precision: Precision) -> torch.autocast:
        """A context in which convolutional networks multiply in the given precision; others always in float32."""
        device = next(self.parameters()).device if isinstance(self.encoder, ConvolutionalEncoder) else torch.device("cpu")
        rounded = precision == "bfloat16" or (precision == "auto" and device.type == "cuda")
        return bfloat16_products(device, enabled=rounded and isinstance(self.encoder, ConvolutionalEncoder))

    def standardise_by(self, data: Tensor) -> None:
        """Give an encoder that standardises (and its decoder, which shares that) the mean and deviation of the training data."""
        standardise = None if isinstance(self.encoder, ConvolutionalEncoder) else self.encoder.standardise
        if standardise is not None:
            scale, mean = torch.std_mean(data.double(), dim=0, correction=0)
            constant = scale <= _CONSTANT * mean.abs()  # nothing but rounding: not to be blown up to unit variance
            standardise.mean.copy_(mean)
            standardise.scale.copy_(scale.masked_fill(constant, 1.0))

    @torch.no_grad()
    def start_at(self, data: Tensor) -> None:
        """Fit the start to the training data: unit variance of m, a small s, and a decoder of the mean image.

        With random weights alone, m of all images is alike and s is 1: the decoder learns to ignore u, and the bound's KL sees
        to it that there is nothing to see (docs/decisions.md, "Networks start at the data").
        """
        if self.decoder is None or isinstance(self.encoder, IdentityEncoder):
            return
        head = self.encoder.head
        rows = torch.linspace(0, len(data) - 1, min(len(data), _STARTING_POINTS)).long()  # spread over all classes
        x = data[rows].to(head.weight.device).unsqueeze(0)
        m, _ = self.encoder(x, torch.ones(x.shape[:2], dtype=torch.bool, device=x.device))
        scale, mean = torch.std_mean(m[0], dim=0, correction=0)
        scale = scale.masked_fill(scale <= _CONSTANT, 1.0)
        weight, bias = (part.chunk(2)[0] for part in (head.weight, head.bias))  # those of m; the rest is of s
        weight /= scale.unsqueeze(-1)
        bias.sub_(mean).div_(scale)
        head.bias.chunk(2)[1].fill_(math.log(_STARTING_SCALE))
        self.decoder.start_at(x[0])

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the weights among ``tensors``; a missing or misshapen one raises RuntimeError."""
        own = self.state_dict()
        self.load_state_dict({name: tensor for name, tensor in tensors.items() if name in own})


def _build(settings: Settings, point_shape: tuple[int, ...]) -> tuple[Encoder, Decoder | None]:
    images = len(point_shape) == 3
    kind = settings.encoder
    if kind == "auto":
        kind = "convolutional" if images else "identity"
    if (kind == "convolutional") != images:
        raise SettingsError(f"the {kind} encoder does not take data points of shape {point_shape}")
    if kind == "convolutional":
        shape = (point_shape, settings.filters, settings.latent_dim, settings.norm)
        return ConvolutionalEncoder(*shape), ConvolutionalDecoder(*shape)
    standardise = Standardise(torch.zeros(point_shape), torch.ones(point_shape))
    if kind == "identity":
        return IdentityEncoder(standardise if settings.standardise else None), None
    layers = (standardise, settings.hidden, settings.latent_dim)
    return VectorEncoder(*layers), VectorDecoder(*layers)
