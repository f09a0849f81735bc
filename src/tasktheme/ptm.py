"""PTM, the probabilistic task model as a user sees it: set up, fit, embed, save, load."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tasktheme import distributed
from tasktheme.bundled import find_model
from tasktheme.data.dataset import Dataset
from tasktheme.data.episodes import Episodes, EpisodeStream, whole_tasks
from tasktheme.data.given import TaskData, as_dataset, as_tasks, check_stream, count_tasks
from tasktheme.device import find_device
from tasktheme.errors import ModelFileError, NotFittedError, SettingsError, TrainingWarning, out_of_memory
from tasktheme.fitted import Fitted
from tasktheme.model.themes import Themes
from tasktheme.negatives import are_negatives
from tasktheme.nets.build import Networks
from tasktheme.progress import progress_bar
from tasktheme.settings import CHECKPOINT_SECONDS, Settings
from tasktheme.storage import load_model, save_model
from tasktheme.tasks.alike import all_alike
from tasktheme.tasks.infer import infer_tasks, theme_log_likelihood
from tasktheme.tasks.taskset import TaskSet
from tasktheme.theme_summary import ThemeSummary, some_rows, summarise
from tasktheme.training.batches import check_points, embedded_batches, stream_points
from tasktheme.training.checkpoint import resume_training, save_training
from tasktheme.training.checks import check_aspects, check_enough, check_training
from tasktheme.training.choice import Choice
from tasktheme.training.compiler import is_compiled
from tasktheme.training.embedding import EmbeddedTasks, SharedPoints, embed_batch
from tasktheme.training.held_out import held_out_terms
from tasktheme.training.loop import Trainer
from tasktheme.training.resumable import check_run, run_resumably

_REFITTED = frozenset(  # settings of themes and of the tasks that they are fitted to; the others are the encoder's
    {"themes", "choose_themes", "aspects", "concentration", "learn_concentration", "unused_themes", "e_step_iterations"}
    | {"covariance", "covariance_floor", "covariance_prior", "polish_tasks", "polish_sweeps", "polish_start"}
    | {"embed_iterations", "embed_tolerance", "ways", "t_shots", "v_shots", "seed"}
)
_OF_EMBEDDING = ("embed_iterations", "embed_tolerance")  # settings that a fitted model may change
_TASKS_IN_PART = 10_000  # of a stream


class PTM:
    """A probabilistic task model: a variational auto-encoder and a Gaussian latent Dirichlet allocation over tasks.

    Args:
        themes: number of task-themes K; "auto" chooses it by the held-out bound, see :attr:`choice`.
        latent_dim: dimension of the embedding D.
        seed: of everything random.
        preset: "default", or "paper" for the paper's literal recipe.
        settings: all settings at once, instead of a preset.
        changes: any other setting by its name, as ``batch_tasks=5`` (``tasktheme settings`` lists them).
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
    """

    def __init__(
        self,
        themes: int | Literal["auto"] | None = None,
        latent_dim: int | None = None,
        *,
        seed: int | None = None,
        preset: str = "default",
        settings: Settings | None = None,
        device: str = "auto",
        **changes: Any,
    ) -> None:
        if settings is not None and preset != "default":
            raise SettingsError("give either settings or a preset, not both")
        chosen = {"themes": themes, "latent_dim": latent_dim, "seed": seed}
        base = settings if settings is not None else Settings.preset(preset)
        self.settings = base.changed({name: value for name, value in chosen.items() if value is not None} | changes)
        self.device = find_device(device)
        self.history: list[dict[str, float]] = []
        self.trained_on: dict[str, Any] = {}
        self._fitted: Fitted | None = None
        self._asked = self._found = self.settings  # before and after a fit; another begins with what was asked for

    def __repr__(self) -> str:
        state, about = "not fitted", self.trained_on
        if self._fitted:
            state = f"fitted on {about['tasks']:,} tasks of {about['data']!r}"
            state += f", themes refitted to {about['themes_refitted_to']!r}" if "themes_refitted_to" in about else ""
        dim = self._fitted.themes.dimensions if self._fitted else self.settings.latent_dim
        aspects = f" in each of {self.settings.aspects} aspects" if self.settings.aspects > 1 else ""
        return f"PTM(themes={self.settings.themes}{aspects}, latent_dim={dim}, {state})"

    def fit(
        self,
        data: TaskData,
        tasks: int = 20_000,
        *,
        progress: bool = True,
        checkpoint: str | Path | None = None,
        checkpoint_every: float = CHECKPOINT_SECONDS,
        resume: bool = False,
        compiled: bool | None = None,
    ) -> PTM:
        """Train on ``tasks`` tasks drawn from ``data``.

        Args:
            data: a data set; or unlabelled tasks: arrays, in a list or by name, or episodes.
            tasks: how many, rounded up to whole mini-batches.
            progress: show a progress bar on standard error.
            checkpoint: a file that keeps the state of the training, written now and then and on interrupt; the state before
                it is kept too, in case the file is damaged.
            checkpoint_every: seconds between two writings of ``checkpoint``.
            resume: go on from ``checkpoint`` where it exists; on a CPU the result is the same to the bit.
            compiled: let torch compile the step first, which takes a minute; by default in long trainings on a GPU, where
                it pays, if torch finds a compiler.
        """
        dataset = as_dataset(data)
        tasks, file = check_run(tasks, checkpoint, resume=resume, every=checkpoint_every)
        settings = self._asked if self.settings is self._found else self.settings
        networks = Networks(settings, dataset.point_shape, self.device)
        check_training(settings, dataset, learns=networks.decoder is not None)
        networks.standardise_by(dataset.tensor)
        if settings.network_start == "data":
            networks.start_at(dataset.tensor)
        steps = -(-tasks // settings.batch_tasks)
        compiled = is_compiled(compiled, self.device, tasks)
        trainer = Trainer(settings, networks, dataset, steps, self.device, compiled, float(checkpoint_every))
        run_resumably(trainer, file, save=save_training, load=resume_training, progress=progress)
        self._asked = trainer.asked
        self.settings = self._found = trainer.settings  # with the number of themes that there are now
        self.history = trainer.history
        self.trained_on = {"data": dataset.name, "tasks": steps * settings.batch_tasks}
        if trainer.choice is not None:
            self.trained_on["choice_of_themes"] = trainer.choice.as_dict()
        self._fitted = Fitted(networks, trainer.themes)
        return self

    def refit(self, data: TaskData, *, progress: bool = True, **changes: Any) -> PTM:
        """Another model with the same encoder and new themes, by full EM on tasks of ``data``: no training, no labels.

        Episodes and arrays are the very tasks (where they are more than ``polish_tasks``, as many of them, at random); from a
        labelled data set tasks are drawn.
        ``changes`` are settings that concern themes or tasks: ``themes=32``, ``themes="auto"``, ``covariance="diagonal"``,
        ``aspects=8`` for so many themes in each of eight parts of the embedding, which tells tasks apart better, ...
        """
        networks = self._require_fitted().networks
        for name in changes:
            if name in Settings.__dataclass_fields__ and name not in _REFITTED:
                raise SettingsError(f"refit leaves the encoder as it is, and so cannot change {name!r}")
        dataset = as_dataset(data)
        check_points(networks, dataset)
        settings = self.settings.changed({"choose_themes": False, **changes})
        check_enough(dataset, settings.themes)
        check_aspects(settings.aspects, self.themes.dimensions)
        self._warn_of(None, dataset)
        trainer = Trainer(settings, networks, dataset, 1, self.device)
        trainer.refit_themes(progress=progress)
        model = PTM(settings=trainer.settings, device=str(self.device))
        model.history = self.history
        model.trained_on = {name: value for name, value in self.trained_on.items() if name != "choice_of_themes"}
        model.trained_on["themes_refitted_to"] = dataset.name
        if trainer.choice is not None:
            model.trained_on["choice_of_themes"] = trainer.choice.as_dict()
        model._fitted = Fitted(networks, trainer.themes)
        return model

    def embed(self, tasks: TaskData, *, progress: bool = False, points: SharedPoints | None = None) -> TaskSet:
        """Infer each task's Dirichlet distribution over themes.

        ``tasks`` are episodes, unlabelled tasks, or simply arrays of data points, in a list or by name, of any sizes from one up.
        ``points`` are those of the episodes' data set where they are embedded already. Warns where all tasks are alike to the
        model, which then says nothing about them, and of images that are negatives of what it knows.
        """
        source = as_tasks(tasks)
        found = self._embed(source, progress=progress, points=points)
        self._warn_of(found, source)
        return found

    def _embed(self, source: Dataset | Episodes, *, progress: bool = False, points: SharedPoints | None) -> TaskSet:
        return infer_tasks(self._require_fitted(), self.settings, source, self.device, points=points, progress=progress)

    def embed_stream(self, tasks: EpisodeStream, *, progress: bool = False) -> Iterator[TaskSet]:
        """What :meth:`embed` gives, some thousands of tasks at a time and in order, in memory that does not grow with them.

        ``tasks`` are those of ``dataset.stream(...)``. Each data point is embedded once where that pays and its embedding
        does not depend on its task; those of the whole data set are then held.
        """
        networks = self._require_fitted().networks
        check_stream(tasks)  # now, and not when the first part is asked for
        return self._embed_parts(networks, tasks, progress)

    def _embed_parts(self, networks: Networks, tasks: EpisodeStream, progress: bool) -> Iterator[TaskSet]:
        points = stream_points(networks, tasks, self.device, progress=progress)
        with progress_bar("embedding", len(tasks), show=progress) as advance:
            for number, part in enumerate(tasks.parts(_TASKS_IN_PART)):
                found = self._embed(part, points=points)
                if number == 0:
                    self._warn_of(found, part)
                yield found
                advance(len(part), "")

    def mean_embedding(self, tasks: TaskData, *, progress: bool = False) -> npt.NDArray[np.float32]:
        """(T, D) the mean embedding of each task's data points: a plain vector to compare the themes with."""
        source, networks = as_tasks(tasks), self._require_fitted().networks
        means = np.zeros((count_tasks(source), self.themes.dimensions), dtype=np.float32)
        for which, embedded in embedded_batches(networks, source, self.device, progress=progress):
            weight = embedded.mask.unsqueeze(-1)
            means[which] = _numpy((embedded.m * weight).sum(dim=1) / weight.sum(dim=1))
        return distributed.filled(means)

    def point_embeddings(self, tasks: Episodes, *, progress: bool = False) -> npt.NDArray[np.float32]:
        """(T, N, D) the mean embedding m of each data point of each task, as ``tasks.batch`` lays them out; 0 where padded."""
        networks = self._require_fitted().networks
        points = np.zeros((*tasks.batch.mask.shape, self.themes.dimensions), dtype=np.float32)
        for which, embedded in embedded_batches(networks, tasks, self.device, progress=progress):
            points[which] = _numpy(embedded.m * embedded.mask.unsqueeze(-1))
        return distributed.filled(points)

    def held_out_bound(self, tasks: Episodes, *, seed: int = 0, progress: bool = False) -> dict[str, float]:
        """The bound of tasks per data point, term by term, as in training: half of each class's points infer q(z, pi), the
        bound is that of the other half.

        ``bound`` is the sum of the terms at weight 1. The names are those of ``history``; ``ln_p_x`` and ``entropy_u`` are
        missing where there is no decoder, ``ln_p_y`` and ``accuracy``, which are no part of the sum, without a
        classification loss. ``ln_p_x`` takes one draw of u for each point, by the seed. Needs two points of each class.
        """
        fitted = self._require_fitted()
        terms = held_out_terms(self.settings, fitted.themes, fitted.networks, tasks, self.device, seed=seed, progress=progress)
        bound = sum(value for name, value in terms.items() if name not in ("ln_p_y", "accuracy"))
        return {"bound": bound, **terms}

    def embed_points(self, x: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """The mean embedding m of each data point of one task, (N, D)."""
        return _numpy(self._encode_task(x).m[0])

    def theme_log_likelihood(self, x: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """(N, K) expected log-likelihood of each data point of one task under each theme."""
        embedded = self._encode_task(x)
        return _numpy(theme_log_likelihood(self.themes, embedded)[0])

    @property
    def themes(self) -> Themes:
        """The fitted themes: alpha, mu, covariances and shares."""
        return self._require_fitted().themes

    @property
    def point_shape(self) -> tuple[int, ...]:
        """Shape of the data points that this model embeds."""
        return self._require_fitted().networks.point_shape

    @property
    def fingerprint(self) -> str:
        """Names this model by its weights; task sets carry it."""
        return self._require_fitted().fingerprint

    @property
    def brightness(self) -> float | None:
        """Mean brightness of the images that the themes decode to, from 0 for black to 1 for white; None without a decoder."""
        return self._require_fitted().brightness

    def theme_distances(self) -> npt.NDArray[np.float64]:
        """(K, K) 2-Wasserstein distances between the themes' Gaussians: the ground cost of ``TaskSet.earth_mover``.

        Infinite between themes of different aspects, which are in other dimensions.
        """
        distances: npt.NDArray[np.float64] = self.themes.distances().cpu().numpy()
        return distances

    def decode_themes(self) -> npt.NDArray[np.float32] | None:
        """The decoded mean of each theme, (K, *point shape); None where there is no decoder."""
        decoded = self._require_fitted().decode_themes()
        return None if decoded is None else _numpy(decoded)

    def summary(self, data: Dataset, *, typical: int = 8) -> list[ThemeSummary]:
        """What each theme is about, by the data points of ``data``; the largest share first.

        Its share, the classes and groups that it draws from, and the ``typical`` rows of ``data`` most typical of it.
        """
        fitted = self._require_fitted()
        rows = some_rows(data)
        log_likelihood, share = self.theme_log_likelihood(data.x[rows]), fitted.themes.share.cpu().numpy()
        decoded, aspects = fitted.networks.decoder is not None, fitted.themes.aspects
        return summarise(data, rows, log_likelihood, share, typical=typical, decoded=decoded, aspects=aspects)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the model to a folder, whole or not at all."""
        fitted, theirs = self._require_fitted(), self._found.as_dict()
        changed = [name for name, value in self.settings.as_dict().items() if theirs[name] != value and name not in _OF_EMBEDDING]
        if changed:
            raise SettingsError(f"{', '.join(changed)} changed after the fit: fit or refit the model, then save it")
        about = {
            "settings": self.settings.as_dict(),
            "point_shape": list(fitted.networks.point_shape),
            "trained_on": self.trained_on,
            "history": self.history,
        }
        save_model(Path(path), fitted.tensors(), about, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> PTM:
        """Read a model folder, or a model that comes with tasktheme by its name, such as "omniglot-default".

        A folder goes before a name; a damaged, foreign or newer one is an error that says which.
        """
        where = find_device(device)
        tensors, about = load_model(find_model(path))
        try:
            model = cls(settings=Settings().changed(about["settings"]), device=str(where))
            model.history, model.trained_on = about["history"], about["trained_on"]
            model._fitted = Fitted.from_tensors(tensors, model.settings, tuple(about["point_shape"]), where)
        except (KeyError, TypeError, RuntimeError, SettingsError) as error:
            if out_of_memory(error) is not None:  # of the GPU: the file is sound
                raise
            raise ModelFileError(f"{str(path)!r} is damaged: {' '.join(str(error).split())}") from error
        return model

    @property
    def choice(self) -> Choice | None:
        """How the number of themes was chosen, where it was."""
        kept = self.trained_on.get("choice_of_themes")
        return None if kept is None else Choice(**kept)

    def _require_fitted(self) -> Fitted:
        if self._fitted is None:
            raise NotFittedError("this model is not fitted yet: call fit first, or load a saved model")
        return self._fitted

    def _warn_of(self, tasks: TaskSet | None, source: Dataset | Episodes) -> None:
        alike = None if tasks is None else all_alike(tasks)
        lines = [] if alike is None else [alike]
        if are_negatives(source.dataset if isinstance(source, Episodes) else source, self):
            lines.append("the images are negatives of those that the model knows: invert them (.inverted(), or --invert)")
        if lines:
            warnings.warn("; ".join(lines), TrainingWarning, stacklevel=3)

    def _encode_task(self, x: npt.ArrayLike) -> EmbeddedTasks:
        networks = self._require_fitted().networks
        dataset = Dataset.from_tasks([x])
        check_points(networks, dataset)
        [(_, batch)] = whole_tasks(dataset, points=len(dataset))
        return embed_batch(networks.encoder, dataset.tensor.to(self.device), batch.to(self.device))


def _numpy(tensor: Tensor) -> npt.NDArray[np.float32]:
    array: npt.NDArray[np.float32] = tensor.cpu().numpy()
    return array
