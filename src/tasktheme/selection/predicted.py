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
        recent = None if now.recent is None else features(pool.by_aspect(now.recent))
        losses = predict_losses(features(pool.by_aspect()), rows, seen, recent, now.losses)
        if targets is None:
            return losses
        return standardised(losses) - standardised(mean_kl(targets.by_aspect(), pool.by_aspect()).sum(dim=0))

    def reason(self, pool: Pool, targets: Pool | None, now: Now, scores: Float[Tensor, " T"], row: int) -> str:
        """Loss, or what is made of it."""
        measure = "loss, seen or predicted," if targets is None else "predicted loss less distance to the targets"
        return f"{measure} {float(scores[row]):.3f}, {place(scores, row)}"


def predict_losses(
    pool: npt.NDArray[np.float64],
    rows: Tensor,
    seen: Float[Tensor, " L"],
    recent: npt.NDArray[np.float64] | None,
    recent_losses: Float[Tensor, " R"] | None,
) -> Float[Tensor, " T"]:
    """The loss on each task of the pool: as seen on ``rows``, predicted elsewhere from the tasks' :func:`features`.

    Losses on the last picks come from a learner of a little earlier and from training; a feature of their own tells them
    from the fresh ones.
    """
    from sklearn.linear_model import BayesianRidge

    centre, scale = pool.mean(axis=0), np.maximum(pool.std(axis=0), _SMALLEST_SCALE)
    x, y = [(pool[rows.cpu().numpy()] - centre) / scale], [seen.double().cpu().numpy()]
    fresh = [np.ones(len(y[0]))]
    if recent is not None and recent_losses is not None and len(recent_losses):
        x.append((recent - centre) / scale)
        y.append(recent_losses.double().cpu().numpy())
        fresh.append(np.zeros(len(recent_losses)))
    known = np.concatenate(y)
    losses = np.full(len(pool), known.mean())
    if len(known) >= _FEWEST:
        model = BayesianRidge().fit(np.column_stack([np.concatenate(x), np.concatenate(fresh)]), known)
        losses = model.predict(np.column_stack([(pool - centre) / scale, np.ones(len(pool))]))
    return torch.as_tensor(losses).to(seen).index_put((rows,), seen)


def features(gamma: Float[Tensor, "M T K"]) -> npt.NDArray[np.float64]:
    """(T, M K + 1) what a linear model sees of a task of M aspects: centred logarithms of each mean mixture, and the entropy."""
    logs = (gamma / gamma.sum(dim=-1, keepdim=True)).log()
    parts = [*(logs - logs.mean(dim=-1, keepdim=True)), dirichlet.entropy(gamma).sum(dim=0).unsqueeze(-1)]
    found: npt.NDArray[np.float64] = torch.cat(parts, dim=-1).double().cpu().numpy()
    return found
