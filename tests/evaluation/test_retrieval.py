from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from tasktheme.errors import DataError
from tasktheme.evaluation.retrieval import average_precision, check_groups, retrieval, roc, same_group_auc

GROUPS = np.array(list("aabbbcaabbd"))  # d is alone


@pytest.mark.parametrize("digits", [1, 8])  # many ties, and none
def test_each_measure_is_that_of_one_task_after_another(digits: int) -> None:
    distances = np.random.default_rng(digits).uniform(size=(11, 11)).round(digits)
    precision, nearest, same, near = [], [], [], []
    for i in range(11):
        others = [j for j in range(11) if j != i]
        relevant = [bool(GROUPS[j] == GROUPS[i]) for j in others]
        if any(relevant):
            precision.append(average_precision_score(relevant, -distances[i, others]))
        nearest.append(relevant[int(np.argmin(distances[i, others]))])
        same += relevant
        near += [-distances[i, j] for j in others]
    found = retrieval(distances, GROUPS)
    assert len(precision) == len(average_precision(distances, GROUPS)) == 9
    assert found.mean_average_precision == pytest.approx(np.mean(precision), abs=1e-12)
    assert found.auc == same_group_auc(distances, GROUPS) == pytest.approx(roc_auc_score(same, near), abs=1e-12)
    assert found.nearest_same_group == pytest.approx(np.mean(nearest), abs=1e-12)
    assert np.trapezoid(*reversed(roc(distances, GROUPS))) == pytest.approx(found.auc, abs=1e-12)


@pytest.mark.parametrize(("groups", "complaint"), [("aaa", "groups, got only a: hold out more"), ("abc", "at least two tasks")])
def test_groups_that_measure_nothing_are_refused(groups: str, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        check_groups(np.array(list(groups)))
