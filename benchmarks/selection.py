"""What one pick costs: each policy, pools of 50, 200 and 1,000 tasks, on one core.

    python benchmarks/selection.py [--sizes 50 200 1000] [--targets 5] [--limit 20] [--out selection.json]

Tasks are 5-way 1-shot with 5 queries per class, 28x28 glyphs; the meta-learner is MAML of 16 filters and three modules (10 inner
steps), which is also Task2Vec's probe; the task model has 8 themes. None is trained beyond a step: the cost does not depend on
it. A pick is the description of one new task and the scores of all (what a stream of tasks pays at each step); "from scratch"
describes the whole pool. Times are those of the processor, not of the clock, so that other work on the machine counts little:
medians of three runs, or one where it takes over 5 s. What would take over --limit seconds, judged by the size before, is left
out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

import tasktheme as tt
from tasktheme.learners.testing import listed_classes, listed_episodes
from tasktheme.selection.base import Now, Policy, Pool, Tasks
from tasktheme.selection.build import POLICIES, build_policy

SEED = 1


def seconds(work: Callable[[], object], limit: float) -> float:
    times: list[float] = []
    while not times or (len(times) < 3 and times[0] < min(5.0, limit)):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


class Bench:
    def __init__(self, data: tt.Dataset, targets: int, limit: float) -> None:
        self.data, self.limit = data, limit
        self.learner = tt.MetaLearner("maml", device="cpu", filters=16, modules=3, queries=5, batch_tasks=1)
        self.learner.fit(data, 1, progress=False)
        self.model = tt.PTM(themes=8, device="cpu").fit(data, 20, progress=False)
        self.targets = self.draw(targets, seed=SEED + 1)

    def draw(self, tasks: int, *, seed: int) -> Tasks:
        """Tasks with images; their themes are random where they are not part of what is timed."""
        gamma = 1.1 + 30.0 * torch.rand((tasks, 8), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return dataclasses.replace(tt.draw_tasks(self.data, self.learner, tasks, seed=seed), gamma=gamma)

    def describe(self, policy: Policy, tasks: Tasks) -> Callable[[], Pool]:
        """What it takes to know of new tasks what the policy keeps, the task model's part included."""
        if "gamma" not in policy.needs:
            return lambda: policy.enter(tasks)
        settings = self.learner.settings
        classes = listed_classes(self.data, settings, len(tasks), seed=SEED)

        def embed_and_enter() -> Pool:
            gamma = self.model.embed(listed_episodes(self.data, settings, classes, seed=SEED)).concentration
            return policy.enter(dataclasses.replace(tasks, gamma=torch.tensor(gamma)))

        return embed_and_enter

    def rows(self, policy: Policy, pools: dict[int, Tasks]) -> list[dict[str, object]]:
        some = next(iter(pools.values()))[:1]
        one = seconds(self.describe(policy, some), self.limit)
        width = policy.enter(some).kept.shape[-1]
        found: list[dict[str, object]] = []
        for setting in ("induction", "transduction"):
            targets = policy.enter(self.targets) if setting == "transduction" else None
            before: dict[str, tuple[int, float]] = {}
            for size, tasks in pools.items():
                kept = tasks.gamma if "gamma" in policy.needs else torch.rand((size, width))  # the numbers do not matter
                assert kept is not None
                recent = kept[: policy.memory].double()
                now = Now(learner=self.learner.learner, recent=recent, losses=torch.rand(len(recent)))
                parts: dict[str, Callable[[], object]] = {
                    "scores": partial(policy.scores, Pool(tasks, kept.double()), targets, now),
                    "all": self.describe(policy, tasks),
                }
                taken: dict[str, float | None] = {"one": one}
                for part, work in parts.items():
                    expected = before[part][1] * size / before[part][0] if part in before else 0.0
                    taken[part] = seconds(work, self.limit) if expected < self.limit else None
                    before[part] = size, taken[part] or expected
                scores, whole = taken["scores"], taken["all"]
                taken["pick"] = None if scores is None else one + scores
                taken["from scratch"] = None if scores is None or whole is None else whole + scores
                found.append({"policy": policy.name, "setting": setting, "pool": size, **taken})
                times = (taken[name] for name in ("one", "scores", "pick", "from scratch"))
                cells = [policy.name, setting, f"{size:,}", *("-" if t is None else f"{1000 * t:,.2f}" for t in times)]
                print(f"| {' | '.join(cells)} |", flush=True)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 200, 1000])
    parser.add_argument("--targets", type=int, default=5)
    parser.add_argument("--limit", type=float, default=20.0)
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), choices=list(POLICIES))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    bench = Bench(tt.load_dataset("glyphs", size=28, progress=False).train, arguments.targets, arguments.limit)
    sizes = sorted(arguments.sizes)
    largest = bench.draw(sizes[-1], seed=SEED)
    pools = {size: largest[:size] for size in sizes}
    print("| policy | setting | pool | one new task, ms | scores, ms | one pick, ms | from scratch, ms |")
    print("|---|---|---|---|---|---|---|")
    found: list[dict[str, object]] = []
    for name in arguments.policies:
        found += bench.rows(build_policy(name, probe=bench.learner.learner), pools)
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
