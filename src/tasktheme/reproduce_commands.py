"""The command that reproduces the whole paper."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tasktheme.errors import Interrupted, SettingsError, TaskThemeError
from tasktheme.options import INTERRUPTED, DataDir, Device, DeviceName, Quiet, leave, print_table

if TYPE_CHECKING:
    from rich.table import Table

    from tasktheme.reproduce.plan import Piece


class ScaleName(StrEnum):
    """How large all experiments are."""

    tiny = "tiny"
    small = "small"
    paper = "paper"


def reproduce(
    out: Annotated[Path, typer.Option(help="Folder for all pieces and the page; what is there goes on.")] = Path("reproduced"),
    scale: Annotated[
        ScaleName, typer.Option(help="tiny: glyphs, minutes; small: real data on two cores; paper: hours on a GPU.")
    ] = ScaleName.tiny,
    figure: Annotated[
        list[str] | None, typer.Option(help="Only this figure, and what it needs; may be repeated.", metavar="NAME")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this piece; may be repeated.", metavar="PIECE")] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show figures, pieces and where they stand; run nothing.")] = False,
    minutes: Annotated[
        float | None, typer.Option(help="Stop after so long, in the middle of a piece too; the same command goes on.", min=0.0)
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", help="So many pieces at a time, each a process: for a large GPU.", min=1)
    ] = 1,
    device: Device = DeviceName.auto,
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> None:
    """Reproduce every figure of the paper, and write one page with each of ours beside the paper's numbers.

    The work is made of pieces, each a command of this program with a folder of its own. What is done is not done again, unless
    its settings have changed; Ctrl-C and `--minutes` keep the state. A piece that fails does not stop the others.

    Examples: `tasktheme reproduce --out reproduced`, `tasktheme reproduce --scale paper --out paper --minutes 9 --jobs 4`,
    `tasktheme reproduce --figure distances --figure histogram`
    """
    from tasktheme.files import make_folder
    from tasktheme.reproduce.figures import all_figures
    from tasktheme.reproduce.jobs import run_side_by_side
    from tasktheme.reproduce.page import earlier_scale, write_page
    from tasktheme.reproduce.plan import SCALES, make_plan
    from tasktheme.reproduce.run import read_record, run_pieces

    plan = make_plan(SCALES[scale.value])
    figures = {found.name: found.pieces for found in all_figures(SCALES[scale.value])}
    chosen = _choose(plan, figures, figure or [], only or [])
    if listing:
        print_table(_table(chosen, figures, out))
        return
    if (earlier := earlier_scale(out)) not in (None, scale.value):
        raise SettingsError(
            f"{str(out)!r} holds the scale {earlier!r}, which {scale.value!r} would replace piece by piece: "
            f"add --scale {earlier}, or choose another --out"
        )
    make_folder(out)
    where = [] if data_dir is None else ["--data-dir", str(data_dir)]
    where += [] if device is DeviceName.auto else ["--device", device.value]
    if earlier is None:
        write_page(out, scale.value, where)  # which keeps the folder's scale, whatever becomes of this run

    def call(words: list[str]) -> None:
        from tasktheme.cli import app

        given = [] if words[0] == "plot" else [*where, *(["--quiet"] if quiet else [])]
        try:
            with redirect_stdout(io.StringIO()):  # its tables; progress bars and warnings go to standard error
                status = app([*words, *given], standalone_mode=False)  # typer returns the status of an interrupt
        except SystemExit as end:
            status = end.code
        except typer.Abort:
            status = INTERRUPTED
        if status == INTERRUPTED:
            raise Interrupted
        if status:
            raise TaskThemeError(f"it ended with status {status}")

    def alone(piece: str) -> list[str]:
        words = ["reproduce", "--scale", scale.value, "--out", str(out), "--only", piece, *where, "--quiet"]
        return [sys.executable, "-P", "-m", "tasktheme", *words]  # without the working folder, whose queue.py would be Python's

    left, say = "", _silent if quiet else typer.echo
    try:
        if jobs == 1:
            whole = run_pieces(chosen, out, call, minutes=minutes, say=say)
        else:
            whole = run_side_by_side(chosen, out, alone, jobs, minutes=minutes, say=say)
    except Interrupted as stop:
        whole, left = False, str(stop)
    page = write_page(out, scale.value, where)
    if not quiet:
        seconds = sum(read_record(piece, out).seconds for piece in chosen)
        typer.echo(f"took   {seconds:.0f} s, all pieces together")
        typer.echo(f"open   {page.resolve().as_uri()}")
    if left:
        leave(f"{left}; run the same command again to go on", INTERRUPTED)
    if not whole:
        leave("some pieces failed or were not run, as said above and in the page; the others are done", 1)


def _choose(plan: list[Piece], figures: dict[str, tuple[str, ...]], wanted: list[str], only: list[str]) -> list[Piece]:
    from tasktheme.reproduce.plan import with_inputs

    for kind, given, known in (("figure", wanted, list(figures)), ("piece", only, [piece.name for piece in plan])):
        for name in given:
            if name not in known:
                raise SettingsError(f"there is no {kind} {name!r}; there are {', '.join(known)}")
    if wanted and only:
        raise SettingsError("--figure runs figures with all they need, --only single pieces: give one of them")
    if only:
        return [piece for piece in plan if piece.name in only]
    return with_inputs(plan, {name for figure in wanted for name in figures[figure]}) if wanted else plan


def _table(pieces: list[Piece], figures: dict[str, tuple[str, ...]], out: Path) -> Table:
    from rich.table import Column, Table

    from tasktheme.reproduce.run import read_record

    needs, draws = (Column(title, overflow="fold") for title in ("needs", "draws figure"))
    table = Table(Column("piece", no_wrap=True), "state", "time", needs, draws, box=None)  # a piece's name is typed after --only
    for piece in pieces:
        record = read_record(piece, out)
        drawn = [name for name, made_of in figures.items() if piece.name in made_of]
        table.add_row(
            piece.name,
            record.state,
            f"{record.seconds:.0f} s" if record.seconds else "",
            ", ".join(piece.needs),
            ", ".join(drawn),
        )
    return table


def _silent(message: str) -> None:
    """Say nothing."""
