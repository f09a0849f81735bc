from __future__ import annotations

import numpy as np
import torch
from scipy import stats
from scipy.special import digamma, gammaln

from oracles.selection import make_gamma
from tasktheme.selection.base import Now, Pool, Tasks
from tasktheme.selection.ptm import PTMPolicy, mean_kl

POLICY = PTMPolicy()


def pool_of(gamma: torch.Tensor) -> Tasks:
    return Tasks(torch.arange(gamma.shape[-2]), gamma=gamma)


def scipy_kl(a: np.ndarray, b: np.ndarray) -> float:
    total = gammaln(a.sum()) - gammaln(a).sum() - gammaln(b.sum()) + gammaln(b).sum()
    return float(total + ((a - b) * (digamma(a) - digamma(a.sum()))).sum())


def test_induction_is_the_entropy() -> None:
    gamma = make_gamma(7)
    scores = POLICY.scores(POLICY.enter(pool_of(gamma)), None, Now())
    np.testing.assert_allclose(scores, [stats.dirichlet(row).entropy() for row in gamma.numpy()], rtol=1e-10)


def test_transduction_is_the_mean_of_the_divergences_from_the_targets() -> None:
    gamma, targets = make_gamma(7), make_gamma(5, seed=1)
    scores = POLICY.scores(POLICY.enter(pool_of(gamma)), POLICY.enter(pool_of(targets)), Now())
    expected = [-np.mean([scipy_kl(target, row) for target in targets.numpy()]) for row in gamma.numpy()]
    np.testing.assert_allclose(scores, expected, rtol=1e-9)


def test_divergence_by_monte_carlo() -> None:
    target, row = make_gamma(1, size=4.0)[0], make_gamma(1, seed=3, size=4.0)[0]
    drawn = stats.dirichlet(target.numpy()).rvs(200_000, random_state=0).T
    estimate = stats.dirichlet(target.numpy()).logpdf(drawn) - stats.dirichlet(row.numpy()).logpdf(drawn)
    error = estimate.std() / np.sqrt(estimate.size)
    assert abs(float(mean_kl(target[None], row[None])) - estimate.mean()) < 4.0 * error


def test_of_several_aspects_entropies_and_divergences_are_sums() -> None:
    first, second, targets = make_gamma(7), make_gamma(7, seed=1), (make_gamma(5, seed=2), make_gamma(5, seed=3))

    def entered(*aspects: torch.Tensor) -> Pool:
        return POLICY.enter(Tasks(torch.arange(len(aspects[0])), gamma=torch.cat(aspects, dim=1), aspects=len(aspects)))

    pool, aims = entered(first, second), entered(*targets)
    for given, alone in ((None, (None, None)), (aims, map(entered, targets))):
        parts = [POLICY.scores(entered(own), aim, Now()) for own, aim in zip((first, second), alone, strict=True)]
        torch.testing.assert_close(POLICY.scores(pool, given, Now()), parts[0] + parts[1])
    scores, row = POLICY.scores(pool, aims, Now()), 3
    each = [
        [scipy_kl(target, own[row].numpy()) for target in aim.numpy()] for own, aim in zip((first, second), targets, strict=True)
    ]
    kl = np.sum(each, axis=0)
    said = POLICY.reason(pool, aims, Now(), scores, row)
    assert said.startswith(f"mean KL {kl.mean():.2f} nats")
    assert said.endswith(f"target {kl.argmin()} is nearest ({kl.min():.2f})")


def test_the_target_itself_is_the_nearest() -> None:
    gamma = make_gamma(9)
    pool = POLICY.enter(pool_of(gamma))
    for row in range(9):
        scores = POLICY.scores(pool, POLICY.enter(pool_of(gamma[row : row + 1])), Now())
        assert int(scores.argmax()) == row
        assert abs(float(scores[row])) < 1e-9


def test_arms_side_by_side_are_the_arms() -> None:
    gamma, targets = (
        torch.stack([make_gamma(6, seed=s) for s in range(3)]),
        torch.stack([make_gamma(2, seed=s) for s in range(3)]),
    )
    numbers = torch.arange(6).expand(3, 6)
    together = POLICY.enter(Tasks(numbers, gamma=gamma))
    aims = POLICY.enter(Tasks(numbers[:, :2], gamma=targets))
    for aim, scores in ((None, POLICY.scores(together, None, Now())), (aims, POLICY.scores(together, aims, Now()))):
        for arm in range(3):
            own = None if aim is None else POLICY.enter(pool_of(targets[arm]))
            torch.testing.assert_close(scores[arm], POLICY.scores(POLICY.enter(pool_of(gamma[arm])), own, Now()))
