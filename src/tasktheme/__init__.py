"""tasktheme: which learning tasks are alike, which are hard, and which to learn next."""

__version__ = "0.1.0"

from tasktheme.data.dataset import Dataset, DataSplit
from tasktheme.data.episodes import Episodes
from tasktheme.data.loading import load_dataset, load_tasks
from tasktheme.errors import TaskThemeError
from tasktheme.evaluation import Evaluation, evaluate
from tasktheme.learners.meta import MetaLearner
from tasktheme.ptm import PTM
from tasktheme.selection.draw import draw_tasks
from tasktheme.selection.select import Selection, select
from tasktheme.settings import Settings
from tasktheme.tasks.novelty import Novelty
from tasktheme.tasks.search import Nearest
from tasktheme.tasks.taskset import TaskSet

__all__ = [
    "PTM",
    "DataSplit",
    "Dataset",
    "Episodes",
    "Evaluation",
    "MetaLearner",
    "Nearest",
    "Novelty",
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
