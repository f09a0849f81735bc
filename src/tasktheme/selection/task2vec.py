"""Selection by Task2Vec (Achille et al., 2019), with a probe network trained by MAML, as the paper makes it fit few shots.

The probe adapts to a task's labelled points; the embedding is the diagonal of its Fisher information on all points that the task
comes with (queries need not be there), averaged over each filter: of the convolutions and of the norms' scales, without the
head, as in the authors' code.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from tasktheme.data.random import random_bits
from tasktheme.errors import SettingsError
from tasktheme.learners.base import Learner, Noise, precision
from tasktheme.learners.maml import MAML
from tasktheme.learners.testing import tasks_at_once
from tasktheme.learners.threads import each_piece
from tasktheme.selection.base import Now, Policy, Pool, Tasks, labelled, place

DRAWS = ("labels", "signs")

_STREAM = 3100  # of the draws, and the streams after it for further samples
_NUMBERS_AT_ONCE = 1 << 24  # of the (T, targets, d) array of element-wise normalised embeddings


class Task2Vec(Policy):
    """Induction: the largest L1 norm. Transduction: the smallest mean cosine distance of normalised embeddings to the targets.

    Args:
        probe: a trained MAML.
        samples: draws for each data point.
        by: what is drawn: "labels" as Task2Vec does, or "signs" for all labels at once, which varies less.
        seed: of the draws.
    """

    name = "task2vec"
    title = "Task2Vec"
    needs = ("support",)
    looks_at_all = True

    def __init__(self, probe: Learner, *, samples: int = 10, by: str = "labels", seed: int = 0) -> None:
        if not isinstance(probe, MAML):
            raise SettingsError(f"Task2Vec's probe is a network trained by maml, got {probe.name!r}")
        if samples < 1:
            raise SettingsError(f"samples, the draws for each data point, must be at least 1, got {samples}")
        if by not in DRAWS:
            raise SettingsError(f"by, what is drawn, must be one of {', '.join(DRAWS)}, got {by!r}")
        self.probe, self.samples, self.by, self.seed = probe, samples, by, seed

    def describe(self, tasks: Tasks) -> Float[Tensor, "T d"]:
        """The embeddings."""

        def embed(rows: Int64[Tensor, " t"]) -> Float[Tensor, "t d"]:
            return fisher_embedding(self.probe, tasks[rows], samples=self.samples, by=self.by, seed=self.seed)

        rows = torch.arange(len(tasks), device=tasks.numbers.device)
        with precision(self.probe.settings):
            return torch.cat(list(each_piece(embed, rows, tasks_at_once(self.probe, tasks.points, rows.device))))

    def scores(self, pool: Pool, targets: Pool | None, now: Now) -> Float[Tensor, "*A T"]:
        """L1 norms, or minus the mean distances."""
        if targets is None:
            return pool.kept.abs().sum(dim=-1)
        size = max(1, _NUMBERS_AT_ONCE // pool.kept.numel())
        parts = [distances(pool.kept, part) for part in targets.kept.split(size, dim=-2)]
        return -torch.cat(parts, dim=-1).mean(dim=-1)

    def reason(self, pool: Pool, targets: Pool | None, now: Now, scores: Float[Tensor, " T"], row: int) -> str:
        """Norm, or mean distance and the nearest target."""
        if targets is None:
            return f"L1 norm {float(scores[row]):.3g}, {place(scores, row)}"
        apart = distances(pool.kept[row : row + 1], targets.kept)[0]
        near = int(apart.argmin())
        mean = f"mean cosine distance {-float(scores[row]):.3f}, {place(scores, row)}"
        return f"{mean}; target {near} is nearest ({float(apart[near]):.3f})"


def fisher_embedding(probe: MAML, tasks: Tasks, *, samples: int, by: str, seed: int) -> Float[Tensor, "T d"]:
    """The mean over a task's points of E[(d ln p(y | x) / dw)^2], y drawn as the adapted probe predicts it, of each filter.

    One gradient of the sum over the points serves for all of them: given x, labels are drawn independently and each point's
    gradient has the expectation 0, so the products between points vanish from the expected square. By signs, the sum is over
    all labels too, each with the factor +-sqrt(p(y | x)): the products between any two vanish, and no rare label is left out.
    """
    x = tasks.x
    weights = probe.adapt(labelled(tasks), Noise(seed, tasks.numbers))
    filters = [value for name, value in weights.items() if name.startswith(("convolution_", "scale_"))]
    with torch.enable_grad():
        log_p = probe.predict(weights, x, Noise(seed, tasks.numbers))
        squares = [torch.zeros_like(value) for value in filters]
        for sample in range(samples):
            draw = draw_labels if by == "labels" else draw_signs
            total = (draw(log_p.detach(), tasks.numbers, seed=seed, sample=sample) * log_p).sum()
            gradients = torch.autograd.grad(total, filters, retain_graph=sample + 1 < samples)
            squares = [square + gradient.square() for square, gradient in zip(squares, gradients, strict=True)]
    each = [square.flatten(2).mean(dim=-1) if square.ndim > 2 else square for square in squares]
    return torch.cat(each, dim=1) / (samples * x.shape[1])


def draw_labels(log_p: Float[Tensor, "T N C"], numbers: Int64[Tensor, " T"], *, seed: int, sample: int) -> Float[Tensor, "T N C"]:
    """1 at a label of each point, drawn by the prediction; it depends on the seed, the task's number and the point alone."""
    places = torch.arange(log_p.shape[1], device=log_p.device)
    uniform = random_bits(seed, _STREAM + sample, numbers.unsqueeze(-1), places).double() * 2.0**-63
    below = log_p.double().exp().cumsum(dim=-1) <= uniform.unsqueeze(-1)
    y = below.sum(dim=-1).clamp_max(log_p.shape[-1] - 1)  # rounding can leave the last sum below 1
    return torch.nn.functional.one_hot(y, log_p.shape[-1]).to(log_p)


def draw_signs(log_p: Float[Tensor, "T N C"], numbers: Int64[Tensor, " T"], *, seed: int, sample: int) -> Float[Tensor, "T N C"]:
    """Plus or minus the root of each label's probability."""
    places = torch.arange(log_p.shape[1:].numel(), device=log_p.device).view(log_p.shape[1:])
    sign = 2 * (random_bits(seed, _STREAM + sample, numbers[:, None, None], places) & 1) - 1
    return (log_p / 2.0).exp() * sign


def distances(first: Float[Tensor, "*A T d"], second: Float[Tensor, "*A S d"]) -> Float[Tensor, "*A T S"]:
    """Cosine distances of a / (a + b) and b / (a + b), element by element: Task2Vec's symmetric distance, for all pairs."""
    a, b = first.unsqueeze(-2), second.unsqueeze(-3)
    total = (a + b).clamp_min(torch.finfo(first.dtype).tiny)
    return 1.0 - torch.cosine_similarity(a / total, b / total, dim=-1)
