"""Worst case at a fraction of its cost: the learner's loss on a few tasks, regressed on what the task model says of them.

Not in the paper, whose policy does not see the learner. The losses on the last picks are a by-product of learning; a few more
tasks of the pool are looked at afresh, and a Bayesian ridge regression tells the loss on the rest from their themes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from tasktheme.errors import SettingsError
from tasktheme.maths import dirichlet
from tasktheme.selection.base import Now, Pool, place, standardised
from tasktheme.selection.ptm import PTMPolicy, mean_kl
from tasktheme.selection.random import Random
from tasktheme.selection.worst_case import learner_losses, require_learner

_FEWEST = 3  # losses from which a regression says anything
_SMALLEST_SCALE = 1e-6  # of a feature: below it the feature is constant


class Predicted(PTMPolicy):
    """Induction: the highest loss, seen or predicted. Transduction: the same less the mean KL from the targets, both
    standardised: hard tasks among those near the targets.

    Args:
        looks: tasks of the pool, random ones at each pick, on which the learner's loss is measured.
        memory: how many of the last picks and their losses the regression also learns from.
    """

    name = "predicted"
    title = "Predicted"
    needs = ("gamma", "support", "query")
    sees_learner = True
    on_device = False  # the regression is the host's

    def __init__(self, *, looks: int = 10, memory: int = 200) -> None:
        if looks < 1 or memory < 0:
            raise SettingsError(f"looks must be at least 1 and memory at least 0, got {looks} and {memory}")
        self.looks, self.memory = looks, memory

    def scores(self, pool: Pool, targets: Pool | None, now: Now) -> Float[Tensor, " T"]:
        """Losses in nats; with targets, standardised."""
        learner = require_learner(now, self.name)
        rows = Random().scores(pool, None, now).topk(min(self.looks, len(pool))).indices
        seen = learner_losses(learner, pool.tasks[rows], seed=now.seed, compiled=now.compiled).to(pool.kept)
        losses = predict_losses(pool.kept, rows, seen, now.recent, now.losses)
        return losses if targets is None else standardised(losses) - standardised(mean_kl(targets.kept, pool.kept))

    def reason(self, pool: Pool, targets: Pool | None, now: Now, scores: Float[Tensor, " T"], row: int) -> str:
        """Loss, or what is made of it."""
        measure = "loss, seen or predicted," if targets is None else "predicted loss less distance to the targets"
        return f"{measure} {float(scores[row]):.3f}, {place(scores, row)}"


def predict_losses(
    pool: Float[Tensor, "T K"],
    rows: Tensor,
    seen: Float[Tensor, " L"],
    recent: Float[Tensor, "R K"] | None,
    recent_losses: Float[Tensor, " R"] | None,
) -> Float[Tensor, " T"]:
    """The loss on each task of the pool: as seen on ``rows``, predicted elsewhere.

    Losses on the last picks come from a learner of a little earlier and from training; a feature of their own tells them
    from the fresh ones.
    """
    from sklearn.linear_model import BayesianRidge

    every = features(pool)
    centre, scale = every.mean(axis=0), np.maximum(every.std(axis=0), _SMALLEST_SCALE)
    x, y = [(every[rows.cpu().numpy()] - centre) / scale], [seen.double().cpu().numpy()]
    fresh = [np.ones(len(y[0]))]
    if recent is not None and recent_losses is not None and len(recent_losses):
        x.append((features(recent) - centre) / scale)
        y.append(recent_losses.double().cpu().numpy())
        fresh.append(np.zeros(len(recent_losses)))
    known = np.concatenate(y)
    losses = np.full(len(pool), known.mean())
    if len(known) >= _FEWEST:
        model = BayesianRidge().fit(np.column_stack([np.concatenate(x), np.concatenate(fresh)]), known)
        losses = model.predict(np.column_stack([(every - centre) / scale, np.ones(len(pool))]))
    return torch.as_tensor(losses).to(pool).index_put((rows,), seen)


def features(gamma: Float[Tensor, "T K"]) -> npt.NDArray[np.float64]:
    """(T, K + 1) what a linear model sees of a task: centred logarithms of its mean mixture, and its entropy."""
    logs = (gamma / gamma.sum(dim=-1, keepdim=True)).log()
    parts = [logs - logs.mean(dim=-1, keepdim=True), dirichlet.entropy(gamma).unsqueeze(-1)]
    found: npt.NDArray[np.float64] = torch.cat(parts, dim=-1).double().cpu().numpy()
    return found
