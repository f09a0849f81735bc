"""The command that lists what --set can change."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tasktheme.errors import SettingsError
from tasktheme.options import PresetName, print_table


class Kind(StrEnum):
    """Whose settings."""

    fit = "fit"
    maml = "maml"
    protonet = "protonet"
    abml = "abml"
    lifelong = "lifelong"


def settings(
    kind: Annotated[
        Kind,
        typer.Argument(help="Of a task model (fit), of a meta-learner, or of experiment lifelong beside those of its learner."),
    ] = Kind.fit,
    preset: Annotated[PresetName | None, typer.Option(help="Whose values to show, of a task model.")] = None,
) -> None:
    """Every setting that --set, a settings file or Python can change: its name, value and meaning.

    Examples: `tasktheme settings`, `tasktheme settings maml`, `tasktheme settings --preset paper`
    """
    from tasktheme.experiments.lifelong.settings import LifelongSettings
    from tasktheme.learners.build import LEARNERS
    from tasktheme.report.tables import settings_table
    from tasktheme.settings import CheckedSettings, Settings

    shown: CheckedSettings
    if kind is Kind.fit:
        shown = Settings.preset((preset or PresetName.default).value)
    elif preset is not None:
        raise SettingsError("--preset: this goes with the settings of a task model")
    elif kind is Kind.lifelong:
        shown = LifelongSettings()
    else:
        shown = LEARNERS[kind.value].Settings()
    print_table(settings_table(shown))
