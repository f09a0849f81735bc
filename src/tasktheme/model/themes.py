"""The task-themes: K Gaussians shared by all tasks, with the Dirichlet prior over their mixtures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from tasktheme.maths import gaussian

Covariance = Literal["full", "diagonal", "isotropic"]


@dataclass(frozen=True, eq=False)
class Moments:
    """Weighted first and second moments of embeddings under each theme: what the M-step needs to know.

    n: mass of each theme; mu: mean; Sigma: covariance, (..., K, D, D) if full and (..., K, D) if diagonal or isotropic.
    Together they carry the same information as the sums of r, r m and r (m m' + diag s^2), but a covariance kept as
    such stays positive semi-definite under every weighted combination, in floating point too.
    """

    n: Float[Tensor, "*B K"]
    mu: Float[Tensor, "*B K D"]
    Sigma: Float[Tensor, "*B K *DD"]


@dataclass(frozen=True, eq=False)
class Themes:
    """alpha: Dirichlet prior; moments: share, mean and covariance of each theme; whitening: its inverse factor.

    whitening is (K, D, D), the inverse Cholesky factor, or (K, D), inverse standard deviations. valid is False where a
    value is not finite or a covariance is not positive definite: such themes must not be used. Of several ``aspects``
    (docs/model.md) each has the next K / aspects themes, in D dimensions of its own.
    """

    alpha: Float[Tensor, " K"]
    moments: Moments
    whitening: Float[Tensor, "K *DD"]
    valid: Bool[Tensor, ""]
    aspects: int = 1

    @classmethod
    def build(cls, alpha: Float[Tensor, " K"], moments: Moments, *, floor: float) -> Themes:
        """Factorise the covariances after adding ``floor`` times the themes' average variance to their diagonal.

        Data whose encoder is certain (s = 0) can have a theme with fewer points than dimensions: the floor keeps its
        covariance invertible.
        """
        Sigma = moments.Sigma
        if Sigma.ndim == 2:
            scale_tril = (Sigma + floor * Sigma.mean()).sqrt()
            factorised = (scale_tril > 0.0).all()
        else:
            lift = floor * Sigma.diagonal(dim1=-2, dim2=-1).mean()
            identity = torch.eye(Sigma.shape[-1], dtype=Sigma.dtype, device=Sigma.device)
            scale_tril, info = torch.linalg.cholesky_ex(Sigma + lift * identity)
            factorised = (info == 0).all()
        whitening = gaussian.whitening(scale_tril)
        parts = (scale_tril, whitening, moments.n, moments.mu, alpha)
        finite = torch.stack([part.isfinite().all() for part in parts]).all()
        valid = finite & factorised & (alpha > 0.0).all()
        return cls(alpha=alpha, moments=moments, whitening=whitening, valid=valid)

    @classmethod
    def together(cls, parts: Sequence[Themes]) -> Themes:
        """The themes of several aspects as one."""
        if len(parts) == 1:
            return parts[0]
        alpha, whitening = (torch.cat([getattr(part, name) for part in parts]) for name in ("alpha", "whitening"))
        moments = Moments(*(torch.cat(of_all) for of_all in zip(*(vars(part.moments).values() for part in parts), strict=True)))
        valid = torch.stack([part.valid for part in parts]).all()
        return cls(alpha=alpha, moments=moments, whitening=whitening, valid=valid, aspects=len(parts))

    def tensors(self) -> dict[str, Tensor]:
        """What must be kept of the themes in a file; the factors follow from the covariances."""
        return {"themes.alpha": self.alpha, **{f"themes.{name}": value for name, value in vars(self.moments).items()}}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], *, floor: float, device: torch.device, aspects: int = 1) -> Themes:
        """The themes among ``tensors``; KeyError where one is missing."""
        values = (tensors[f"themes.{name}"].to(device).chunk(aspects) for name in ("alpha", "n", "mu", "Sigma"))
        return cls.together([cls.build(a, Moments(*found), floor=floor) for a, *found in zip(*values, strict=True)])

    def apart(self) -> list[Themes]:
        """The themes of each aspect by themselves."""
        tensors = (self.alpha, *vars(self.moments).values(), self.whitening)
        parts = zip(*(tensor.chunk(self.aspects) for tensor in tensors), strict=True)
        return [Themes(alpha, Moments(n, mu, Sigma), whitening, self.valid) for alpha, n, mu, Sigma, whitening in parts]

    def select(self, kept: Bool[Tensor, " K"], *, floor: float) -> Themes:
        """Some of the themes, alone."""
        n, mu, Sigma = (part[kept] for part in vars(self.moments).values())
        return Themes.build(self.alpha[kept], Moments(n / n.sum(), mu, Sigma), floor=floor)

    def assign(self, new: Themes) -> None:
        """Take over the values of ``new`` in place: same tensors, other numbers."""
        pairs = ((self.alpha, new.alpha), (self.whitening, new.whitening), (self.valid, new.valid))
        inner = zip(vars(self.moments).values(), vars(new.moments).values(), strict=True)
        for own, other in (*pairs, *inner):
            own.copy_(other)

    @property
    def mu(self) -> Float[Tensor, "K D"]:
        """Mean of each theme."""
        return self.moments.mu

    @property
    def share(self) -> Float[Tensor, " K"]:
        """Each theme's share of the data points seen, among the themes of its aspect."""
        n = self.moments.n.unflatten(-1, (self.aspects, -1))
        return (n / n.sum(dim=-1, keepdim=True)).flatten(-2)

    @property
    def dimensions(self) -> int:
        """Of the embedding, all aspects together."""
        return self.aspects * self.mu.shape[-1]

    @property
    def prior(self) -> Float[Tensor, "A K"]:
        """alpha of each aspect."""
        return self.alpha.unflatten(-1, (self.aspects, -1))

    def by_aspect(self, log_likelihood: Float[Tensor, "*T N AK"]) -> Float[Tensor, "*T A N K"]:
        """Likelihoods under the themes of each aspect: to E-step and bound an aspect is as a task of its own."""
        return log_likelihood.unflatten(-1, (self.aspects, -1)).movedim(-2, -3)

    @property
    def centres(self) -> Float[Tensor, "K E"]:
        """The mean of each theme in all dimensions of the embedding: in those of other aspects, the mean of their themes."""
        if self.aspects == 1:
            return self.mu
        parts = list(zip(self.mu.chunk(self.aspects), self.share.chunk(self.aspects), strict=True))
        middle = torch.stack([share @ mu for mu, share in parts], dim=-1).flatten()  # dealt out in turn
        centres = middle.repeat(len(self.mu), 1)
        for aspect, (mu, own) in enumerate(zip(self.mu.chunk(self.aspects), centres.chunk(self.aspects), strict=True)):
            own[:, aspect :: self.aspects] = mu
        return centres

    def distances(self) -> Float64[Tensor, "K K"]:
        """2-Wasserstein distances between the Gaussians; infinite between those of different aspects."""
        factors = gaussian.whitening(self.whitening.double())  # the inverse of the inverse factors
        parts = zip(self.mu.double().chunk(self.aspects), factors.chunk(self.aspects), strict=True)
        own = [gaussian.wasserstein(mu, factor) for mu, factor in parts]
        comparable = torch.block_diag(*map(torch.ones_like, own)) > 0.0
        return torch.block_diag(*own).masked_fill(~comparable, torch.inf)

    def expected_log_likelihood(self, m: Float[Tensor, "*N D"], s: Float[Tensor, "*N D"]) -> Float[Tensor, "*N K"]:
        """E_q(u)[ln N(u; mu_k, Sigma_k)] for q(u) = N(m, diag(s^2)), in the dimensions of each theme's aspect."""
        themes = zip(self.mu.chunk(self.aspects), self.whitening.chunk(self.aspects), strict=True)
        parts = [
            gaussian.expected_log_likelihood(m[..., aspect :: self.aspects], s[..., aspect :: self.aspects], *own)
            for aspect, own in enumerate(themes)
        ]
        return parts[0] if self.aspects == 1 else torch.cat(parts, dim=-1)

    def explained(self, log_likelihood: Float[Tensor, "T N K"], mask: Bool[Tensor, "T N"]) -> Float[Tensor, " T"]:
        """The mean over a task's data points of ln sum_k share_k exp E[ln N]: how well the themes explain it."""
        share = self.share.clamp_min(torch.finfo(self.share.dtype).tiny)
        weighted = (log_likelihood + share.log()).unflatten(-1, (self.aspects, -1))
        each = torch.logsumexp(weighted, dim=-1).sum(dim=-1)
        return torch.where(mask, each, torch.zeros_like(each)).sum(dim=-1) / mask.sum(dim=-1)
