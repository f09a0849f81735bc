"""The objective of a mini-batch against a slow recomputation, task by task and without padding; and where gradients flow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from oracles import plain
from oracles.plain import Array
from oracles.problems import COVARIANCES, make_problem
from tasktheme.data.episodes import EpisodeBatch
from tasktheme.model.initialise import normal_moments
from tasktheme.model.objective import Objective, objective
from tasktheme.model.themes import Moments, Themes
from tasktheme.nets.build import Networks
from tasktheme.settings import Settings

WAYS, SHOTS, LATENT = 3, 3, 2
SIZES = ((9, 9, 5), (9, 6, 3))  # data points of the t and the v half of each task; the rest is padding
DATA = 60
PADDING = 0  # the row that padded places hold; no task has it
LDA_TERMS = ("ln_p_u", "ln_p_z", "ln_p_pi", "entropy_z", "entropy_pi")

IMAGES: dict[str, Any] = {"filters": (4, 8), "latent_dim": LATENT}
LABELLED: dict[str, Any] = {"classification_weight": 0.7}
PAPER: dict[str, Any] = {"validation_responsibilities": "reused", "squared_distance": False, "norm": "batch", "bound_weight": 1.0}
VARIANTS: dict[str, dict[str, Any]] = {
    "unlabelled": IMAGES,
    "labelled": IMAGES | LABELLED,
    "batch norm": IMAGES | {"norm": "batch"},
    "labelled, batch norm": IMAGES | LABELLED | {"norm": "batch"},
    "paper, unlabelled": IMAGES | PAPER,
    "paper": IMAGES | LABELLED | PAPER | {"update": "parameters"},
    "vectors": {"encoder": "vector", "hidden": (6,), "latent_dim": LATENT},
    "vectors, labelled": {"encoder": "vector", "hidden": (6,), "latent_dim": LATENT} | LABELLED,
    "identity": {"encoder": "identity"},
    "identity, reused": {"encoder": "identity", "validation_responsibilities": "reused"},
}


@dataclass(frozen=True)
class Case:
    """A mini-batch of three padded tasks with everything its objective needs, in float64."""

    settings: Settings
    themes: Themes
    networks: Networks
    data: Tensor
    t: EpisodeBatch
    v: EpisodeBatch

    def run(self) -> Objective:
        return objective(self.settings, self.themes, self.networks, self.data, self.t, self.v, self.noise())

    def loss(self) -> float:
        return float(self.run().loss.detach())

    def noise(self) -> Tensor:
        """What draws u for the reconstruction."""
        return torch.randn((*self.v.rows.shape, LATENT), generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def half(rows: Tensor, sizes: tuple[int, ...]) -> EpisodeBatch:
    mask = torch.arange(rows.shape[1]) < torch.tensor(sizes)[:, None]
    return EpisodeBatch(rows.masked_fill(~mask, PADDING), torch.arange(rows.shape[1]).remainder(WAYS).expand_as(rows), mask)


def make_case(changes: dict[str, Any], *, themes: int = 2, sizes: tuple[tuple[int, ...], tuple[int, ...]] = SIZES) -> Case:
    settings = Settings(themes=themes, ways=(WAYS, WAYS), t_shots=SHOTS, v_shots=SHOTS, e_step_iterations=4).changed(changes)
    if settings.validation_responsibilities == "reused":
        sizes = (sizes[0], sizes[0])
    generator = torch.Generator().manual_seed(0)
    shape = (1, 8, 8) if settings.encoder == "auto" else (LATENT,)
    data = torch.rand((DATA, *shape), generator=generator, dtype=torch.float64)
    rows = (1 + torch.randperm(DATA - 1, generator=generator))[: 2 * len(sizes[0]) * WAYS * SHOTS].reshape(2, len(sizes[0]), -1)
    networks = Networks(settings, shape, torch.device("cpu")).double()
    problem = make_problem(1, settings.covariance, themes=themes, dim=LATENT)
    return Case(settings, problem.themes(), networks, data, half(rows[0], sizes[0]), half(rows[1], sizes[1]))


@dataclass(frozen=True)
class SlowTask:
    """One task's share of the objective, from its real data points alone."""

    terms: dict[str, float]
    m: Array
    s: Array
    r: Array


