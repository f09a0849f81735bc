"""Distances between tasks that need no themes: from the tasks' data points, embedded or raw, all pairs at once."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from tasktheme.maths import gaussian

_MEDIAN_POINTS = 1000  # data points whose distances give the median
_NUMBERS_AT_ONCE = 1 << 24  # values of the kernel held together


def mean_distance(points: Float[Tensor, "T N D"], mask: Bool[Tensor, "T N"]) -> Float64[Tensor, "T T"]:
    """Euclidean distance of the tasks' mean points."""
    means, _ = _centred(points, mask)
    return _between(means)


def frechet_distance(points: Float[Tensor, "T N D"], mask: Bool[Tensor, "T N"]) -> Float64[Tensor, "T T"]:
    """Fréchet (2-Wasserstein) distance of Gaussians with the mean and covariance of each task's points.

    A covariance need not be of full rank: a factor of it comes from the points by QR, and no root is ever taken.
    """
    means, centred = _centred(points, mask)
    scaled = centred / mask.sum(dim=1).sqrt()[:, None, None]
    return gaussian.wasserstein(means, torch.linalg.qr(scaled, mode="r").R.mT)


def mmd_distance(points: Float[Tensor, "T N D"], mask: Bool[Tensor, "T N"]) -> Float64[Tensor, "T T"]:
    """Maximum mean discrepancy with the kernel exp(-|x - y|^2 / (2 h^2)), h the median distance of points (Gretton et al., 2012).

    Of the empirical distributions themselves (the V-statistic), so that a task is at distance 0 from itself.
    """
    tasks, size, _ = points.shape
    used = points[mask]
    some = used[torch.linspace(0, len(used) - 1, min(len(used), _MEDIAN_POINTS), device=used.device).round().long()]
    width = torch.pdist(some).median().clamp_min(torch.finfo(points.dtype).tiny)
    flat = (points.float() - used.float().mean(dim=0)).flatten(0, 1) / width  # centred: the products below cancel less
    weight = (mask / mask.sum(dim=1, keepdim=True)).float()
    half_square = flat.square().sum(dim=-1) / 2.0
    products = torch.empty((tasks, tasks), dtype=torch.float64, device=points.device)
    for rows in torch.arange(tasks, device=points.device).split(max(1, _NUMBERS_AT_ONCE // (size * tasks * size))):
        mine = (rows[:, None] * size + torch.arange(size, device=rows.device)).flatten()
        exponent = torch.addmm(-half_square.expand(len(mine), -1), flat[mine], flat.mT).sub_(half_square[mine, None])
        kernel = exponent.clamp_max_(0.0).exp_().unflatten(1, (tasks, size))
        over_theirs = (kernel * weight).sum(dim=-1)  # (rows x N, T)
        products[rows] = (over_theirs.unflatten(0, (len(rows), size)).double() * weight[rows].double()[..., None]).sum(dim=1)
    products = (products + products.mT) / 2.0  # symmetric to the last bit
    own = products.diagonal()
    return (own[:, None] + own - 2.0 * products).clamp_min(0.0).sqrt().fill_diagonal_(0.0)


def _centred(points: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of each task (T, D), and its points less that mean, 0 where padded; in float64."""
    weight = mask.unsqueeze(-1).double()
    points = points.double()
    means = (points * weight).sum(dim=1) / weight.sum(dim=1)
    return means, (points - means.unsqueeze(1)) * weight


def _between(vectors: Tensor) -> Tensor:
    return torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist")
