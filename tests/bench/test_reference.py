from __future__ import annotations

import pytest
import torch

from oracles.small import SMALL, small_images
from tasktheme.bench.reference import PlainTrainer
from tasktheme.bench.speed import measure_speed
from tasktheme.nets.build import Networks
from tasktheme.training.loop import Trainer


def test_the_plain_reference_takes_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    data, device = small_images(), torch.device("cpu")
    settings = SMALL.changed({"warm_up": 0.0, "covariance_floor": 0.0})
    ours = Trainer(settings, Networks(settings, data.point_shape, device), data, 100, device)
    ours._initialise_themes()
    theirs = PlainTrainer(
        settings, Networks(settings, data.point_shape, device), ours.themes.mu.clone(), ours.themes.moments.Sigma.clone()
    )
    theirs.sums = [
        ours.themes.moments.n.clone(),
        ours.themes.moments.n[:, None] * ours.themes.mu,
        ours.themes.moments.n[:, None, None]
        * (ours.themes.moments.Sigma + ours.themes.mu[:, :, None] * ours.themes.mu[:, None, :]),
    ]
    t, v = ours.sampler.draw(torch.arange(settings.batch_tasks), *ours.halves)
    # the same noise for both: none
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)
    monkeypatch.setattr("tasktheme.training.loop.random_normal", lambda seed, stream, step, places: torch.zeros(places.shape))
    loss = theirs.step(ours.data, t, v, rho=(settings.rate_offset + 1) ** -settings.rate_power)
    ours.train_step()
    assert ours._means()["loss"] == pytest.approx(loss, rel=1e-4)
    torch.testing.assert_close(ours.themes.moments.n, theirs.sums[0], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(ours.themes.mu, theirs.sums[1] / theirs.sums[0][:, None], rtol=1e-3, atol=1e-4)
    for (name, mine), plain in zip(ours.networks.state_dict().items(), theirs.networks.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.slow
def test_every_measurement_has_a_rate() -> None:
    result = measure_speed(device="cpu", seconds=0.1, progress=False)
    assert len(result["measurements"]) == 4
    assert all(row["rate"] > 0 for row in result["measurements"])
