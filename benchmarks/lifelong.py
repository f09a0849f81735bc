"""What a step of the lifelong experiment costs: A arms side by side, beside meta-training on mini-batches of A tasks.

    python benchmarks/lifelong.py --device cuda --arms 12 --learner maml
    python benchmarks/lifelong.py --device cuda --arms 3 --policy worst-case --compile

The work is that of mini-ImageNet: 5 ways, 1 shot, 15 queries, 64x64 colour images, a pool of 200 tasks; a step is pick, update,
discard, add. Images are noise: speed does not depend on what they show. Prints milliseconds for a step of all arms together;
--compile compiles both first, and says how long that took.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from tasktheme.bench.speed import random_images
from tasktheme.data.dataset import DataSplit
from tasktheme.device import find_device
from tasktheme.experiments.lifelong.arms import Arm, Programs, SideBySide
from tasktheme.experiments.lifelong.settings import LifelongSettings, lifelong_learner
from tasktheme.experiments.lifelong.world import World
from tasktheme.learners.base import precision
from tasktheme.learners.build import build_learner
from tasktheme.learners.training import MetaTrainer
from tasktheme.selection.build import build_policy

_WARM_UP = 6  # steps: on a GPU the first few are not replayed
_MOST = 1_000_000  # steps that there is room for


def milliseconds(step: Callable[[], None], device: torch.device, seconds: float) -> float:
    """The median of blocks of steps, on a GPU long enough that the host's own time hides."""
    for _ in range(_WARM_UP):
        step()
    block = 20 if device.type == "cuda" else 1
    taken = []
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        start = _now(device)
        for _ in range(block):
            step()
        taken.append((_now(device) - start) / block)
    return 1000 * statistics.median(taken)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()  # a shared CPU: only this process's own time counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learner", default="maml")
    parser.add_argument("--policy", default="random", help="one that needs neither model nor probe")
    parser.add_argument("--arms", type=int, default=12)
    parser.add_argument("--pool", type=int, default=200)
    parser.add_argument("--filters", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--compile", action="store_true", dest="compiled")
    options = parser.parse_args()
    device = find_device(options.device)
    settings = lifelong_learner(options.learner, {} if options.filters is None else {"filters": options.filters})
    data = random_images(3, shots=20)
    world = World(DataSplit("noise", data, data), settings, LifelongSettings(pool=options.pool, test_tasks=1), device)
    with precision(settings):
        policies = {options.policy: build_policy(options.policy)}
        steps = _MOST // options.arms
        listed, programs = [Arm(options.policy, seed) for seed in range(options.arms)], Programs() if options.compiled else None
        arms = SideBySide(world, listed, policies, options.learner, steps, programs)
        begun = time.monotonic()
        arms.prepare()
        prepared = time.monotonic() - begun
        ours = milliseconds(arms.train_step, device, options.seconds)
        batch = settings.changed({"batch_tasks": options.arms})
        trainer = MetaTrainer(
            build_learner(options.learner, batch.as_dict(), data.point_shape), data, steps, device, None, options.compiled
        )
        one = milliseconds(trainer.train_step, device, options.seconds)
    print(f"{options.learner}, {options.policy}, {options.arms} arms: {ours:.1f} ms a step of all")
    if options.compiled:
        print(f"compiled in {prepared:.0f} s")
    print(f"meta-training, mini-batches of {options.arms} tasks: {one:.1f} ms")


if __name__ == "__main__":
    main()
