"""Amortised Bayesian meta-learning (Ravi & Beatson, 2019): a prior over weights from which a few variational steps give a
task's posterior.

Prior and posterior are diagonal Gaussians. The inner loop starts at the prior and lowers E_q[-ln p(y | x, w)] + KL[q || p] on
the labelled points, the outer one lowers the same on the queries through the inner steps; a prediction is the mean over
networks drawn from q. The paper's settings for 1-shot mini-ImageNet: MAML's network and inner loop, priors on the prior's
means and precisions. Ours differ: both losses are per data point, the KL multiplied by ``kl_weight`` (1 is the bound; the
authors of the task model took 0.1); the outer loss takes the queries alone, as MAML does; instead of a prior on the prior
there is ``weight_decay``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tasktheme.learners.base import Learner, Noise, Points, detached, for_each_task, gradients, log_softmax, task_loss
from tasktheme.learners.network import Weights
from tasktheme.learners.settings import LearnerSettings

_PARTS = ("mean", "log_scale")


@dataclass(frozen=True)
class ABMLSettings(LearnerSettings):
    """Settings of ABML."""

    inner_steps: int = 5
    """Variational steps that adapt to a task, in training."""
    test_steps: int = 10
    """The same when testing."""
    inner_rate: float = 0.01
    """Their step size."""
    samples: int = 2
    """Networks drawn for each expectation in training and in the inner loop."""
    test_samples: int = 10
    """Networks drawn for a prediction when testing."""
    kl_weight: float = 0.01
    """Weight of the KL; 1 is the bound on the evidence."""
    initial_scale: float = 0.01
    """The prior's first standard deviation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("inner_steps", "test_steps", "samples", "test_samples"):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        for name in ("inner_rate", "initial_scale"):
            self._require(name, getattr(self, name) > 0, "above 0")
        self._require("kl_weight", self.kl_weight >= 0, "at least 0")


@dataclass(frozen=True)
class Gaussians:
    """A diagonal Gaussian for each weight tensor: its means and the logarithms of its standard deviations."""

    mean: Weights
    log_scale: Weights

    def named(self) -> dict[str, Tensor]:
        """Both parts in one dictionary."""
        return {f"{part}.{name}": value for part in _PARTS for name, value in getattr(self, part).items()}

    @classmethod
    def from_named(cls, tensors: Weights) -> Gaussians:
        """What :meth:`named` gave."""
        parts = ({name.removeprefix(f"{part}."): t for name, t in tensors.items() if name.startswith(part)} for part in _PARTS)
        return cls(*parts)

    def draw(self, noise: Noise, samples: int) -> dict[str, Tensor]:
        """``samples`` networks of each task, one after another: weights with T x samples rows, differentiable in both parts."""
        sizes = [mean[0].numel() for mean in self.mean.values()]
        units = noise.normal(samples, sum(sizes)).split(sizes, dim=-1)  # all at once: a hash takes many small kernels
        drawn = {}
        for (name, mean), unit in zip(self.mean.items(), units, strict=True):
            own = unit.to(mean).unflatten(-1, mean.shape[1:])
            drawn[name] = torch.addcmul(mean.unsqueeze(1), self.log_scale[name].unsqueeze(1).exp(), own).flatten(0, 1)
        return drawn

    def kl(self, prior: Gaussians) -> Float[Tensor, " T"]:
        """KL[self || prior] of each task's weights together."""
        parts = []
        for name, mean in self.mean.items():
            log_ratio = self.log_scale[name] - prior.log_scale[name]
            apart = (mean - prior.mean[name]) * (-prior.log_scale[name]).exp()
            parts.append((0.5 * ((2.0 * log_ratio).exp() + apart.square() - 1.0) - log_ratio).flatten(1).sum(dim=1))
        return torch.stack(parts).sum(dim=0)


class ABML(Learner):
    """Learns the prior's means and standard deviations, where the inner steps also start."""

    name = "abml"
    Settings = ABMLSettings
    settings: ABMLSettings

    def __init__(self, settings: ABMLSettings, point_shape: tuple[int, ...]) -> None:
        super().__init__(settings, point_shape)
        weights = self.network.initial_weights(settings.seed)
        self.mean = nn.ParameterDict(weights)
        start = math.log(settings.initial_scale)
        self.log_scale = nn.ParameterDict({name: torch.full_like(value, start) for name, value in weights.items()})

    @property
    def networks(self) -> int:
        """Networks drawn for a prediction."""
        return self.settings.test_samples

    def adapt(self, support: Points, noise: Noise, *, training: bool = False) -> Gaussians:
        """Each task's posterior over weights, after the inner steps."""
        settings, tasks = self.settings, len(support.x)
        with torch.enable_grad():
            prior = found = self._prior(tasks, training=training)
            for _ in range(settings.inner_steps if training else settings.test_steps):
                loss = self._bound(found, prior, support, noise).sum()
                slopes = gradients(loss, found.named(), differentiable=training)
                moved = {name: value - settings.inner_rate * slopes[name] for name, value in found.named().items()}
                found = Gaussians.from_named(moved if training else detached(moved))
        return found

    def predict(self, adapted: Gaussians, x: Float[Tensor, "T N channels height width"], noise: Noise) -> Float[Tensor, "T N C"]:
        """The mean of the probabilities that networks drawn from the posterior give."""
        return _mean_probability(self._sampled(adapted, x, noise, self.settings.test_samples))

    def meta_loss(self, support: Points, query: Points, noise: Noise) -> tuple[Float[Tensor, " T"], Float[Tensor, "T N C"]]:
        """The negative bound on the queries' evidence, per query."""
        found = self.adapt(support, noise, training=True)
        log_p = self._sampled(found, query.x, noise, self.settings.samples)
        return self._loss(found, self._prior(len(query.x), training=True), log_p, query), _mean_probability(log_p)

    def _bound(self, found: Gaussians, prior: Gaussians, points: Points, noise: Noise) -> Float[Tensor, " T"]:
        return self._loss(found, prior, self._sampled(found, points.x, noise, self.settings.samples), points)

    def _loss(self, found: Gaussians, prior: Gaussians, log_p: Float[Tensor, "T S N C"], points: Points) -> Float[Tensor, " T"]:
        expected = task_loss(log_p.mean(dim=1), points.y)
        return expected + self.settings.kl_weight / points.y.shape[1] * found.kl(prior)

    def _sampled(self, found: Gaussians, x: Tensor, noise: Noise, samples: int) -> Float[Tensor, "T S N C"]:
        """Log-probabilities by each of the networks drawn."""
        repeated = x.unsqueeze(1).expand(-1, samples, *x.shape[1:]).flatten(0, 1)
        return log_softmax(self.network.logits(found.draw(noise, samples), repeated)).unflatten(0, (len(x), samples))

    def _prior(self, tasks: int, *, training: bool) -> Gaussians:
        parts = (for_each_task(dict(part), tasks, training=training, arms=self.arms) for part in (self.mean, self.log_scale))
        return Gaussians(*parts)


def _mean_probability(log_p: Float[Tensor, "T S N C"]) -> Float[Tensor, "T N C"]:
    """The logarithm of the samples' mean probability."""
    return log_p.logsumexp(dim=1) - math.log(log_p.shape[1])
