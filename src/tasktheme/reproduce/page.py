"""One page for the whole paper: each figure as we made it, beside what the paper reports, with the commands and their times."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

from tasktheme import __version__
from tasktheme.files import write_file
from tasktheme.reproduce.figures import Figure, all_figures
from tasktheme.reproduce.plan import SCALES, Piece, make_plan, with_inputs
from tasktheme.reproduce.run import PieceRecord, read_record
from tasktheme.storage import versions

PAGE, NUMBERS = "reproduce.html", "reproduce.json"


def write_page(out: Path, scale: str, options: list[str]) -> Path:
    """Write ``reproduce.html`` and ``reproduce.json`` of all that is in ``out``; returns the page.

    ``options`` are those of the command beyond scale and folder, for repeating it.
    """
    plan = make_plan(SCALES[scale])
    records = {piece.name: read_record(piece, out) for piece in plan}
    whole = ["tasktheme", "reproduce", "--scale", scale, "--out", str(out), *options]
    pictures, figures = {}, []
    for figure in all_figures(SCALES[scale]):
        shown = {name: getattr(figure, name) for name in ("name", "number", "title", "data", "own")}
        done = [name for name in figure.pieces if records[name].state == "done"]
        made = bool(done) if figure.partly else len(done) == len(figure.pieces)
        shown |= {"made": made, "command": shlex.join([*whole, "--figure", figure.name])}
        if made:
            folders = [out / name for name in done]
            shown["rows"] = [asdict(row) for row in figure.rows(folders)]
            pictures[figure.name] = _picture(figure, folders)
        shown["pieces"] = [_shown_piece(piece, records[piece.name], out) for piece in plan if piece.name in figure.pieces]
        behind = ((piece.name, records[piece.name]) for piece in with_inputs(plan, set(figure.pieces)))
        shown["failed"] = [f"{name} {record.error}" for name, record in behind if record.state == "failed"]
        figures.append(shown)
    page = {
        "scale": scale,
        "about": SCALES[scale].about,
        "command": shlex.join(whole),
        "figures": figures,
        "pieces": [_shown_piece(piece, records[piece.name], out) for piece in plan],
        "seconds": sum(record.seconds for record in records.values()),
        "versions": versions(),
    }
    write_file(out / NUMBERS, (json.dumps(page, indent=1, ensure_ascii=False) + "\n").encode())
    write_file(out / PAGE, _html(page, pictures).encode())
    return out / PAGE


def earlier_scale(out: Path) -> str | None:
    """The scale whose pieces are in ``out``, if a page was written there."""
    try:
        found = json.loads((out / NUMBERS).read_text(encoding="utf-8"))["scale"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found in SCALES else None


def _shown_piece(piece: Piece, record: PieceRecord, out: Path) -> dict[str, Any]:
    command = shlex.join(["tasktheme", *piece.words(out)])
    return {
        "name": piece.name,
        "needs": piece.needs,
        "state": record.state,
        "seconds": record.seconds,
        "error": record.error,
        "command": command,
    }


def _picture(figure: Figure, folders: list[Path]) -> str:
    content = figure.picture(folders) if callable(figure.picture) else (folders[-1] / figure.picture).read_bytes()
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _html(page: dict[str, Any], pictures: dict[str, str]) -> str:
    from jinja2 import Environment, StrictUndefined

    style = _asset("page.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["duration"] = _duration
    return environment.from_string(_asset("page.html.j2")).render(
        **page, pictures=pictures, style=style, hash=f"sha256-{digest}", version=__version__
    )


def _asset(name: str) -> str:
    return resources.files("tasktheme.reproduce").joinpath(name).read_text(encoding="utf-8")


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
