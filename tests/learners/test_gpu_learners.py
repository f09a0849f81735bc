"""Meta-learners on a GPU: the numbers of the CPU to float32 accuracy, and a replayed step like one that is not recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tasktheme as tt
from oracles.learners import NAMES
from oracles.small import small_images
from tasktheme.learners.base import Noise, precision
from tasktheme.learners.build import build_learner
from tasktheme.learners.convolution import IMPLEMENTATIONS
from tasktheme.learners.testing import random_classes, task_accuracies
from tasktheme.learners.training import MetaTrainer
from tasktheme.learners.whole_step import WholeStep, adapted_accuracy, meta_gradients
from tasktheme.training import graph

pytestmark = pytest.mark.gpu
CPU, GPU = torch.device("cpu"), torch.device("cuda")
OWN: dict[str, dict[str, Any]] = {
    "maml": {"inner_steps": 2, "test_steps": 2},
    "protonet": {"train_ways": 3},
    "abml": {"inner_steps": 2, "test_steps": 2, "test_samples": 3},
}


def trained(name: str, device: torch.device, steps: int, *, compiled: bool = False, **changes: Any) -> MetaTrainer:
    data = small_images()
    common = {"ways": 3, "queries": 3, "filters": 16, "modules": 3, "batch_tasks": 4, "precision": "float32"}
    learner = build_learner(name, common | OWN[name] | changes, data.point_shape)
    trainer = MetaTrainer(learner, data, steps, device, compiled=compiled)
    torch.set_float32_matmul_precision("highest")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for _ in range(steps):
            trainer.train_step()
    return trainer


@pytest.mark.parametrize("name", sorted(IMPLEMENTATIONS))
@pytest.mark.parametrize("channels", [(3, 32), (32, 32), (5, 7), (64, 64)])
def test_convolutions_are_those_of_the_cpu(name: str, channels: tuple[int, int]) -> None:
    torch.set_float32_matmul_precision("highest")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((3, 5, 16, 11, channels[0]), generator=generator)
    y = torch.randn((3, 5, 16, 11, channels[1]), generator=generator)
    weight = torch.randn((3, channels[1], channels[0], 3, 3), generator=generator)
    exact, ours = IMPLEMENTATIONS["loop"], IMPLEMENTATIONS[name]
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        convolved, correlated = ours.convolve(x.to(GPU), weight.to(GPU)), ours.correlate(x.to(GPU), y.to(GPU))
    torch.testing.assert_close(convolved.cpu(), exact.convolve(x, weight), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(correlated.cpu(), exact.correlate(x, y), rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_training_gives_the_same_numbers(name: str) -> None:
    cpu, gpu = (trained(name, device, 4)._means() for device in (CPU, GPU))
    assert gpu["loss"] == pytest.approx(cpu["loss"], rel=5e-3)
    assert gpu["gradient_norm"] == pytest.approx(cpu["gradient_norm"], rel=5e-2)


@pytest.mark.parametrize("name", [*NAMES, "triton"])
def test_a_replayed_step_is_the_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes: dict[str, Any] = {"convolution": "triton"} if name == "triton" else {}
    kind = "maml" if name == "triton" else name
    replayed = trained(kind, GPU, 12, **changes)._means()
    monkeypatch.setattr(graph, "_EAGER_CALLS", 1000)
    eager = trained(kind, GPU, 12, **changes)._means()
    assert replayed["loss"] == pytest.approx(eager["loss"], rel=2e-3)


@pytest.mark.filterwarnings("ignore")  # of the compiler's own
@pytest.mark.parametrize(
    ("name", "changes", "tolerance"),
    [
        ("maml", {"convolution": "triton"}, 5e-3),
        ("maml", {"convolution": "triton", "precision": "bfloat16"}, 0.05),  # rounding alone moves such a gradient by 0.01
        ("abml", {"samples": 1}, 5e-3),
        ("protonet", {}, 5e-3),
    ],
)
def test_a_compiled_step_is_the_step(name: str, changes: dict[str, Any], tolerance: float) -> None:
    """The replay of the compiled step in a training, and its gradients at the first weights, relative to their norm.

    One program for each learner, and a small one: making it takes as long as it has operations.
    """
    own = {"modules": 3} if name == "protonet" else {"modules": 1, "inner_steps": 1, "inner_rate": 0.1}
    compiled, eager = (trained(name, GPU, 6, compiled=flag, filters=8, **own | changes) for flag in (True, False))
    assert compiled._means()["loss"] == pytest.approx(eager._means()["loss"], rel=tolerance)
    settings = eager.settings
    learner = build_learner(name, settings.as_dict(), eager.dataset.point_shape).to(GPU)
    numbers = torch.arange(settings.batch_tasks, device=GPU)
    drawn = eager.sampler.draw(numbers, settings.shots, settings.queries)
    support, query = (eager.points(part, settings.training_ways) for part in drawn)
    assert compiled._whole is not None
    with precision(settings):
        expected = meta_gradients(learner, support, query, Noise(0, numbers))[2:]
        found = compiled._whole(learner, support, query, 0, numbers)[2:]
    assert len(compiled._whole.made) == 1
    ours, plain = (torch.cat([slope.flatten() for slope in slopes]) for slopes in (found, expected))
    assert (ours - plain).norm() < tolerance * plain.norm()


@pytest.mark.filterwarnings("ignore")
def test_compiled_testing_gives_nearly_the_same_accuracies() -> None:
    learner, data = trained("maml", GPU, 4, filters=8, modules=1, inner_steps=1, test_steps=1).learner, small_images()
    classes, program = random_classes(data, learner.settings, 40, seed=0), WholeStep(adapted_accuracy)
    plain, ours = (task_accuracies(learner, data, classes, seed=0, compiled=by) for by in (None, program))
    assert np.abs(ours - plain).mean() < 0.02  # a query at the border may fall to either side


@pytest.mark.parametrize("name", NAMES)
def test_testing_gives_nearly_the_same_accuracies(name: str) -> None:
    learner, data = trained(name, CPU, 4).learner, small_images()
    classes = random_classes(data, learner.settings, 40, seed=0)
    on = [task_accuracies(learner.to(device), data, classes, seed=0) for device in (CPU, GPU)]
    assert np.abs(on[0] - on[1]).mean() < 0.02  # a query at the border may fall to either side


def test_a_gpu_run_resumes_and_loads_on_a_cpu(tmp_path) -> None:
    changes = {"ways": 3, "queries": 3, "filters": 8, "modules": 3, "batch_tasks": 4, **OWN["maml"]}
    made = tt.MetaLearner("maml", device="cuda", **changes)
    made.fit(small_images(), 40, progress=False, checkpoint=tmp_path / "state")
    again = tt.MetaLearner("maml", device="cuda", **changes)
    again.fit(small_images(), 40, progress=False, checkpoint=tmp_path / "state", resume=True)
    assert again.fingerprint == made.fingerprint  # it was at its end already
    made.save(tmp_path / "run")
    assert 0.0 <= tt.MetaLearner.load(tmp_path / "run", device="cpu").test(small_images(), 5).mean <= 1.0
