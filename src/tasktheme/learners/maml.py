"""Model-agnostic meta-learning (Finn, Abbeel & Levine, 2017): weights from which a few gradient steps learn a task.

The paper's settings for mini-ImageNet: 32 filters, 5 inner steps at rate 0.01, 10 at test time, 4 tasks in a mini-batch,
Adam at 0.001, 60,000 mini-batches, 84x84 images; for Omniglot: 64 filters of stride 2, 1 inner step at rate 0.4, 3 at test
time, 32 tasks, 28x28 images with rotations as new classes. Ours differ: max pooling for both, 64x64 images, 16 tasks, an
annealed step size, no rotations, and the norm's scale and shift adapt too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tasktheme.learners.base import Learner, Noise, Points, detached, for_each_task, gradients, log_softmax, task_loss
from tasktheme.learners.network import Weights
from tasktheme.learners.settings import LearnerSettings


@dataclass(frozen=True)
class MAMLSettings(LearnerSettings):
    """Settings of MAML."""

    inner_steps: int = 5
    """Gradient steps that adapt to a task, in training."""
    test_steps: int = 10
    """The same when testing."""
    inner_rate: float = 0.01
    """Their step size (its start, where it is learned)."""
    learn_rates: bool = False
    """Learn a step size for each weight tensor."""
    first_order: bool = False
    """Leave out the second derivatives: the meta-gradient is that at the adapted weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("inner_steps", "test_steps"):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        self._require("inner_rate", self.inner_rate > 0, "above 0")


class MAML(Learner):
    """Learns initial weights and, if asked, the rates of the inner steps."""

    name = "maml"
    Settings = MAMLSettings
    settings: MAMLSettings

    def __init__(self, settings: MAMLSettings, point_shape: tuple[int, ...]) -> None:
        super().__init__(settings, point_shape)
        self.weights = nn.ParameterDict(self.network.initial_weights(settings.seed))
        rates = {name: torch.tensor(settings.inner_rate) for name in self.weights}
        self.rates = nn.ParameterDict(rates if settings.learn_rates else {})

    def adapt(self, support: Points, noise: Noise, *, training: bool = False) -> dict[str, Tensor]:
        """Each task's own weights, after the inner steps."""
        second_order = training and not self.settings.first_order
        with torch.enable_grad():
            for_each = partial(for_each_task, tasks=len(support.x), training=training, arms=self.arms)
            weights, rates = for_each(dict(self.weights)), for_each(dict(self.rates))
            for _ in range(self.settings.inner_steps if training else self.settings.test_steps):
                loss = task_loss(log_softmax(self.network.logits(weights, support.x)), support.y).sum()
                slopes = gradients(loss, weights, differentiable=second_order)
                weights = {name: value - self._rate(rates, value, name) * slopes[name] for name, value in weights.items()}
                if not training:
                    weights = detached(weights)
        return weights

    def predict(
        self, adapted: dict[str, Tensor], x: Float[Tensor, "T N channels height width"], noise: Noise
    ) -> Float[Tensor, "T N C"]:
        """What each task's own network says."""
        return log_softmax(self.network.logits(adapted, x))

    def _rate(self, rates: Weights, value: Tensor, name: str) -> Tensor | float:
        if not self.settings.learn_rates:
            return self.settings.inner_rate
        return rates[name].view(-1, *(1 for _ in value.shape[1:]))
