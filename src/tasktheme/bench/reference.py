"""The plain way to train: one task at a time, dense (N, K, D, D) covariances. Slow and obvious, for comparison only."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tasktheme.data.episodes import EpisodeBatch
from tasktheme.nets.build import Networks
from tasktheme.settings import Settings


class PlainTrainer:
    """The unlabelled objective with online EM on sufficient statistics, as a direct transcription of the equations."""

    def __init__(self, settings: Settings, networks: Networks, mu: Tensor, Sigma: Tensor) -> None:
        self.settings, self.networks = settings, networks
        self.alpha = torch.full((len(mu),), settings.concentration, device=mu.device)
        share = torch.full((len(mu),), 1.0 / len(mu), device=mu.device)
        self.sums = [share, share[:, None] * mu, share[:, None, None] * (Sigma + mu[:, :, None] * mu[:, None, :])]
        self.optimiser = torch.optim.Adam(networks.parameters(), lr=settings.learning_rate)

    def step(self, data: Tensor, t: EpisodeBatch, v: EpisodeBatch, rho: float) -> float:
        """One mini-batch, task by task; returns the loss."""
        mu = self.sums[1] / self.sums[0][:, None]
        Sigma = self.sums[2] / self.sums[0][:, None, None] - mu[:, :, None] * mu[:, None, :]
        losses, news = [], []
        for i in range(len(t.rows)):
            loss, sums = self._task(data[t.rows[i]], data[v.rows[i]], mu, Sigma)
            losses.append(loss)
            news.append(sums)
        total = torch.stack(losses).mean()
        self.optimiser.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(self.networks.parameters(), self.settings.gradient_clip)
        self.optimiser.step()
        summed = [torch.stack(parts).sum(dim=0) for parts in zip(*news, strict=True)]
        mass = summed[0].sum()
        self.sums = [(1.0 - rho) * old + rho * new / mass for old, new in zip(self.sums, summed, strict=True)]
        return float(total.detach())

    def _task(self, x_t: Tensor, x_v: Tensor, mu: Tensor, Sigma: Tensor) -> tuple[Tensor, list[Tensor]]:
        encoder, decoder = self.networks.encoder, self.networks.decoder
        assert decoder is not None, "the reference needs a decoder"
        everything = torch.ones((1, len(x_v)), dtype=torch.bool, device=x_v.device)
        with torch.no_grad():
            m, s = (part[0] for part in encoder(x_t[None], torch.ones_like(everything[:, : len(x_t)])))
            gamma = self.alpha + len(x_t) / len(self.alpha)
            for _ in range(self.settings.e_step_iterations):
                ln_pi = torch.digamma(gamma) - torch.digamma(gamma.sum())
                r = torch.softmax(_log_likelihood(m, s, mu, Sigma) + ln_pi, dim=1)
                gamma = self.alpha + r.sum(dim=0)
            ln_pi = torch.digamma(gamma) - torch.digamma(gamma.sum())
        m, s = (part[0] for part in encoder(x_v[None], everything))
        likelihood = _log_likelihood(m, s, mu, Sigma)
        r = torch.softmax(likelihood.detach() + ln_pi, dim=1)
        q, p = torch.distributions.Dirichlet(gamma), torch.distributions.Dirichlet(self.alpha)
        bound = (r * (likelihood + ln_pi - r.clamp_min(1e-30).log())).sum() - torch.distributions.kl_divergence(q, p)
        entropy = torch.distributions.Normal(m, s).entropy().sum()
        logits = decoder.logits((m + s * torch.randn_like(m))[None], everything)  # type: ignore[operator]
        pixels = x_v.float() / 255.0
        density = torch.distributions.ContinuousBernoulli(logits=logits, validate_args=False).log_prob(pixels).sum()
        loss = -(self.settings.bound_weight * (bound + entropy) + density) / (len(x_v) * decoder.dimensions)
        with torch.no_grad():
            second = m[:, :, None] * m[:, None, :] + torch.diag_embed(s.square())
            sums = [r.sum(dim=0), r.T @ m, (r[:, :, None, None] * second[:, None]).sum(dim=0)]
        return loss, sums


def _log_likelihood(m: Tensor, s: Tensor, mu: Tensor, Sigma: Tensor) -> Tensor:
    precision = torch.linalg.inv(Sigma).expand(len(m), *Sigma.shape)  # (N, K, D, D)
    centred = (m[:, None] - mu)[..., None]
    quadratic = (centred.mT @ precision @ centred)[..., 0, 0]
    trace = (precision @ torch.diag_embed(s.square())[:, None]).diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    return -0.5 * (quadratic + trace + torch.logdet(Sigma) + mu.shape[1] * math.log(2.0 * math.pi))
