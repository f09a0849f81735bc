"""Data points through the encoder, in pieces that fit in memory, without gradients."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from tasktheme import distributed
from tasktheme.data.episodes import EpisodeBatch
from tasktheme.nets.build import Encoder
from tasktheme.nets.norm import TaskBatchNorm
from tasktheme.progress import Advance

_POINTS_AT_ONCE = {"cpu": 2_048, "cuda": 20_000}  # through the encoder


@dataclass(frozen=True)
class EmbeddedTasks:
    """q(u) of a batch of tasks: N(m, diag(s^2)) for each data point."""

    m: Float[Tensor, "T N D"]
    s: Float[Tensor, "T N D"]
    mask: Bool[Tensor, "T N"]


@dataclass(frozen=True, eq=False)
class PlacedTasks:
    """A padded batch of tasks whose data points are rows of a table.

    points: the rows that are in any of the tasks, each once; place: where among them each of the tasks' data points is.
    """

    points: Int64[Tensor, " U"]
    place: Int64[Tensor, "T N"]
    mask: Bool[Tensor, "T N"]

    @classmethod
    def build(cls, rows: Int64[Tensor, "T N"], mask: Bool[Tensor, "T N"]) -> PlacedTasks:
        """From the row of each data point; what padding holds does not matter."""
        place = torch.zeros_like(rows)
        points, place[mask] = rows[mask].unique(return_inverse=True)
        return cls(points, place, mask)

    def gather(self, table: Float[Tensor, "P K"]) -> Float[Tensor, "T N K"]:
        """The table's row of each data point, and any for padding."""
        return table[self.points[self.place]]


@dataclass(frozen=True, eq=False)
class TaskPoints:
    """q(u) = N(m, diag(s^2)) of data points, each once, however many tasks it is in; and batches of tasks of them.

    Where an embedding depends on its task, each place in a task is a data point of its own. ``distinct`` counts those of all
    processes.
    """

    m: Float[Tensor, "P D"]
    s: Float[Tensor, "P D"]
    tasks: Sequence[PlacedTasks]
    distinct: int

    def aspect(self, number: int, of: int) -> TaskPoints:
        """The same data points in the dimensions of one aspect of so many: every so many-th."""
        return replace(self, m=self.m[:, number::of].contiguous(), s=self.s[:, number::of].contiguous())


@torch.no_grad()
def embed_points(
    encoder: Encoder,
    data: Tensor,
    rows: Int64[Tensor, " M"] | None = None,
    advance: Advance | None = None,
) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D"]]:
    """m and s of data points, all or those of ``rows``, by an encoder that embeds them one by one (``independent``)."""
    parts = []
    for piece, mask in _pieces(data, rows):
        parts.append(encoder(piece, mask))
        if advance is not None:
            advance(mask.shape[1], "")
    return torch.cat([m[0] for m, _ in parts]), torch.cat([s[0] for _, s in parts])


@torch.no_grad()
def embed_batch(encoder: Encoder, data: Tensor, batch: EpisodeBatch) -> EmbeddedTasks:
    """m and s of a padded batch of tasks."""
    if not encoder.independent:
        return _embed_whole_tasks(encoder, data, batch)
    flat_m, flat_s = embed_points(encoder, data, batch.rows[batch.mask])
    m = flat_m.new_zeros((*batch.mask.shape, flat_m.shape[-1]))
    s = torch.zeros_like(m)
    m[batch.mask], s[batch.mask] = flat_m, flat_s
    return EmbeddedTasks(m, s, batch.mask)


