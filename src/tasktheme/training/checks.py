"""What a training or a refit cannot do is an error before it begins, and what it will hardly do well a warning."""

from __future__ import annotations

from tasktheme.data.dataset import Dataset
from tasktheme.errors import DataError, SettingsError
from tasktheme.settings import Settings
from tasktheme.training.health import warn_of_units, warn_of_wide_themes

_OF_LEARNING = {"classification_weight": 0, "training_aspects": 1}  # settings that mean nothing where no encoder learns


def check_training(settings: Settings, dataset: Dataset, *, learns: bool) -> None:
    """An error where settings and data do not go together; ``learns`` is whether there is an encoder that does."""
    if settings.classification_weight > 0.0 and dataset.unlabelled:
        raise SettingsError("unlabelled tasks cannot train a classification loss: set classification_weight = 0")
    if settings.validation_responsibilities == "reused" and dataset.unlabelled and dataset.counts.min() < 2:
        raise DataError("responsibilities reused row by row need tasks of at least two data points, one for each half")
    if settings.standardise and len(dataset.point_shape) > 1:
        raise SettingsError("standardise is for feature vectors, and images are none: leave it out")
    for name, off in _OF_LEARNING.items():
        if not learns and getattr(settings, name) != off:
            raise SettingsError(f"the identity encoder learns nothing: set {name} = {off} or encoder = 'vector'")
    for aspects in (settings.training_aspects, settings.aspects):
        check_aspects(aspects, settings.latent_dim if learns else dataset.point_shape[0])
    if settings.initialisation == "mixture" or settings.aspects > 1:
        check_enough(dataset, settings.themes)
    if not learns and not settings.standardise:
        warn_of_units(dataset.x)
    if not learns and settings.covariance == "full":
        warn_of_wide_themes(dataset.point_shape[0])


def check_enough(dataset: Dataset, themes: int) -> None:
    """DataError where so many themes cannot start: now, and not after a warm-up, or for want of memory."""
    if themes > len(dataset):
        raise DataError(f"{themes} themes need at least as many data points to start from, got {len(dataset)}")


def check_aspects(aspects: int, dimensions: int) -> None:
    """SettingsError where the embedding cannot be dealt out so."""
    if dimensions % aspects:
        cannot = f"an embedding of {dimensions} dimensions cannot be dealt out to {aspects} aspects alike"
        raise SettingsError(f"{cannot}: take a number that divides {dimensions}")
