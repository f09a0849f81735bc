"""The training loop (Algorithm 1): warm-up, theme initialisation, online updates; what follows them is in ``finish.py``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from tasktheme import distributed
from tasktheme.data.dataset import Dataset
from tasktheme.data.episodes import EpisodeBatch, EpisodeSampler, whole_tasks
from tasktheme.data.random import random_normal, random_places
from tasktheme.errors import Interrupted, TrainingError
from tasktheme.model.initialise import normal_moments, random_moments
from tasktheme.model.m_step import online_parameters, online_statistics, pooled, pooled_over_tasks, update_alpha
from tasktheme.model.objective import Evidence, Objective, objective
from tasktheme.model.themes import Moments, Themes
from tasktheme.model.unused import revive, unused
from tasktheme.nets.build import Networks
from tasktheme.progress import Advance, progress_bar
from tasktheme.settings import CHECKPOINT_SECONDS, Settings
from tasktheme.training.choice import Choice, held_out_groups
from tasktheme.training.compiler import compile_step, compiler_failures, silent_compiler
from tasktheme.training.embedding import TaskPoints, embed_tasks
from tasktheme.training.finish import finish
from tasktheme.training.graph import Beside, CapturedStep
from tasktheme.training.health import warn_of_compiler, warn_of_themes
from tasktheme.training.interrupt import stop_requests
from tasktheme.training.polish import start_themes
from tasktheme.training.running import RunningMeans

_RECORDS = 100  # rows of history kept of one training
_INITIAL_POINTS = 20_000  # embeddings that the themes are first fitted to
_POINTS_AT_ONCE = 10_000  # data points of whole tasks that go through EM together
_INITIAL_SWEEPS = 10  # of EM, from clusters to a mixture
_SHOW_SECONDS = 0.2  # between movements of the progress bar
_NOISE = 1000  # stream of the reparameterisation noise, apart from the sampler's streams


@dataclass
class Trainer:
    """The state of one training: networks, optimiser and themes change in place, so that a GPU can replay the step.

    Randomness depends on the seed and the step alone, so the state at a step decides all that follows. Of several processes
    each has a part of every mini-batch and the same state.
    """

    settings: Settings
    networks: Networks
    dataset: Dataset
    steps: int
    device: torch.device
    compiled: bool = False
    checkpoint_every: float = CHECKPOINT_SECONDS
    step: int = 0
    sweeps: int = 0  # of the final EM
    finished: bool = False  # nothing is left to train
    history: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = self.asked = self.settings  # the number of themes may become another
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
        own, self._weight = distributed.share_of_batch(settings.batch_tasks)
        self._places = torch.arange(settings.batch_tasks, device=self.device)[own]
        self._shared = distributed.world() > 1
        distributed.from_leader(self.networks.state_dict().values())
        self.warm_up_steps = 0
        self.optimiser: torch.optim.Adam | None = None
        if self.networks.decoder is not None:
            self.warm_up_steps = min(round(settings.warm_up * self.steps), self.steps - 1)  # themes get a step at least
            on_gpu = self.device.type == "cuda"
            self.optimiser = torch.optim.Adam(
                self.networks.parameters(), lr=settings.learning_rate, capturable=on_gpu, fused=on_gpu or None
            )
        self.dim = settings.latent_dim if self.networks.decoder is not None else self.dataset.point_shape[0]
        shape = (settings.batch_tasks, self.sampler.most_ways * self.halves[1], self.dim)  # of the v half's embeddings
        self._noise_places = torch.arange(math.prod(shape), device=self.device).view(shape)[own]
        # the warm-up's prior: all themes alike, the standard normal of a plain variational auto-encoder
        self.aspects = settings.training_aspects
        alike = normal_moments(torch.zeros(settings.themes, self.dim // self.aspects), 1.0, covariance=settings.covariance)
        self.themes = Themes.together([self._themes(alike)] * self.aspects)
        if self.compiled:
            alone = () if self._shared else ("_updated_themes",)  # which asks the other processes, and then is not compiled
            self._programs = ("_draw", "_forward", *alone)
            for name in self._programs:
                setattr(self, name, compile_step(getattr(self, name), mixed_orders=settings.norm != "batch"))
        self._counter = torch.zeros((), dtype=torch.int64, device=self.device)  # the step, where the device sees it
        self.running = RunningMeans()
        self._drawn: tuple[Tensor, ...] | None = None  # the mini-batch that comes next
        self._captured: Callable[[], None] | None = None
        self._beside = Beside(self.device)
        self._collapsed = False  # the themes, and somebody was warned
        self.choice: Choice | None = None
        if settings.choose_themes:
            held_out_groups(settings, self.dataset)  # too little data is an error now, not after the training

    def run(self, *, progress: bool = True, checkpoint: Callable[[], None] | None = None) -> None:
        """Train from the current step to the end.

        ``checkpoint`` is called now and then, only while all is finite, and before an interrupt ends the run.
        """
        distributed.check_same_step(self.step)
        total, done = self.steps * self.settings.batch_tasks, self.step * self.settings.batch_tasks
        with stop_requests() as stopping:
            with progress_bar("training", total, done=done, show=progress) as advance:
                self._run_steps(advance, stopping, checkpoint)
            if not self.finished:
                finish(self, stopping, checkpoint, progress=progress)

    def refit_themes(self, *, progress: bool = True) -> None:
        """Instead of a training: new themes for the encoder as it is, by full EM."""
        self.step = self.steps
        with stop_requests() as stopping:
            finish(self, stopping, None, progress=progress, anew=True)

    def _run_steps(self, advance: Advance, stopping: Callable[[], bool], checkpoint: Callable[[], None] | None) -> None:
        every = max(1, self.steps // _RECORDS)
        saved = shown = time.monotonic()
        shown_step = self.step
        note = ""
        while self.step < self.steps:
            if self.step == self.warm_up_steps:
                self._initialise_themes()
            self.train_step()
            now, last = time.monotonic(), self.step == self.steps
            stop, overdue = distributed.anywhere(stopping(), now - saved >= self.checkpoint_every)
            due = checkpoint is not None and (last or stop or overdue)
            recording = self.step % every == 0 or last
            if recording or due:
                row = self._means()
                if recording:
                    row["unused_themes"] = self._tend_themes(revived=not last and self.settings.unused_themes == "revive")
                    self.history.append(row)
                    self.running.clear()
                note = f"{'warm-up' if self.step <= self.warm_up_steps else 'themes'}  loss {row['loss']:.4f}"
                if self.history and (idle := self.history[-1]["unused_themes"]):
                    note += f"  {idle:.0f} unused"
            if due and checkpoint is not None:
                checkpoint()
                saved = now
            if now - shown > _SHOW_SECONDS or last:
                advance((self.step - shown_step) * self.settings.batch_tasks, note)
                shown, shown_step = now, self.step
            if stop:
                done, total = (steps * self.settings.batch_tasks for steps in (self.step, self.steps))
                raise Interrupted(f"training was interrupted after {done:,} of {total:,} tasks")

    def _tend_themes(self, *, revived: bool) -> float:
        """The number of unused themes, which are then ``revived``, in place: outside the recorded step, which goes on with them.

        Happens where a row of the history is made, so that a resumed training does the same.
        """
        parts, settings = self.themes.apart(), self.settings
        self._collapsed = self._collapsed or warn_of_themes(*(part.share for part in parts))
        found = sum(int(unused(part.share).sum()) for part in parts)
        if found and revived:
            revived_parts = [
                Themes.build(part.alpha, revive(part.moments, covariance=settings.covariance), floor=settings.covariance_floor)
                for part in parts
            ]
            self.themes.assign(Themes.together(revived_parts))
        return float(found)

    def train_step(self) -> None:
        """One mini-batch; where torch fails to compile it, which it finds before anything changed, by its plain operations."""
        if self.compiled:
            try:
                with silent_compiler():
                    self._take_step()
            except compiler_failures() as fault:
                warn_of_compiler(fault)
                for name in self._programs:
                    delattr(self, name)  # what is left is the method of that name
                self.compiled, self._captured = False, None
        if not self.compiled:
            self._take_step()
        self.step += 1

    def _take_step(self) -> None:
        """On a GPU, after the first few, the replay of one recorded mini-batch."""
        if self._captured is None:
            self._counter.fill_(self.step)
            self._drawn = tuple(part.clone() for part in self._draw(self._counter))
            themes_move = self.step >= self.warm_up_steps
            body = partial(self._step_on_device, themes_move=themes_move)
            self._captured = CapturedStep(body) if self.device.type == "cuda" and not self._shared else body
        self._captured()

    def _step_on_device(self, *, themes_move: bool) -> None:
        """E-step, bound, gradient step and, after the warm-up, the online update of the themes.

        Reads and writes the same tensors at each call and never waits for the device. A GPU updates the themes and draws
        the next mini-batch while it computes the gradient of this one, and puts them in place during the gradient step.
        """
        assert self._drawn is not None
        result = self._forward(*self._drawn)
        terms = result.terms | {"loss": result.loss.detach()}
        terms = dict(zip(terms, distributed.summed(terms.values(), self._weight), strict=True))
        with self._beside:
            themes = self._updated_themes(result.evidence) if themes_move else self.themes
            terms |= {"largest_share": themes.share.max(), "invalid": 1.0 - themes.valid.float()}
            following = self._draw(self._counter + 1)
        if self.optimiser is not None:
            self.optimiser.zero_grad()
            result.loss.backward()
        with self._beside:  # not before the gradient is known, which depends on the themes and the tasks as they were
            if themes_move:
                self.themes.assign(themes)
            for own, other in zip(self._drawn, following, strict=True):
                own.copy_(other)
            self._counter += 1
        if self.optimiser is not None:
            distributed.sum_gradients(self.networks.parameters(), self._weight)
            terms["gradient_norm"] = nn.utils.clip_grad_norm_(self.networks.parameters(), self.settings.gradient_clip)
            self.optimiser.step()
        self._beside.wait()
        self.running.add(terms)

    def _draw(self, step: Tensor) -> tuple[Tensor, ...]:
        """The mini-batch of a step: rows, labels and mask of the t half and of the v half, and the noise."""
        t, v = self.sampler.draw(step * self.settings.batch_tasks + self._places, *self.halves)
        noise = random_normal(self.settings.seed, _NOISE, step, self._noise_places)
        return t.rows, t.labels, t.mask, v.rows, v.labels, v.mask, noise

    def _forward(self, *drawn: Tensor) -> Objective:
        t, v, noise = EpisodeBatch(*drawn[:3]), EpisodeBatch(*drawn[3:6]), drawn[6]
        return objective(self.settings, self.themes, self.networks, self.data, t, v, noise)

    @torch.no_grad()
    def _updated_themes(self, evidence: Evidence) -> Themes:
        settings = self.settings
        updates = (self._counter - self.warm_up_steps + 1).double()
        rho = ((settings.rate_offset + updates) ** -settings.rate_power).to(self.themes.mu.dtype)
        parts = enumerate(self.themes.apart())
        return Themes.together([self._updated(old, evidence.of_aspect(aspect, self.aspects), rho) for aspect, old in parts])

    def _updated(self, old: Themes, evidence: Evidence, rho: Tensor) -> Themes:
        settings = self.settings
        if settings.update == "statistics":
            found = online_statistics(old.moments, pooled(evidence.moments(settings)), rho, covariance=settings.covariance)
        else:
            found = online_parameters(old.moments, pooled_over_tasks(evidence.moments(settings), self._weight), rho)
        alpha = old.alpha
        if settings.learn_concentration:
            alpha = update_alpha(alpha, distributed.gathered(evidence.gamma), rho)
        return Themes.build(alpha, found, floor=settings.covariance_floor)

    def _initialise_themes(self) -> None:
        self._captured = None  # themes that move: another graph
        settings, aspects = self.settings, range(self.aspects)
        if settings.initialisation == "random":
            generator = torch.Generator().manual_seed(settings.seed)
            dim, covariance = self.dim // self.aspects, settings.covariance
            found = [random_moments(settings.themes, dim, covariance=covariance, generator=generator) for _ in aspects]
            self.themes = Themes.together([self._themes(moments) for moments in found])
            return
        embedded = self.embedded_tasks(self.first_tasks, cut=True)
        self.themes = Themes.together([self.first_themes(embedded.aspect(aspect, self.aspects)) for aspect in aspects])

    @property
    def first_tasks(self) -> int:
        """How many tasks themes start from."""
        settings = self.settings
        return max(1, _INITIAL_POINTS // (settings.ways[1] * (settings.t_shots + settings.v_shots)))

    def first_themes(self, embedded: TaskPoints) -> Themes:
        """Themes from clusters of these embeddings."""
        themes = start_themes(self.settings, embedded, sweeps=_INITIAL_SWEEPS)
        if not bool(themes.valid):
            raise TrainingError("the themes' first covariances are not positive definite; raise covariance_floor")
        return themes

    def _themes(self, found: Moments) -> Themes:
        settings = self.settings
        found = Moments(*(part.to(self.device) for part in (found.n, found.mu, found.Sigma)))
        return Themes.build(torch.full_like(found.n, settings.concentration), found, floor=settings.covariance_floor)

    def embedded_tasks(self, count: int, *, cut: bool = False) -> TaskPoints:
        """The first ``count`` training tasks, both halves together, through the encoder as it is now.

        Unlabelled tasks come once each, with all their data points: exact EM where there are no more than ``count``. Where
        there are more they may be ``cut``: come as in training.
        """
        given = len(self.dataset.counts)
        if self.dataset.unlabelled and not (cut and given > count):
            some = random_places(self.settings.seed, given, count)
            whole = whole_tasks(self.dataset, points=_POINTS_AT_ONCE, of=some)
            batches = [batch.to(self.device) for _, batch in whole]
        else:
            batches = [self.sampler.draw(task)[0] for task in torch.arange(count, device=self.device).split(100)]
        return embed_tasks(self.networks.encoder, self.data, batches)

    def _means(self) -> dict[str, float]:
        """The means since the last row of the history; an error if anything in them is unsound."""
        row = {"tasks": float(self.step * self.settings.batch_tasks), **self.running.read()}
        bad = [name for name, value in row.items() if not abs(value) < float("inf")]
        if row.pop("invalid") or bad:
            cause = f"{', '.join(bad)} not finite" if bad else "a theme's covariance is not positive definite"
            raise TrainingError(
                f"training stopped before task {int(row['tasks']):,}: {cause}; try a smaller learning_rate, a larger "
                "covariance_floor or update='statistics'"
            )
        return row
