"""Tables and task sets in files: Parquet, CSV or NumPy by the file's ending, written whole or not at all."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasktheme.errors import DataError, ModelFileError, OutputError
from tasktheme.files import write_file

if TYPE_CHECKING:
    import pyarrow as pa

    from tasktheme.tasks.taskset import TaskSet

FORMAT = 1
ENDINGS = (".parquet", ".csv", ".npz")
_ABOUT = "tasktheme"  # the key of what a file says about itself
_NOT_OURS = "{!r} is not a task file that tasktheme wrote, or is damaged"


def check_ending(path: Path, endings: Sequence[str] = ENDINGS) -> None:
    """OutputError unless the file's ending is one of these."""
    if path.suffix.lower() not in endings:
        raise OutputError(f"{str(path)!r}: the ending must be one of {', '.join(endings)}")


def make_table(columns: Mapping[str, Sequence[Any] | np.ndarray[Any, Any]]) -> pa.Table:
    """A table of named columns; DataError where one mixes kinds of values."""
    import pyarrow as pa

    arrays = {}
    for name, values in columns.items():
        try:
            arrays[name] = pa.array(values if isinstance(values, np.ndarray) else list(values))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise DataError(f"column {name!r} cannot be stored: its values are not of one kind ({error})") from error
    return pa.table(arrays)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table by the file's ending; NumPy's has an array for each column."""
    check_ending(path)
    buffer = io.BytesIO()
    if path.suffix.lower() == ".parquet":
        import pyarrow.parquet as pq

        pq.write_table(table, buffer)
    elif path.suffix.lower() == ".csv":
        buffer.write(csv_bytes(table))
    else:
        np.savez(buffer, allow_pickle=False, **{name: _numpy(table, name) for name in table.column_names})
    write_file(path, buffer.getvalue())


def csv_bytes(table: pa.Table) -> bytes:
    """A table as CSV with a line of names."""
    import pyarrow as pa
    import pyarrow.csv as pc

    texts = {name: _joined(table, name) for name in table.column_names if pa.types.is_list(table.schema.field(name).type)}
    for name, values in texts.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    buffer = io.BytesIO()
    pc.write_csv(table, buffer)
    return buffer.getvalue()


def task_table(tasks: TaskSet) -> pa.Table:
    """Tasks as a flat table: their own columns, size, converged, and gamma_0, gamma_1, ... for the themes."""
    gamma = {f"gamma_{k}": tasks.concentration[:, k] for k in range(tasks.concentration.shape[1])}
    return make_table({**tasks.columns, "size": tasks.sizes, "converged": tasks.converged, **gamma})


def write_tasks(tasks: TaskSet, path: Path) -> None:
    """Write a task set with what is known of its model."""
    check_ending(path)
    prior = None if tasks.prior is None else tasks.prior.tolist()
    about = json.dumps({"format": FORMAT, "fingerprint": tasks.fingerprint, "prior": prior, "tasks": len(tasks)})
    if path.suffix.lower() == ".parquet":
        import pyarrow as pa

        own = make_table({**tasks.columns, "size": tasks.sizes, "converged": tasks.converged})
        flat = pa.array(tasks.concentration.reshape(-1))
        nested = pa.FixedSizeListArray.from_arrays(flat, tasks.concentration.shape[1])
        write_table(own.append_column("concentration", nested).replace_schema_metadata({_ABOUT: about}), path)
        return
    table = task_table(tasks)
    if path.suffix.lower() == ".csv":  # has no place beside its rows: the first tells
        table = table.append_column(_ABOUT, [[about, *[""] * (len(tasks) - 1)][: len(tasks)]])
    else:
        table = table.append_column(_ABOUT, [[about] * len(tasks)])
    write_table(table, path)


def read_tasks(path: Path) -> dict[str, Any]:
    """What :func:`write_tasks` wrote, as the arguments of a TaskSet."""
    import pyarrow as pa

    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise ModelFileError(f"there is no task file {str(path)!r}") from error
    except OSError as error:
        raise ModelFileError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    try:
        columns, about = _read_columns(path, content)
        version, prior = int(about["format"]), about.get("prior")
        if version > FORMAT:
            raise ModelFileError(
                f"{str(path)!r} has format {version}, newer than this tasktheme reads ({FORMAT}): update tasktheme"
            )
        if about.get("tasks", len(columns["size"])) != len(columns["size"]):
            raise ValueError("some rows are missing")
        own = {"sizes": columns.pop("size"), "converged": columns.pop("converged"), "concentration": columns.pop("concentration")}
        return {
            "concentration": np.ascontiguousarray(own["concentration"], dtype=np.float64),
            "sizes": np.asarray(own["sizes"], dtype=np.int64),
            "converged": np.asarray(own["converged"], dtype=np.bool_),
            "columns": columns,
            "fingerprint": str(about["fingerprint"]),
            "prior": None if prior is None else np.asarray(prior, dtype=np.float64),
        }
    except ModelFileError:
        raise
    except (OSError, EOFError, zipfile.BadZipFile, pa.ArrowInvalid, KeyError, TypeError, ValueError, IndexError) as error:
        raise ModelFileError(_NOT_OURS.format(str(path))) from error


def _read_columns(path: Path, content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of a task file, gamma as one array, and what the file says about itself."""
    if path.suffix.lower() == ".npz":
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            flat = {name: arrays[name] for name in arrays.files}
        about = json.loads(str(flat.pop(_ABOUT)[0]))
        themes = [name for name in flat if name.startswith("gamma_")]
        gamma = np.stack([flat.pop(name) for name in themes], axis=1)
        own = {name: flat.pop(name) for name in ("size", "converged")}
        return {**{name: values.tolist() for name, values in flat.items()}, **own, "concentration": gamma}, about
    if path.suffix.lower() == ".csv":
        import pyarrow.csv as pc

        table = pc.read_csv(io.BytesIO(content), convert_options=pc.ConvertOptions(strings_can_be_null=False))
        about = json.loads(table.column(_ABOUT)[0].as_py())
        themes = [name for name in table.column_names if name.startswith("gamma_")]
        gamma = np.stack([table.column(name).to_numpy() for name in themes], axis=1)
        rest = [name for name in table.column_names if name not in (_ABOUT, *themes)]
        return {**{name: table.column(name).to_pylist() for name in rest}, "concentration": gamma}, about
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(content))
    about = json.loads(table.schema.metadata[_ABOUT.encode()])
    nested = table.column("concentration").combine_chunks()
    gamma = nested.flatten().to_numpy(zero_copy_only=False).reshape(len(nested), nested.type.list_size)
    own = {name: table.column(name).to_numpy() for name in ("size", "converged")}
    rest = [name for name in table.column_names if name not in (*own, "concentration")]
    return {**{name: table.column(name).to_pylist() for name in rest}, **own, "concentration": gamma}, about


def _numpy(table: pa.Table, name: str) -> np.ndarray[Any, Any]:
    """A column as an array without Python objects: lists joined, absent texts empty."""
    import pyarrow as pa

    kind = table.schema.field(name).type
    if pa.types.is_list(kind):
        return np.array(_joined(table, name), dtype=np.str_)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        array: np.ndarray[Any, Any] = table.column(name).to_numpy()
        if array.dtype != object:
            return array
    return np.array(["" if value is None else str(value) for value in table.column(name).to_pylist()], dtype=np.str_)


def _joined(table: pa.Table, name: str) -> list[str]:
    return ["" if value is None else " ".join(str(one) for one in value) for value in table.column(name).to_pylist()]
