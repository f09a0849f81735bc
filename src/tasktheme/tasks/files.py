"""Tables and task sets in files: Parquet, CSV or NumPy by the file's ending, written whole or not at all."""

from __future__ import annotations

import io
import json
import operator
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasktheme.errors import DataError, ModelFileError, OutputError, TaskThemeError
from tasktheme.files import sync_folder, temporary_name, write_file
from tasktheme.untrusted import ZIP_FAULTS, exists, parse_json, read_npz_arrays, refuse_bomb

if TYPE_CHECKING:
    import pyarrow as pa

    from tasktheme.tasks.taskset import TaskSet

FORMAT = 1
ENDINGS = (".parquet", ".csv", ".npz")
_ABOUT = "tasktheme"  # the key of what a file says about itself
_PART = "TaskSet.load(whole_file)[rows].save(part) keeps some of the tasks"


def check_ending(path: Path, endings: Sequence[str] = ENDINGS) -> None:
    """OutputError unless the file's ending is one of these."""
    if path.suffix.lower() not in endings:
        raise OutputError(f"{str(path)!r}: the ending must be {'one of ' * (len(endings) > 1)}{', '.join(endings)}")


def make_table(columns: Mapping[str, Sequence[Any] | np.ndarray[Any, Any]]) -> pa.Table:
    """A table of named columns; DataError where one mixes kinds of values."""
    import pyarrow as pa

    arrays = {}
    for name, values in columns.items():
        try:
            arrays[name] = pa.array(values if isinstance(values, np.ndarray) else list(values))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
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
        with zipfile.ZipFile(buffer, "w") as arrays:  # not np.savez: to it a column called file would be an argument of its own
            for name in table.column_names:
                with arrays.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, _numpy(table, name), allow_pickle=False)
    write_file(path, buffer.getvalue())


def csv_bytes(table: pa.Table, *, names: bool = True) -> bytes:
    """A table as CSV with a line of names; numbers have the digits that it takes to read them back as they were."""
    import pyarrow as pa
    import pyarrow.csv as pc

    for place, field in enumerate(table.schema):
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):  # of which CSV has none
            table = table.set_column(place, field.name, pa.array(_texts(table, field.name), type=pa.string()))
    buffer = io.BytesIO()
    pc.write_csv(table, buffer, pc.WriteOptions(include_header=names))
    return buffer.getvalue()


def task_table(tasks: TaskSet) -> pa.Table:
    """Tasks as a flat table: their own columns, size, converged, log_likelihood, and gamma_0, gamma_1, ... for the themes."""
    gamma = {f"gamma_{k}": tasks.concentration[:, k] for k in range(tasks.concentration.shape[1])}
    return make_table({**_but_gamma(tasks), **gamma})


def _but_gamma(tasks: TaskSet) -> dict[str, Any]:
    likelihood = {} if tasks.log_likelihood is None else {"log_likelihood": tasks.log_likelihood}
    return {**tasks.columns, "size": tasks.sizes, "converged": tasks.converged, **likelihood}


def write_tasks(tasks: TaskSet, path: Path) -> None:
    """Write a task set with what is known of its model."""
    check_ending(path)
    if path.suffix.lower() == ".parquet":
        write_table(_parquet_table(tasks, len(tasks)), path)
    else:
        write_table(whole_table(tasks), path)


def stream_tasks(parts: Iterable[TaskSet], path: Path, *, count: int) -> None:
    """Write the parts of a task set of ``count`` tasks to a Parquet file as they come, which :func:`read_tasks` reads as one.

    They go to a temporary name beside ``path``, which is synced and renamed at the end, or removed.
    """
    import pyarrow.parquet as pq

    temporary = temporary_name(path)
    try:
        with temporary.open("wb") as file, ExitStack() as stack:
            writer = None
            for part in parts:
                table = _parquet_table(part, count)
                if writer is None:
                    writer = stack.enter_context(pq.ParquetWriter(file, table.schema))
                writer.write_table(table)
            stack.close()  # writes the end of the file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        if isinstance(error, TaskThemeError):  # of the making, not of the keeping
            raise
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _parquet_table(tasks: TaskSet, count: int) -> pa.Table:
    """Tasks as a Parquet file has them: gamma as one column of lists, and what is known of the model beside the table."""
    import pyarrow as pa

    own = make_table(_but_gamma(tasks))
    flat = pa.array(tasks.concentration.reshape(-1))
    nested = pa.FixedSizeListArray.from_arrays(flat, tasks.concentration.shape[1])
    return own.append_column("concentration", nested).replace_schema_metadata({_ABOUT: _about(tasks, count)})


def whole_table(tasks: TaskSet) -> pa.Table:
    """Tasks as a flat table that says in its own first row what is known of their model: CSV has no other place."""
    import pyarrow as pa

    table = task_table(tasks)
    texts = [field.name for field in table.schema if pa.types.is_string(field.type) or pa.types.is_list(field.type)]
    about = _about(tasks, len(tasks), texts=texts)  # else the name 007 came back as the number 7
    return table.append_column(_ABOUT, [[about, *[""] * (len(tasks) - 1)][: len(tasks)]])


def _about(tasks: TaskSet, count: int, **more: Any) -> str:
    prior = None if tasks.prior is None else tasks.prior.tolist()
    about = {"format": FORMAT, "fingerprint": tasks.fingerprint, "prior": prior, "aspects": tasks.aspects, "tasks": count}
    return json.dumps({**about, **more})


def is_task_file(path: Path) -> bool:
    """Whether a path can only mean a file of tasks, by its ending; of an .npz, which may hold data, by its arrays."""
    if path.suffix.lower() == ".npz" and exists(path) and path.is_file():
        with suppress(*ZIP_FAULTS), zipfile.ZipFile(path) as arrays:  # a damaged one is told where it is read
            return f"{_ABOUT}.npy" in arrays.namelist()
    return path.suffix.lower() in (".parquet", ".csv")


