"""The same numbers on CPU and GPU, to float32 accuracy, and a replayed step like one that is not recorded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import tasktheme as tt
from oracles.small import SMALL, TOLD_APART, small_images
from tasktheme.bench.speed import random_images
from tasktheme.data.episodes import EpisodeSampler
from tasktheme.data.random import random_normal
from tasktheme.nets.build import Networks
from tasktheme.training import graph
from tasktheme.training.loop import Trainer

pytestmark = pytest.mark.gpu
CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def _full_precision() -> Iterator[None]:
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False, deterministic=True):
        yield


def trained(device: torch.device, steps: int, *, compiled: bool = False, **changes: object) -> Trainer:
    settings, data = SMALL.changed({"precision": "float32", **changes}), small_images()
    trainer = Trainer(settings, Networks(settings, data.point_shape, device), data, steps, device, compiled)
    for _ in range(steps):
        if trainer.step == trainer.warm_up_steps:
            trainer._initialise_themes()
        trainer.train_step()
    return trainer


def test_tasks_and_noise_are_the_same() -> None:
    drawn = []
    for device in (CPU, GPU):
        sampler = EpisodeSampler(small_images(), ways=(2, 4), shots=6, seed=3, device=device)
        drawn.append([part.cpu() for part in vars(sampler.draw(torch.arange(50, device=device), 2, 4)[1]).values()])
    for ours, theirs in zip(*drawn, strict=True):
        assert torch.equal(ours, theirs)
    noise = [random_normal(1, 2, torch.arange(1000, device=d)).cpu() for d in (CPU, GPU)]
    torch.testing.assert_close(*noise, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_training_gives_the_same_numbers(preset: str) -> None:
    names = ("norm", "classification_weight", "squared_distance", "validation_responsibilities", "update", "initialisation")
    literal = {name: getattr(tt.Settings.preset(preset), name) for name in names}
    for steps, tolerance in ((4, 2e-3), (8, 1e-2)):
        cpu, gpu = (trained(d, steps, **literal) for d in (CPU, GPU))
        assert gpu._means()["loss"] == pytest.approx(cpu._means()["loss"], rel=tolerance)
        torch.testing.assert_close(gpu.themes.mu.cpu(), cpu.themes.mu, rtol=5e-2, atol=5e-2)


def test_a_replayed_step_is_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed = trained(GPU, 20)
    monkeypatch.setattr(graph, "_EAGER_CALLS", 1000)
    eager = trained(GPU, 20)
    assert replayed._means()["loss"] == pytest.approx(eager._means()["loss"], rel=1e-4)
    torch.testing.assert_close(replayed.themes.mu, eager.themes.mu, rtol=1e-3, atol=1e-3)


def gradients(trainer: Trainer) -> list[torch.Tensor]:
    """Of the next mini-batch, one for each weight."""
    return list(torch.autograd.grad(trainer._forward(*trainer._draw(trainer._counter)).loss, list(trainer.networks.parameters())))


@pytest.mark.filterwarnings("ignore")  # of the compiler's own
@pytest.mark.parametrize(
    "changes",
    [{}, {"norm": "batch", "classification_weight": 1.0}, {"training_aspects": 5}],
    ids=["default", "labelled", "aspects"],
)
def test_a_compiled_step_is_the_step(changes: dict[str, object]) -> None:
    compiled, eager = (trained(GPU, 8, compiled=flag, **changes) for flag in (True, False))
    assert compiled._means()["loss"] == pytest.approx(eager._means()["loss"], rel=1e-3)
    torch.testing.assert_close(compiled.themes.mu, eager.themes.mu, rtol=1e-2, atol=1e-2)
    compiled.networks.load_state_dict(eager.networks.state_dict())
    compiled.themes.assign(eager.themes)
    for ours, expected in zip(gradients(compiled), gradients(eager), strict=True):
        assert (ours - expected).norm() <= 1e-3 * expected.norm() + 1e-7


def test_the_papers_recipe_compiles_at_its_own_size() -> None:
    settings, data = tt.Settings.preset("paper"), random_images(1)
    trainer = Trainer(settings, Networks(settings, data.point_shape, GPU), data, 8, GPU, compiled=True)
    trainer.run(progress=False)  # a fault of the compiler is a warning, which is an error here
    assert trainer.compiled


def test_bfloat16_gives_nearly_the_same_gradient() -> None:
    rounded, exact = (trained(GPU, 4, precision=precision) for precision in ("bfloat16", "float32"))
    rounded.networks.load_state_dict(exact.networks.state_dict())
    rounded.themes.assign(exact.themes)
    pairs = zip(gradients(rounded), gradients(exact), strict=True)
    ours, expected = (torch.cat([part.flatten() for part in parts]) for parts in zip(*pairs, strict=True))
    assert torch.cosine_similarity(ours, expected, dim=0) > 0.99


def test_embedding_gives_the_same_numbers(tmp_path) -> None:
    data = small_images()
    tt.PTM(settings=SMALL, device="cpu").fit(data, tasks=40, progress=False).save(tmp_path / "m")
    episodes = data.episodes(ways=3, shots=5, n=20)
    on = [tt.PTM.load(tmp_path / "m", device=d).embed(episodes).concentration for d in ("cpu", "cuda")]
    np.testing.assert_allclose(on[0], on[1], rtol=1e-3, atol=1e-3)


def test_themes_in_several_aspects_give_the_same_numbers(tmp_path) -> None:
    data = small_images()
    tt.PTM(settings=TOLD_APART, device="cpu").fit(data, tasks=40, progress=False).save(tmp_path / "m")
    episodes = data.episodes(ways=3, shots=6, n=20)
    fine = [tt.PTM.load(tmp_path / "m", device=d).refit(data, aspects=5, progress=False) for d in ("cpu", "cuda")]
    for of in (
        lambda m: m.embed(episodes).concentration,
        lambda m: list(m.held_out_bound(episodes).values()),
        tt.PTM.theme_distances,
    ):
        np.testing.assert_allclose(*map(of, fine), rtol=1e-2, atol=1e-2)
