"""How training scales with processes, and what they say to each other in a step.

    OMP_NUM_THREADS=1 python benchmarks/distributed.py [--processes 1 2] [--repeats 5] [--steps 5] [--device cpu] [--out out.json]

Trains the Omniglot network on noise, the work of `tasktheme bench`, in mini-batches of 20 tasks that the processes share. Runs
of each number of processes take turns, so that what else the machine does hits all alike. "CPU" is the time of all processes
together for one task: on a busy machine, or one with fewer cores than processes, it says more than the rate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tasktheme import distributed
from tasktheme.bench.speed import OMNIGLOT, random_images
from tasktheme.device import find_device
from tasktheme.nets.build import Networks
from tasktheme.training.loop import Trainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=20, help="in a mini-batch")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        with distributed.joined():
            found = measure(arguments.steps, arguments.tasks, arguments.device, compiled=arguments.compile)
            if distributed.leads():
                print(json.dumps(found))
        return
    runs: dict[int, list[dict[str, Any]]] = {count: [] for count in arguments.processes}
    for _ in range(arguments.repeats):
        for count in arguments.processes:
            runs[count].append(start(count, sys.argv[1:]))
    first = runs[arguments.processes[0]]
    print("| processes | tasks/s, median (slowest to fastest) | times the first, run by run | CPU ms per task, median |")
    print("|---|---|---|---|")
    for count, found in runs.items():
        rates, ratios = [run["rate"] for run in found], [run["rate"] / one["rate"] for run, one in zip(found, first, strict=True)]
        cpu = statistics.median(1000 * run["cpu"] for run in found)
        print(
            f"| {count} | {statistics.median(rates):.1f} ({min(rates):.1f} to {max(rates):.1f}) "
            f"| {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) | {cpu:.1f} |"
        )
    print(f"\nin one step each process gives, in bytes: {json.dumps(runs[arguments.processes[-1]][-1]['bytes'])}")
    if arguments.out:
        arguments.out.write_text(json.dumps(runs, indent=1) + "\n")


def start(processes: int, arguments: list[str]) -> dict[str, Any]:
    """One run, by torchrun."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    done = subprocess.run([*torchrun, __file__, *arguments, "--worker"], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(steps: int, tasks: int, device: str, *, compiled: bool) -> dict[str, Any]:
    """Tasks per second, CPU seconds of all processes per task, and the bytes of a step by kind of message."""
    where, data = find_device(device), random_images(1)
    settings = OMNIGLOT.changed({"batch_tasks": tasks, "initialisation": "random"})
    trainer = Trainer(settings, Networks(settings, data.point_shape, where), data, 1_000_000, where, compiled)
    trainer._initialise_themes()
    for _ in range(5 if where.type == "cuda" else 1):
        step(trainer)
    sent = count_bytes(trainer)
    distributed.wait_for_all()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step(trainer)
    if where.type == "cuda":
        torch.cuda.synchronize()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    [total] = distributed.summed([torch.tensor([cpu], dtype=torch.float64)])
    return {"rate": steps * tasks / wall, "cpu": float(total) / (steps * tasks), "bytes": sent}


def step(trainer: Trainer) -> None:
    trainer.train_step()
    distributed.anywhere(False, False)  # the training asks so in every step whether to stop


def count_bytes(trainer: Trainer) -> dict[str, int]:
    """What this process gives to all_reduce in one step, by size of the message."""
    sent: Counter[str] = Counter()
    original = dist.all_reduce

    def counting(tensor: torch.Tensor, *rest: Any, **options: Any) -> Any:
        sent[f"message {sum(1 for _ in sent) + 1}, {tensor.numel():,} numbers"] += tensor.numel() * tensor.element_size()
        return original(tensor, *rest, **options)

    dist.all_reduce = counting
    try:
        step(trainer)
    finally:
        dist.all_reduce = original
    return {**sent, "together": sum(sent.values())}


if __name__ == "__main__":
    main()