def read_tasks(path: Path) -> dict[str, Any]:
    """What :func:`write_tasks` wrote, as the arguments of a TaskSet."""
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise ModelFileError(f"there is no task file {str(path)!r}") from error
    except (OSError, ValueError) as error:
        raise ModelFileError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}") from error
    return parse_tasks(content, str(path))


def parse_tasks(content: bytes, name: str) -> dict[str, Any]:
    """The arguments of a TaskSet from the content of a file, whatever it is called; ``name`` is for messages."""
    try:
        columns, about = _columns(content, name)
        version, prior = int(about["format"]), about.get("prior")
        if version > FORMAT:
            raise ModelFileError(f"{name!r} has format {version}, newer than this tasktheme reads ({FORMAT}): update tasktheme")
        count = len(columns["size"])
        if (written := about.get("tasks", count)) != count:
            raise ModelFileError(
                f"{name!r} was written with {written} tasks and has {count} now: rows are missing or added; {_PART}"
            )
        likelihood = columns.pop("log_likelihood", None)
        return {
            "concentration": np.ascontiguousarray(columns.pop("concentration"), dtype=np.float64),
            "sizes": _of_kind(columns.pop("size"), "iu").astype(np.int64),
            "converged": _of_kind(columns.pop("converged"), "b"),
            "columns": columns,
            "fingerprint": str(about["fingerprint"]),
            "prior": None if prior is None else np.asarray(prior, dtype=np.float64),
            "log_likelihood": None if likelihood is None else _of_kind(likelihood, "fiu"),
            "aspects": operator.index(about.get("aspects", 1)),
        }
    except ModelFileError:
        raise
    except Exception as error:  # of the reader of each format, on bytes that can be anything: of every kind
        raise ModelFileError(f"{name!r} is not a task file that tasktheme wrote, or is damaged") from error


def _of_kind(column: Any, kinds: str) -> np.ndarray[Any, Any]:
    array = np.asarray(column)
    if array.dtype.kind not in kinds:
        raise ValueError(f"a column of {array.dtype} was not expected")
    return array


def _parse_about(text: Any, name: str) -> dict[str, Any]:
    if not text:
        raise ModelFileError(
            f"{name!r} has lost what tasktheme writes beside the tasks, as another tool keeps rows alone; {_PART}, "
            "and .with_columns(...) adds columns; in a CSV file any tool can"
        )
    return parse_json(text)


def _columns(content: bytes, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of a task file, gamma as one array, and what the file says about itself."""
    if content.startswith(b"PAR1"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = pq.ParquetFile(pa.BufferReader(content))  # no Python file and, below, no threads: see _read_csv
        nested = file.schema_arrow.field("concentration").type
        width = len(file.schema_arrow) + (nested.list_size if pa.types.is_fixed_size_list(nested) else 1)
        refuse_bomb(8 * width * file.metadata.num_rows, len(content))  # constant columns pack without bound
        table = file.read(use_threads=False)
        about = _parse_about((table.schema.metadata or {}).get(_ABOUT.encode()), name)
        nested = table.column("concentration").combine_chunks()
        gamma = nested.flatten().to_numpy(zero_copy_only=False).reshape(len(nested), nested.type.list_size)
        return {**_flat(table.drop_columns(["concentration"])), "concentration": gamma}, about
    if content.startswith(b"PK"):
        arrays = read_npz_arrays(io.BytesIO(content))
        flat = {column: array if _is_own(column) else array.tolist() for column, array in arrays.items()}
        about = _parse_about(flat.pop(_ABOUT)[0], name)
    else:
        about = _parse_about(_read_csv(content, include_columns=[_ABOUT])[_ABOUT][0].as_py(), name)
        flat = _flat(_read_csv(content, column_types=dict.fromkeys(about.get("texts", []), "string")).drop_columns([_ABOUT]))
    themes = range(sum(column.startswith("gamma_") for column in flat))
    gamma = np.stack([flat.pop(f"gamma_{k}") for k in themes], axis=1)  # other tools may have put the columns in another order
    return {**flat, "concentration": gamma}, about


def _read_csv(content: bytes, **convert: Any) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv as pc

    # neither a Python file nor threads: one that still reads or holds a file at the program's end, after an error, aborts it
    source = pa.BufferReader(content)
    options = pc.ConvertOptions(strings_can_be_null=False, **convert)
    return pc.read_csv(source, read_options=pc.ReadOptions(use_threads=False), convert_options=options)


def _flat(table: pa.Table) -> dict[str, Any]:
    """Columns by name: a task set's own as arrays, as there may be millions, others as lists."""
    columns = {name: table.column(name) for name in table.column_names}
    return {name: column.to_numpy() if _is_own(name) else column.to_pylist() for name, column in columns.items()}


def _is_own(name: str) -> bool:
    return name in ("size", "converged", "log_likelihood") or name.startswith("gamma_")


def _numpy(table: pa.Table, name: str) -> np.ndarray[Any, Any]:
    """A column as an array without Python objects: lists joined, absent texts empty."""
    import pyarrow as pa

    kind = table.schema.field(name).type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        array: np.ndarray[Any, Any] = table.column(name).to_numpy()
        if array.dtype != object:
            return array
    return np.array(_texts(table, name), dtype=np.str_)


def _texts(table: pa.Table, name: str) -> list[str]:
    values = table.column(name).to_pylist()
    return ["" if value is None else " ".join(map(str, value)) if isinstance(value, list) else str(value) for value in values]
