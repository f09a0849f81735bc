"""Episodes: classes and points without repetition, halves apart, the same for the same seed, and uniform."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tasktheme.data.dataset import Dataset
from tasktheme.data.episodes import EpisodeBatch, Episodes, EpisodeSampler
from tasktheme.errors import DataError

UNLIKELY = 1e-4  # of a chi-square test of what is truly uniform; the seeds are fixed


def make(groups: tuple[int, ...] = (6, 9, 4), points: int = 12) -> Dataset:
    """Groups of so many classes each; the value of a point is its row's class."""
    classes = sum(groups)
    labels = np.repeat(np.arange(classes), points)
    group = np.repeat(np.arange(len(groups)), groups)[labels]
    return Dataset.from_arrays(labels[:, None].astype(np.float32), labels, [f"g{g}" for g in group], name="made")


def class_of(data: Dataset, rows: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(np.searchsorted(data.starts, rows.numpy(), side="right") - 1)


def check_task(data: Dataset, batch: EpisodeBatch, classes: torch.Tensor, t: int) -> None:
    """The rows of task t belong to the classes that their labels mean."""
    mask = batch.mask[t]
    assert torch.equal(class_of(data, batch.rows[t][mask]), classes[t][batch.labels[t][mask]])


@given(ways=st.integers(1, 4), shots=st.integers(1, 12), seed=st.integers(0, 1000), within=st.booleans())
def test_nothing_is_drawn_twice(ways: int, shots: int, seed: int, within: bool) -> None:
    data = make()
    sampler = EpisodeSampler(data, ways=ways, shots=shots, seed=seed, within_group=within)
    tasks = torch.arange(8)
    classes, class_mask = sampler.classes(tasks)
    [batch] = sampler.draw(tasks)
    assert class_mask.all()
    assert batch.mask.all()
    assert batch.rows.shape == (8, ways * shots)
    for t in range(8):
        assert len(classes[t].unique()) == ways
        assert len(batch.rows[t].unique()) == ways * shots
        check_task(data, batch, classes, t)
        if within:
            assert len(set(data.class_group[classes[t].numpy()].tolist())) == 1


def test_halves_share_no_point_but_all_classes() -> None:
    data = make()
    sampler = EpisodeSampler(data, ways=4, shots=10, seed=5)
    tasks = torch.arange(20)
    first, second = sampler.draw(tasks, 4, 6)
    classes, _ = sampler.classes(tasks)
    assert first.rows.shape == (20, 16)
    assert second.rows.shape == (20, 24)
    for t in range(20):
        assert not set(first.rows[t].tolist()) & set(second.rows[t].tolist())
        check_task(data, first, classes, t)
        check_task(data, second, classes, t)
    [whole] = sampler.draw(tasks)
    for t in range(20):
        assert set(whole.rows[t].tolist()) == set(first.rows[t].tolist()) | set(second.rows[t].tolist())


def test_ranged_ways_are_masked() -> None:
    data = make((6, 9, 4))
    sampler = EpisodeSampler(data, ways=(2, 7), shots=3, seed=0)
    tasks = torch.arange(600)
    classes, class_mask = sampler.classes(tasks)
    [batch] = sampler.draw(tasks)
    ways = class_mask.sum(dim=1)
    assert torch.equal(class_mask, torch.arange(7) < ways[:, None])
    assert torch.equal(batch.mask, class_mask.repeat_interleave(3, dim=1))
    assert (batch.rows[~batch.mask] == 0).all()
    for t in range(600):
        assert len(classes[t][class_mask[t]].unique()) == ways[t]
        check_task(data, batch, classes, t)
    groups = torch.as_tensor(data.class_group)[classes[:, 0]]
    for group, most in enumerate((6, 7, 4)):  # what a group can offer
        counts = np.bincount(ways[groups == group].numpy(), minlength=most + 1)
        assert counts[2:].sum() == counts.sum()
        assert stats.chisquare(counts[2:]).pvalue > UNLIKELY


def test_a_task_depends_on_the_seed_and_its_number_alone() -> None:
    data = make()
    sampler = EpisodeSampler(data, ways=(2, 4), shots=6, seed=11)
    tasks = torch.arange(40)
    whole = sampler.draw(tasks, 2, 4)
    for order in (tasks.flip(0), torch.tensor([7]), tasks[3::5]):
        for one, part in zip(whole, sampler.draw(order, 2, 4), strict=True):
            assert torch.equal(one.rows[order], part.rows)
            assert torch.equal(one.mask[order], part.mask)
    again = EpisodeSampler(data, ways=(2, 4), shots=6, seed=11).draw(tasks, 2, 4)
    assert torch.equal(again[1].rows, whole[1].rows)
    other = EpisodeSampler(data, ways=(2, 4), shots=6, seed=12).draw(tasks, 2, 4)
    assert not torch.equal(other[1].rows, whole[1].rows)


def test_groups_classes_and_points_are_uniform() -> None:
    data = make((6, 9, 4), points=7)
    sampler = EpisodeSampler(data, ways=2, shots=3, seed=0)
    tasks = torch.arange(9000)
    classes, _ = sampler.classes(tasks)
    [batch] = sampler.draw(tasks)
    groups = np.bincount(data.class_group[classes[:, 0].numpy()], minlength=3)
    assert stats.chisquare(groups).pvalue > UNLIKELY
    drawn = np.bincount(classes.flatten().numpy(), minlength=19)
    rows = np.bincount(batch.rows.flatten().numpy(), minlength=19 * 7).reshape(19, 7)
    for group in range(3):
        members = data.class_group == group
        # Two classes of a task differ, which spreads them more evenly than independent draws: the test is on the safe side.
        assert stats.chisquare(drawn[members]).pvalue > UNLIKELY
    for of_class in rows:
        assert stats.chisquare(of_class).pvalue > UNLIKELY
    pairs = np.bincount((classes[:, 0] * 19 + classes[:, 1]).numpy(), minlength=361).reshape(19, 19)
    last = pairs[15:, 15:][~np.eye(4, dtype=bool)]
    assert stats.chisquare(last).pvalue > UNLIKELY


def test_mixed_groups_are_uniform_over_classes() -> None:
    data = make((2, 9, 4))
    classes, _ = EpisodeSampler(data, ways=5, shots=1, seed=0, within_group=False).classes(torch.arange(6000))
    assert stats.chisquare(np.bincount(classes.flatten().numpy(), minlength=15)).pvalue > UNLIKELY


def test_unlabelled_tasks_give_what_they_have() -> None:
    sizes = [1, 2, 7, 20]
    data = Dataset.from_tasks([np.full((n, 1), n, dtype=np.float32) for n in sizes])
    sampler = EpisodeSampler(data, ways=1, shots=10, seed=0, allow_fewer=True)
    tasks = torch.arange(60)
    classes, _ = sampler.classes(tasks)
    first, second = sampler.draw(tasks, 5, 5)
    assert set(classes.flatten().tolist()) == {0, 1, 2, 3}
    for t in range(60):
        size = sizes[int(classes[t, 0])]
        kept = [part.rows[t][part.mask[t]].tolist() for part in (first, second)]
        assert not set(kept[0]) & set(kept[1])
        assert (len(kept[0]), len(kept[1])) == (min(size, 10) // 2, min(size, 10) - min(size, 10) // 2)
        assert len(set(kept[0] + kept[1])) == min(size, 10)
        for part in (first, second):
            check_task(data, part, classes, t)


def test_too_few_points_name_the_class() -> None:
    labels = ["many"] * 9 + ["few"] * 2
    data = Dataset.from_arrays(np.zeros((11, 1)), labels, name="mine")
    with pytest.raises(DataError, match="class 'few' of 'mine' has 2 data points, but tasks ask for 3 of each class"):
        data.episodes(ways=2, shots=3)


def test_one_is_not_many() -> None:
    with pytest.raises(DataError, match="has 1 data point, but tasks ask for 2 of each"):
        Dataset.from_arrays(np.zeros((2, 1)), [0, 1]).episodes(ways=2, shots=2)
    one = Dataset.from_arrays(np.zeros((2, 1)), [0, 0])
    for within_group in (True, False):
        with pytest.raises(DataError, match="has 1 class, but tasks ask for 2 ways"):
            one.episodes(ways=2, shots=1, within_group=within_group)


def test_too_few_classes_name_the_group() -> None:
    with pytest.raises(
        DataError, match="group 'g2' of 'made' has 4 classes, but tasks ask for 5 ways; ask for fewer ways, or mix"
    ):
        make().episodes(ways=5, shots=1)
    assert len(make().episodes(ways=5, shots=1, n=3, within_group=False)) == 3
    with pytest.raises(DataError, match="'made' has 19 classes, but tasks ask for 20 ways"):
        make().episodes(ways=20, shots=1, within_group=False)


@pytest.mark.parametrize(
    ("ways", "shots", "n", "message"),
    [
        (0, 1, 1, "ways must"),
        ((3, 2), 1, 1, "ways must"),
        ((0, 2), 1, 1, "ways must"),
        (2, 0, 1, "shots must"),
        (2, (3, 2), 1, "shots must"),
        (2, (0, 2), 1, "shots must"),
        (2, 1, 0, "n, the"),
    ],
)
def test_senseless_numbers_are_refused(ways: Any, shots: Any, n: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make().episodes(ways=ways, shots=shots, n=n)


def test_episodes_slice_and_come_in_batches() -> None:
    episodes = make().episodes(ways=(2, 4), shots=3, n=10, seed=2)
    assert len(episodes) == 10
    part = episodes[4:7]
    assert isinstance(part, Episodes)
    assert len(part) == 3
    assert torch.equal(part.batch.rows, episodes.batch.rows[4:7])
    assert torch.equal(part.batch.mask, episodes.batch.mask[4:7])
    assert part.class_names() == episodes.class_names()[4:7]
    batches = list(episodes.batches(4))
    assert [len(batch.rows) for batch in batches] == [4, 4, 2]
    assert torch.equal(torch.cat([batch.labels for batch in batches]), episodes.batch.labels)
    assert torch.equal(make().episodes(ways=(2, 4), shots=3, n=4, seed=2).batch.rows, episodes[:4].batch.rows)


def test_episodes_are_indexed_like_an_array() -> None:
    episodes = make().episodes(ways=(2, 4), shots=3, n=5, seed=2)
    assert [task.class_names() for task in episodes] == [[names] for names in episodes.class_names()]
    for which in (3, -2, np.int64(3)):
        assert torch.equal(episodes[which].batch.rows, episodes.batch.rows[3:4])
    for which in ([4, 0], np.array([4, 0]), -np.arange(1, 6)[::4]):
        assert len(episodes[which]) == 2
    assert torch.equal(episodes[[4, 0]].batch.rows, episodes.batch.rows[[4, 0]])
    assert torch.equal(episodes[np.arange(5) > 2].classes, episodes.classes[3:])
    assert torch.equal(episodes[::-2].batch.rows, episodes.batch.rows[[4, 2, 0]])
    for outside in (5, -6, np.array([[0, 1]]), True):
        with pytest.raises(IndexError):
            episodes[outside]
    assert episodes[[]].fewest_shots() == 0


def test_class_names_and_groups() -> None:
    data = make((2, 3))
    episodes = data.episodes(ways=2, shots=1, n=30)
    for names, group, classes in zip(episodes.class_names(), episodes.groups(), episodes.classes, strict=True):
        assert names == [data.class_names[c] for c in classes]
        assert {data.group_names[data.class_group[c]] for c in classes} == {group}
    assert set(episodes.groups()) == {"g0", "g1"}
    mixed = data.episodes(ways=4, shots=1, n=10, within_group=False)
    assert set(mixed.groups()) == {"mixed"}
    ranged = data.episodes(ways=(1, 3), shots=1, n=60, within_group=False)
    for names, group in zip(ranged.class_names(), ranged.groups(), strict=True):
        of_classes = {"g0" if int(name) < 2 else "g1" for name in names}
        assert group == (of_classes.pop() if len(of_classes) == 1 else "mixed")


@given(
    fewest=st.integers(1, 6),
    more=st.integers(0, 6),
    v=st.integers(1, 6),
    ways=st.sampled_from([3, (1, 4)]),
    seed=st.integers(0, 99),
)
def test_ranged_halves_are_masked_and_apart(fewest: int, more: int, v: int, ways: int | tuple[int, int], seed: int) -> None:
    data = make(points=18)
    sampler = EpisodeSampler(data, ways=ways, shots=fewest + more + v, seed=seed)
    tasks = torch.arange(12)
    classes, class_mask = sampler.classes(tasks)
    first, second = sampler.draw(tasks, (fewest, fewest + more), v)
    most_ways = class_mask.shape[1]
    t_mask, v_mask = first.mask.view(12, most_ways, -1), second.mask.view(12, most_ways, -1)
    assert torch.equal(v_mask, class_mask[:, :, None].expand(-1, -1, v))
    assert t_mask.shape[2] == fewest + more
    shots = t_mask[:, 0].sum(dim=1)  # every class of a task has as many
    assert ((shots >= fewest) & (shots <= fewest + more)).all()
    assert torch.equal(t_mask, class_mask[:, :, None] & (torch.arange(fewest + more) < shots[:, None, None]))
    for t in range(12):
        kept = [part.rows[t][part.mask[t]].tolist() for part in (first, second)]
        assert len(set(kept[0] + kept[1])) == len(kept[0] + kept[1])
        for part in (first, second):
            assert (part.rows[t][~part.mask[t]] == 0).all()
            check_task(data, part, classes, t)


def test_ranged_shots_are_uniform_and_apart_from_ranged_ways() -> None:
    data = make((6, 9, 6), points=9)
    episodes = data.episodes(ways=(2, 5), shots=(3, 7), n=8000, seed=4)
    ways = episodes.class_mask.sum(dim=1)
    shots = episodes.batch.mask.sum(dim=1) // ways
    assert torch.equal(shots * ways, episodes.batch.mask.sum(dim=1))
    table = np.zeros((4, 5))
    np.add.at(table, ((ways - 2).numpy(), (shots - 3).numpy()), 1)
    assert stats.chisquare(table.flatten()).pvalue > UNLIKELY  # so they are independent, too
    rows = np.bincount(episodes.batch.rows[episodes.batch.mask].numpy(), minlength=21 * 9).reshape(21, 9)
    for of_class in rows:
        assert stats.chisquare(of_class).pvalue > UNLIKELY
    first, second = EpisodeSampler(data, ways=2, shots=9, seed=4).draw(torch.arange(8000), (1, 3), (2, 4))
    sizes = [part.mask.sum(dim=1).numpy() // 2 for part in (first, second)]
    assert stats.chisquare(np.bincount((sizes[0] - 1) * 3 + sizes[1] - 2, minlength=9)).pvalue > UNLIKELY


def test_fewer_points_are_shared_in_proportion_under_ranged_shots() -> None:
    sizes = [1, 4, 30]
    data = Dataset.from_tasks([np.full((n, 1), n, dtype=np.float32) for n in sizes])
    sampler = EpisodeSampler(data, ways=1, shots=20, seed=0, allow_fewer=True)
    tasks = torch.arange(300)
    classes, _ = sampler.classes(tasks)
    first, second = sampler.draw(tasks, (2, 10), 10)
    asked = np.zeros(300, dtype=int)
    for t in range(300):
        kept = [part.rows[t][part.mask[t]].tolist() for part in (first, second)]
        size = sizes[int(classes[t, 0])]
        assert len(set(kept[0] + kept[1])) == len(kept[0]) + len(kept[1])
        asked[t] = len(kept[0]) + len(kept[1])
        assert asked[t] == size if size < 12 else 12 <= asked[t] <= 20
        if size == 30:
            assert len(kept[1]) == 10
    assert set(asked[asked > 4]) == set(range(12, 21))


@given(
    tasks=st.lists(st.lists(st.integers(0, 18), min_size=1, max_size=6, unique=True), min_size=1, max_size=5),
    numbers=st.lists(st.integers(0, 10**6), min_size=1, max_size=9),
)
def test_a_list_of_tasks_is_followed(tasks: list[list[int]], numbers: list[int]) -> None:
    data = make()
    sampler = EpisodeSampler(data, tasks=tasks, shots=12, seed=1)
    task = torch.tensor(numbers)
    classes, class_mask = sampler.classes(task)
    first, second = sampler.draw(task, 5, 7)
    assert class_mask.shape == (len(numbers), max(map(len, tasks)))
    for i, number in enumerate(numbers):
        wanted = tasks[number % len(tasks)]
        assert classes[i][class_mask[i]].tolist() == wanted
        assert first.mask[i].sum() == 5 * len(wanted)
        assert second.mask[i].sum() == 7 * len(wanted)
        rows = [part.rows[i][part.mask[i]].tolist() for part in (first, second)]
        assert len(set(rows[0] + rows[1])) == 12 * len(wanted)
        for part in (first, second):
            check_task(data, part, classes, i)


def test_a_listed_task_draws_its_points_uniformly_and_anew() -> None:
    data = make(points=7)
    episodes = data.episodes(tasks=[["3", "17"], ["0"]], shots=3, n=6000, seed=8)
    assert len(episodes) == 6000
    assert episodes.class_names()[:3] == [["3", "17"], ["0"], ["3", "17"]]
    rows = np.bincount(episodes.batch.rows[episodes.batch.mask].numpy(), minlength=19 * 7).reshape(19, 7)
    assert np.flatnonzero(rows.sum(axis=1)).tolist() == [0, 3, 17]
    for of_class in rows[[0, 3, 17]]:
        assert of_class.sum() == 9000
        assert stats.chisquare(of_class).pvalue > UNLIKELY
    again, other = (data.episodes(tasks=[["3", "17"], ["0"]], shots=3, n=6000, seed=seed) for seed in (8, 9))
    assert torch.equal(again.batch.rows, episodes.batch.rows)
    assert not torch.equal(other.batch.rows, episodes.batch.rows)


def test_all_combinations_are_drawn_by_default() -> None:
    data = make((3, 4))
    episodes = data.episodes(tasks=data.combinations(3), shots=(1, 2))
    assert len(episodes) == 35
    assert torch.equal(episodes.classes, torch.combinations(torch.arange(7), 3))
    assert len(data.episodes(tasks=data.combinations(3), shots=1, n=4)) == 4
    assert episodes.groups()[0] == "g0"
    assert episodes.groups()[1] == "mixed"


def test_a_list_needs_points_of_its_own_classes_only() -> None:
    data = Dataset.from_arrays(np.zeros((12, 1)), ["a"] * 5 + ["b"] * 5 + ["few"] * 2, name="mine")
    assert len(data.episodes(tasks=[["a", "b"]], shots=5)) == 1
    with pytest.raises(DataError, match="class 'few' of 'mine' has 2 data points, but tasks ask for 5"):
        data.episodes(tasks=[["a", "b"], ["a", "few"]], shots=(1, 5))


def test_ways_and_a_list_exclude_each_other() -> None:
    with pytest.raises(DataError, match=r"either ways, .*or a list of tasks"):
        make().episodes(ways=3, tasks=[["1", "2"]], shots=1)
    with pytest.raises(DataError, match=r"either ways, .*or a list of tasks"):
        EpisodeSampler(make(), shots=1, seed=0)


@pytest.mark.gpu
def test_a_gpu_draws_the_same_tasks() -> None:
    data = make()
    tasks = torch.arange(100)
    [here] = EpisodeSampler(data, ways=(2, 4), shots=5, seed=9).draw(tasks)
    [there] = EpisodeSampler(data, ways=(2, 4), shots=5, seed=9, device="cuda").draw(tasks.cuda())
    assert torch.equal(here.rows, there.rows.cpu())
    assert torch.equal(here.mask, there.mask.cpu())
    listed = [[0, 5, 7], [1], [18, 2]]
    here = EpisodeSampler(data, tasks=listed, shots=9, seed=9).draw(tasks, (1, 4), 5)
    there = EpisodeSampler(data, tasks=listed, shots=9, seed=9, device="cuda").draw(tasks.cuda(), (1, 4), 5)
    for cpu, gpu in zip(here, there, strict=True):
        assert torch.equal(cpu.rows, gpu.rows.cpu())
        assert torch.equal(cpu.mask, gpu.mask.cpu())


@pytest.mark.gpu
@pytest.mark.parametrize("tasks", [None, [[0, 5, 7], [1], [18, 2]]])
def test_a_gpu_draws_without_waiting(tasks: list[list[int]] | None) -> None:
    """So that a CUDA graph can capture it, with lists and ranges too."""
    sampler = EpisodeSampler(make(), ways=None if tasks else (2, 4), tasks=tasks, shots=9, seed=9, device="cuda")
    task = torch.arange(100, device="cuda")
    expected = sampler.draw(task, (1, 4), 5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = sampler.draw(task, (1, 4), 5)
    graph.replay()
    for one, other in zip(drawn, expected, strict=True):
        assert torch.equal(one.rows, other.rows)


@pytest.mark.parametrize("size", [1, 4, 30])
def test_a_stream_draws_the_tasks_that_are_drawn_at_once(size: int) -> None:
    dataset = Dataset.from_arrays(np.arange(60.0)[:, None], np.arange(60) // 6, np.arange(60) // 30)
    chosen: dict[str, Any] = {"ways": (2, 4), "shots": (1, 3), "n": 9, "seed": 5}
    whole, parts = dataset.episodes(**chosen), list(dataset.stream(**chosen).parts(size))
    for name in ("rows", "labels", "mask"):
        together = torch.cat([getattr(part.batch, name) for part in parts])
        assert torch.equal(together, getattr(whole.batch, name))
    assert torch.equal(torch.cat([part.classes for part in parts]), whole.classes)
