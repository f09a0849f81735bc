"""Selection by the task model that does not repeat itself: what the last picks already cover counts less.

Not in the paper, whose policy picks alike tasks one after another as long as the pool has them.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from tasktheme.errors import SettingsError
from tasktheme.selection.base import Now, Pool, standardised
from tasktheme.selection.ptm import PTMPolicy


class Diverse(PTMPolicy):
    """The score of the task model plus ``weight`` times the distance to the nearest of the last picks, both standardised.

    The distance is Hellinger's between the mean mixtures: a metric on the simplex of themes (of several aspects the root mean
    square of theirs). This is the trade of relevance against redundancy by which search engines rank (Carbonell & Goldstein,
    1998).

    Args:
        memory: how many of the last picks are not to be repeated.
        weight: of diversity; 0 is the task model's own policy.
    """

    name = "diverse"
    title = "Diverse"
    greedy = True

    def __init__(self, *, memory: int = 10, weight: float = 1.0) -> None:
        if memory < 1 or weight < 0.0:
            raise SettingsError(f"memory must be at least 1 and weight at least 0, got {memory} and {weight}")
        self.memory, self.weight = memory, weight

    def scores(self, pool: Pool, targets: Pool | None, now: Now) -> Float[Tensor, "*A T"]:
        """Standardised measures, added."""
        own = standardised(super().scores(pool, targets, now))
        if now.recent is None or now.recent.shape[-2] == 0:
            return own
        return own + self.weight * standardised(_distances(pool, pool.kept, now.recent).amin(dim=-1))

    def reason(self, pool: Pool, targets: Pool | None, now: Now, scores: Float[Tensor, " T"], row: int) -> str:
        """The task model's measure, and how far the last picks are."""
        words = super().reason(pool, targets, now, super().scores(pool, targets, now), row)
        if now.recent is None or now.recent.shape[-2] == 0:
            return words
        apart = float(_distances(pool, pool.kept[row : row + 1], now.recent).min())
        return f"{words}; {apart:.2f} from the nearest of the last picks"


def _distances(pool: Pool, kept: Float[Tensor, "*A T d"], recent: Float[Tensor, "*A R d"]) -> Float[Tensor, "*A T R"]:
    """Between tasks by what was kept of them: the root mean square over aspects."""
    return mixture_distances(pool.by_aspect(kept), pool.by_aspect(recent)).square().mean(dim=0).sqrt()


def mixture_distances(gamma: Float[Tensor, "*A T K"], other: Float[Tensor, "*A R K"]) -> Float[Tensor, "*A T R"]:
    """Hellinger distances of the mean mixtures p and q, for all pairs: sqrt(1 - sum_k sqrt(p_k q_k))."""
    first, second = ((values / values.sum(dim=-1, keepdim=True)).sqrt() for values in (gamma, other))
    return (1.0 - first @ second.mT).clamp_min(0.0).sqrt()
