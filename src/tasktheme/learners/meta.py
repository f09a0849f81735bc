"""MetaLearner, a meta-learner as a user sees it: set up, fit, test, predict, save, load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tasktheme.data.checks import as_array, check_data
from tasktheme.data.dataset import Dataset, DataSplit
from tasktheme.data.task_lists import task_names
from tasktheme.device import find_device
from tasktheme.errors import DataError, ModelFileError, NotFittedError, SettingsError, out_of_memory
from tasktheme.learners.base import Learner, Noise, Points, precision
from tasktheme.learners.build import build_learner, find_learner
from tasktheme.learners.convolution import triton_runs
from tasktheme.learners.settings import LearnerSettings
from tasktheme.learners.testing import Accuracies, listed_classes, task_accuracies
from tasktheme.learners.training import MetaTrainer, resume_meta_training, save_meta_training
from tasktheme.learners.whole_step import WholeStep, adapted_accuracy
from tasktheme.settings import CHECKPOINT_SECONDS
from tasktheme.storage import LEARNER, check_tensors, fingerprint, load_model, save_model
from tasktheme.training.compiler import require_compiler
from tasktheme.training.resumable import check_run, run_resumably


class MetaLearner:
    """A network that learns to learn: MAML, a prototypical network or ABML.

    Args:
        name: "maml", "protonet" or "abml".
        settings: all settings at once; else the learner's defaults.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        changes: single settings by name (``ways=5``, ``inner_steps=3``, ...).
    """

    def __init__(
        self, name: str = "maml", *, settings: LearnerSettings | None = None, device: str = "auto", **changes: Any
    ) -> None:
        kind = find_learner(name)
        if settings is not None and not isinstance(settings, kind.Settings):
            raise SettingsError(f"{name} takes {kind.Settings.__name__}, got {type(settings).__name__}")
        self.name = name
        self.settings = (settings or kind.Settings()).changed(changes)
        self.device = find_device(device)
        self.history: list[dict[str, float]] = []
        self.validations: list[tuple[int, float]] = []
        self.trained_on: dict[str, Any] = {}
        self._learner: Learner | None = None

    def __repr__(self) -> str:
        on = f"trained on {self.trained_on['tasks']:,} tasks of {self.trained_on['data']!r}" if self._learner else "not trained"
        return f"MetaLearner({self.name!r}, ways={self.settings.ways}, shots={self.settings.shots}, {on})"

    def fit(
        self,
        data: Dataset | DataSplit,
        tasks: int = 100_000,
        *,
        progress: bool = True,
        checkpoint: str | Path | None = None,
        checkpoint_every: float = CHECKPOINT_SECONDS,
        resume: bool = False,
        compiled: bool = False,
    ) -> MetaLearner:
        """Meta-train on ``tasks`` tasks drawn from a data set, or from the training part of a split one.

        A split with classes for validation is validated on them, and the best weights are kept.

        Args:
            data: where tasks are drawn from.
            tasks: how many, rounded up to whole mini-batches.
            progress: show a progress bar on standard error.
            checkpoint: a file that keeps the state of the training, written now and then and on interrupt; the state before
                it is kept too, in case the file is damaged.
            checkpoint_every: seconds between two writings of ``checkpoint``.
            resume: go on from ``checkpoint`` where it exists; on a CPU the result is the same to the bit.
            compiled: let torch compile the step first, inner loop and second derivatives in one program; it takes a minute
                or more, which pays in long trainings on a GPU.
        """
        train, validation = (data.train, data.val) if isinstance(data, DataSplit) else (data, None)
        tasks, file = check_run(tasks, checkpoint, resume=resume, every=checkpoint_every)
        learner = build_learner(self.name, self.settings.as_dict(), train.point_shape)
        steps = -(-tasks // self.settings.batch_tasks)
        if compiled:
            require_compiler(self.device)
        trainer = MetaTrainer(learner, train, steps, self.device, validation, compiled, float(checkpoint_every))
        run_resumably(trainer, file, save=save_meta_training, load=resume_meta_training, progress=progress)
        self._learner, self.history, self.validations = learner, trainer.history, trainer.validations
        self.trained_on = {"data": train.name, "tasks": trainer.step * self.settings.batch_tasks, "classes": len(train.counts)}
        return self

    def test(
        self, data: Dataset | DataSplit, tasks: int | str = 600, *, seed: int = 1, progress: bool = False, compiled: bool = False
    ) -> Accuracies:
        """The accuracy on each of a number of random tasks, or on "all" choices of classes, of a data set's test part.

        ``compiled`` lets torch compile adapting and predicting first, as :meth:`fit` does the training step.
        """
        learner, dataset = self._require_fitted(), _test_part(data)
        classes = listed_classes(dataset, self.settings, tasks, seed=seed)
        if compiled:
            require_compiler(self.device)
        program = WholeStep(adapted_accuracy) if compiled else None
        accuracy = task_accuracies(learner, dataset, classes, seed=seed, progress=progress, compiled=program)
        groups = torch.as_tensor(dataset.class_group)[classes]
        alike = groups.eq(groups[:, :1]).all(dim=1).tolist()
        columns = {
            "classes": task_names(dataset, classes.tolist()),
            "group": [dataset.group_names[g] if one else "mixed" for g, one in zip(groups[:, 0].tolist(), alike, strict=True)],
        }
        about = {
            "learner": self.name,
            "fingerprint": self.fingerprint,
            "data": dataset.name,
            "tasks": tasks,
            "seed": seed,
            **{name: getattr(self.settings, name) for name in ("ways", "shots", "queries", "within_group")},
        }
        return Accuracies(accuracy, columns, about)

    def predict(self, support_x: npt.ArrayLike, support_y: npt.ArrayLike, query_x: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """(N, ways) probabilities of the classes for the queries of one task, given its labelled points.

        Images are (M, channels, height, width), uint8 or numbers in [0, 1]; labels are 0 to ways - 1. Batch norm sees the
        queries together (docs/decisions.md), so ask for all of a task at once: what is said of one depends on the others.
        """
        learner = self._require_fitted()
        given = as_array(support_y, what="labels")
        if given.ndim != 1 or given.dtype.kind not in "biuf" or not np.isin(given, np.arange(self.settings.ways)).all():
            raise DataError(f"labels must be whole numbers from 0 to {self.settings.ways - 1}, one for each labelled point")
        labels = torch.tensor(given.astype(np.int64), device=self.device)
        if len(set(labels.tolist())) < self.settings.ways:
            raise DataError(f"each of the {self.settings.ways} classes needs a labelled point")
        images = [self._images(x, what) for x, what in ((support_x, "support"), (query_x, "query"))]
        if len(images[0][0]) != len(labels):
            raise DataError(f"expected a label for each of the {len(images[0][0])} labelled points, got {len(labels)}")
        noise = Noise(self.settings.seed, torch.zeros(1, dtype=torch.int64, device=self.device))
        with precision(self.settings), torch.no_grad():
            adapted = learner.adapt(Points(images[0], labels.unsqueeze(0), self.settings.ways), noise)
            return learner.predict(adapted, images[1], noise)[0].exp().cpu().numpy()

    @property
    def fingerprint(self) -> str:
        """Names this learner by its weights."""
        return fingerprint(self._require_fitted().state_dict())

    @property
    def learner(self) -> Learner:
        """The trained learner: adapt, predict and meta_loss for batches of tasks."""
        return self._require_fitted()

    @property
    def point_shape(self) -> tuple[int, ...]:
        """Shape of the images that it takes."""
        return self._require_fitted().point_shape

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the learner to a folder, whole or not at all."""
        learner = self._require_fitted()
        about = {
            "learner": self.name,
            "settings": self.settings.as_dict(),
            "point_shape": list(learner.point_shape),
            "trained_on": self.trained_on,
            "history": self.history,
            "validations": self.validations,
        }
        save_model(Path(path), learner.state_dict(), about, overwrite=overwrite, kind=LEARNER)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> MetaLearner:
        """Read a learner's folder; a damaged, foreign or newer one is an error that says which."""
        where = find_device(device)
        tensors, about = load_model(Path(path), kind=LEARNER)
        try:
            found = cls(about["learner"], device=str(where), **about["settings"])
            found.history, found.trained_on = about["history"], about["trained_on"]
            found.validations = [(int(step), float(accuracy)) for step, accuracy in about["validations"]]
            point_shape = tuple(about["point_shape"])
            with torch.device("meta"):  # nothing is allocated, whatever the settings claim
                expected = build_learner(found.name, about["settings"], point_shape).state_dict()
            check_tensors(tensors, expected)
            learner = build_learner(found.name, _suited(found.settings, where).as_dict(), point_shape).to(where)
            learner.load_state_dict(tensors)
        except (KeyError, TypeError, ValueError, RuntimeError, SettingsError) as error:
            if out_of_memory(error) is not None:  # of the GPU: the file is sound
                raise
            raise ModelFileError(f"{str(path)!r} is damaged: {' '.join(str(error).split())}") from error
        found._learner = learner
        return found

    def _require_fitted(self) -> Learner:
        if self._learner is None:
            raise NotFittedError("this meta-learner is not trained yet: call fit first, or load a saved one")
        return self._learner

    def _images(self, x: npt.ArrayLike, what: str) -> torch.Tensor:
        given = as_array(x, what=what)
        check_data(given, what=what)
        shape = self._require_fitted().point_shape
        if given.shape[1:] != shape:
            raise DataError(f"{what}: expected images of shape {shape}, got an array of shape {given.shape}")
        plain = np.array(given, dtype=given.dtype.newbyteorder("="), order="C")  # torch takes no other
        array = torch.from_numpy(plain).to(self.device)
        return (array.float() / 255.0 if array.dtype == torch.uint8 else array.float()).unsqueeze(0)


def _suited(settings: LearnerSettings, device: torch.device) -> LearnerSettings:
    """The settings of a saved learner with what is a matter of the machine as this one can do it."""
    changes = {}
    if settings.convolution == "triton" and not triton_runs(device):
        changes["convolution"] = "auto"
    if settings.precision == "bfloat16":
        changes["precision"] = "auto"
    return settings.changed(changes)


def _test_part(data: Dataset | DataSplit) -> Dataset:
    return data.test if isinstance(data, DataSplit) else data
