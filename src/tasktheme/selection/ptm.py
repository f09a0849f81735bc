"""Selection by the task model, the paper's own: the least certain task, or the one nearest to the targets."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from tasktheme.maths import dirichlet
from tasktheme.selection.base import Now, Policy, Pool, place


class PTMPolicy(Policy):
    """Induction: the highest entropy of q(pi). Transduction: the smallest mean over the targets of KL[target || task].

    Both depend on the number of data points; the tasks must be of one size (``TaskSet.resized``). Of several aspects they are
    sums.
    """

    name = "ptm"
    title = "PTM"
    needs: ClassVar[tuple[str, ...]] = ("gamma",)

    def scores(self, pool: Pool, targets: Pool | None, now: Now) -> Float[Tensor, "*A T"]:
        """Entropy, or minus the mean KL."""
        own = pool.by_aspect()
        found = dirichlet.entropy(own) if targets is None else -mean_kl(targets.by_aspect(), own)
        return found.sum(dim=0)

    def reason(self, pool: Pool, targets: Pool | None, now: Now, scores: Float[Tensor, " T"], row: int) -> str:
        """Entropy, or mean KL and the nearest target."""
        if targets is None:
            return f"entropy {float(scores[row]):.2f} nats, {place(scores, row)}"
        task = pool.by_aspect(pool.kept[row : row + 1])
        kl = torch.stack([dirichlet.kl_divergence(*of_both) for of_both in zip(targets.by_aspect(), task, strict=True)])
        kl = kl.sum(dim=0)[:, 0]
        near = int(kl.argmin())
        return f"mean KL {-float(scores[row]):.2f} nats, {place(scores, row)}; target {near} is nearest ({float(kl[near]):.2f})"


def mean_kl(targets: Float[Tensor, "*A S K"], pool: Float[Tensor, "*A T K"]) -> Float[Tensor, "*A T"]:
    """The mean over targets i of KL[target_i || task_j]. KL is linear in what it takes of its first argument, so the targets
    enter by two means: KL = (gamma_i . g_i - ln B(gamma_i)) + ln B(other_j) - other_j . g_i, with g = E[ln pi]."""
    g = dirichlet.expected_log(targets)
    own = ((targets * g).sum(dim=-1) - dirichlet.log_normaliser(targets)).mean(dim=-1, keepdim=True)
    kl = own + dirichlet.log_normaliser(pool) - (pool * g.mean(dim=-2, keepdim=True)).sum(dim=-1)
    return kl.clamp_min(0.0)
