"""Pools of small tasks, and Task2Vec one task, one point and one label at a time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from oracles.learners import make_points
from oracles.meta import plain_logits
from tasktheme.learners.base import Points
from tasktheme.learners.maml import MAML
from tasktheme.selection.base import Tasks


def make_gamma(tasks: int, themes: int = 4, *, seed: int = 0, size: float = 60.0) -> Tensor:
    """Dirichlet parameters of random tasks of one size."""
    generator = torch.Generator().manual_seed(seed)
    share = torch.rand((tasks, themes), generator=generator, dtype=torch.float64).pow(3.0)
    return 1.1 + size * share / share.sum(dim=-1, keepdim=True)


def make_tasks(tasks: int, *, seed: int = 0, themes: int = 4) -> Tasks:
    """Random tasks with everything that policies ask for."""
    support, query = make_points(tasks, 1, seed=seed), make_points(tasks, 2, seed=seed + 100)
    return Tasks(torch.arange(tasks) + 10 * seed, support, query, make_gamma(tasks, themes, seed=seed))


def plain_adapted(probe: MAML, support: Points, task: int) -> dict[str, Tensor]:
    """One task's weights after the inner steps, by torch's own layers."""
    weights = {name: value.detach().clone().requires_grad_() for name, value in probe.weights.items()}
    for _ in range(probe.settings.test_steps):
        loss = F.cross_entropy(plain_logits(weights, support.x[task]), support.y[task])
        slopes = torch.autograd.grad(loss, list(weights.values()))
        moved = zip(weights.items(), slopes, strict=True)
        weights = {name: (value - probe.settings.inner_rate * slope).detach().requires_grad_() for (name, value), slope in moved}
    return weights


def per_filter(weights: dict[str, Tensor], gradient: dict[str, Tensor]) -> Tensor:
    """Squares averaged over what belongs to a filter: convolutions and norms in the order of the weights, without the head."""
    found = []
    for name in weights:
        if name.startswith(("convolution", "scale")):
            square = gradient[name] ** 2
            found += [square[f].mean() for f in range(len(square))]
    return torch.stack(found)


def point_gradient(weights: dict[str, Tensor], x: Tensor, point: int, label: int) -> dict[str, Tensor]:
    """The gradient of ln p(label | a point), the task's other points being there for batch norm."""
    log_p = F.log_softmax(plain_logits(weights, x), dim=-1)[point, label]
    return dict(zip(weights, torch.autograd.grad(log_p, list(weights.values())), strict=True))


def exact_fisher(probe: MAML, tasks: Tasks, task: int) -> Tensor:
    """The mean over points of the expectation over all labels."""
    assert tasks.support is not None
    weights, x = plain_adapted(probe, tasks.support, task), tasks.x[task]
    p = F.softmax(plain_logits(weights, x), dim=-1)
    total = torch.zeros(1, dtype=torch.float64)
    for point in range(len(x)):
        for label in range(p.shape[1]):
            total = total + p[point, label].detach() * per_filter(weights, point_gradient(weights, x, point, label))
    return total / len(x)


def sampled_fisher(probe: MAML, tasks: Tasks, task: int, labels: list[list[int]]) -> Tensor:
    """The mean over samples of the squared gradient of the sum over the points, by point; each sample has a label per point."""
    assert tasks.support is not None
    weights, x = plain_adapted(probe, tasks.support, task), tasks.x[task]
    total = torch.zeros(1, dtype=torch.float64)
    for sample in labels:
        gradients = [point_gradient(weights, x, point, label) for point, label in enumerate(sample)]
        together = {name: torch.stack([gradient[name] for gradient in gradients]).sum(dim=0) for name in weights}
        total = total + per_filter(weights, together)
    return total / (len(labels) * len(x))
