"""All settings of a model and its training: one frozen dataclass, checked when made, with named presets."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import math
import reprlib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args, get_origin, get_type_hints

from tasktheme.errors import SettingsError

Precision = Literal["auto", "float32", "bfloat16"]
Encoder = Literal["auto", "convolutional", "vector", "identity"]
CHECKPOINT_SECONDS = 20.0  # between two savings of the state of a training


def check_known(names: Iterable[str], known: Sequence[str]) -> None:
    """SettingsError at the first name of a setting that is not known; it suggests the nearest known one."""
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise SettingsError(f"unknown setting {name!r}{hint}")


@dataclass(frozen=True)
class CheckedSettings:
    """What all settings share: each value is checked against its annotation, and a changed copy knows its names."""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            object.__setattr__(self, name, _checked(name, getattr(self, name), kind))

    def _require(self, name: str, met: bool, wanted: str) -> None:
        if not met:
            raise SettingsError(f"setting {name!r} must be {wanted}, got {getattr(self, name)}")

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """A copy with some settings changed; an unknown name is an error that suggests the nearest known one."""
        changes = self._spelt_out(changes)
        known = [field.name for field in dataclasses.fields(self)]
        check_known(changes, known)
        return dataclasses.replace(self, **changes)

    def _spelt_out(self, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Changes with every short form written out."""
        return changes

    def as_dict(self) -> dict[str, Any]:
        """All settings, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """What each setting means: the text below it, which Python itself does not keep."""
        texts: dict[str, str] = {}
        for kind in reversed(cls.__mro__[:-1]):
            try:
                body = cast(ast.ClassDef, ast.parse(inspect.getsource(kind)).body[0]).body
            except OSError:  # installed without its source
                continue
            for line, below in pairwise(body):
                match line, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        texts[name] = " ".join(text.split())
        return {field.name: texts.get(field.name, "") for field in dataclasses.fields(cls)}


@dataclass(frozen=True)
class Settings(CheckedSettings):
    """Defaults are the preset "default"; "paper" is the paper's literal recipe (docs/decisions.md compares them)."""

    # the model
    themes: int = 8
    """K, the number of task-themes; "auto" sets choose_themes, a number in its place unsets it."""
    choose_themes: bool = False
    """Choose K after training by the held-out bound; the encoder trains with ``themes``."""
    latent_dim: int = 64
    """D, the dimension of the embedding u; the identity encoder takes the data's own."""
    covariance: Literal["full", "diagonal", "isotropic"] = "full"
    """Structure of each theme's covariance."""
    concentration: float = 1.1
    """alpha, the symmetric Dirichlet prior of a task's mixture (its start, where it is learned)."""
    learn_concentration: bool = False
    """Update alpha by Newton steps."""
    covariance_floor: float = 1e-4
    """Added to each theme's variances, as a part of the themes' average variance."""
    aspects: int = 1
    """Parts that the embedding's dimensions are dealt out to after training, each with K themes of its own: a task is then a
    distribution over the themes of every part, and tasks are told apart better."""
    training_aspects: int = 1
    """The same for the themes of the training itself, whatever follows it: an encoder learns more from more themes."""

    # the networks
    encoder: Encoder = "auto"
    """"auto" is "convolutional" for images and "identity" for vectors."""
    filters: tuple[int, ...] = (8, 16, 32, 64)
    """Filters of each convolutional module; each halves the image."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the "vector" encoder."""
    norm: Literal["group", "batch"] = "group"
    """"group" makes an image's embedding independent of its task; "batch" uses the task's own statistics."""
    standardise: bool = False
    """With the "identity" encoder, divide each feature by its standard deviation in the training data, whose mean becomes 0;
    "vector" always does."""
    network_start: Literal["random", "data"] = "random"
    """First weights: random ones; or "data", random ones fitted to the data, so that the embedding varies at once and the decoder
    draws the mean image, against the collapse of short trainings."""

    # the objective
    bound_weight: float = 5.0
    """Weight of the LDA bound and the entropy of q(u) against the reconstruction; 1 is the bound itself."""
    classification_weight: float = 0.0
    """Weight of the prototype classification loss, per data point, against the other terms divided by the number of
    pixels (the authors' proportion); 0 ignores labels."""
    squared_distance: bool = True
    """Squared Euclidean distance to the prototypes; False takes the root."""
    validation_responsibilities: Literal["recomputed", "reused"] = "recomputed"
    """Responsibilities of the v half: recomputed from gamma, or those of the t half row by row."""

    # the themes' updates
    initialisation: Literal["mixture", "random"] = "mixture"
    """Themes start from a mixture fitted to warm-up embeddings, or at random around the origin."""
    update: Literal["statistics", "parameters"] = "statistics"
    """Online update on sufficient statistics, or on the normalised local parameters."""
    rate_offset: float = 10.0
    """tau_0 of rho_i = (tau_0 + i)^-tau_1, i counting mini-batches."""
    rate_power: float = 0.6
    """tau_1 of rho_i."""
    e_step_iterations: int = 10
    """E-step iterations in training."""
    warm_up: float = 0.3
    """Part of the training tasks that trains encoder and decoder alone, with a standard normal prior."""
    unused_themes: Literal["revive", "keep"] = "revive"
    """A theme with less than a tenth of 1 / K of the data points: made half of the largest in training and dropped in the final
    EM (not of several aspects, which have as many), or left alone."""
    polish_tasks: int = 2000
    """Tasks for the final EM sweeps with the encoder frozen."""
    polish_sweeps: int = 20
    """Final EM sweeps; 0 leaves the themes as the online updates left them, or, of several aspects, as they start."""
    polish_start: Literal["themes", "tasks"] = "themes"
    """Where the final EM begins: with the themes of the online updates (in a refit, and of several aspects, of clusters of data
    points), or anew with clusters of tasks."""
    covariance_prior: float = 3.0
    """In the final EM, the data points for each dimension that the covariance which all themes have in common counts as, in each
    theme's own; 0 is maximum likelihood."""

    # inference
    embed_iterations: int = 200
    """Largest number of E-step iterations when embedding."""
    embed_tolerance: float = 1e-3
    """Mean change in gamma below which the E-step has converged."""

    # training
    precision: Precision = "auto"
    """Of the products in convolutional networks in training; "auto" is "bfloat16" on a GPU and "float32" elsewhere. Embeddings,
    norms, themes and weights are float32 always."""
    batch_tasks: int = 20
    """Tasks in a mini-batch."""
    ways: tuple[int, int] = (5, 5)
    """Fewest and most classes in a training task."""
    t_shots: int = 10
    """Data points of each class in the t half, which infers q(z, pi)."""
    v_shots: int = 10
    """Data points of each class in the v half, which trains."""
    learning_rate: float = 1e-3
    """Step size of Adam."""
    gradient_clip: float = 10.0
    """Largest norm of the gradient."""
    seed: int = 0
    """Seed of everything random."""

    def __post_init__(self) -> None:
        given: object = self.themes
        if given == "auto":
            object.__setattr__(self, "themes", Settings.themes)
            object.__setattr__(self, "choose_themes", True)
        super().__post_init__()
        for name in (
            "themes",
            "aspects",
            "training_aspects",
            "latent_dim",
            "e_step_iterations",
            "embed_iterations",
            "batch_tasks",
            "t_shots",
            "v_shots",
        ):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        for name in (
            "warm_up",
            "polish_tasks",
            "polish_sweeps",
            "covariance_floor",
            "covariance_prior",
            "classification_weight",
            "rate_offset",
            "seed",
        ):
            self._require(name, getattr(self, name) >= 0, "at least 0")
        for name in ("concentration", "bound_weight", "learning_rate", "gradient_clip", "embed_tolerance"):
            self._require(name, getattr(self, name) > 0, "above 0")
        self._require("seed", self.seed < 2**32, "below 2^32")
        self._require("warm_up", self.warm_up < 1.0, "a part of the training, below 1")
        self._require("rate_power", 0.5 <= self.rate_power <= 1.0, "in [0.5, 1]")
        self._require("ways", 1 <= self.ways[0] <= self.ways[1], "(fewest, most) with 1 <= fewest <= most")
        for name in ("filters", "hidden"):
            layers = getattr(self, name)
            self._require(name, len(layers) > 0 and min(layers) >= 1, "at least one layer, each of at least 1 unit")
        if self.validation_responsibilities == "reused" and self.t_shots != self.v_shots:
            raise SettingsError("responsibilities reused row by row need equal halves: set t_shots = v_shots")

    def _spelt_out(self, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        if "themes" not in changes:
            return changes
        if changes["themes"] != "auto":  # a number is no choice, unless both are given
            return {"choose_themes": False, **changes}
        return {name: value for name, value in changes.items() if name != "themes"} | {"choose_themes": True}

    @classmethod
    def preset(cls, name: str = "default") -> Settings:
        """The settings of a named preset."""
        if name not in _PRESETS:
            raise SettingsError(f"unknown preset {name!r}; there are {', '.join(_PRESETS)}")
        return cls(**_PRESETS[name])

    @classmethod
    def from_toml(cls, path: str | Path, *, preset: str | None = None) -> Settings:
        """Settings from a TOML file of ``name = value`` lines; a line ``preset = "..."`` names what they change."""
        try:
            content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise SettingsError(f"settings file {str(path)!r} cannot be read: {' '.join(str(error).split())}") from error
        named = content.pop("preset", "default")
        if not isinstance(named, str):
            raise SettingsError(f"setting 'preset' must be a name, got {named!r}")
        return cls.preset(preset or named).changed(content)


_PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "covariance_floor": 0.0,
        "norm": "batch",
        "bound_weight": 1.0,
        "classification_weight": 1.0,
        "squared_distance": False,
        "validation_responsibilities": "reused",
        "initialisation": "random",
        "update": "parameters",
        "rate_offset": 1e6,
        "rate_power": 0.5,
        "e_step_iterations": 5,
        "warm_up": 0.0,
        "unused_themes": "keep",
        "polish_sweeps": 0,
        "covariance_prior": 0.0,
        "ways": (5, 20),
        "learning_rate": 2e-4,
    },
}


