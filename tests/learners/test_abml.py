from __future__ import annotations

import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from oracles.learners import make_learner, make_points
from oracles.meta import plain_logits
from tasktheme.learners.abml import Gaussians
from tasktheme.learners.base import Noise


def gaussians(seed: int, tasks: int = 3) -> Gaussians:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (4, 2), "b": (5,)}
    mean, log_scale = (
        {name: torch.randn((tasks, *shape), generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
        for _ in range(2)
    )
    return Gaussians(mean, log_scale)


def test_kl_is_that_of_torch_distributions() -> None:
    first, second = gaussians(0), gaussians(1)
    expected = torch.zeros(3, dtype=torch.float64)
    for name, mean in first.mean.items():
        parts = [Independent(Normal(g.mean[name], g.log_scale[name].exp()), mean.ndim - 1) for g in (first, second)]
        expected += kl_divergence(*parts)
    torch.testing.assert_close(first.kl(second), expected)
    torch.testing.assert_close(first.kl(first), torch.zeros(3, dtype=torch.float64))


def test_draws_have_the_mean_and_scale_asked_for() -> None:
    q = gaussians(0, tasks=2)
    drawn = q.draw(Noise(0, torch.arange(2)), 20_000)
    for name, mean in q.mean.items():
        values = drawn[name].unflatten(0, (2, 20_000))
        scale = q.log_scale[name].exp()
        assert ((values.mean(dim=1) - mean).abs() < 5 * scale / 20_000**0.5).all()
        torch.testing.assert_close(values.std(dim=1), scale, rtol=0.05, atol=0.0)


def test_the_meta_loss_is_the_bound_by_a_plain_loop() -> None:
    """One inner step with the gradient of a bound that is written out for each task, sample and weight."""
    learner = make_learner("abml", inner_steps=1, samples=2, kl_weight=0.3)
    support, query = make_points(2, 1), make_points(2, 2, seed=1)
    numbers = Noise(0, torch.arange(2))
    names = list(learner.mean)
    shapes = [learner.mean[name].shape for name in names]

    def drawn() -> dict[str, torch.Tensor]:
        parts = numbers.normal(2, sum(shape.numel() for shape in shapes)).double().split([s.numel() for s in shapes], dim=-1)
        return {name: part.unflatten(-1, shape) for name, part, shape in zip(names, parts, shapes, strict=True)}

    unit = [drawn(), drawn()]  # for the inner step, then for the queries
    ours, _ = learner.meta_loss(support, query, Noise(0, torch.arange(2)))
    for task in range(2):
        prior = {name: (learner.mean[name], learner.log_scale[name]) for name in names}

        def bound(q: dict, points, eps: dict, task: int = task, prior: dict = prior) -> torch.Tensor:
            total = torch.zeros((), dtype=torch.float64)
            for s in range(2):
                weights = {name: q[name][0] + q[name][1].exp() * eps[name][task, s] for name in names}
                total = total + torch.nn.functional.cross_entropy(plain_logits(weights, points.x[task]), points.y[task]) / 2
            for name in names:
                apart = kl_divergence(*(Normal(m, r.exp()) for m, r in (q[name], prior[name]))).sum()
                total = total + 0.3 * apart / len(points.y[task])
            return total

        flat = [part for name in names for part in prior[name]]
        slopes = torch.autograd.grad(bound(prior, support, unit[0]), flat, create_graph=True)
        moved = [part - 0.1 * slope for part, slope in zip(flat, slopes, strict=True)]
        q = {name: (moved[2 * i], moved[2 * i + 1]) for i, name in enumerate(names)}
        assert ours[task].item() == pytest.approx(bound(q, query, unit[1]).item(), rel=1e-9)


def test_a_prediction_is_the_mean_of_probabilities() -> None:
    learner = make_learner("abml", test_samples=4)
    support, query = make_points(1, 1), make_points(1, 2, seed=1)
    posterior = learner.adapt(support, Noise(0, torch.arange(1)))
    log_p = learner.predict(posterior, query.x, Noise(0, torch.arange(1)))
    drawn = posterior.draw(Noise(0, torch.arange(1)), 4)
    probabilities = [plain_logits({n: w[s] for n, w in drawn.items()}, query.x[0]).softmax(dim=-1) for s in range(4)]
    torch.testing.assert_close(log_p[0].exp(), sum(probabilities) / 4)
