"""One run shared out among processes: who does what, and sums over all of them (docs/distributed.md).

Inside :func:`joined` every process runs the same program on its share of the tasks, and what depends on all tasks is added
up. Outside there is one process, and every function here hands back what it was given; torch, which takes seconds to import,
is for those that talk.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from tasktheme.errors import LostProcess, ModelFileError, SettingsError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells each process
_LONGEST_WAIT = timedelta(minutes=30)  # for another process: one may be decoding a data set for the first time
_POLL_SECONDS = 0.01
_FAREWELL = timedelta(seconds=5)  # wait for the others at a bad end

T = TypeVar("T", bound=np.generic)


@dataclass
class _Group:
    rank: int
    world: int
    store: Any  # torch's, which its type hints do not export
    restarted: bool = False
    broken: bool = False


_group: _Group | None = None


def launched() -> bool:
    """Whether torchrun, or what speaks like it, started this process as one of several."""
    return all(name in os.environ for name in _LAUNCHED) and int(os.environ["WORLD_SIZE"]) > 1


def restarted() -> bool:
    """Whether torchrun started the processes again after one of them had failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0 if _group is None else _group.restarted


@contextmanager
def joined() -> Iterator[None]:
    """Share what is done inside with the other processes of the run: gloo between CPUs, NCCL between GPUs."""
    global _group
    if not launched():
        yield
        return
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous  # missing where torch was built without it

    on_gpu = torch.cuda.is_available() and dist.is_nccl_available()
    if on_gpu and local_rank() < torch.cuda.device_count():
        torch.cuda.set_device(local_rank())
    with _talking():
        common, rank, world = next(iter(rendezvous("env://", timeout=_LONGEST_WAIT)))
        store = _fresh_part(common, rank, world)
        backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=_LONGEST_WAIT)
    again = restarted()
    group = _group = _Group(rank, world, store)
    [group.restarted] = anywhere(again)  # each machine counts its own restarts
    patience = _LONGEST_WAIT
    try:
        yield
    except BaseException as error:
        if not (isinstance(error, SystemExit) and not error.code):
            patience = _FAREWELL  # the others may be waiting for what does not come any more
        raise
    finally:
        _group = None
        if not group.broken:
            _take_leave(group, patience)
            dist.destroy_process_group()


def world() -> int:
    """How many processes share the run."""
    return 1 if _group is None else _group.world


def rank() -> int:
    """The number of this process among them, from 0."""
    return 0 if _group is None else _group.rank


def local_rank() -> int:
    """The number of this process on its machine, from 0: its GPU."""
    return int(os.environ.get("LOCAL_RANK", os.environ["RANK"])) if launched() else 0


def leads() -> bool:
    """Whether this is the one process that writes files and shows progress."""
    return rank() == 0


def done_here() -> bool:
    """The end of the shared work: whether this process is done. The first one goes on alone, as if it had always been."""
    global _group
    if not leads():
        return True
    _group = None
    return False


