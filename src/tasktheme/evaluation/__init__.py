"""How good a model's task representation is, beside its rivals: measures of tasks whose group was never shown to it."""

from tasktheme.evaluation.measures import RIVALS, Evaluation, evaluate, evaluate_tasks
from tasktheme.evaluation.retrieval import Retrieval, same_group_auc

__all__ = ["RIVALS", "Evaluation", "Retrieval", "evaluate", "evaluate_tasks", "same_group_auc"]
