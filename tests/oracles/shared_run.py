"""The same work for one process or several: each fits, embeds and searches, and keeps what came out of it.

Started as a program, with the variables that torchrun sets, it is one process of a run: ``shared_run.py MODEL OUT``.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tasktheme as tt
from oracles.small import SMALL, small_images, small_vectors
from tasktheme import distributed

Arrays = dict[str, npt.NDArray[Any]]

_FIVE = {"batch_tasks": 5}  # neither two nor four processes share them evenly


def unlabelled_tasks() -> list[npt.NDArray[np.float64]]:
    """Tasks of two kinds, of 3 to 30 vectors."""
    generator = np.random.default_rng(1)
    return [generator.normal(loc=4.0 * (i % 2), size=(3 + (7 * i) % 28, 6)) for i in range(9)]


def fits() -> dict[str, tt.PTM]:
    """Trainings of every kind that adds up something else."""
    vector = SMALL.changed({"encoder": "vector", **_FIVE})
    cases = {
        "labelled": (SMALL.changed({"classification_weight": 1.0, "learn_concentration": True, **_FIVE}), small_images()),
        "unlabelled": (vector.changed({"covariance": "diagonal"}), unlabelled_tasks()),
        "isotropic": (SMALL.changed({"covariance": "isotropic", "polish_tasks": 3, **_FIVE}), small_vectors()),
        "paper": (
            tt.Settings.preset("paper").changed(
                {name: getattr(SMALL, name) for name in ("themes", "latent_dim", "filters", "ways", "t_shots", "v_shots")}
                | {"batch_tasks": 4, "rate_offset": 1.0}
            ),
            small_images(),
        ),
    }
    return {
        name: tt.PTM(settings=settings, device="cpu").fit(data, tasks=40, progress=False)
        for name, (settings, data) in cases.items()
    }


def fitted() -> Arrays:
    """What several processes give to rounding."""
    found: Arrays = {}
    for name, model in fits().items():
        found |= {f"{name}.{key}": value.numpy() for key, value in model._require_fitted().tensors().items()}
        found[f"{name}.history"] = np.array([list(row.values()) for row in model.history])
    learner = tt.MetaLearner("maml", device="cpu", ways=3, filters=4, batch_tasks=5, queries=3)
    learner.fit(small_images(), 30, progress=False)
    found |= {f"learner.{key}": value.numpy() for key, value in learner.learner.state_dict().items()}
    return found


def shown(model: tt.PTM) -> Arrays:
    """What several processes give to the bit: everything about tasks that a finished model is shown."""
    data = small_images()
    drawn = data.episodes(ways=3, shots=4, n=30, seed=2)
    tasks = model.embed(drawn)
    alone = model.embed(list(data.x[[[0, 1], [20, 21], [40, 41], [60, 61]]]))  # no data point in two tasks
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
    }


def start(arguments: list[str], world: int, **environment: str) -> list[subprocess.Popen[str]]:
    """The same program in ``world`` processes that find each other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([str(Path(tt.__file__).parents[1]), tests])
    return [
        subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONPATH": path, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]


def finish(processes: list[subprocess.Popen[str]], seconds: float = 120.0) -> list[tuple[int, str, str]]:
    """Exit status and output of each; none is left running."""
    try:
        return [(process.returncode, *output) for process in processes for output in [process.communicate(timeout=seconds)]]
    finally:
        for process in processes:
            process.kill()


def main(model: str, out: str) -> None:
    import torch

    torch.set_num_threads(1)
    small_batches()
    with distributed.joined():
        found = fitted() | shown(tt.PTM.load(model, device="cpu"))
        np.savez(Path(out) / f"{distributed.rank()}.npz", **found)


def small_batches() -> None:
    """Pieces so small that there are several for each process."""
    from tasktheme import ptm
    from tasktheme.training import embedding, loop

    ptm._POINTS_IN_BATCH["cpu"] = 40
    embedding._POINTS_AT_ONCE["cpu"] = 7
    loop._INITIAL_POINTS = 400


if __name__ == "__main__":
    main(*sys.argv[1:])