def share(count: int) -> slice:
    """The part of ``count`` things that is this process's: consecutive ones, and shares differ by one at most."""
    return slice(count * rank() // world(), count * (rank() + 1) // world())


def share_of_batch(tasks: int) -> tuple[slice, float]:
    """The part of a mini-batch of ``tasks`` that is this process's, and how much of it that is."""
    if tasks < world():
        raise SettingsError(
            f"a mini-batch of batch_tasks = {tasks} cannot be shared by {world()} processes: raise batch_tasks, or start fewer"
        )
    own = share(tasks)
    return own, (own.stop - own.start) / tasks


def summed(tensors: Iterable[Tensor], weight: float = 1.0) -> list[Tensor]:
    """The sum over processes of each tensor times the process's own ``weight``: one message, the same bits everywhere."""
    own = list(tensors)
    if _group is None:
        return own
    import torch
    import torch.distributed as dist

    flat = torch.cat([tensor.detach().reshape(-1) for tensor in own]) * weight
    with _talking():
        dist.all_reduce(flat)
    parts = flat.split([tensor.numel() for tensor in own])
    return [part.view(tensor.shape) for part, tensor in zip(parts, own, strict=True)]


def sum_gradients(parameters: Iterable[torch.nn.Parameter], weight: float) -> None:
    """Replace each gradient by the sum over processes, each times its own ``weight``."""
    if _group is None:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    for own, total in zip(gradients, summed(gradients, weight), strict=True):
        own.copy_(total)


def gathered(own: Tensor) -> Tensor:
    """The rows of all processes, those of the first process first; processes may have unlike numbers of rows."""
    if _group is None:
        return own
    import torch
    import torch.distributed as dist

    counts = torch.zeros(_group.world, dtype=torch.int64)
    counts[_group.rank] = len(own)
    [counts] = summed([counts], weight=1)
    padded = own.new_zeros((int(counts.max()), *own.shape[1:]))
    padded[: len(own)] = own
    parts = [torch.empty_like(padded) for _ in range(_group.world)]
    with _talking():
        dist.all_gather(parts, padded)
    return torch.cat([part[:count] for part, count in zip(parts, counts.tolist(), strict=True)])


def all_rows(own: npt.NDArray[T]) -> npt.NDArray[T]:
    """:func:`gathered` for numpy."""
    if _group is None:
        return own
    import torch

    return gathered(torch.from_numpy(own)).numpy()


def filled(array: npt.NDArray[T]) -> npt.NDArray[T]:
    """An array of which each process has filled some rows and left the others zero, whole, to the bit."""
    if _group is None:
        return array
    import torch

    number = array.view(np.uint8) if array.dtype == np.bool_ else array
    [total] = summed([torch.from_numpy(np.ascontiguousarray(number))], weight=1)
    return total.numpy().view(array.dtype)


def from_leader(tensors: Iterable[Tensor]) -> None:
    """Overwrite the tensors with those of the first process."""
    if _group is None:
        return
    import torch
    import torch.distributed as dist

    for tensor in tensors:
        copy = tensor.detach().clone(memory_format=torch.contiguous_format)
        with _talking():
            dist.broadcast(copy, src=0)
        tensor.detach().copy_(copy)


def anywhere(*flags: bool) -> Sequence[bool]:
    """Of each flag, whether it is set in any process: what all must do at the same step."""
    if _group is None:
        return flags
    import torch

    [total] = summed([torch.tensor(flags, dtype=torch.int64)], weight=1)
    return [bool(count) for count in total.tolist()]


def wait_for_all() -> None:
    """Go on when every process has come as far."""
    anywhere(False)


@contextmanager
def leader_first() -> Iterator[None]:
    """What is done inside is done by one process of each machine first: the others then find it in the cache."""
    if local_rank() > 0:
        wait_for_all()
    try:
        yield
    finally:
        if local_rank() == 0:
            wait_for_all()


def check_same_step(step: int) -> None:
    """An error unless all processes go on from one checkpoint."""
    if len(np.unique(all_rows(np.array([step])))) > 1:
        raise ModelFileError("the processes do not see the same checkpoint: keep it in a folder that all machines share")


def speaks() -> bool:
    """Whether this process may say why the run ends: the first to ask. It is not disturbed any more."""
    if _group is None:
        return True
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the processes that are left
    with suppress(RuntimeError):  # the store went with the process that kept it
        return bool(_group.store.add("tasktheme speaks", 1) == 1)
    return True


def _fresh_part(store: Any, rank: int, world: int) -> Any:
    """A part of the store that no earlier attempt of this run has written to.

    torchrun keeps one store for all attempts, and a process that finds an address left by a dead one in it waits for the dead
    (pytorch issue 135712). So the first process calls out a new name until all others have answered to it, and takes the call
    back before it says go: there is never a go to a call that is left over.
    """
    from torch.distributed.distributed_c10d import PrefixStore

    if rank == 0:
        name = uuid.uuid4().hex
        store.set("tasktheme calls", name)
        store.wait([f"{name} {other}" for other in range(1, world)], _LONGEST_WAIT)
        store.set("tasktheme calls", "")
        store.set(f"{name} go", "")
        return PrefixStore(name, store)
    name, end = "", time.monotonic() + _LONGEST_WAIT.total_seconds()
    while not (name and store.check([f"{name} go"])):
        called = store.get("tasktheme calls").decode()
        if called not in ("", name):
            name = called
            store.set(f"{name} {rank}", "")
        if time.monotonic() > end:
            raise RuntimeError("the first process does not call")
        time.sleep(_POLL_SECONDS)
    return PrefixStore(name, store)


def _take_leave(group: _Group, patience: timedelta) -> None:
    """Wait until all have come to the end: a connection that one closes may still be in use by another."""
    with suppress(RuntimeError):  # nobody came, or the store went with the process that kept it, and that waited for all
        if group.store.add("tasktheme leaves", 1) == group.world:
            group.store.set("tasktheme left", "")
        group.store.wait(["tasktheme left"], patience)


@contextmanager
def _talking() -> Iterator[None]:
    """A connection that breaks, or an answer that does not come, as an error of our own."""
    try:
        yield
    except RuntimeError as error:
        if _group is not None:
            _group.broken = True
        cause = str(error).partition(". ")[0].rpartition("] ")[2]  # torch goes on about what else it may be
        raise LostProcess(f"another process of this run has ended or does not answer ({cause})") from error
