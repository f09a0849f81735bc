"""One file from many: template, style, scripts, library and payload become a page that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from tasktheme import __version__
from tasktheme.data.given import TaskData, as_tasks
from tasktheme.errors import DataError
from tasktheme.files import make_folder, write_file
from tasktheme.ptm import PTM
from tasktheme.report.explorer.origin import check_origin
from tasktheme.report.explorer.payload import build_payload
from tasktheme.tasks.taskset import TaskSet

MOST_TASKS = 20_000
_SCRIPTS = (
    "data",
    "dirichlet",
    "words",
    "colours",
    "images",
    "parts",
    "dots",
    "map",
    "find",
    "task",
    "themes",
    "compare",
    "about",
    "main",
)


def write_explorer(
    path: str | Path,
    *,
    model: PTM,
    tasks: TaskSet,
    origin: TaskData | None = None,
    resized: int | None = None,
    title: str = "Atlas of tasks",
    facts: Sequence[tuple[str, str]] = (),
) -> Path:
    """Write one self-contained HTML page on which ``tasks``, which ``model`` embedded, are explored; returns where.

    Args:
        path: the file; one that is there already is replaced.
        model: for its themes.
        tasks: what the page is about; the column "group" colours the map, all columns are shown and searched.
        origin: what ``embed`` was given, for the tasks' images; without it none are shown.
        resized: compare as if each task had so many data points, see :meth:`TaskSet.resized`: by content, not by size.
        title: heading of the page.
        facts: (label, value) pairs for the page's About.
    """
    if tasks.fingerprint != model.fingerprint:
        raise DataError("these tasks were not embedded by this model: their themes are not its themes; embed them with it")
    if not 1 <= len(tasks) <= MOST_TASKS:
        raise DataError(f"a page shows 1 to {MOST_TASKS:,} tasks, got {len(tasks):,}: take a part of them")
    source = None if origin is None else as_tasks(origin)
    if source is not None:
        check_origin(tasks, source)
    about = {"title": title, "facts": list(facts), "version": __version__, "model": model.fingerprint}
    target = Path(path)
    html = _page({**about, **build_payload(model, tasks, source, resized)})
    make_folder(target.absolute().parent)
    write_file(target, html.encode("utf-8", errors="replace"))
    return target


def _page(payload: Mapping[str, Any]) -> str:
    from jinja2 import Environment, StrictUndefined

    own = "\n".join(_asset("page", f"{name}.js") for name in _SCRIPTS)
    parts = {
        "style": _asset("page", "page.css"),
        "library": f"/*!\n{_asset('vendor', 'd3.LICENSE')}*/\n{_asset('vendor', 'd3.min.js')}",
        "script": f'(() => {{\n"use strict";\n{own}}})();',
    }
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_asset("page", "page.html.j2")).render(
        **parts,
        hashes={name: _hash(part) for name, part in parts.items()},
        title=payload["title"],
        version=__version__,
        payload=_inert_json(payload),
    )


def _asset(*place: str) -> str:
    return resources.files("tasktheme.report.explorer").joinpath(*place).read_text(encoding="utf-8")


def _hash(part: str) -> str:
    """What the page's security policy calls an inline script or style by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}"


def _inert_json(payload: Mapping[str, Any]) -> str:
    """JSON in ASCII without a character that could end the element it stands in, whatever a name holds."""
    written = json.dumps(payload, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return written.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")
