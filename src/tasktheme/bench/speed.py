"""How fast this machine trains and embeds: ours beside the plain reference, medians of repeated runs."""

from __future__ import annotations

import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from tasktheme.bench.memory import measure as measure_memory
from tasktheme.bench.reference import PlainTrainer
from tasktheme.data.dataset import Dataset
from tasktheme.device import find_device
from tasktheme.nets.build import Networks
from tasktheme.progress import progress_bar
from tasktheme.ptm import PTM
from tasktheme.settings import Settings
from tasktheme.storage import versions
from tasktheme.training.compiler import silent_compiler
from tasktheme.training.loop import Trainer

OMNIGLOT = Settings(themes=8, latent_dim=64, warm_up=0.0, e_step_iterations=5, polish_sweeps=0)
_PLAIN, _OURS = "training, Omniglot network, plain reference", "training, Omniglot network"
MINI_IMAGENET = OMNIGLOT.changed({"filters": [32, 64, 128, 256], "latent_dim": 128, "t_shots": 16, "v_shots": 16})


@dataclass(frozen=True)
class Measurement:
    """``rate`` is the median over runs in tasks per second; ``spread`` the slowest and the fastest run."""

    name: str
    rate: float
    spread: tuple[float, float]
    runs: int


def random_images(channels: int, *, classes: int = 60, shots: int = 40, seed: int = 0) -> Dataset:
    """Images of noise in six groups: speed does not depend on what they show."""
    pixels = np.random.default_rng(seed).integers(0, 256, size=(classes * shots, channels, 64, 64), dtype=np.uint8)
    return Dataset.from_arrays(pixels, np.arange(len(pixels)) // shots, np.arange(len(pixels)) // shots % 6, name="noise")


def measure_speed(*, device: str = "auto", seconds: float = 5.0, progress: bool = True) -> dict[str, Any]:
    """Run every measurement for about ``seconds`` each; a dictionary ready for JSON, with machine and versions."""
    where = find_device(device)
    grey, colour = random_images(1), random_images(3)
    work: list[tuple[str, int, Callable[[], Callable[[], None]]]] = [
        (_PLAIN, 20, lambda: _plain_training(OMNIGLOT, grey, where)),
        (_OURS, 20, lambda: _training(OMNIGLOT, grey, where)),
        ("training, mini-ImageNet network", 20, lambda: _training(MINI_IMAGENET, colour, where)),
        ("embedding, 5 x 20 images, no two alike", 200, lambda: _embedding(where)),
    ]
    if where.type == "cuda":
        work += [
            (f"{_OURS}, compiled", 20, lambda: _training(OMNIGLOT, grey, where, compiled=True)),
            ("training, mini-ImageNet network, compiled", 20, lambda: _training(MINI_IMAGENET, colour, where, compiled=True)),
        ]
    rows = []
    with progress_bar("measuring", len(work), show=progress) as advance, silent_compiler():
        for name, count, prepare in work:
            rows.append(_measure(name, count, prepare(), seconds, where))
            advance(1, name)
    rates = {row.name: row.rate for row in rows}
    return {
        "measurements": [asdict(row) for row in rows],
        "speed_up": rates.get(f"{_OURS}, compiled", rates[_OURS]) / rates[_PLAIN],
        "memory": measure_memory(60_000, 1, "group") if where.type == "cpu" and sys.platform == "linux" else None,
        "machine": {
            "device": torch.cuda.get_device_name(where) if where.type == "cuda" else f"CPU {platform.machine()}",
            "threads": torch.get_num_threads(),
        },
        "versions": versions(),
    }


def _measure(name: str, count: int, step: Callable[[], None], seconds: float, device: torch.device) -> Measurement:
    for _ in range(5 if device.type == "cuda" else 1):  # a GPU records its graph in the fourth call
        step()
    _wait(device)
    rates: list[float] = []
    began = time.perf_counter()
    calls = 1
    while len(rates) < 3 or time.perf_counter() - began < seconds:
        started = time.perf_counter()
        for _ in range(calls):
            step()
        _wait(device)
        taken = time.perf_counter() - started
        rates.append(count * calls / taken)
        calls = max(1, round(calls * 0.2 * seconds / max(taken, 1e-6)))  # about five long runs
    return Measurement(name, statistics.median(rates), (min(rates), max(rates)), len(rates))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _training(settings: Settings, data: Dataset, device: torch.device, *, compiled: bool = False) -> Callable[[], None]:
    trainer = Trainer(settings, Networks(settings, data.point_shape, device), data, 1_000_000, device, compiled)
    trainer._initialise_themes()
    return trainer.train_step


def _plain_training(settings: Settings, data: Dataset, device: torch.device) -> Callable[[], None]:
    trainer = Trainer(settings, Networks(settings, data.point_shape, device), data, 1_000_000, device)
    trainer._initialise_themes()
    plain = PlainTrainer(settings, trainer.networks, trainer.themes.mu.clone(), trainer.themes.moments.Sigma.clone())
    tasks = torch.arange(settings.batch_tasks, device=device)

    def step() -> None:
        t, v = trainer.sampler.draw(tasks, *trainer.halves)
        plain.step(trainer.data, t, v, rho=0.01)

    return step


def _embedding(device: torch.device) -> Callable[[], None]:
    small, data = OMNIGLOT.changed({"batch_tasks": 5}), random_images(1, classes=1000, shots=20)
    model = PTM(settings=small, device=str(device)).fit(data, tasks=20, progress=False)
    episodes = data.episodes(tasks=np.arange(1000).reshape(200, 5), shots=20)
    return lambda: _discard(model.embed(episodes))


def _discard(value: object) -> None:
    """Drop a result that was only timed."""
