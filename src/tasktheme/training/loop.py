"""The training loop (Algorithm 1): warm-up, theme initialisation, online updates, final EM sweeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from tasktheme.data.dataset import Dataset
from tasktheme.data.episodes import EpisodeSampler
from tasktheme.data.random import random_normal
from tasktheme.errors import Interrupted, TrainingError
from tasktheme.model.initialise import cluster_moments, normal_moments, random_moments
from tasktheme.model.m_step import online_parameters, online_statistics, update_alpha
from tasktheme.model.objective import Objective, objective
from tasktheme.model.themes import Moments, Themes
from tasktheme.nets.build import Networks
from tasktheme.progress import Advance, progress_bar
from tasktheme.settings import Settings
from tasktheme.training.embedding import EmbeddedTasks, embed_batch, embed_points
from tasktheme.training.interrupt import stop_requests
from tasktheme.training.polish import polish

_RECORDS = 100  # rows of history kept of one training
_INITIAL_POINTS = 20_000  # embeddings that the themes are first fitted to
_INITIAL_SWEEPS = 10  # of EM, from clusters to a mixture
_CHECKPOINT_SECONDS = 20.0
_NOISE = 1000  # stream of the reparameterisation noise, apart from the sampler's streams


@dataclass
class Trainer:
    """The state of one training: networks and optimiser change in place, themes are replaced at each step.

    Randomness depends on the seed and the step alone, so the state at a step decides all that follows.
    """

    settings: Settings
    networks: Networks
    dataset: Dataset
    steps: int
    device: torch.device
    step: int = 0
    history: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = self.settings
        self.data = self.dataset.tensor.to(self.device)
        # an unlabelled task has no classes: it is drawn as one, as large as a labelled task would be
        classes = settings.ways[1] if self.dataset.unlabelled else 1
        self.halves = (classes * settings.t_shots, classes * settings.v_shots)
        self.sampler = EpisodeSampler(
            self.dataset,
            ways=1 if self.dataset.unlabelled else settings.ways,
            shots=sum(self.halves),
            seed=settings.seed,
            allow_fewer=self.dataset.unlabelled,
            device=self.device,
        )
        self.places = torch.arange(settings.batch_tasks, device=self.device)
        self.warm_up_steps = 0
        self.optimiser: torch.optim.Adam | None = None
        if self.networks.decoder is not None:
            self.warm_up_steps = round(settings.warm_up * self.steps)
            self.optimiser = torch.optim.Adam(self.networks.parameters(), lr=settings.learning_rate)
        self.dim = settings.latent_dim if self.networks.decoder is not None else self.dataset.point_shape[0]
        # the warm-up's prior: a single theme, the standard normal of a plain variational auto-encoder
        self.themes = self._themes(normal_moments(torch.zeros(1, self.dim), 1.0, covariance=settings.covariance))

    def run(self, *, progress: bool = True, checkpoint: Callable[[], None] | None = None) -> None:
        """Train from the current step to the end.

        ``checkpoint`` is called now and then, only while all is finite, and before an interrupt ends the run.
        """
        total, done = self.steps * self.settings.batch_tasks, self.step * self.settings.batch_tasks
        with progress_bar("training", total, done=done, show=progress) as advance, stop_requests() as stopping:
            self._run_steps(advance, stopping, checkpoint)
        if self.settings.polish_sweeps and self.settings.polish_tasks:
            self._polish(progress=progress)

    def _run_steps(self, advance: Advance, stopping: Callable[[], bool], checkpoint: Callable[[], None] | None) -> None:
        every = max(1, self.steps // _RECORDS)
        pending: list[dict[str, Tensor]] = []
        saved = time.monotonic()
        note = ""
        while self.step < self.steps:
            if self.step == self.warm_up_steps:
                self._initialise_themes()
            pending.append(self.train_step())
            if self.step % every == 0 or self.step == self.steps or stopping():
                row = self._record(pending)
                pending = []
                note = f"{'warm-up' if self.step <= self.warm_up_steps else 'themes'}  loss {row['loss']:.4f}"
                due = self.step == self.steps or stopping() or time.monotonic() - saved > _CHECKPOINT_SECONDS
                if checkpoint is not None and due:
                    checkpoint()
                    saved = time.monotonic()
            advance(self.settings.batch_tasks, note)
            if stopping():
                done = self.step * self.settings.batch_tasks
                raise Interrupted(f"training was interrupted after {done:,} of {self.steps * self.settings.batch_tasks:,} tasks")

    def train_step(self) -> dict[str, Tensor]:
        """One mini-batch: E-step, bound, gradient step, and after the warm-up the online update of the themes."""
        settings = self.settings
        step = torch.tensor(self.step, device=self.device)
        t, v = self.sampler.draw(step * settings.batch_tasks + self.places, *self.halves)
        noise = random_normal(settings.seed, _NOISE, step, (*v.mask.shape, self.dim))
        result = objective(settings, self.themes, self.networks, self.data, t, v, noise)
        terms = result.terms | {"loss": result.loss.detach()}
        if self.optimiser is not None:
            self.optimiser.zero_grad()
            result.loss.backward()
            terms["gradient_norm"] = nn.utils.clip_grad_norm_(self.networks.parameters(), settings.gradient_clip)
            self.optimiser.step()
        if self.step >= self.warm_up_steps:
            self.themes = self._update_themes(result)
        self.step += 1
        healthy = torch.stack([value.isfinite() for value in terms.values()]).all() & self.themes.valid
        return terms | {"largest_share": self.themes.share.max(), "healthy": healthy.float()}

    def _update_themes(self, result: Objective) -> Themes:
        settings, old = self.settings, self.themes
        rho = (settings.rate_offset + 1 + self.step - self.warm_up_steps) ** -settings.rate_power
        if settings.update == "statistics":
            found = online_statistics(old.moments, result.moments, rho, covariance=settings.covariance)
        else:
            found = online_parameters(old.moments, result.moments, rho)
        alpha = update_alpha(old.alpha, result.gamma, rho) if settings.learn_concentration else old.alpha
        return Themes.build(alpha, found, floor=settings.covariance_floor)

    def _initialise_themes(self) -> None:
        settings = self.settings
        if settings.initialisation == "random":
            generator = torch.Generator().manual_seed(settings.seed)
            self.themes = self._themes(
                random_moments(settings.themes, self.dim, covariance=settings.covariance, generator=generator)
            )
            return
        embedded = self._embedded_tasks(max(1, _INITIAL_POINTS // (settings.ways[1] * (settings.t_shots + settings.v_shots))))
        m = torch.cat([batch.m[batch.mask] for batch in embedded])
        s = torch.cat([batch.s[batch.mask] for batch in embedded])
        found = cluster_moments(m, s, themes=settings.themes, covariance=settings.covariance, seed=settings.seed)
        self.themes = self._themes(found)
        for themes in polish(settings, self.themes, embedded, _INITIAL_SWEEPS):
            self.themes = themes
        if not bool(self.themes.valid):
            raise TrainingError("the themes' first covariances are not positive definite; raise covariance_floor")

    def _themes(self, found: Moments) -> Themes:
        settings = self.settings
        found = Moments(*(part.to(self.device) for part in (found.n, found.mu, found.Sigma)))
        return Themes.build(torch.full_like(found.n, settings.concentration), found, floor=settings.covariance_floor)

    def _embedded_tasks(self, count: int) -> list[EmbeddedTasks]:
        """The first ``count`` training tasks, both halves together, through the encoder as it is now."""
        batches = [self.sampler.draw(task)[0] for task in torch.arange(count, device=self.device).split(100)]
        if self.networks.encoder.independent and len(self.data) <= sum(batch.rows.numel() for batch in batches):
            m, s = embed_points(self.networks.encoder, self.data)  # each data point once, however many tasks it is in
            return [EmbeddedTasks(m[batch.rows], s[batch.rows], batch.mask) for batch in batches]
        return [embed_batch(self.networks.encoder, self.data, batch) for batch in batches]

    def _polish(self, *, progress: bool) -> None:
        settings = self.settings
        embedded = self._embedded_tasks(settings.polish_tasks)
        with progress_bar("final EM", settings.polish_sweeps, show=progress) as advance:
            for themes in polish(settings, self.themes, embedded, settings.polish_sweeps):
                if not bool(themes.valid):
                    raise TrainingError("a theme's covariance is not positive definite in the final EM; raise covariance_floor")
                self.themes = themes
                advance(1, f"largest theme {float(themes.share.max()):.2f}")

    def _record(self, pending: list[dict[str, Tensor]]) -> dict[str, float]:
        means = {name: torch.stack([row[name] for row in pending]).mean() for name in pending[0]}
        names, values = list(means), torch.stack(list(means.values())).tolist()  # one read from the device
        row = dict(zip(names, values, strict=True)) | {"tasks": float(self.step * self.settings.batch_tasks)}
        if row.pop("healthy") < 1.0:
            bad = [name for name, value in row.items() if not abs(value) < float("inf")]
            cause = f"{', '.join(bad)} not finite" if bad else "a theme's covariance is not positive definite"
            raise TrainingError(
                f"training stopped before task {int(row['tasks']):,}: {cause}; try a smaller learning_rate, a larger "
                "covariance_floor or update='statistics'"
            )
        self.history.append(row)
        return row
