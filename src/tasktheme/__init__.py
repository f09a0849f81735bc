"""tasktheme: which learning tasks are alike, which are hard, and which to learn next."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tasktheme.errors import TaskThemeError

__version__ = "0.1.0"

__all__ = [
    "PTM",
    "DataSplit",
    "Dataset",
    "Episodes",
    "Evaluation",
    "MetaLearner",
    "Nearest",
    "Novelty",
    "Policy",
    "Selection",
    "Settings",
    "TaskSet",
    "TaskThemeError",
    "__version__",
    "draw_tasks",
    "evaluate",
    "load_dataset",
    "load_tasks",
    "select",
]

if TYPE_CHECKING:
    from tasktheme.data.dataset import Dataset, DataSplit
    from tasktheme.data.episodes import Episodes
    from tasktheme.data.loading import load_dataset, load_tasks
    from tasktheme.evaluation import Evaluation, evaluate
    from tasktheme.learners.meta import MetaLearner
    from tasktheme.ptm import PTM
    from tasktheme.selection.base import Policy
    from tasktheme.selection.draw import draw_tasks
    from tasktheme.selection.select import Selection, select
    from tasktheme.settings import Settings
    from tasktheme.tasks.novelty import Novelty
    from tasktheme.tasks.search import Nearest
    from tasktheme.tasks.taskset import TaskSet
else:
    _MODULES = {  # where each name is, imported when it is first asked for: torch takes seconds, and --help needs none
        "PTM": "ptm",
        "DataSplit": "data.dataset",
        "Dataset": "data.dataset",
        "Episodes": "data.episodes",
        "Evaluation": "evaluation",
        "MetaLearner": "learners.meta",
        "Nearest": "tasks.search",
        "Novelty": "tasks.novelty",
        "Policy": "selection.base",
        "Selection": "selection.select",
        "Settings": "settings",
        "TaskSet": "tasks.taskset",
        "draw_tasks": "selection.draw",
        "evaluate": "evaluation",
        "load_dataset": "data.loading",
        "load_tasks": "data.loading",
        "select": "selection.select",
    }

    def __getattr__(name: str) -> Any:
        """A public name, at its first use."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return found

    def __dir__() -> list[str]:
        """Every name, used or not."""
        return sorted({*globals(), *__all__})
