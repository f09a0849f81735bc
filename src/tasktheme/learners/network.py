"""The usual few-shot network: modules of 3x3 convolution, batch norm, rectifier and 2x2 max pooling, and a linear head.

Its weights come as a dictionary, one set for all tasks or, with a leading axis, one for each task.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from tasktheme.errors import SettingsError
from tasktheme.learners.convolution import per_task_conv2d, shared_conv2d
from tasktheme.learners.pooling import joined, pool
from tasktheme.learners.settings import LearnerSettings

_EPS = 1e-5  # added to variances, as everywhere in batch norm
_MAP = 1 << 20  # numbers of a map that a CPU computes at once: more would leave its cache, and take new memory each time
_HEAD_SCALE = 0.01  # of the head's first weights: it begins without an opinion

Weights = Mapping[str, Tensor]


class Network:
    """A function of weights and images; holds no weights itself.

    Args:
        settings: filters, modules, precision, and how per-task convolutions are computed.
        point_shape: (channels, height, width) of an image.
        outputs: of the linear head; None for a network that ends with its features.
    """

    def __init__(self, settings: LearnerSettings, point_shape: tuple[int, ...], outputs: int | None) -> None:
        if len(point_shape) != 3:
            raise SettingsError(f"meta-learners take images (channels, height, width), got data points of shape {point_shape}")
        self.channels, *sides = point_shape
        self.map = [side >> settings.modules for side in sides]
        if min(self.map) < 1:
            raise SettingsError(
                f"images of {sides[0]}x{sides[1]} are too small for {settings.modules} modules that halve them; "
                "resize them, or lower the setting 'modules'"
            )
        self.modules, self.filters, self.outputs = settings.modules, settings.filters, outputs
        self.convolution, self.precision = settings.convolution, settings.precision

    def initial_weights(self, seed: int) -> dict[str, Tensor]:
        """Convolutions by Glorot's rule, batch norm as the identity, a head of small weights.

        A convolution has no bias: batch norm would take it out again.
        """
        generator = torch.Generator().manual_seed(seed)
        weights = {}
        channels = self.channels
        for i in range(self.modules):
            bound = math.sqrt(6.0 / (9 * channels + 9 * self.filters))
            convolution = torch.rand((self.filters, channels, 3, 3), generator=generator)
            weights[f"convolution_{i}"] = (2.0 * convolution - 1.0) * bound
            weights[f"scale_{i}"], weights[f"shift_{i}"] = torch.ones(self.filters), torch.zeros(self.filters)
            channels = self.filters
        if self.outputs is not None:
            features = channels * math.prod(self.map)
            weights["head"] = _HEAD_SCALE * torch.randn((self.outputs, features), generator=generator)
            weights["bias"] = torch.zeros(self.outputs)
        return weights

    def features(self, weights: Weights, x: Float[Tensor, "T N channels height width"]) -> Float[Tensor, "T N D"]:
        """The flattened last map of each image; batch norm sees the images of one task together, and no others."""
        h = x.movedim(2, -1).contiguous()
        for i in range(self.modules):
            parts = (weights[f"{part}_{i}"] for part in ("convolution", "scale", "shift"))
            h = self._module(h, *parts, last=i == self.modules - 1)
        return h.flatten(2)

    def logits(self, weights: Weights, x: Float[Tensor, "T N channels height width"]) -> Float[Tensor, "T N C"]:
        """What the head makes of the features."""
        return self.features(weights, x) @ weights["head"].mT + weights["bias"].unsqueeze(-2)

    def _module(self, h: Tensor, convolution: Tensor, scale: Tensor, shift: Tensor, *, last: bool) -> Tensor:
        """Equal to max_pool(relu(batch_norm(conv(h)))), with the norm applied after the pooling, to a quarter of the map.

        Pooling commutes with a growing function. The norm's is growing where its scale is positive; where it is not, the
        scale's sign goes into the convolution, which batch norm answers with the same sign.
        """
        sign = 1.0 - 2.0 * (scale < 0.0).to(scale.dtype)
        signed = convolution * sign[..., None, None, None]
        rounded = self.precision == "bfloat16" or (self.precision == "auto" and h.is_cuda)
        if rounded:
            h, signed = h.bfloat16(), signed.bfloat16()
        convolve = shared_conv2d if signed.ndim == 4 else partial(per_task_conv2d, implementation=self.convolution)
        mean, variance, pooled = joined([pool(convolve(some, signed)) for some in h.split(self._at_once(h), dim=1)])
        factor = (scale * sign)[..., None, None, None, :] * (variance + _EPS).rsqrt()
        normed = torch.addcmul(shift[..., None, None, None, :] - mean * factor, pooled.to(factor.dtype), factor)
        return F.relu(normed.bfloat16() if rounded and not last else normed)  # rounded before: a smaller map is kept

    def _at_once(self, h: Tensor) -> int:
        """How many of each task's images go through a module together."""
        if h.is_cuda or get_proxy_mode() is not None:
            return h.shape[1]
        return max(1, _MAP // (h[:, 0, ..., 0].numel() * self.filters))
