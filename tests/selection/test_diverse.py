from __future__ import annotations

import numpy as np
import pytest
import torch

from oracles.selection import make_gamma
from tasktheme.errors import SettingsError
from tasktheme.selection.base import Now, Pool, Tasks, standardised
from tasktheme.selection.diverse import Diverse, mixture_distances
from tasktheme.selection.ptm import PTMPolicy

# two kinds of tasks, each concentrated on a pair of themes; the first kind is a little less certain
CROWD = torch.tensor([[20.0, 20.0, 1.1, 1.1]]) + torch.rand((6, 4), generator=torch.Generator().manual_seed(0)) / 10.0
OTHER = torch.tensor([[1.1, 1.1, 20.2, 20.2]]) + torch.rand((2, 4), generator=torch.Generator().manual_seed(1)) / 10.0
GAMMA = torch.cat([CROWD, OTHER]).double()


def pool_of(policy: PTMPolicy, gamma: torch.Tensor) -> Pool:
    return policy.enter(Tasks(torch.arange(len(gamma)), gamma=gamma))


def picks(policy: PTMPolicy, count: int) -> list[int]:
    pool, chosen = pool_of(policy, GAMMA), []
    for _ in range(count):
        scores = policy.scores(pool, None, Now(recent=pool.kept[chosen][-policy.memory :] if policy.memory else None))
        scores[chosen] = -torch.inf
        chosen.append(int(scores.argmax()))
    return chosen


def test_the_second_pick_is_of_the_other_kind() -> None:
    assert all(pick < 6 for pick in picks(PTMPolicy(), 3))
    first, second = picks(Diverse(weight=3.0), 2)
    assert first < 6 <= second
    assert first == picks(PTMPolicy(), 1)[0]


def test_a_task_like_one_of_the_last_picks_is_a_repetition_however_far_the_others_are() -> None:
    kinds = 1.1 + 40.0 * torch.eye(4, dtype=torch.float64)[:3]
    kinds[2, 3] += 20.0  # between the first two and the rest: nearer to neither
    policy = Diverse(weight=5.0)
    scores = policy.scores(pool_of(policy, kinds), None, Now(recent=kinds[:2]))
    assert int(scores.argmax()) == 2
    assert float(scores[2] - scores[:2].max()) > 5.0


def test_without_weight_or_memory_it_is_the_task_model() -> None:
    gamma, targets = make_gamma(12), make_gamma(3, seed=4)
    for policy, recent in ((Diverse(weight=0.0), make_gamma(5, seed=9)), (Diverse(), None), (Diverse(), make_gamma(0))):
        for aims in (None, pool_of(policy, targets)):
            plain = PTMPolicy().scores(pool_of(policy, gamma), aims, Now())
            assert torch.equal(policy.scores(pool_of(policy, gamma), aims, Now(recent=recent)).argsort(), plain.argsort())


def test_distance_is_hellingers_between_mean_mixtures() -> None:
    first, second = make_gamma(4), make_gamma(3, seed=2)
    second[1] = first[3]
    p, q = (values.numpy() / values.numpy().sum(axis=1, keepdims=True) for values in (first, second))
    expected = [[np.sqrt(0.5 * ((np.sqrt(a) - np.sqrt(b)) ** 2).sum()) for b in q] for a in p]
    np.testing.assert_allclose(mixture_distances(first, second), expected, atol=1e-7)


def test_distance_of_several_aspects_is_the_root_mean_square_of_theirs() -> None:
    policy, parts = Diverse(weight=2.0), [make_gamma(4), make_gamma(4, seed=1)]
    others = [make_gamma(3, seed=2), make_gamma(3, seed=3)]
    pool = policy.enter(Tasks(torch.arange(4), gamma=torch.cat(parts, dim=1), aspects=2))
    recent = torch.cat(others, dim=1)
    squares = [mixture_distances(one, other).square() for one, other in zip(parts, others, strict=True)]
    apart = ((squares[0] + squares[1]) / 2.0).sqrt().amin(dim=1)
    scores = policy.scores(pool, None, Now(recent=recent))
    torch.testing.assert_close(scores, standardised(PTMPolicy().scores(pool, None, Now())) + 2.0 * standardised(apart))
    said = policy.reason(pool, None, Now(recent=recent), scores, 1)
    assert said.startswith(f"entropy {float(PTMPolicy().scores(pool, None, Now())[1]):.2f} nats")
    assert f"{float(apart[1]):.2f} from the nearest" in said


def test_arms_side_by_side_are_the_arms() -> None:
    policy, gamma, recent = (
        Diverse(),
        torch.stack([make_gamma(6), make_gamma(6, seed=1)]),
        torch.stack([make_gamma(2), GAMMA[:2]]),
    )
    pool = policy.enter(Tasks(torch.arange(6).expand(2, 6), gamma=gamma))
    together = policy.scores(pool, None, Now(recent=recent))
    for arm in range(2):
        own = policy.scores(pool_of(policy, gamma[arm]), None, Now(recent=recent[arm]))
        torch.testing.assert_close(together[arm], own)


def test_standardised() -> None:
    values = torch.tensor([[1.0, 2.0, 6.0], [1e9, 1e9, 1e9]], dtype=torch.float64)
    found = standardised(values)
    torch.testing.assert_close(found[0].mean(), torch.tensor(0.0, dtype=torch.float64))
    torch.testing.assert_close(found[0].std(correction=0), torch.tensor(1.0, dtype=torch.float64))
    assert found[1].tolist() == [0.0, 0.0, 0.0]


def test_bad_settings() -> None:
    with pytest.raises(SettingsError, match="got 0 and 1"):
        Diverse(memory=0)
    with pytest.raises(SettingsError, match="got 10 and -1"):
        Diverse(weight=-1.0)
