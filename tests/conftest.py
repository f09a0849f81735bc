"""Shapes are checked in every test; data and GPU tests skip, saying so, where those are missing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

settings.register_profile("untimed", deadline=None)  # machines are shared: no test fails for being slow
settings.load_profile("untimed")

# the folders whose functions state shapes; elsewhere wrong types are input that must get an error of our own
_WITH_SHAPES = [
    f"tasktheme.{part}"
    for part in (
        "maths",
        "model",
        "nets",
        "training",
        "learners",
        "selection.base",
        "selection.random",
        "selection.ptm",
        "selection.task2vec",
        "selection.worst_case",
        "selection.diverse",
        "selection.predicted",
        "selection.worth",
        "data.episodes",
        "data.random",
        "evaluation.rivals",
        "evaluation.prototypes",
        "experiments.lifelong",
    )
]
_CHECKER = "beartype.beartype" if find_spec("beartype") else None  # a GPU machine may lack it: shapes are then not checked
with install_import_hook(_WITH_SHAPES if _CHECKER else [], _CHECKER):
    from tasktheme import *  # noqa: F403  # what is imported later is not checked
    from tasktheme.experiments.lifelong import lifelong  # noqa: F401
    from tasktheme.selection import worth  # noqa: F401

import torch  # noqa: E402

torch.set_num_threads(1)  # test workers share the cores: threads would only wait for each other


def pytest_configure(config: pytest.Config) -> None:
    """Tests render and decode into one folder for all workers, which get its name from here; no run leaves it behind."""
    if "TASKTHEME_CACHE" not in os.environ:
        folder = TemporaryDirectory(prefix="tasktheme-tests-")
        config.add_cleanup(folder.cleanup)
        os.environ["TASKTHEME_CACHE"] = folder.name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("data") and not os.environ.get("TASKTHEME_DATA"):
            item.add_marker(pytest.mark.skip(reason="TASKTHEME_DATA is not set"))
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that are compiled run as they were written down: code for a CPU would take minutes to make."""
    from tasktheme.learners import whole_step

    monkeypatch.setattr(whole_step, "compile_step", lambda program: program)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process, on a terminal or in a pipe: exit code, standard output, standard error."""
    from tasktheme import cli

    def call(*arguments: object, terminal: bool = False) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tasktheme", *map(str, arguments)])
        monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        said = capsys.readouterr()
        return int(leaving.value.code or 0), said.out, said.err

    return call


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Two threads of torch, which what runs must leave as they are."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2, "a user's own number comes back"
    torch.set_num_threads(before)