class SharedPoints:
    """Data points that are in several tasks, embedded once by an encoder that embeds them one by one."""

    def __init__(self, encoder: Encoder, data: Tensor, rows: Int64[Tensor, " M"], advance: Advance | None = None) -> None:
        size = _points_at_once(data)
        own = distributed.share(-(-len(rows) // size))  # whole pieces: the same bits however many processes there are
        found = embed_points(encoder, data, rows[own.start * size : own.stop * size], advance)
        self._m, self._s = map(distributed.gathered, found)
        self._place = torch.zeros(len(data), dtype=torch.int64, device=data.device)
        self._place[rows] = torch.arange(len(rows), device=data.device)

    def batch(self, batch: EpisodeBatch) -> EmbeddedTasks:
        """m and s of a padded batch of tasks, all of whose data points are among the rows."""
        return EmbeddedTasks(*self.of(batch.rows), batch.mask)

    def of(self, rows: Int64[Tensor, "*N"]) -> tuple[Float[Tensor, "*N D"], Float[Tensor, "*N D"]]:
        """m and s of some of the rows."""
        place = self._place[rows]
        return self._m[place], self._s[place]


def embed_tasks(encoder: Encoder, data: Tensor, batches: Sequence[EpisodeBatch]) -> TaskPoints:
    """The process's share of each batch of tasks, so that those of all processes one after the other are in order."""
    own = [batch[distributed.share(len(batch.rows))] for batch in batches]
    if encoder.independent:
        everywhere, here = (torch.cat([batch.rows[batch.mask] for batch in some]).unique() for some in (batches, own))
        m, s = SharedPoints(encoder, data, everywhere).of(here)
        rows = [torch.searchsorted(here, batch.rows) for batch in own]
        distinct = len(everywhere)
    else:
        parts = [_without_padding(embed_batch(encoder, data, batch)) for batch in own]
        m, s = (torch.cat(part) for part in zip(*parts, strict=True))
        number = torch.cat([batch.mask.flatten() for batch in own]).cumsum(dim=0) - 1
        rows = [part.view_as(batch.rows) for part, batch in zip(number.split([b.mask.numel() for b in own]), own, strict=True)]
        distinct = sum(int(batch.mask.sum()) for batch in batches)
    return TaskPoints(m, s, [PlacedTasks.build(row, batch.mask) for row, batch in zip(rows, own, strict=True)], distinct)


def _without_padding(batch: EmbeddedTasks) -> tuple[Float[Tensor, "P D"], Float[Tensor, "P D"]]:
    return batch.m[batch.mask], batch.s[batch.mask]


def _embed_whole_tasks(encoder: Encoder, data: Tensor, batch: EpisodeBatch) -> EmbeddedTasks:
    """Where an embedding depends on its task (batch norm): a few whole tasks at a time, or one large task in several passes."""
    tasks, points = batch.mask.shape
    fitting = _points_at_once(data) // points
    if fitting >= tasks:
        m, s = encoder(data[batch.rows], batch.mask)
        return EmbeddedTasks(m, s, batch.mask)
    if tasks == 1:
        frozen = _freeze_norms(encoder, data, batch.rows[batch.mask])
        m, s = embed_points(frozen, data, batch.rows[0])
        return EmbeddedTasks(m.unsqueeze(0), s.unsqueeze(0), batch.mask)
    parts = zip(*(part.split(max(1, fitting)) for part in (batch.rows, batch.labels, batch.mask)), strict=True)
    embedded = [_embed_whole_tasks(encoder, data, EpisodeBatch(*part)) for part in parts]
    return EmbeddedTasks(torch.cat([part.m for part in embedded]), torch.cat([part.s for part in embedded]), batch.mask)


def _freeze_norms(encoder: Encoder, data: Tensor, rows: Int64[Tensor, " M"]) -> Encoder:
    """A copy of the encoder that normalises by the statistics of this one task, and so embeds its points one by one.

    The statistics of a norm need those of the norms before it: one pass over the pieces for each norm, up to that norm. The
    result is that of the whole task in one piece, in the memory of a piece.
    """
    frozen = copy.deepcopy(encoder)
    norms = {name: norm for name, norm in encoder.named_modules() if isinstance(norm, TaskBatchNorm)}
    for name, norm in norms.items():
        statistics = _Statistics()
        frozen.set_submodule(name, statistics)
        for piece, mask in _pieces(data, rows):
            with suppress(_Reached):
                frozen(piece, mask)
        frozen.set_submodule(name, _FrozenNorm(norm, statistics))
    return frozen


class _Reached(Exception):
    """A pass has come as far as it should."""


class _Statistics(nn.Module):
    """In the place of a norm: the mean and the variance of each channel over all pieces, and the end of the pass."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.mean = self.variance = torch.zeros(())

    def forward(self, x: Float[Tensor, "B C H W"], mask: Bool[Tensor, "T N"]) -> Tensor:
        """Add a piece: the moments of two parts give those of both (Chan, Golub & LeVeque, 1983), in double precision."""
        variance, mean = (part.double() for part in torch.var_mean(x, dim=(0, 2, 3), correction=0))
        self.count += len(x)
        weight = len(x) / self.count
        apart = mean - self.mean
        self.variance = torch.lerp(self.variance.to(variance), variance, weight) + weight * (1.0 - weight) * apart.square()
        self.mean = self.mean + weight * apart
        raise _Reached


class _FrozenNorm(nn.Module):
    """A norm with statistics that no longer depend on what it is shown."""

    def __init__(self, norm: TaskBatchNorm, statistics: _Statistics) -> None:
        super().__init__()
        self.norm = norm
        self.mean, self.variance = statistics.mean.to(norm.weight), statistics.variance.to(norm.weight)

    def forward(self, x: Float[Tensor, "B C H W"], mask: Bool[Tensor, "T N"]) -> Float[Tensor, "B C H W"]:
        """Normalise each channel."""
        return F.batch_norm(x, self.mean, self.variance, self.norm.weight, self.norm.bias, eps=self.norm.eps)


def _pieces(data: Tensor, rows: Int64[Tensor, " M"] | None = None) -> Iterator[tuple[Tensor, Bool[Tensor, "1 N"]]]:
    """Data points, all or those of ``rows``, as tasks that fit in memory; only a piece at a time is ever copied."""
    for piece in (data if rows is None else rows).split(_points_at_once(data)):
        x = piece if rows is None else data[piece]
        yield x.unsqueeze(0), torch.ones((1, len(x)), dtype=torch.bool, device=x.device)


def _points_at_once(data: Tensor) -> int:
    return _POINTS_AT_ONCE.get(data.device.type, _POINTS_AT_ONCE["cpu"])
