"""Embedding in pieces: the same numbers as in one piece, whatever the norm, and in little memory."""

from __future__ import annotations

import pytest
import torch

from tasktheme.bench import memory
from tasktheme.data.episodes import EpisodeBatch
from tasktheme.nets.build import Networks
from tasktheme.settings import Settings
from tasktheme.training import embedding
from tasktheme.training.embedding import SharedPoints, embed_batch, embed_points, embed_tasks


def make(norm: str) -> tuple[Networks, torch.Tensor]:
    """A network with norms that differ by channel, and images whose brightness drifts, so that no piece is like the whole."""
    networks = Networks(Settings(norm=norm, filters=(4, 8), latent_dim=5), (3, 16, 16), torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in networks.encoder.named_parameters():
            if "norms" in name:
                parameter.normal_(1.0, 0.5, generator=generator)
    drift = torch.linspace(0.1, 1.0, 300)[:, None, None, None]
    images = torch.rand((300, 3, 16, 16), generator=generator) * drift * 255
    return networks, images.to(torch.uint8)


def batch_of(sizes: list[int], points: int) -> EpisodeBatch:
    """Tasks of the first data points in their order, so that pieces differ; padded with points that must not count."""
    rows = torch.stack([torch.arange(points) + 3 * i for i in range(len(sizes))]) % 300
    mask = torch.arange(points) < torch.tensor(sizes)[:, None]
    return EpisodeBatch(rows=rows, labels=torch.zeros_like(rows), mask=mask)


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("sizes", [[250], [280], [90, 7, 100], [10, 20, 30, 5, 40, 1]])
@pytest.mark.parametrize("at_once", [1, 64, 99])
def test_pieces_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch, norm: str, sizes: list[int], at_once: int) -> None:
    networks, data = make(norm)
    batch = batch_of(sizes, max(sizes) + 3)
    with torch.no_grad():
        m, s = networks.encoder(data[batch.rows], batch.mask)
    monkeypatch.setitem(embedding._POINTS_AT_ONCE, "cpu", at_once)
    weights = {name: tensor.clone() for name, tensor in networks.state_dict().items()}
    found = embed_batch(networks.encoder, data, batch)
    torch.testing.assert_close(found.m[batch.mask], m[batch.mask], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.s[batch.mask], s[batch.mask], rtol=1e-4, atol=1e-5)
    assert torch.equal(found.mask, batch.mask)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in networks.state_dict().items())  # the model is untouched


def test_a_piece_alone_would_differ() -> None:
    """What the test above tells apart: with batch norm a part of a task is embedded otherwise than in the whole task."""
    networks, data = make("batch")
    with torch.no_grad():
        whole, _ = networks.encoder(data[None, :250], torch.ones((1, 250), dtype=torch.bool))
        part, _ = networks.encoder(data[None, :64], torch.ones((1, 64), dtype=torch.bool))
    assert (whole[:, :64] - part).abs().max() > 0.1


def test_rows_are_embedded_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    networks, data = make("group")
    rows = torch.randperm(300, generator=torch.Generator().manual_seed(1))[:77]
    monkeypatch.setitem(embedding._POINTS_AT_ONCE, "cpu", 10)
    some, every = embed_points(networks.encoder, data, rows), embed_points(networks.encoder, data)
    for part, whole in zip(some, every, strict=True):
        torch.testing.assert_close(part, whole[rows], rtol=1e-4, atol=1e-5)


def test_points_that_tasks_share_are_embedded_once() -> None:
    networks, data = make("group")
    made = batch_of([20, 30, 25], 30)
    batch = EpisodeBatch(2 * made.rows + 5, made.labels, made.mask)
    rows = batch.rows[batch.mask].unique()
    seen: list[int] = []
    shared = SharedPoints(networks.encoder, data, rows, lambda steps, _: seen.append(steps)).batch(batch)
    whole = embed_batch(networks.encoder, data, batch)
    torch.testing.assert_close(shared.m[batch.mask], whole.m[batch.mask], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(shared.s[batch.mask], whole.s[batch.mask], rtol=1e-4, atol=1e-5)
    assert torch.equal(shared.mask, batch.mask)
    assert sum(seen) == len(rows) == 33 < batch.mask.sum()


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_tasks_by_their_points_are_the_tasks(norm: str) -> None:
    networks, data = make(norm)
    batches = [batch_of([20, 30, 25], 30), batch_of([9, 4], 12)]
    found = embed_tasks(networks.encoder, data, batches)
    for tasks, batch in zip(found.tasks, batches, strict=True):
        whole = embed_batch(networks.encoder, data, batch)
        assert torch.equal(tasks.mask, batch.mask)
        assert len(tasks.points.unique()) == len(tasks.points)
        for table, expected in ((found.m, whole.m), (found.s, whole.s)):
            torch.testing.assert_close(tasks.gather(table)[batch.mask], expected[batch.mask], rtol=1e-4, atol=1e-5)
    every = torch.cat([batch.rows[batch.mask] for batch in batches])
    assert len(found.m) == len(found.s) == (len(every.unique()) if norm == "group" else len(every))


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("channels", [1, 3])
def test_one_large_task_stays_under_two_gib_beyond_its_images(channels: int, norm: str) -> None:
    """Of 60,000 images, by extrapolation from fewer: beyond a few pieces, all that grows grows with the images' number."""
    few, more = (memory.measure(images, channels, norm)["extra_bytes"] for images in (6_000, 18_000))
    growth = max(0.0, (more - few) / 12_000)
    assert more + 42_000 * growth < 2 * 2**30
