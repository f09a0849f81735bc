"""What tasks become: a Dirichlet distribution over themes for each, with entropy, distances and neighbours."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from tasktheme import distributed
from tasktheme.errors import DataError
from tasktheme.files import check_free, make_folder
from tasktheme.maths import dirichlet
from tasktheme.tasks import distances
from tasktheme.tasks.arrays import KINDS, as_numbers, kept
from tasktheme.tasks.distances import Direction, Floats
from tasktheme.tasks.files import read_tasks, task_table, write_tasks
from tasktheme.tasks.novelty import Novelty, percentile_of, warn_of_outlier
from tasktheme.tasks.search import Index, Nearest

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_SMALLEST, _LARGEST = 1e-12, 1e15  # of gamma: beyond, digamma and its products leave the floats that a search uses
_NEIGHBOURS = 5  # where nobody says how many
_OWN_COLUMNS = ("concentration", "size", "converged", "log_likelihood", "tasktheme")


@dataclass(frozen=True, eq=False)
class TaskSet:
    """Tasks as Dirichlet distributions over the themes of one model.

    Attributes:
        concentration: gamma, (T, K): the parameters of each task's distribution.
        sizes: (T,) data points in each task.
        converged: (T,) whether the E-step met its tolerance.
        columns: anything else known of the tasks (name, group, classes, ...), a value for each.
        fingerprint: of the model that embedded them; tasks of different models are not compared.
        prior: alpha, (K,): what gamma would be for a task without data points; None where it is not known.
        log_likelihood: (T,) how well the themes explain a task's data points, whatever its mixture: the mean of their
            log-likelihoods, in nats; None where it is not known.
        aspects: parts that the themes fall into; of each, the next K / aspects, a task is a distribution of its own, independent
            of the others.
    """

    concentration: Floats
    sizes: npt.NDArray[np.int64]
    converged: npt.NDArray[np.bool_]
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    fingerprint: str = ""
    prior: Floats | None = None
    log_likelihood: Floats | None = None
    aspects: int = 1

    def __post_init__(self) -> None:
        for name in KINDS:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, as_numbers(name, getattr(self, name)))
        if self.concentration.ndim != 2 or self.concentration.shape[1] < 1:
            raise DataError(f"concentration must be (tasks, themes) numbers, got shape {self.concentration.shape}")
        whole = isinstance(self.aspects, int | np.integer) and self.aspects >= 1
        if not whole or self.concentration.shape[1] % self.aspects:
            raise DataError(f"{self.concentration.shape[1]} themes cannot be those of {self.aspects} aspects")
        object.__setattr__(self, "aspects", int(self.aspects))
        for what, gamma in (("concentration", self.concentration), ("prior", self.prior)):
            if gamma is not None and not ((gamma >= _SMALLEST) & (gamma <= _LARGEST)).all():  # False for a NaN
                raise DataError(f"{what} must be above 0 and finite throughout, from {_SMALLEST:g} to {_LARGEST:g}")
        if self.sizes.ndim == 1 and (self.sizes < 0).any():
            raise DataError("sizes, the data points of each task, must be at least 0")
        if self.log_likelihood is not None and not np.isfinite(self.log_likelihood).all():
            raise DataError("log_likelihood must be finite throughout")
        for array in KINDS:
            if (own := getattr(self, array)) is None:
                continue
            wanted = self.concentration.shape[1] if array == "prior" else len(self)
            if own.ndim != (2 if array == "concentration" else 1) or len(own) != wanted:
                raise DataError(f"{array} has {own.size} values, expected {wanted}")
            frozen = kept(own).view()
            frozen.flags.writeable = False
            object.__setattr__(self, array, frozen)
        object.__setattr__(self, "columns", {name: kept(values) for name, values in self.columns.items()})
        for name, values in self.columns.items():
            if name in _OWN_COLUMNS or name.startswith("gamma_"):
                raise DataError(f"a column cannot be called {name!r}: that is one of the task set's own")
            if len(values) != len(self):
                raise DataError(f"column {name!r} has {len(values)} values for {len(self)} tasks")

    def __len__(self) -> int:
        return len(self.concentration)

    def __repr__(self) -> str:
        aspects = f" in {self.aspects} aspects" if self.aspects > 1 else ""
        return f"TaskSet({len(self):,} tasks, {self.concentration.shape[1]} themes{aspects}, columns {list(self.columns)})"

    def __getitem__(self, which: int | np.integer | slice | Sequence[int] | npt.NDArray[Any] | str) -> TaskSet:
        """Some of the tasks, by slice, indices or a boolean mask; one index, or a task's name, gives a set of one task."""
        rows = np.atleast_1d(np.arange(len(self))[self._named(which) if isinstance(which, str) else which])
        return dataclasses.replace(
            self,
            concentration=self.concentration[rows],
            sizes=self.sizes[rows],
            converged=self.converged[rows],
            log_likelihood=None if self.log_likelihood is None else self.log_likelihood[rows],
            columns={name: [values[i] for i in rows] for name, values in self.columns.items()},
        )

    def _named(self, name: str) -> int:
        """Where the one task of this name is."""
        found = [row for row, own in enumerate(self.columns.get("name", [])) if own == name]
        if len(found) != 1:
            raise DataError(f"{f'{len(found):,} tasks are' if found else 'no task is'} named {name!r}")
        return found[0]

    @classmethod
    def concatenate(cls, parts: Sequence[TaskSet]) -> TaskSet:
        """All tasks of ``parts``, in order; a column that only some of them have is None in the others.

        Log-likelihoods are kept where all parts have them, the prior where any has it.
        """
        if not parts:
            raise DataError("there is nothing to concatenate: give at least one task set")
        for part in parts[1:]:
            parts[0].check_same_model(part)
        priors = [part.prior for part in parts if part.prior is not None]
        if not all(np.array_equal(prior, priors[0]) for prior in priors):
            raise DataError("the task sets have different priors, so they come from different models: embed all with one")
        names = dict.fromkeys(name for part in parts for name in part.columns)
        likelihoods = [part.log_likelihood for part in parts if part.log_likelihood is not None]
        return dataclasses.replace(
            parts[0],
            concentration=np.concatenate([part.concentration for part in parts]),
            prior=priors[0] if priors else None,
            sizes=np.concatenate([part.sizes for part in parts]),
            converged=np.concatenate([part.converged for part in parts]),
            log_likelihood=np.concatenate(likelihoods) if len(likelihoods) == len(parts) else None,
            columns={name: [value for part in parts for value in part.columns.get(name, [None] * len(part))] for name in names},
        )

    def with_columns(self, **columns: Sequence[Any]) -> TaskSet:
        """A copy with more columns."""
        return dataclasses.replace(self, columns={**self.columns, **columns})

    def resized(self, n: int) -> TaskSet:
        """The same tasks as if each had ``n`` data points of its own kind: they then compare by content, not by size.

        What the data added to the prior, gamma - alpha, is scaled to the sum n; ``sizes`` become n. A task of few data
        points gains a certainty that it does not have: choose n no larger than the sizes that matter.
        """
        if not isinstance(n, int | np.integer) or n < 1:
            raise DataError(f"n, the common size, must be a whole number of at least 1, got {n!r}")
        if self.prior is None:
            raise DataError("these tasks do not know their model's prior, so they cannot be resized: embed them again")
        evidence = np.maximum(self.concentration - self.prior, 0.0)  # rounding can leave a little below the prior
        parts = distances.parts(evidence, self.aspects)
        scaled = n / np.maximum(parts.sum(axis=-1, keepdims=True), _SMALLEST) * parts
        gamma = self.prior + scaled.reshape(evidence.shape)
        return dataclasses.replace(self, concentration=gamma, sizes=np.full(len(self), n, dtype=np.int64))

    def entropy(self) -> Floats:
        """(T,) differential entropy of each task's distribution in nats: the paper's task uncertainty.

        It falls as a task grows; compare tasks of one size, or :meth:`resized` ones.
        """
        entropy: Floats = dirichlet.entropy(distances.by_aspect(self.concentration, self.aspects)).sum(dim=-1).numpy()
        return entropy

    def mean_mixture(self) -> Floats:
        """(T, K) expected share of each theme in each task, among the themes of its aspect."""
        return distances.mean_mixture(self.concentration, aspects=self.aspects)

    def interval(self, level: float = 0.9) -> tuple[Floats, Floats]:
        """Low and high ends, (T, K) each, of the equal-tailed credible interval of each theme's share.

        A share on its own is Beta(gamma_k, sum_j gamma_j - gamma_k), the marginal of the Dirichlet.
        """
        if not 0.0 < level < 1.0:
            raise DataError(f"level, the probability inside the interval, must lie between 0 and 1, got {level}")
        gamma = distances.parts(self.concentration, self.aspects)
        if gamma.shape[-1] == 1:
            return np.ones_like(self.concentration), np.ones_like(self.concentration)  # a single theme is all of a task
        rest = gamma.sum(axis=-1, keepdims=True) - gamma
        tail = (1.0 - level) / 2.0
        low, high = (betaincinv(gamma, rest, end).reshape(self.concentration.shape) for end in (tail, 1.0 - tail))
        return low, high

    def top_themes(self, k: int = 3) -> npt.NDArray[np.int64]:
        """(T, k) the strongest themes of each task, strongest first."""
        if k < 1:
            raise DataError(f"k, the number of themes, must be at least 1, got {k}")
        return np.argsort(-self.mean_mixture(), axis=1, kind="stable")[:, :k]

    def kl(self, other: TaskSet, *, direction: Direction = "forward") -> Floats:
        """(T, T') KL[self_i || other_j] for all pairs: what is lost when task i is read with task j's distribution.

        "reverse" is KL[other_j || self_i], "symmetric" the mean of both. As with every distance here, a task is at distance
        exactly 0 from itself.
        """
        self.check_same_model(other)
        return distances.kl(self.concentration, other.concentration, direction, aspects=self.aspects)

    def symmetric_kl(self, other: TaskSet) -> Floats:
        """(T, T') the mean of KL in both directions (half of Jeffreys' divergence), in nats."""
        return self.kl(other, direction="symmetric")

    def hellinger(self, other: TaskSet) -> Floats:
        """(T, T') Hellinger distance between the Dirichlet distributions: a metric from 0 to 1.

        Of several aspects the root mean square of theirs.
        """
        self.check_same_model(other)
        return distances.hellinger(self.concentration, other.concentration, aspects=self.aspects)

    def jensen_shannon(self, other: TaskSet) -> Floats:
        """(T, T') Jensen-Shannon distance of the mean mixtures: a metric from 0 to sqrt(ln 2) that ignores certainty."""
        self.check_same_model(other)
        return distances.jensen_shannon(self.concentration, other.concentration, aspects=self.aspects)

    def earth_mover(self, other: TaskSet, ground: npt.ArrayLike) -> Floats:
        """(T, T') least work that turns one mean mixture into the other, where moving between themes costs ``ground``.

        ``ground`` (K, K) is usually ``model.theme_distances()``, so that alike themes are close. Of several aspects the root
        mean square of theirs. Needs the extra "transport".
        """
        self.check_same_model(other)
        return distances.earth_mover(self.concentration, other.concentration, ground, aspects=self.aspects)

    def nearest(self, reference: TaskSet, k: int | None = None, *, direction: Direction = "forward") -> Nearest:
        """The k tasks of ``reference`` with the smallest KL[self_i || reference_j]; a task is not its own neighbour, whether the
        two sets are one object or one is a copy of the other.

        By default 5, or as many as there are. Exact. "reverse" searches by KL[reference_j || self_i], "symmetric" by the mean of
        both. The first search in a direction prepares ``reference``, which then keeps 4 (K + 1) bytes for each task (twice that
        if symmetric).
        """
        self.check_same_model(reference)
        itself = self._is_copy(reference)
        available = len(reference) - itself
        if not available:
            raise DataError("there is no other task to be near to: a task is not its own neighbour")
        k = min(_NEIGHBOURS, available) if k is None else k
        if not isinstance(k, int | np.integer) or not 1 <= k <= available:
            raise DataError(f"k must be a whole number between 1 and {available}, the number of other tasks, got {k!r}")
        own = distributed.share(len(self))
        numbers = np.arange(len(self))[own] if itself else None
        found = reference._index(direction).nearest(self.concentration[own], k, numbers=numbers)
        return Nearest(distributed.all_rows(found.indices), distributed.all_rows(found.distances))

    def novelty(self, reference: TaskSet, *, direction: Direction = "forward", sample: int = 10_000) -> Novelty:
        """How unlike the known tasks of ``reference`` each task is, as a percentile of their own distances.

        A known task's own distance is that to its nearest other known task; of more than ``sample`` known tasks, that many
        stand for all, and of a task that is there several times one. Sizes matter to KL: bring both sets to one size first
        (:meth:`resized`) if theirs differ.

        A mixture can only say which themes a task is nearest to. One of a kind that the model has never seen may have the mixture
        of a known one; its ``misfit`` tells. Where the model was fitted to the known tasks it explains others of their kinds
        a little worse, by a few nats: other kinds are tens of nats away (docs/results.md).
        """
        self.check_same_model(reference)
        if len(reference) < 2:
            raise DataError(f"novelty needs at least two known tasks to compare with, got {len(reference)}")
        if sample < 1:
            raise DataError(f"sample, the known tasks that stand for all, must be at least 1, got {sample}")
        found = self.nearest(reference, k=1, direction=direction)
        usual = reference._usual_distances(direction, sample)
        if (usual == 0.0).any() and 2 <= len(alone := reference._without_copies()) < len(reference):
            usual = alone._usual_distances(direction, sample)
        misfit = None
        if self.log_likelihood is not None and reference.log_likelihood is not None:
            warn_of_outlier(reference.log_likelihood, reference.columns)
            misfit = np.maximum(reference.log_likelihood.min() - self.log_likelihood, 0.0)
        return Novelty(percentile_of(found.distances[:, 0], usual), found.distances[:, 0], found.indices[:, 0], misfit)

    def _usual_distances(self, direction: Direction, sample: int) -> Floats:
        """Of every so many-th task the distance to its nearest other one."""
        some = np.unique(np.linspace(0, len(self) - 1, min(sample, len(self))).round().astype(np.int64))
        return self._index(direction).nearest(self.concentration[some], k=1, numbers=some).distances[:, 0]

    def _without_copies(self) -> TaskSet:
        """One of those tasks that have all in common, columns too; all of them where nothing but numbers is known."""
        if not self.columns:
            return self
        rows: dict[tuple[bytes | str, ...], int] = {}
        for row, gamma in enumerate(self.concentration):
            rows.setdefault((gamma.tobytes(), *(str(values[row]) for values in self.columns.values())), row)
        return self[list(rows.values())]

    def _is_copy(self, other: TaskSet) -> bool:
        """Whether both are the same tasks, perhaps read, embedded or resized anew."""
        return other is self or (
            len(other) == len(self)
            and np.array_equal(other.concentration, self.concentration)
            and list(self.columns.get("name", ())) == list(other.columns.get("name", ()))
        )

    def to_arrow(self) -> pa.Table:
        """A flat pyarrow table: the columns, size, converged, log_likelihood, and gamma_0, gamma_1, ... for the themes."""
        return task_table(self)

    def to_pandas(self) -> pd.DataFrame:
        """The same as a pandas data frame."""
        try:
            frame: pd.DataFrame = self.to_arrow().to_pandas()
        except ImportError as error:
            raise DataError("to_pandas needs pandas: pip install pandas") from error
        return frame

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the tasks with their model's fingerprint: to .parquet, which pandas, polars and DuckDB read, .csv or .npz.

        Parquet keeps everything; CSV and NumPy keep numbers and texts: anything else becomes a text, an absent one an empty one.
        """
        target = Path(path)
        check_free(target, overwrite=overwrite)
        make_folder(target.absolute().parent)
        write_tasks(self, target)

    @classmethod
    def load(cls, path: str | Path) -> TaskSet:
        """Read what :meth:`save` wrote."""
        return cls(**read_tasks(Path(path)))

    @cached_property
    def _indexes(self) -> dict[str, Index]:
        return {}

    def _index(self, direction: Direction) -> Index:
        """These tasks prepared for search, once for each direction."""
        if direction not in self._indexes:
            self._indexes[direction] = Index(self.concentration, direction, self.aspects)
        return self._indexes[direction]

    def check_same_model(self, other: TaskSet) -> None:
        """DataError where the two cannot be compared."""
        if not isinstance(other, TaskSet):
            raise DataError(f"expected a TaskSet to compare with, such as embed gives, got {type(other).__name__}")
        same = [(one.fingerprint, one.concentration.shape[1], one.aspects) for one in (self, other)]
        if same[0] != same[1]:
            raise DataError("the two task sets come from different models and cannot be compared: embed both with one model")
