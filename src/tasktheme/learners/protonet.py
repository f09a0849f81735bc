"""Prototypical networks (Snell, Swersky & Zemel, 2017): a class is the mean embedding of its labelled points.

The paper's settings for 1-shot mini-ImageNet: 64 filters, training tasks of 30 classes with 15 queries each, one task in a
mini-batch, Adam at 0.001 halved every 2,000 tasks, squared Euclidean distance; for Omniglot 60 classes with 5 queries. Ours
differ: 20 training classes, 4 tasks in a mini-batch, the step size falls along a cosine, images of 64x64; batch norm takes
the statistics of the task's labelled points and queries together, in training and in testing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from tasktheme.learners.base import Learner, Noise, Points, for_each_task, log_softmax
from tasktheme.learners.network import Network
from tasktheme.learners.settings import LearnerSettings


@dataclass(frozen=True)
class ProtoNetSettings(LearnerSettings):
    """Settings of prototypical networks."""

    filters: int = 64
    """Filters of each module of convolution, batch norm, rectifier and 2x2 max pooling."""
    batch_tasks: int = 4
    """Tasks in a mini-batch, the meta-batch."""
    train_ways: int = 20
    """Classes in a training task: more than at test time makes the embedding better."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("train_ways", self.train_ways >= 2, "at least 2")

    @property
    def training_ways(self) -> int:
        """Classes in a training task."""
        return self.train_ways


class ProtoNet(Learner):
    """Learns an embedding; adapting is remembering the labelled points."""

    name = "protonet"
    Settings = ProtoNetSettings

    def __init__(self, settings: ProtoNetSettings, point_shape: tuple[int, ...]) -> None:
        super().__init__(settings, point_shape)
        self.weights = nn.ParameterDict(self.network.initial_weights(settings.seed))

    def _build_network(self, settings: LearnerSettings, point_shape: tuple[int, ...]) -> Network:
        return Network(settings, point_shape, None)

    def adapt(self, support: Points, noise: Noise, *, training: bool = False) -> Points:
        """The labelled points themselves: they are embedded together with the queries."""
        return support

    def predict(self, adapted: Points, x: Float[Tensor, "T N channels height width"], noise: Noise) -> Float[Tensor, "T N C"]:
        """A softmax over the negative squared distances to the prototypes."""
        weights = dict(self.weights)
        if self.arms is not None:
            weights = for_each_task(weights, len(x), training=True, arms=self.arms)
        embedded = self.network.features(weights, torch.cat([adapted.x, x], dim=1))
        support, query = embedded.split([adapted.x.shape[1], x.shape[1]], dim=1)
        return log_softmax(-squared_distances(query, prototypes(support, adapted.y, adapted.ways)))


def prototypes(support: Float[Tensor, "T M D"], y: Int64[Tensor, "T M"], ways: int) -> Float[Tensor, "T C D"]:
    """The mean of each class's embeddings."""
    member = y.unsqueeze(-1).eq(torch.arange(ways, device=y.device)).to(support.dtype)  # (T, M, C)
    return member.mT @ support / member.sum(dim=1).unsqueeze(-1)


def squared_distances(query: Float[Tensor, "T N D"], centres: Float[Tensor, "T C D"]) -> Float[Tensor, "T N C"]:
    """Squared Euclidean distances less the query's own square, which a softmax over the centres does not see."""
    return centres.square().sum(dim=-1).unsqueeze(1) - 2.0 * query @ centres.mT
