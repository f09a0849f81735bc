"""How fast MAML trains and tests: ours, by each way of computing per-task convolutions, beside a plain loop and torch.func.

    python benchmarks/learners.py --device cuda --tasks 16,32,64 --impl patches,triton,grouped --precision tf32,bfloat16
    python benchmarks/learners.py --device cuda --no-rivals --impl triton --precision bfloat16 --seconds 2 --compiled both

The work is that of mini-ImageNet, 5 ways, 1 shot, 15 queries, 64x64 colour images, 5 inner steps, second order; a training
step includes drawing the tasks and the optimiser. Images are noise: speed does not depend on what they show.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, vmap

from tasktheme.bench.speed import random_images
from tasktheme.learners.base import Points, precision
from tasktheme.learners.maml import MAML, MAMLSettings
from tasktheme.learners.testing import ListedTasks, random_classes
from tasktheme.learners.training import MetaTrainer
from tasktheme.learners.whole_step import WholeStep, adapted_accuracy
from tasktheme.storage import versions


class PlainNet(torch.nn.Module):
    """The same network as everybody writes it."""

    def __init__(self, filters: int) -> None:
        super().__init__()
        self.convolutions = torch.nn.ModuleList(
            torch.nn.Conv2d(3 if i == 0 else filters, filters, 3, padding=1, bias=False) for i in range(4)
        )
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(filters, track_running_stats=False) for _ in range(4))
        self.head = torch.nn.Linear(16 * filters, 5)

    def forward(self, x: Tensor) -> Tensor:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = F.max_pool2d(F.relu(norm(convolution(x))), 2)
        return self.head(x.flatten(1))


class Plain:
    """One task after another, torch.autograd.grad in a loop."""

    def __init__(self, filters: int, device: torch.device) -> None:
        self.net = PlainNet(filters).to(device)
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def adapted(self, x: Tensor, y: Tensor, *, training: bool) -> dict[str, Tensor]:
        weights = dict(self.net.named_parameters())
        for _ in range(5):
            loss = F.cross_entropy(functional_call(self.net, weights, (x,)), y)
            slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=training)
            weights = {name: value - 0.01 * slope for (name, value), slope in zip(weights.items(), slopes, strict=True)}
            if not training:
                weights = {name: value.detach().requires_grad_() for name, value in weights.items()}
        return weights

    def train(self, support: Any, query: Any) -> None:
        self.optimiser.zero_grad()
        for xs, ys, xq, yq in zip(support.x, support.y, query.x, query.y, strict=True):
            weights = self.adapted(xs.contiguous(), ys, training=True)
            (F.cross_entropy(functional_call(self.net, weights, (xq.contiguous(),)), yq) / len(support.x)).backward()
        self.optimiser.step()

    def test(self, support: Any, query: Any) -> None:
        for xs, ys, xq in zip(support.x, support.y, query.x, strict=True):
            weights = self.adapted(xs.contiguous(), ys, training=False)
            with torch.no_grad():
                functional_call(self.net, weights, (xq.contiguous(),)).argmax(dim=-1)


class Mapped(Plain):
    """All tasks at once by torch.func: vmap over grad of the functional network."""

    def loss(self, weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(self.net, weights, (x,)), y)

    def query_loss(self, weights: dict[str, Tensor], xs: Tensor, ys: Tensor, xq: Tensor, yq: Tensor) -> Tensor:
        for _ in range(5):
            slopes = grad(self.loss)(weights, xs, ys)
            weights = {name: value - 0.01 * slopes[name] for name, value in weights.items()}
        return self.loss(weights, xq, yq)

    def train(self, support: Any, query: Any) -> None:
        self.optimiser.zero_grad()
        one = vmap(self.query_loss, in_dims=(None, 0, 0, 0, 0))
        one(dict(self.net.named_parameters()), support.x, support.y, query.x, query.y).mean().backward()
        self.optimiser.step()

    def test(self, support: Any, query: Any) -> None:
        with torch.no_grad():
            one = vmap(self.query_loss, in_dims=(None, 0, 0, 0, 0))
            one(dict(self.net.named_parameters()), support.x, support.y, query.x, query.y)


def rate(step: Callable[[], object], tasks: int, device: torch.device, seconds: float, clock: Callable[[], float]) -> float:
    """Tasks per second of ``clock``: the median of repeated runs after a warm-up."""
    for _ in range(6 if device.type == "cuda" else 1):  # a GPU records its graph in the fourth call
        step()
    rates = []
    began = time.perf_counter()
    while len(rates) < 3 or time.perf_counter() - began < seconds:
        wait(device)
        started = clock()
        for _ in range(10 if device.type == "cuda" else 1):
            step()
        wait(device)
        rates.append(tasks * (10 if device.type == "cuda" else 1) / (clock() - started))
    return statistics.median(rates)


def profile(step: Callable[[], None], device: torch.device) -> None:
    """Print which operations (on a GPU: kernels) take the time of one step."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    on_gpu = device.type == "cuda"
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with record(activities=kinds) as found:
        step()
        wait(device)
    by = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    rows = sorted(found.key_averages(), key=lambda row: getattr(row, by), reverse=True)
    total = sum(getattr(row, by) for row in rows)
    for row in rows[:20]:
        print(f"    {row.key[:80]:80}{getattr(row, by) / 1e3:10.2f} ms{100 * getattr(row, by) / total:6.1f} %{row.count:8}")


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--filters", type=int, default=32)
    parser.add_argument("--impl", default="", help="ways of convolving, by commas; all that suit the device if left out")
    parser.add_argument("--tasks", default="", help="tasks in a training mini-batch, by commas")
    parser.add_argument("--test-tasks", type=int, default=0, help="tasks tested at once")
    parser.add_argument("--precision", default="tf32", help="float32, tf32, bfloat16, by commas")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each measurement")
    parser.add_argument("--cpu-time", action="store_true", help="count this process's own time: for a CPU that others use too")
    parser.add_argument("--no-rivals", action="store_true", help="leave the plain loop and torch.func out")
    parser.add_argument("--compiled", default="no", choices=["no", "both", "only"], help="rows whose steps torch has compiled")
    parser.add_argument("--profile", action="store_true", help="show where the time of each of our training steps goes")
    parser.add_argument("--out", type=Path, help="write the rows as JSON too")
    choice = parser.parse_args()
    device = torch.device(choice.device)
    on_gpu = device.type == "cuda"
    impls = (choice.impl or ("patches,triton,grouped" if on_gpu else "loop,grouped,patches")).split(",")
    sizes = [int(size) for size in (choice.tasks or ("16,64" if on_gpu else "4")).split(",")]
    test_tasks = choice.test_tasks or (256 if on_gpu else 4)
    data = random_images(3)
    clock = time.process_time if choice.cpu_time else time.perf_counter
    name = torch.cuda.get_device_name(device) if on_gpu else f"CPU, {torch.get_num_threads()} threads"
    print(f"{name}, torch {torch.__version__}, {choice.filters} filters; tasks/s")
    print(f"{'by':28}{'mini-batch':>11}{'training':>12}{'testing':>12}")
    rows: list[dict[str, Any]] = []

    def show(by: str, tasks: int, training: float, testing: float) -> None:
        rows.append({"by": by, "mini-batch": tasks, "training": training, "testing": testing})
        print(f"{by:28}{tasks:11}{training:12,.2f}{testing:12,.2f}", flush=True)

    def ours(tasks: int, compiled: bool = False, **changes: Any) -> tuple[MetaTrainer, ListedTasks]:
        settings = MAMLSettings(filters=choice.filters, batch_tasks=tasks, test_steps=5).changed(changes)
        trainer = MetaTrainer(MAML(settings, data.point_shape), data, 10**9, device, compiled=compiled)
        classes = random_classes(data, settings, test_tasks, seed=0)
        return trainer, ListedTasks(data, settings, classes, device, seed=0)

    if not choice.no_rivals:
        trainer, _ = ours(sizes[0])
        drawn = trainer.sampler.draw(torch.arange(sizes[0], device=device), 1, 15)
        few = [Points(part.x.contiguous(), part.y, part.ways) for part in (trainer.points(each, 5) for each in drawn)]
        for by, rival in (("plain loop", Plain(choice.filters, device)), ("torch.func vmap", Mapped(choice.filters, device))):
            speeds = [
                rate(lambda work=work: work(*few), sizes[0], device, choice.seconds, clock) for work in (rival.train, rival.test)
            ]
            show(by, sizes[0], *speeds)
    ways_to_run = {"no": [False], "both": [False, True], "only": [True]}[choice.compiled]
    for impl, kind, size, compiled in product(impls, choice.precision.split(","), sizes, ways_to_run):
        try:
            trainer, listed = ours(size, compiled, convolution=impl, precision=kind)
            program = WholeStep(adapted_accuracy) if compiled else None
            test = partial(
                listed.accuracies, trainer.learner, compiled=program, at_once=test_tasks if compiled or on_gpu else None
            )
            with precision(trainer.settings):
                began = time.perf_counter()
                trainer.train_step()
                wait(device)
                middle = time.perf_counter()
                test()
                wait(device)
                first = f"first calls {middle - began:.0f} and {time.perf_counter() - middle:.0f} s"
                training = rate(trainer.train_step, size, device, choice.seconds, clock)
                testing = rate(test, test_tasks, device, choice.seconds, clock)
            show(f"{impl}, {kind}{', compiled' if compiled else ''}", size, training, testing)
            if compiled:
                print(f"    {first}", flush=True)
            if choice.profile:
                with precision(trainer.settings):
                    profile(trainer.train_step, device)
        except (RuntimeError, ImportError) as error:  # out of memory, or no triton: the other rows still count
            print(f"{impl}, {kind}, {size}: {' '.join(str(error).split())[:100]}", flush=True)
    if choice.out is not None:
        choice.out.write_text(json.dumps({"device": name, "versions": versions(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
