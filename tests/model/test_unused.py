"""Unused themes: which they are, and their revival as half of the largest, against samples that are cut by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tasktheme.model.m_step import combine
from tasktheme.model.themes import Covariance, Moments
from tasktheme.model.unused import revive, unused

DIM = 3


def three_themes(covariance: Covariance, *, last: float = 0.01) -> Moments:
    """A large theme between two others, of which the last has next to nothing."""
    generator = torch.Generator().manual_seed(0)
    mu = torch.randn((3, DIM), generator=generator, dtype=torch.float64)
    factor = torch.randn((3, DIM, DIM), generator=generator, dtype=torch.float64)
    Sigma = factor @ factor.mT + torch.eye(DIM)
    if covariance != "full":
        Sigma = Sigma.diagonal(dim1=-2, dim2=-1).clone()
    if covariance == "isotropic":
        Sigma = Sigma[:, :1].expand(-1, DIM).clone()
    return Moments(torch.tensor([0.3, 0.7 - last, last], dtype=torch.float64), mu, Sigma)


def test_unused_is_less_than_a_tenth_of_an_equal_share() -> None:
    assert unused(torch.tensor([0.5, 0.3, 0.0249, 0.1751])).tolist() == [False, False, True, False]
    assert unused(torch.tensor([0.5, 0.3, 0.0251, 0.1749])).tolist() == [False, False, False, False]
    assert not unused(torch.ones(1)).any()


@pytest.mark.parametrize("covariance", ["full", "diagonal", "isotropic"])
def test_nothing_changes_where_all_are_used(covariance: Covariance) -> None:
    before = three_themes(covariance, last=0.2)
    after = revive(before, covariance=covariance)
    for name, value in vars(before).items():
        torch.testing.assert_close(getattr(after, name), value, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_the_halves_are_those_of_a_gaussian_cut_through_its_mean(covariance: Covariance) -> None:
    before = three_themes(covariance)
    after = revive(before, covariance=covariance)
    Sigma = before.Sigma[1].numpy() if covariance == "full" else np.diag(before.Sigma[1].numpy())
    u = np.random.default_rng(0).multivariate_normal(before.mu[1].numpy(), Sigma, size=400_000)
    values, axes = np.linalg.eig(Sigma)
    above = (u - before.mu[1].numpy()) @ axes[:, values.argmax()] > 0.0
    halves = [u[above], u[~above]]  # which is called which does not matter
    halves.sort(key=lambda half: float(np.linalg.norm(half.mean(axis=0) - after.mu[2].numpy())))
    for theme, half in zip((2, 1), halves, strict=True):
        np.testing.assert_allclose(after.mu[theme].numpy(), half.mean(axis=0), atol=0.02)
        covariance_of_half = np.cov(half.T)
        found = after.Sigma[theme].numpy() if covariance == "full" else np.diag(after.Sigma[theme].numpy())
        np.testing.assert_allclose(found, covariance_of_half, atol=0.05)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_the_halves_together_are_the_theme_that_was_cut(covariance: Covariance) -> None:
    before = three_themes(covariance)
    after = revive(before, covariance=covariance)

    def one(found: Moments, theme: int) -> Moments:
        return Moments(found.n[theme : theme + 1], found.mu[theme : theme + 1], found.Sigma[theme : theme + 1])

    joined = combine(one(after, 1), one(after, 2), first_weight=1.0, second_weight=1.0)
    torch.testing.assert_close(joined.mu[0], before.mu[1])
    torch.testing.assert_close(joined.Sigma[0], before.Sigma[1])
    assert joined.n.item() == pytest.approx(0.7)
    assert after.n[1] == after.n[2]
    torch.testing.assert_close(after.mu[0], before.mu[0], rtol=0.0, atol=0.0)


def test_isotropic_halves_stay_isotropic_and_apart() -> None:
    after = revive(three_themes("isotropic"), covariance="isotropic")
    assert (after.Sigma == after.Sigma[:, :1]).all()
    assert (after.Sigma > 0.0).all()
    assert not torch.equal(after.mu[1], after.mu[2])


def test_several_unused_themes_take_from_the_largest_of_the_moment() -> None:
    n = torch.tensor([0.6, 0.0, 0.0, 0.4])
    before = Moments(n, torch.zeros(4, 2), torch.ones(4, 2))
    assert revive(before, covariance="diagonal").n.tolist() == pytest.approx([0.3, 0.3, 0.2, 0.2])