def _checked(name: str, value: Any, kind: Any) -> Any:
    """``value`` as ``kind``: a choice, a tuple of integers, a bool or a number; anything else is an error."""
    if get_origin(kind) is Literal:
        if value in get_args(kind):
            return value
        close = difflib.get_close_matches(str(value), get_args(kind), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise SettingsError(f"setting {name!r} must be one of {', '.join(get_args(kind))}, got {reprlib.repr(value)}{hint}")
    if get_origin(kind) is tuple:
        pair = name == "ways"
        values = (value, value) if pair and _is_whole(value) else value
        if isinstance(values, list | tuple) and all(map(_is_whole, values)) and (len(values) == 2 or not pair):
            return tuple(map(int, values))
        raise SettingsError(f"setting {name!r} must be {'two' if pair else 'a list of'} whole numbers, got {reprlib.repr(value)}")
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and _is_whole(value):
        return int(value)
    if kind is float and isinstance(value, Real) and not isinstance(value, bool) and _is_finite(value):
        return float(value)
    wanted = _KIND_WORDS[kind] + (', or "auto"' if name == "themes" else "")
    raise SettingsError(f"setting {name!r} must be {wanted}, got {reprlib.repr(value)}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and abs(int(value)) <= _LARGEST_WHOLE


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


_LARGEST_WHOLE = 2**32
_KIND_WORDS = {bool: "true or false", int: "a whole number of at most 2^32", float: "a finite number"}
