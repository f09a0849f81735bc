"""Meta-learners one task at a time, with torch's own layers: slow and obvious."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from tasktheme.learners.base import Points


def plain_features(weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """(N, D) of one task's images, through convolution, batch norm, rectifier and pooling in the textbook's order."""
    modules = sum(name.startswith("convolution") for name in weights)
    h = x
    for i in range(modules):
        h = F.conv2d(h, weights[f"convolution_{i}"], padding=1)
        h = F.batch_norm(h, None, None, weights[f"scale_{i}"], weights[f"shift_{i}"], training=True)
        h = F.max_pool2d(F.relu(h), 2)
    return h.permute(0, 2, 3, 1).flatten(1)


def plain_logits(weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    return F.linear(plain_features(weights, x), weights["head"], weights["bias"])


def plain_maml_loss(
    weights: Mapping[str, Tensor], support: Points, query: Points, *, steps: int, rate: float, first_order: bool = False
) -> Tensor:
    """Mean query loss over tasks after ``steps`` inner steps; differentiable in ``weights``."""
    losses = []
    for task in range(len(support.x)):
        own = dict(weights)
        for _ in range(steps):
            loss = F.cross_entropy(plain_logits(own, support.x[task]), support.y[task])
            slopes = torch.autograd.grad(loss, list(own.values()), create_graph=True)
            if first_order:
                slopes = tuple(slope.detach() for slope in slopes)
            own = {name: value - rate * slope for (name, value), slope in zip(own.items(), slopes, strict=True)}
        losses.append(F.cross_entropy(plain_logits(own, query.x[task]), query.y[task]))
    return torch.stack(losses).mean()
