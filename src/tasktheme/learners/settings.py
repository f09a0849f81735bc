"""Settings that all meta-learners share; each learner adds its own in its file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tasktheme.settings import CheckedSettings

Precision = Literal["auto", "float32", "tf32", "bfloat16"]


@dataclass(frozen=True)
class LearnerSettings(CheckedSettings):
    """The tasks, the network and the training of a meta-learner."""

    # the tasks
    ways: int = 5
    """Classes in a task."""
    shots: int = 1
    """Labelled points of each class, the support."""
    queries: int = 15
    """Points of each class to be predicted."""
    within_group: bool = False
    """Draw the classes of a task from one group (alphabet, script); by default all classes mix, as is usual."""

    # the network
    filters: int = 32
    """Filters of each module of convolution, batch norm, rectifier and 2x2 max pooling."""
    modules: int = 4
    """Modules; each halves the image."""
    convolution: Literal["auto", "loop", "patches", "grouped", "triton"] = "auto"
    """How convolutions with weights of each task's own are computed; the numbers are the same (convolution.py). A saved run that
    was trained by "triton" is loaded as "auto" where there is no GPU or no triton."""
    precision: Precision = "auto"
    """"bfloat16" computes and keeps the feature maps so, weights and statistics in float32; "tf32" rounds the products on a GPU's
    tensor cores to 10 bits, "float32" does not; "auto" is "bfloat16" on a GPU and "float32" elsewhere. A saved run that was
    trained in "bfloat16" is loaded as "auto": most CPUs are far slower in it than in float32."""

    # the training
    augment: bool = False
    """Mirror the training images left to right and move them a little, at random: for photographs, not for letters."""
    batch_tasks: int = 16
    """Tasks in a mini-batch, the meta-batch."""
    learning_rate: float = 1e-3
    """Step size of Adam."""
    anneal: bool = True
    """Let the step size fall to zero along half a cosine."""
    weight_decay: float = 0.0
    """L2 on all weights."""
    gradient_clip: float = 10.0
    """Largest norm of the gradient."""
    validation_tasks: int = 600
    """Validation tasks, where the data set has classes for them; the weights that do best on them are kept."""
    validate_every: int = 5_000
    """Training tasks between two validations."""
    patience: int = 0
    """Stop early after so many validations without a better one; 0 never does."""
    seed: int = 0
    """Seed of everything random."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("shots", "queries", "filters", "modules", "batch_tasks", "validation_tasks", "validate_every"):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        self._require("ways", self.ways >= 2, "at least 2")
        for name in ("weight_decay", "patience", "seed"):
            self._require(name, getattr(self, name) >= 0, "at least 0")
        for name in ("learning_rate", "gradient_clip"):
            self._require(name, getattr(self, name) > 0, "above 0")
        self._require("seed", self.seed < 2**32, "below 2^32")

    @property
    def training_ways(self) -> int:
        """Classes in a training task; a learner without a head of fixed size may train with more."""
        return self.ways
