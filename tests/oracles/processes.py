"""The same work in one process and in several, all forked from one program that has imported everything before.

``python processes.py same OUT N`` runs :func:`work` in one process and in N: OUT/WORLD-RANK.npz is what each got.
``python processes.py faults OUT`` runs the command line in two, with faults: OUT/ends.json says how each process ended.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sklearn.cluster  # noqa: F401  (imported once, before the processes part)
import torch
import torch._dynamo  # the optimisers need it

import tasktheme as tt
from oracles.small import SMALL, small_images, small_vectors
from tasktheme import cli, distributed
from tasktheme.experiments import distance_accuracy
from tasktheme.experiments.tested import run_test
from tasktheme.learners import testing
from tasktheme.training import batches, choice, embedding, loop

Arrays = dict[str, npt.NDArray[Any]]

_FIVE = {"batch_tasks": 5}  # neither two nor four processes share them evenly


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it said."""

    code: int  # negative: the signal that ended it
    stdout: str
    stderr: str


def fork(world: int, body: Callable[[], None], folder: Path, seconds: float = 150.0, **environment: str) -> list[Ended]:
    """Run ``body`` in ``world`` processes that find each other, and wait for all of them; none is left behind."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **environment}
    folder.mkdir(parents=True, exist_ok=True)
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            os.environ.update(shared, RANK=str(rank), LOCAL_RANK=str(rank))
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(folder / f"{name}{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            os._exit(_status(body))
        children.append(child)
    codes, deadline = {}, time.monotonic() + seconds
    while len(codes) < world:
        for child in set(children) - set(codes):
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                codes[child] = os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    texts = [[(folder / f"{name}{rank}").read_text() for name in ("out", "err")] for rank in range(world)]
    return [Ended(codes[child], *text) for child, text in zip(children, texts, strict=True)]


def _status(body: Callable[[], None]) -> int:
    code: object = 0
    try:
        body()
    except SystemExit as leaving:
        code = leaving.code or 0
    except BaseException:
        traceback.print_exc()
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 98


def unlabelled_tasks() -> list[npt.NDArray[np.float64]]:
    """Tasks of two kinds, of 3 to 30 vectors."""
    generator = np.random.default_rng(1)
    return [generator.normal(loc=4.0 * (i % 2), size=(3 + (7 * i) % 28, 6)) for i in range(9)]


def fits() -> dict[str, tt.PTM]:
    """Trainings of every kind that adds up something else."""
    small = {name: getattr(SMALL, name) for name in ("themes", "latent_dim", "filters", "ways", "t_shots", "v_shots")}
    cases = {
        "labelled": (SMALL.changed({"classification_weight": 1.0, "learn_concentration": True, **_FIVE}), small_images()),
        "unlabelled": (
            SMALL.changed({"encoder": "vector", "covariance": "diagonal", "polish_start": "tasks", **_FIVE}),
            unlabelled_tasks(),
        ),
        "isotropic": (SMALL.changed({"covariance": "isotropic", "polish_tasks": 3, **_FIVE}), small_vectors()),
        "auto": (SMALL.changed({"themes": "auto", "ways": (2, 2), "covariance": "diagonal", **_FIVE}), small_vectors()),
        "aspects": (SMALL.changed({"aspects": 5, "training_aspects": 5, "learn_concentration": True, **_FIVE}), small_images()),
        "auto aspects": (SMALL.changed({"aspects": 3, "themes": "auto", "ways": (2, 2), **_FIVE}), small_vectors()),
        "paper": (tt.Settings.preset("paper").changed({**small, **_FIVE, "rate_offset": 1.0}), small_images()),
    }
    return {
        name: tt.PTM(settings=settings, device="cpu").fit(data, tasks=40, progress=False)
        for name, (settings, data) in cases.items()
    }


def fitted() -> Arrays:
    """What several processes give to rounding."""
    found: Arrays = {}
    for name, model in fits().items():
        found |= {f"fit.{name}.{key}": value.numpy() for key, value in model._require_fitted().tensors().items()}
        found[f"fit.{name}.history"] = np.array([list(row.values()) for row in model.history])
    learner = tt.MetaLearner("maml", device="cpu", ways=3, filters=4, batch_tasks=5, queries=3)
    learner.fit(small_images(), 30, progress=False)
    return found | {f"fit.maml.{key}": value.numpy() for key, value in learner.learner.state_dict().items()}


def shown(model: tt.PTM, learner: tt.MetaLearner) -> Arrays:
    """What several processes give to the bit: everything about tasks that finished models are shown."""
    data = small_images()
    drawn = data.episodes(ways=3, shots=4, n=30, seed=2)
    tasks = model.embed(drawn)
    alone = model.embed(list(data.x[[[0, 1], [20, 21], [40, 41], [60, 61], [78, 79]]]))  # no data point in two tasks
    nearest = tasks.nearest(tasks, k=3)
    return {
        "gamma": tasks.concentration,
        "converged": tasks.converged,
        "alone": alone.concentration,
        "means": model.mean_embedding(drawn),
        "points": model.point_embeddings(drawn),
        "indices": nearest.indices,
        "distances": nearest.distances,
        "one": tasks[0].nearest(tasks, k=2).distances,
        "accuracy": learner.test(data, 20).accuracy,
        "few": learner.test(data, 3).accuracy,  # and four processes
        "experiment": distance_accuracy.distance_accuracy(run_test(learner, data, 12), model, data, training_tasks=9).x,
    }


def small_batches() -> None:
    """Pieces so small that there are several for each process."""
    batches._POINTS_IN_BATCH["cpu"] = 40
    embedding._POINTS_AT_ONCE["cpu"] = 7
    testing._NUMBERS_AT_ONCE["cpu"] = 100_000
    distance_accuracy._TASKS_AT_ONCE = 5
    loop._INITIAL_POINTS = 400
    choice._TASKS, choice._TASKS_AT_ONCE = 30, 7


def work(out: Path) -> None:
    """Fit and show; the first process alone also makes the models that all are shown."""
    model, learner = out / "model", out / "learner"
    with distributed.joined():
        found = fitted()
        if not model.exists():
            tt.PTM(settings=SMALL, device="cpu").fit(small_images(), tasks=40, progress=False).save(model)
            made = tt.MetaLearner("maml", device="cpu", ways=3, filters=4, queries=3, batch_tasks=2)
            made.fit(small_images(), 4, progress=False).save(learner)
        found |= shown(tt.PTM.load(model, device="cpu"), tt.MetaLearner.load(learner, device="cpu"))
        np.savez(out / f"{distributed.world()}-{distributed.rank()}.npz", **found)


def same(out: Path, several: str) -> None:
    """All kinds of work, alone and in several processes."""
    small_batches()
    for world in (1, int(several)):
        ends = fork(world, lambda: work(out), out / f"said-{world}")
        if any(end.code for end in ends):
            sys.exit("\n".join(f"{world} processes: {end}" for end in ends))


def faults(out: Path) -> None:
    """The command line in two processes, of which the second is killed, stopped or just does its part."""
    os.chdir(out)
    np.savez("data.npz", x=small_vectors().x, y=np.arange(96) // 12)
    ends: dict[str, list[Ended]] = {}

    def run(name: str, *arguments: str, world: int = 2, **environment: str) -> None:
        sys.argv = ["tasktheme", *arguments]
        ends[name] = fork(world, cli.main, out / "said" / name, **environment)

    def fit(model: str, *changes: str) -> list[str]:
        settings = (
            "encoder=vector",
            "hidden=[8]",
            "latent_dim=4",
            "themes=3",
            "ways=3",
            "t_shots=3",
            "v_shots=3",
            "polish_tasks=9",
        )
        options = [part for change in (*settings, "batch_tasks=3", *changes) for part in ("--set", change)]
        return ["fit", "data.npz", "--out", model, "--tasks", "30", "--checkpoint-every", "0", "--device", "cpu", *options]

    run("whole", *fit("whole"))
    with fault(signal.SIGKILL):
        run("killed", *fit("again"))
    run("restarted", *fit("again"), TORCHELASTIC_RESTART_COUNT="1")
    with fault(signal.SIGTERM):
        run("stopped", *fit("further"))
    run("resumed", *fit("further"), "--resume", world=1)  # by one alone
    run("too many", *fit("none", "batch_tasks=1"))
    run("not shared", "evaluate", "whole", "data.npz")
    run("lifelong", "experiment", "lifelong", "glyphs", "--policies", "random")
    for world in (1, 2):
        tasks = ("embed", "whole", "data.npz", "--ways", "2", "--shots", "4", "--device", "cpu", "-n", "7")
        run(f"embed {world}", *tasks, "--out", f"{world}.parquet", world=world)
        run(f"nearest {world}", "nearest", "1.parquet", "1.parquet", "-k", "2", "--out", f"near{world}.csv", world=world)
    (out / "ends.json").write_text(json.dumps({name: [asdict(end) for end in found] for name, found in ends.items()}))


@contextmanager
def fault(number: int, step: int = 5) -> Iterator[None]:
    """The second process of a training sends itself a signal in a step."""
    original = loop.Trainer.train_step

    def train_step(trainer: loop.Trainer) -> None:
        if trainer.step == step and distributed.rank() == 1:
            os.kill(os.getpid(), number)
        original(trainer)

    loop.Trainer.train_step = train_step  # type: ignore[method-assign]
    try:
        yield
    finally:
        loop.Trainer.train_step = original  # type: ignore[method-assign]


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"same": same, "faults": faults}[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