def encode(case: Case, batch: EpisodeBatch, task: int) -> tuple[Tensor, Tensor, Tensor]:
    """x, m and s of one task without padding."""
    x = case.data[batch.rows[task][batch.mask[task]]][None]
    with torch.no_grad():
        m, s = case.networks.encoder(x, everyone(x))
    return x, m, s


def everyone(x: Tensor) -> Tensor:
    return torch.ones(x.shape[:2], dtype=torch.bool)


def slow_tasks(case: Case) -> Iterator[SlowTask]:
    alpha, mu = case.themes.alpha.numpy(), case.themes.mu.numpy()
    Sigma = case.themes.moments.Sigma.numpy()
    for task in range(len(case.t.rows)):
        (_, m_t, s_t), (x, m_v, s_v) = (encode(case, batch, task) for batch in (case.t, case.v))
        r, gamma = plain.e_step(
            plain.expected_log_likelihood(m_t[0].numpy(), s_t[0].numpy(), mu, Sigma), alpha, case.settings.e_step_iterations
        )
        log_likelihood = plain.expected_log_likelihood(m_v[0].numpy(), s_v[0].numpy(), mu, Sigma)
        if case.settings.validation_responsibilities == "recomputed":
            r = plain.responsibilities(log_likelihood, gamma)
        points = m_v.shape[1]
        terms = {name: value / points for name, value in plain.bound_terms(log_likelihood, r, gamma, alpha).items()}
        if case.networks.decoder is not None:
            terms |= slow_likelihood(case, task, x, m_v, s_v) | slow_classification(case, task, m_t, m_v)
        yield SlowTask(terms, m_v[0].numpy(), s_v[0].numpy(), r)


def slow_likelihood(case: Case, task: int, x: Tensor, m: Tensor, s: Tensor) -> dict[str, float]:
    u = m + s * case.noise()[task : task + 1, : m.shape[1]]
    with torch.no_grad():
        ln_p_x = case.networks.decoder.log_prob(u, x, everyone(x))
    entropy = [stats.multivariate_normal(np.zeros(LATENT), np.diag(row**2)).entropy() for row in s[0].numpy()]
    return {"entropy_u": float(np.mean(entropy)), "ln_p_x": float(ln_p_x.mean())}


def slow_classification(case: Case, task: int, m_t: Tensor, m_v: Tensor) -> dict[str, float]:
    if case.settings.classification_weight == 0.0:
        return {}
    t_labels, v_labels = (batch.labels[task][batch.mask[task]].numpy() for batch in (case.t, case.v))
    log_p = plain.log_class_probability(m_t[0].numpy(), t_labels, m_v[0].numpy(), WAYS, squared=case.settings.squared_distance)
    right = [log_p[n].argmax() == label for n, label in enumerate(v_labels)]
    return {"ln_p_y": float(np.mean([log_p[n, label] for n, label in enumerate(v_labels)])), "accuracy": float(np.mean(right))}


def slow_loss(case: Case, terms: dict[str, float]) -> float:
    """One task's loss from its terms."""
    bound = sum(terms[name] for name in LDA_TERMS)
    if case.networks.decoder is None:
        return -bound
    dimensions = case.data[0].numel()
    value = (case.settings.bound_weight * (bound + terms["entropy_u"]) + terms["ln_p_x"]) / dimensions
    return -value - case.settings.classification_weight * terms.get("ln_p_y", 0.0)


@pytest.fixture(params=VARIANTS)
def case(request: pytest.FixtureRequest) -> Case:
    return make_case(VARIANTS[request.param])


def test_loss_and_terms_are_those_of_the_slow_recomputation(case: Case) -> None:
    found, tasks = case.run(), list(slow_tasks(case))
    expected = {name: np.mean([task.terms[name] for task in tasks]) for name in tasks[0].terms}
    assert {name: float(value) for name, value in found.terms.items()} == pytest.approx(expected, rel=1e-7, abs=1e-7)
    assert case.loss() == pytest.approx(np.mean([slow_loss(case, task.terms) for task in tasks]), rel=1e-7)


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("update", ["statistics", "parameters"])
def test_news_of_the_themes_are_the_v_halfs_moments(covariance: str, update: str) -> None:
    case = make_case(IMAGES | {"covariance": covariance, "update": update})
    found, tasks = case.run().evidence.moments(case.settings), list(slow_tasks(case))
    if update == "statistics":
        together = (np.concatenate([getattr(task, name) for task in tasks]) for name in ("m", "s", "r"))
        expected = plain.m_step(*together)
        assert_moments(found, *expected, covariance)
    else:
        for i, task in enumerate(tasks):
            assert_moments(Moments(found.n[i], found.mu[i], found.Sigma[i]), *plain.m_step(task.m, task.s, task.r), covariance)


