"""What follows the last training step, with the encoder frozen: the number of themes, full EM, themes that nothing needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from tasktheme import distributed
from tasktheme.errors import DataError, Interrupted, TrainingError
from tasktheme.model.themes import Themes
from tasktheme.model.unused import unused
from tasktheme.progress import progress_bar
from tasktheme.settings import Settings
from tasktheme.training.choice import LADDER, Choice, choose_themes, embedded_parts
from tasktheme.training.embedding import TaskPoints, embed_batch
from tasktheme.training.health import warn_of_dropped, warn_of_embedding, warn_of_few_points, warn_of_themes, warn_of_unused
from tasktheme.training.polish import em_sweep, polish, start_from_tasks

if TYPE_CHECKING:
    from tasktheme.training.loop import Trainer

_CHECKED_TASKS = 10  # whose embeddings tell whether the encoder ignores the data


def finish(
    trainer: Trainer, stopping: Callable[[], bool], checkpoint: Callable[[], None] | None, *, progress: bool, anew: bool = False
) -> None:
    """Bring ``trainer`` from its last step to the end; ``anew`` begins with new themes, whatever they were."""
    settings = trainer.settings
    polished = settings.polish_sweeps > 0 and settings.polish_tasks > 0
    from_tasks = polished and settings.polish_start == "tasks"
    of_the_kind = trainer.themes.aspects == settings.aspects == 1  # that the online updates, or a state, left
    if polished or settings.choose_themes or anew or not of_the_kind:
        embedded = trainer.embedded_tasks(settings.polish_tasks or trainer.first_tasks)
        started = not anew and of_the_kind
        if settings.choose_themes:
            started = started and trainer.choice is not None
            trainer.choice = trainer.choice or _choice(trainer, stopping, progress=progress)
            trainer.settings = replace(settings, themes=trainer.choice.themes)
            if settings.aspects > 1 and checkpoint is not None:  # a single aspect's first sweep keeps it
                checkpoint()
        if settings.aspects > 1:
            trainer.themes = _themes_of_aspects(trainer, embedded, stopping, progress=progress)
        else:
            if from_tasks and trainer.sweeps == 0:
                trainer.themes = start_from_tasks(trainer.settings, embedded)
            elif not started:
                trainer.themes = trainer.first_themes(embedded)
            if polished:
                _polish(trainer, embedded, stopping, checkpoint, progress=progress)
                trainer.themes = _needed(trainer.settings, trainer.themes, embedded)
                trainer.settings = replace(trainer.settings, themes=len(trainer.themes.alpha))
    trainer.finished = True
    if checkpoint is not None:
        checkpoint()
    shares = trainer.themes.share.chunk(trainer.themes.aspects)
    if not warn_of_themes(*shares):
        warn_of_unused(torch.cat([unused(share) for share in shares]), settings)
    _check_embedding(trainer)


def _themes_of_aspects(trainer: Trainer, embedded: TaskPoints, stopping: Callable[[], bool], *, progress: bool) -> Themes:
    """Themes for ``trainer``'s encoder, of each aspect of the embedding by themselves: without what other aspects know.

    Unused ones stay, so that aspects have as many.
    """
    settings = trainer.settings
    sweeps = settings.polish_sweeps if settings.polish_tasks > 0 else 0
    found = []
    with progress_bar("final EM", settings.aspects * sweeps, show=progress and sweeps > 0) as advance:
        for aspect in range(settings.aspects):
            part, place = embedded.aspect(aspect, settings.aspects), f"aspect {aspect + 1} of {settings.aspects}"
            try:
                if sweeps and settings.polish_start == "tasks":
                    themes = start_from_tasks(settings, part)
                else:
                    themes = trainer.first_themes(part)
            except DataError as error:
                raise DataError(f"{place}: {error}; take fewer themes, or fewer aspects") from error
            for sweep, swept in enumerate(polish(settings, themes, part, sweeps), start=1):
                _check(swept)
                themes = swept
                advance(1, place)
                last = sweep == sweeps and aspect + 1 == settings.aspects
                if not last and distributed.anywhere(stopping())[0]:
                    raise Interrupted(f"the final EM was interrupted in {place}")
            found.append(themes)
    return Themes.together(found)


def _check_embedding(trainer: Trainer) -> None:
    """Warn where the encoder ignores the data."""
    if trainer.networks.decoder is not None:
        some, _ = trainer.sampler.draw(torch.arange(_CHECKED_TASKS, device=trainer.device), *trainer.halves)
        warn_of_embedding([embed_batch(trainer.networks.encoder, trainer.data, some)], trainer.settings)


def _check(themes: Themes) -> None:
    if not bool(themes.valid):
        raise TrainingError("a theme's covariance is not positive definite in the final EM; raise covariance_floor")


def _choice(trainer: Trainer, stopping: Callable[[], bool], *, progress: bool) -> Choice:
    settings = trainer.settings
    parts = embedded_parts(settings, trainer.networks.encoder, trainer.dataset, trainer.data, trainer.halves)
    if settings.covariance == "full":
        warn_of_few_points(parts[0].aspect(0, settings.aspects))
    with progress_bar("number of themes", len(LADDER), show=progress) as advance:

        def next_size(steps: int, note: str) -> None:
            advance(steps, note)
            if distributed.anywhere(stopping())[0]:
                raise Interrupted("the choice of the number of themes was interrupted")

        return choose_themes(settings, *parts, advance=next_size)


def _polish(
    trainer: Trainer,
    embedded: TaskPoints,
    stopping: Callable[[], bool],
    checkpoint: Callable[[], None] | None,
    *,
    progress: bool,
) -> None:
    """The sweeps of the final EM that are left; a state is kept between them as between steps."""
    total = trainer.settings.polish_sweeps
    saved = time.monotonic()
    with progress_bar("final EM", total, done=trainer.sweeps, show=progress) as advance:
        for themes in polish(trainer.settings, trainer.themes, embedded, total - trainer.sweeps):
            _check(themes)
            trainer.themes, trainer.sweeps = themes, trainer.sweeps + 1
            advance(1, f"largest theme {float(themes.share.max()):.2f}")
            now = time.monotonic()
            stop, overdue = distributed.anywhere(stopping(), now - saved >= trainer.checkpoint_every)
            if checkpoint is not None and (stop or overdue):
                checkpoint()
                saved = now
            if stop:
                raise Interrupted(f"the final EM was interrupted after {trainer.sweeps} of {total} sweeps")


def _needed(settings: Settings, themes: Themes, embedded: TaskPoints) -> Themes:
    """The themes, without those that are unused where these may be dropped."""
    lost = unused(themes.share)
    if settings.unused_themes == "keep" or not bool(lost.any()):
        return themes
    warn_of_dropped(lost)
    kept = themes.select(~lost, floor=settings.covariance_floor)
    return em_sweep(settings, kept, embedded, prior=settings.covariance_prior)
