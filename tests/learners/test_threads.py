from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

from oracles.learners import NAMES, SMALL
from oracles.small import small_images
from tasktheme.learners import testing
from tasktheme.learners.build import build_learner
from tasktheme.learners.testing import random_classes, task_accuracies
from tasktheme.learners.threads import each_piece
from tasktheme.learners.training import MetaTrainer

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("two_threads")


def test_two_threads_work_at_once_with_one_of_torch_each_and_give_results_in_order() -> None:
    both = threading.Barrier(2)  # breaks unless two come

    def work(piece: Tensor) -> tuple[list[int], int, int]:
        both.wait(timeout=20)
        return piece.tolist(), torch.get_num_threads(), threading.get_ident()

    rows, numbers, threads = zip(*each_piece(work, torch.arange(7), 2), strict=True)
    assert rows == ([0, 1], [2, 3], [4, 5], [6])
    assert set(numbers) == {1}
    assert len(set(threads)) == 2
    assert threading.get_ident() not in threads


def test_new_threads_find_the_number_that_there_was_before() -> None:
    list(each_piece(len, torch.arange(7), 2))
    found: list[int] = []
    other = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert found == [2]


@pytest.mark.parametrize(("threads", "tasks"), [(1, 7), (2, 1)])
def test_one_thread_or_one_task_stays_where_it_is_with_all_of_torch(threads: int, tasks: int) -> None:
    torch.set_num_threads(threads)
    found = list(each_piece(lambda piece: (threading.get_ident(), torch.get_num_threads()), torch.arange(tasks), 2))
    assert set(found) == {(threading.get_ident(), threads)}
    torch.set_num_threads(2)


def test_each_thread_has_a_piece_and_few_share_those_of_torch() -> None:
    assert list(each_piece(len, torch.arange(7), 100)) == [4, 3]
    torch.set_num_threads(6)
    assert list(each_piece(lambda piece: torch.get_num_threads(), torch.arange(2), 100)) == [3, 3]
    assert torch.get_num_threads() == 6
    torch.set_num_threads(2)


def test_an_error_in_a_thread_reaches_the_caller_and_ends_the_rest() -> None:
    done = []

    def work(piece: Tensor) -> None:
        if int(piece) == 1:
            raise ValueError("of piece 1")
        done.append(int(piece))

    with pytest.raises(ValueError, match="of piece 1"):
        list(each_piece(work, torch.arange(10_000), 1))
    assert len(done) < 9_999


def trained(name: str, threads: int) -> MetaTrainer:
    data = small_images()
    settings = SMALL[name] | {"ways": 3, "queries": 3, "batch_tasks": 5, "augment": True}
    value = MetaTrainer(build_learner(name, settings, data.point_shape), data, 3, CPU)
    torch.set_num_threads(threads)
    value.run(progress=False)
    torch.set_num_threads(2)
    return value


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_pieces_of_a_mini_batch_train_as_the_whole_does(name: str, tasks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To rounding; and the same pieces by any number of threads to the bit."""
    whole = trained(name, 1)
    monkeypatch.setattr("tasktheme.learners.training.tasks_at_once", lambda *_: tasks)
    alone, together = (trained(name, threads) for threads in (1, 2))
    same = tasks < 3  # two threads take pieces of 3 and 2
    assert (together.history == alone.history) or not same
    for key in ("loss", "accuracy", "gradient_norm"):
        assert [row[key] for row in together.history] == pytest.approx([row[key] for row in whole.history], rel=1e-4)
    for (key, one), two, all_ in zip(
        alone.learner.named_parameters(), together.learner.parameters(), whole.learner.parameters(), strict=True
    ):
        assert torch.equal(one, two) or not same, key
        torch.testing.assert_close(two, all_, rtol=1e-3, atol=1e-4, msg=key)
        torch.testing.assert_close(one, all_, rtol=1e-3, atol=1e-4, msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_two_threads_test_as_one_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_images()
    learner = build_learner(name, SMALL[name] | {"ways": 3, "queries": 5}, data.point_shape)
    classes = random_classes(data, learner.settings, 7, seed=0)
    monkeypatch.setitem(testing._NUMBERS_AT_ONCE, "cpu", 1)
    found = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found[threads] = task_accuracies(learner, data, classes, seed=0).tolist()
    assert found[1] == found[2]
    assert 0.0 < sum(found[1]) < 7.0