def assert_moments(found: Moments, n: Array, mu: Array, Sigma: Array, covariance: str) -> None:
    np.testing.assert_allclose(found.n.numpy(), n, rtol=1e-7)
    np.testing.assert_allclose(found.mu.numpy(), mu, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.Sigma.numpy(), plain.restrict(Sigma, covariance), rtol=1e-7, atol=1e-9)


def test_a_padding_row_has_no_say(case: Case) -> None:
    before = case.loss()
    case.data[PADDING] = 0.5
    assert case.loss() == pytest.approx(before, rel=1e-12)


def test_a_padding_row_has_no_say_where_reused_halves_differ() -> None:
    case = make_case(VARIANTS["identity, reused"])
    case = Case(case.settings, case.themes, case.networks, case.data, half(case.t.rows, (3, 3, 3)), half(case.v.rows, (4, 4, 4)))
    before = case.loss()
    case.data[PADDING] = 9.0
    assert case.loss() == pytest.approx(before, rel=1e-12)


def test_every_weight_gets_a_gradient(case: Case) -> None:
    found = case.run()
    if case.networks.decoder is None:
        assert not found.loss.requires_grad
        return
    found.loss.backward()
    for name, weight in case.networks.named_parameters():
        assert weight.grad is not None, name
        assert float(weight.grad.abs().max()) > 0.0, name


def test_reports_and_news_carry_no_gradient(case: Case) -> None:
    found = case.run()
    for value in (*found.terms.values(), *vars(found.evidence).values()):
        assert not value.requires_grad


def directional_slopes(case: Case) -> tuple[float, float]:
    """The slope of the loss along a random direction of all weights: by autograd and by central differences."""
    weights = list(case.networks.parameters())
    generator = torch.Generator().manual_seed(3)
    direction = [torch.randn(weight.shape, generator=generator, dtype=torch.float64) for weight in weights]
    slopes = torch.autograd.grad(case.run().loss, weights)
    analytic = sum(float((slope * step).sum()) for slope, step in zip(slopes, direction, strict=True))
    values = []
    with torch.no_grad():
        for distance in (1e-6, -2e-6):
            for weight, step in zip(weights, direction, strict=True):
                weight += distance * step
            values.append(case.loss())
    return analytic, (values[0] - values[1]) / 2e-6


@pytest.mark.parametrize("variant", ["unlabelled", "labelled", "labelled, batch norm", "paper", "vectors, labelled"])
def test_gradient_of_a_single_theme_is_that_of_finite_differences(variant: str) -> None:
    """With one theme q(z, pi) is a constant, so nothing that the objective detaches depends on the weights."""
    analytic, numeric = directional_slopes(make_case(VARIANTS[variant], themes=1))
    assert analytic == pytest.approx(numeric, rel=1e-5)


@pytest.mark.parametrize("variant", ["unlabelled", "batch norm", "vectors"])
def test_recomputed_responsibilities_need_no_gradient(variant: str) -> None:
    """They maximise the bound given gamma, which an empty t half holds at the prior: the slope is exact without theirs."""
    analytic, numeric = directional_slopes(make_case(VARIANTS[variant], themes=3, sizes=((0, 0, 0), SIZES[1])))
    assert analytic == pytest.approx(numeric, rel=1e-5)


@pytest.mark.parametrize("responsibilities", ["recomputed", "reused"])
def test_themes_that_are_all_alike_have_the_gradient_of_one(responsibilities: str) -> None:
    """The prior of the warm-up: K standard normal themes, a plain variational auto-encoder."""
    gradients = []
    for themes in (1, 4):
        alike = normal_moments(torch.zeros((themes, LATENT), dtype=torch.float64), 1.0, covariance="full")
        case = make_case(IMAGES | {"validation_responsibilities": responsibilities}, themes=themes)
        case = replace(case, themes=Themes.build(torch.full_like(alike.n, 1.1), alike, floor=1e-4))
        gradients.append(torch.autograd.grad(case.run().loss, list(case.networks.parameters())))
    assert all(slope.abs().max() > 0.0 for slope in gradients[0])
    torch.testing.assert_close(*gradients)
