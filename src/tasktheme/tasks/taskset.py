"""What tasks become: a Dirichlet distribution over themes for each, with entropy, distances and neighbours."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import betaincinv

from tasktheme.errors import DataError, ModelFileError, OutputError
from tasktheme.maths import dirichlet

_FORMAT = 1
_BLOCK = 1 << 22  # distances held at once in a search
_OWN_COLUMNS = ("concentration", "size", "converged")

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Nearest:
    """The k nearest reference tasks of each query, nearest first: indices and KL distances, both (queries, k)."""

    indices: npt.NDArray[np.int64]
    distances: Floats


@dataclass(frozen=True, eq=False)
class TaskSet:
    """Tasks as Dirichlet distributions over the themes of one model.

    Attributes:
        concentration: gamma, (T, K): the parameters of each task's distribution.
        sizes: (T,) data points in each task.
        converged: (T,) whether the E-step met its tolerance.
        columns: anything else known of the tasks (name, group, classes, ...), a value for each.
        fingerprint: of the model that embedded them; tasks of different models are not compared.
    """

    concentration: Floats
    sizes: npt.NDArray[np.int64]
    converged: npt.NDArray[np.bool_]
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    fingerprint: str = ""

    def __post_init__(self) -> None:
        for array in ("concentration", "sizes", "converged"):
            frozen = getattr(self, array).view()
            frozen.flags.writeable = False
            object.__setattr__(self, array, frozen)
        for name, values in self.columns.items():
            if name in _OWN_COLUMNS:
                raise DataError(f"a column cannot be called {name!r}: that is one of the task set's own")
            if len(values) != len(self):
                raise DataError(f"column {name!r} has {len(values)} values for {len(self)} tasks")

    def __len__(self) -> int:
        return len(self.concentration)

    def __repr__(self) -> str:
        return f"TaskSet({len(self):,} tasks, {self.concentration.shape[1]} themes, columns {list(self.columns)})"

    def __getitem__(self, which: int | slice | Sequence[int] | npt.NDArray[Any]) -> TaskSet:
        """Some of the tasks, by slice, indices or a boolean mask; one index gives a set of one task."""
        rows = np.atleast_1d(np.arange(len(self))[which])
        return TaskSet(
            self.concentration[rows],
            self.sizes[rows],
            self.converged[rows],
            {name: [values[i] for i in rows] for name, values in self.columns.items()},
            self.fingerprint,
        )

    @classmethod
    def concatenate(cls, parts: Sequence[TaskSet]) -> TaskSet:
        """All tasks of ``parts``, in order; a column that only some of them have is None in the others."""
        if not parts:
            raise DataError("there is nothing to concatenate: give at least one task set")
        first = parts[0]
        for part in parts[1:]:
            first._check_same_model(part)
        names = dict.fromkeys(name for part in parts for name in part.columns)
        return cls(
            np.concatenate([part.concentration for part in parts]),
            np.concatenate([part.sizes for part in parts]),
            np.concatenate([part.converged for part in parts]),
            {name: [value for part in parts for value in part.columns.get(name, [None] * len(part))] for name in names},
            first.fingerprint,
        )

    def with_columns(self, **columns: Sequence[Any]) -> TaskSet:
        """A copy with more columns."""
        return TaskSet(self.concentration, self.sizes, self.converged, {**self.columns, **columns}, self.fingerprint)

    def entropy(self) -> Floats:
        """(T,) differential entropy of each task's distribution in nats: the paper's task uncertainty.

        It falls as a task grows; compare tasks of one size.
        """
        return _numpy(dirichlet.entropy(_tensor(self.concentration)))

    def mean_mixture(self) -> Floats:
        """(T, K) expected share of each theme in each task."""
        mixture: Floats = self.concentration / self.concentration.sum(axis=1, keepdims=True)
        return mixture

    def interval(self, level: float = 0.9) -> tuple[Floats, Floats]:
        """Low and high ends, (T, K) each, of the equal-tailed credible interval of each theme's share.

        A share on its own is Beta(gamma_k, sum_j gamma_j - gamma_k), the marginal of the Dirichlet.
        """
        if not 0.0 < level < 1.0:
            raise DataError(f"level, the probability inside the interval, must lie between 0 and 1, got {level}")
        if self.concentration.shape[1] == 1:
            return np.ones_like(self.concentration), np.ones_like(self.concentration)  # a single theme is all of a task
        rest = self.concentration.sum(axis=1, keepdims=True) - self.concentration
        tail = (1.0 - level) / 2.0
        return betaincinv(self.concentration, rest, tail), betaincinv(self.concentration, rest, 1.0 - tail)

    def top_themes(self, k: int = 3) -> npt.NDArray[np.int64]:
        """(T, k) the strongest themes of each task, strongest first."""
        return np.argsort(-self.concentration, axis=1, kind="stable")[:, :k]

    def kl(self, other: TaskSet) -> Floats:
        """(T, T') KL[self_i || other_j] for all pairs: what is lost when task i is read with task j's distribution.

        A task's distance to itself is exactly 0.
        """
        self._check_same_model(other)
        distances = _numpy(dirichlet.kl_divergence(_tensor(self.concentration), _tensor(other.concentration)))
        same: dict[bytes, list[int]] = {}
        for j, row in enumerate(other.concentration):
            same.setdefault(row.tobytes(), []).append(j)
        for i, row in enumerate(self.concentration):  # rounding must not part equal tasks
            distances[i, same.get(row.tobytes(), [])] = 0.0
        return distances

    def nearest(self, reference: TaskSet, k: int = 5) -> Nearest:
        """The k tasks of ``reference`` with the smallest KL[self_i || reference_j]; a task is not its own neighbour."""
        available = len(reference) - (reference is self)
        if not 1 <= k <= available:
            raise DataError(f"k must lie between 1 and {available}, the number of other tasks, got {k}")
        indices, distances = [], []
        for start, block in self._distance_blocks(reference):
            if reference is self:
                rows = np.arange(len(block))
                block[rows, start + rows] = np.inf
            best = np.argpartition(block, k - 1, axis=1)[:, :k]
            order = np.argsort(np.take_along_axis(block, best, axis=1), axis=1, kind="stable")
            best = np.take_along_axis(best, order, axis=1)
            indices.append(best)
            distances.append(np.take_along_axis(block, best, axis=1))
        return Nearest(np.concatenate(indices), np.concatenate(distances))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a Parquet file that pandas, polars and DuckDB read; the model's fingerprint goes into its metadata."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        target = Path(path)
        if target.exists() and not overwrite:
            raise OutputError(f"{str(target)!r} exists already")
        themes = self.concentration.shape[1]
        flat = pa.array(self.concentration.reshape(-1))
        arrays = {
            **{name: _column(name, values) for name, values in self.columns.items()},
            "size": pa.array(self.sizes),
            "converged": pa.array(self.converged),
            "concentration": pa.FixedSizeListArray.from_arrays(flat, themes),
        }
        about = json.dumps({"format": _FORMAT, "fingerprint": self.fingerprint})
        table = pa.table(arrays).replace_schema_metadata({"tasktheme": about})
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            pq.write_table(table, temporary)
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise OutputError(f"cannot write {str(target)!r}: {error.strerror or error}") from error

    @classmethod
    def load(cls, path: str | Path) -> TaskSet:
        """Read what :meth:`save` wrote."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(path)
            about = json.loads(table.schema.metadata[b"tasktheme"])
            version, fingerprint = int(about["format"]), str(about["fingerprint"])
            own = {name: table.column(name).combine_chunks() for name in _OWN_COLUMNS}
        except FileNotFoundError as error:
            raise ModelFileError(f"there is no task file {str(path)!r}") from error
        except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"{str(path)!r} is not a task file that tasktheme wrote, or is damaged") from error
        if version > _FORMAT:
            raise ModelFileError(
                f"{str(path)!r} has format {version}, newer than this tasktheme reads ({_FORMAT}): update tasktheme"
            )
        gamma = own["concentration"]
        return cls(
            gamma.flatten().to_numpy(zero_copy_only=False).reshape(len(gamma), gamma.type.list_size).astype(np.float64),
            own["size"].to_numpy(zero_copy_only=False).astype(np.int64),
            own["converged"].to_numpy(zero_copy_only=False).astype(np.bool_),
            {name: table.column(name).to_pylist() for name in table.column_names if name not in _OWN_COLUMNS},
            fingerprint,
        )

    def _check_same_model(self, other: TaskSet) -> None:
        if self.fingerprint != other.fingerprint or self.concentration.shape[1] != other.concentration.shape[1]:
            raise DataError("the two task sets come from different models and cannot be compared: embed both with one model")

    def _distance_blocks(self, reference: TaskSet) -> Iterator[tuple[int, Floats]]:
        """KL from some rows of self at a time to all of ``reference``: (first row, distances)."""
        self._check_same_model(reference)
        gamma, other = _tensor(self.concentration), _tensor(reference.concentration)
        rows = max(1, _BLOCK // max(1, len(other)))
        for start in range(0, len(gamma), rows):
            yield start, _numpy(dirichlet.kl_divergence(gamma[start : start + rows], other))


def _column(name: str, values: Sequence[Any]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(list(values))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(f"column {name!r} cannot be stored: its values are not of one kind ({error})") from error


def _tensor(array: Floats) -> torch.Tensor:
    return torch.from_numpy(array.copy())  # torch has no read-only tensors


def _numpy(tensor: torch.Tensor) -> Floats:
    array: Floats = tensor.numpy()
    return array
