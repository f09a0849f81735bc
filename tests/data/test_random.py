"""Random numbers without state: the same for the same counters, and as random as they should be."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from tasktheme.data.random import random_below, random_bits, random_normal, random_order

UNLIKELY = 1e-4  # of a chi-square test of what is truly uniform; the seeds are fixed


def test_a_number_depends_on_its_counters_alone() -> None:
    tasks = torch.arange(1000)
    whole = random_bits(3, 1, tasks)
    assert torch.equal(random_bits(3, 1, tasks.flip(0)).flip(0), whole)
    assert torch.equal(torch.cat([random_bits(3, 1, part) for part in tasks.split(7)]), whole)
    assert torch.equal(random_bits(3, 1, tasks[:, None], torch.arange(4))[:, 2], random_bits(3, 1, tasks, torch.tensor(2)))


def test_seeds_streams_and_counters_give_other_numbers() -> None:
    tasks = torch.arange(500)
    variants = [random_bits(seed, stream, tasks) for seed in (0, 1, 2) for stream in (0, 1, 2)]
    variants.append(random_bits(0, 0, tasks, torch.tensor(1)))
    numbers = torch.cat(variants)
    assert len(numbers.unique()) == len(numbers)


def test_bits_are_not_negative_and_fair() -> None:
    bits = random_bits(0, 0, torch.arange(20_000))
    assert bits.min() >= 0
    ones = torch.stack([(bits >> place & 1).sum() for place in range(63)]).double() / len(bits)
    assert (ones - 0.5).abs().max() < 0.02
    neighbours = torch.corrcoef(torch.stack([bits[:-1], bits[1:]]).double())[0, 1]
    assert abs(float(neighbours)) < 0.03


@pytest.mark.parametrize("seed", [0, 1, 2**40, -5])
def test_numbers_below_a_limit_are_uniform(seed: int) -> None:
    tasks = torch.arange(14_000)
    numbers = random_below(seed, 2, tasks, torch.full_like(tasks, 7))
    assert stats.chisquare(np.bincount(numbers.numpy(), minlength=7)).pvalue > UNLIKELY
    limits = tasks % 5 + 1
    assert (random_below(seed, 2, tasks, limits) < limits).all()


def test_orders_are_orders_and_uniform() -> None:
    tasks = torch.arange(12_000)
    orders = random_order(1, 0, tasks, torch.full_like(tasks, 4), slots=torch.arange(6), take=4)
    assert torch.equal(orders.sort(dim=1).values, torch.arange(4).expand_as(orders))
    number = {order: i for i, order in enumerate(itertools.permutations(range(4)))}
    counts = np.bincount([number[tuple(order)] for order in orders.tolist()], minlength=24)
    assert stats.chisquare(counts).pvalue > UNLIKELY


def test_orders_of_different_sizes_side_by_side() -> None:
    sizes = torch.tensor([1, 5, 3])
    orders = random_order(0, 0, torch.arange(3), sizes, slots=torch.arange(5), take=5)
    for order, size in zip(orders.tolist(), sizes.tolist(), strict=True):
        assert sorted(order[:size]) == list(range(size))
    alone = random_order(0, 0, torch.tensor([2]), torch.tensor([3]), slots=torch.arange(5), take=3)
    assert orders[2, :3].tolist() == alone[0].tolist()


def test_the_first_of_an_order_do_not_depend_on_how_many_are_taken() -> None:
    tasks, sizes = torch.arange(50), torch.full((50,), 9)
    few, many = (random_order(0, 0, tasks, sizes, slots=torch.arange(9), take=take) for take in (2, 9))
    assert torch.equal(few, many[:, :2])


def test_normal_numbers_are_normal() -> None:
    numbers = random_normal(0, 1, torch.tensor(5), torch.arange(20_000).view(200, 100))
    assert numbers.dtype == torch.float32
    assert stats.kstest(numbers.flatten().double().numpy(), "norm").pvalue > UNLIKELY
    rows = np.corrcoef(numbers[:20].double().numpy())[np.triu_indices(20, 1)]
    assert np.abs(rows).max() < 0.5
    assert numbers.abs().max() > 3.5


def test_normal_numbers_depend_on_seed_stream_and_counter() -> None:
    places = torch.arange(50)
    made = [random_normal(seed, stream, torch.tensor(n), places) for seed in (0, 1) for stream in (0, 1) for n in (0, 1)]
    assert torch.equal(made[0], random_normal(0, 0, torch.tensor(0), places))
    assert len(torch.cat(made).unique()) > 390  # of 400; float32 may repeat one by chance
