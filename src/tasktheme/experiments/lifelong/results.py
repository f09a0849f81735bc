"""The experiment's results from its arms' files, as JSON and as tables in Parquet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasktheme.errors import ModelFileError
from tasktheme.experiments.lifelong.comparison import Floats, compare, mean_of, smoothed, tasks_in_common
from tasktheme.experiments.lifelong.records import Record, all_records
from tasktheme.files import write_file
from tasktheme.learners.build import LEARNERS

if TYPE_CHECKING:
    import pyarrow as pa

ORDER = ("ptm", "task2vec", "worst-case", "random")  # of the paper; others follow by name
RESULT = "lifelong.json"


def write_results(folder: Path, tasks: int | str, class_names: Sequence[str], *, smoothing: float) -> dict[str, Any]:
    """Write ``lifelong.json``, ``curves.parquet``, ``picks.parquet`` and, where arms were tested, ``final.parquet``.

    ``class_names`` name each task of the last test, which was asked for ``tasks``.
    """
    records = sorted(all_records(folder / "arms"), key=lambda record: (*policy_order(record.arm.policy), record.arm.seed))
    result = summarise(records, smoothing=smoothing)
    whole = [record for record in records if record.final_is_whole and record.final_tasks == tasks]
    _write_table(folder / "curves.parquet", _curves(records, smoothing))
    _write_table(folder / "picks.parquet", _picks(records))
    if whole:
        _write_table(folder / "final.parquet", _final(whole, class_names))
    write_file(folder / RESULT, (json.dumps(result, indent=1) + "\n").encode())
    return result


def summarise(records: Sequence[Record], *, smoothing: float) -> dict[str, Any]:
    """All but the single tasks: curves, last tests and their comparison, time for a step."""
    by_policy: dict[str, list[Record]] = {}
    for record in records:
        by_policy.setdefault(record.arm.policy, []).append(record)
    identity = records[0].identity
    policies: dict[str, Any] = {}
    final: dict[Any, dict[str, dict[int, Floats]]] = {}  # of policies that can be compared: after so many steps, on these tasks
    for policy, own in by_policy.items():
        test = (own[0].step, own[0].final_tasks)
        accuracies = {
            record.arm.seed: record.final for record in own if record.final_is_whole and (record.step, record.final_tasks) == test
        }
        policies[policy] = {
            "steps": [record.step for record in own],
            "seeds": [record.arm.seed for record in own],
            "stopped": [record.stopped for record in own],
            "skipped": [int((~record.learned).sum()) for record in own],
            "milliseconds_per_step": [1000 * record.seconds / max(1, record.step) for record in own],
            "curve": _curve(own, smoothing),
            "about": own[0].identity["policy"],
        }
        if accuracies:
            values = np.stack(list(accuracies.values()))
            about = {"seeds": list(accuracies), "steps": own[0].step, "tasks": values.shape[1]}
            policies[policy]["final"] = mean_of(values).as_dict() | about
            final.setdefault(test, {})[policy] = accuracies
    learned = {name: {record.arm.seed: record.picked[record.learned] for record in own} for name, own in by_policy.items()}
    pairs = [{"steps": steps, **pair} for (steps, _), same in final.items() for pair in compare(same)]
    for pair in pairs:
        pair["tasks_in_common"] = tasks_in_common(learned[pair["first"]], learned[pair["second"]], pair["seeds"])
    return {
        "experiment": "lifelong",
        "learner": identity["learner"],
        **identity["experiment"],
        "data": identity["data"][0]["data"],
        "settings": identity["settings"],
        "smoothing": smoothing,
        "final_tasks": max((len(record.final) for record in records if record.final_is_whole), default=0),
        "policies": policies,
        "comparisons": pairs,
    }


def read_results(out: Path) -> list[dict[str, Any]]:
    """Every experiment in a folder, learners and settings in the paper's order; other learners follow by name."""
    found = []
    for path in out.glob(f"*/{RESULT}"):
        try:
            found.append(json.loads(path.read_text()))
        except ValueError as error:
            raise ModelFileError(f"{str(path)!r} is damaged: {error}") from error
    return sorted(found, key=lambda result: (*_placed(result["learner"], list(LEARNERS)), result["setting"]))


def policy_order(policy: str) -> tuple[int, str]:
    """A key that sorts policies as the paper does."""
    return _placed(policy, ORDER)


def _placed(name: str, order: Sequence[str]) -> tuple[int, str]:
    return (order.index(name) if name in order else len(order)), name


def _curve(records: Sequence[Record], smoothing: float) -> dict[str, Any]:
    """Mean accuracy on the fixed test tasks, of each seed, at the steps that all have reached after the first."""
    steps = sorted(set.intersection(*(set(record.evaluated) for record in records)) - {0})
    raw = np.array([[record.evaluated[step].mean() for step in steps] for record in records]).reshape(len(records), len(steps))
    return {
        "steps": steps,
        "start": [float(record.evaluated[0].mean()) for record in records],
        "accuracy": raw.tolist(),
        "smoothed": smoothed(raw, smoothing).tolist(),
    }


def _curves(records: Sequence[Record], smoothing: float) -> pa.Table:
    """A row for each evaluation of an arm; the start, at step 0, is not smoothed into the rest."""
    columns: dict[str, list[Any]] = {name: [] for name in ("policy", "seed", "step", "accuracy", "smoothed")}
    for record in records:
        means = np.array([values.mean() for values in record.evaluated.values()])
        for step, mean, smooth in zip(record.evaluated, means, _after_start(means, smoothing), strict=True):
            row = (record.arm.policy, record.arm.seed, step, float(mean), float(smooth))
            for values, value in zip(columns.values(), row, strict=True):
                values.append(value)
    return _table(columns)


def _after_start(means: Floats, smoothing: float) -> Floats:
    return np.concatenate([means[:1], smoothed(means[1:], smoothing)])


def _picks(records: Sequence[Record]) -> pa.Table:
    """A row for each step of an arm: which task of the seed's stream, its loss before the update, and whether there was one."""
    sizes = [record.step for record in records]
    columns = {
        "policy": np.repeat([record.arm.policy for record in records], sizes),
        "seed": np.repeat([record.arm.seed for record in records], sizes),
        "step": np.concatenate([np.arange(size) for size in sizes]),
        "task": np.concatenate([record.picked for record in records]),
        "loss": np.concatenate([record.losses for record in records]),
        "learned": np.concatenate([record.learned for record in records]),
    }
    return _table(columns)


def _final(records: Sequence[Record], class_names: Sequence[str]) -> pa.Table:
    """A row for each task of the last test of an arm."""
    count = len(class_names)
    columns = {
        "policy": np.repeat([record.arm.policy for record in records], count),
        "seed": np.repeat([record.arm.seed for record in records], count),
        "step": np.repeat([record.step for record in records], count),
        "task": np.tile(np.arange(count), len(records)),
        "classes": np.tile(np.array(class_names, dtype=object), len(records)),
        "accuracy": np.concatenate([record.final for record in records]),
    }
    return _table(columns)


def _table(columns: Mapping[str, Any]) -> pa.Table:
    import pyarrow as pa

    return pa.table({name: pa.array(values) for name, values in columns.items()})


def _write_table(path: Path, table: pa.Table) -> None:
    import pyarrow.parquet as pq

    content = BytesIO()
    pq.write_table(table, content)
    write_file(path, content.getvalue())
