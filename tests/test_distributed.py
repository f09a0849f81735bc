from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tasktheme as tt
from oracles.small import small_vectors
from tasktheme import distributed
from tasktheme.errors import SettingsError
from tasktheme.model.m_step import moments, pooled
from tasktheme.model.themes import Covariance

_TESTS = Path(__file__).parent
_PATH = os.pathsep.join([str(Path(tt.__file__).parents[1]), str(_TESTS)])


def run_processes(case: str, folder: Path, *more: str) -> None:
    """See oracles/processes.py."""
    done = subprocess.run(
        [sys.executable, str(_TESTS / "oracles" / "processes.py"), case, str(folder), *more],
        env={**os.environ, "PYTHONPATH": _PATH, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes_do_what_one_does(world: int, tmp_path: Path) -> None:
    run_processes("same", tmp_path, str(world))
    one = dict(np.load(tmp_path / "1-0.npz"))
    each = [dict(np.load(tmp_path / f"{world}-{rank}.npz")) for rank in range(world)]
    for name, wanted in one.items():
        for got in each[1:]:
            np.testing.assert_array_equal(got[name], each[0][name], err_msg=f"{name}: unlike in the {world} processes")
        if name.startswith("fit."):  # sums in another order: a Newton step for alpha is the most sensitive to it
            size = np.abs(wanted).max() if wanted.size else 1.0
            np.testing.assert_allclose(each[0][name] / size, wanted / size, atol=2e-4, err_msg=name)
        else:
            np.testing.assert_array_equal(each[0][name], wanted, err_msg=name)


def test_one_process_writes_and_speaks_and_a_lost_or_stopped_one_ends_all(tmp_path: Path) -> None:
    run_processes("faults", tmp_path)
    ends: dict[str, list[dict[str, Any]]] = json.loads((tmp_path / "ends.json").read_text())

    def check(name: str, code: int, said: str, *, to: str = "stderr") -> None:
        """All processes ended so, but for one that was killed, and one of them said so in one line."""
        assert {end["code"] for end in ends[name]} - {-9} == {code}, ends[name]
        lines = [line for end in ends[name] for line in end[to].splitlines()]
        assert sum(said in line for line in lines) == 1, ends[name]
        if to == "stderr":
            assert [line for line in lines if line.startswith("tasktheme:")] == [line for line in lines if said in line]
        else:
            assert said in ends[name][0][to]
            assert not any(end["stdout"] or end["stderr"] for end in ends[name][1:])

    check("whole", 0, "wrote whole", to="stdout")
    check("killed", 1, "another process of this run has ended")
    assert ends["killed"][1]["code"] == -9
    assert "'again.checkpoint': run it again with --resume" in ends["killed"][0]["stderr"]
    check("restarted", 0, "wrote again", to="stdout")
    check("stopped", 130, "interrupted after 18 of 30 tasks; run the same command with --resume")
    check("resumed", 0, "wrote further", to="stdout")
    check("too many", 2, "batch_tasks = 1 cannot be shared by 2 processes")
    check("not shared", 2, "evaluate is the work of one process")
    check("lifelong", 2, "lifelong is the work of one process")
    whole, again, further = (tt.PTM.load(tmp_path / name, device="cpu") for name in ("whole", "again", "further"))
    assert again.fingerprint == whole.fingerprint
    assert again.history == whole.history
    np.testing.assert_allclose(further.themes.mu, whole.themes.mu, rtol=1e-4, atol=1e-4)
    for kind in ("embed", "nearest"):
        for world in (1, 2):
            check(f"{kind} {world}", 0, "wrote", to="stdout")
    assert (tmp_path / "near1.csv").read_text() == (tmp_path / "near2.csv").read_text()
    one, two = (tt.TaskSet.load(tmp_path / f"{world}.parquet") for world in (1, 2))
    np.testing.assert_array_equal(one.concentration, two.concentration)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"whole", "again", "further", "data.npz", "ends.json", "said"} | {
        f"{stem}{world}.{ending}" for world in (1, 2) for stem, ending in (("", "parquet"), ("near", "csv"))
    }


def test_shares_are_exact_and_even(monkeypatch: pytest.MonkeyPatch) -> None:
    for world in (1, 2, 3, 4, 7):
        for count in (0, 1, 5, 20, 21):
            monkeypatch.setattr(distributed, "world", lambda world=world: world)
            parts = []
            for rank in range(world):
                monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
                parts.append(list(range(count))[distributed.share(count)])
            assert [i for part in parts for i in part] == list(range(count))
            assert max(map(len, parts)) - min(map(len, parts)) <= 1
    with pytest.raises(SettingsError, match="cannot be shared by 7 processes"):
        distributed.share_of_batch(6)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_pooled_moments_are_those_of_all_data_points(covariance: Covariance, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, themes = (7, 40, 1), 4
    generator = torch.Generator().manual_seed(0)
    m, s, log_r = (torch.randn((sum(sizes), d), generator=generator, dtype=torch.float64) for d in (3, 3, themes))
    log_r = (5.0 * log_r).log_softmax(dim=-1)
    log_r[:, 3] = -1000.0  # a theme that owns nothing anywhere
    m = m + 100.0 * torch.arange(3.0)  # far from the origin: raw second moments would cancel
    everything = torch.ones(sum(sizes), dtype=torch.bool)
    whole = moments(m, s, log_r, everything, covariance=covariance)

    # threads in the place of processes, each adding what it has to the sum of all
    barrier = threading.Barrier(len(sizes))
    given: list[list[torch.Tensor]] = []

    def summed(tensors: list[torch.Tensor], weight: float = 1.0) -> list[torch.Tensor]:
        given.append([tensor * weight for tensor in tensors])
        barrier.wait()
        total = [torch.stack(parts).sum(dim=0) for parts in zip(*given, strict=True)]
        if barrier.wait() == 0:
            given.clear()
        barrier.wait()
        return total

    monkeypatch.setattr(distributed, "summed", summed)
    monkeypatch.setattr(distributed, "world", lambda: len(sizes))
    parts = zip(*(part.split(sizes) for part in (m, s, log_r, everything)), strict=True)
    with ThreadPoolExecutor(len(sizes)) as pool:
        found = list(pool.map(lambda part: pooled(moments(*part, covariance=covariance)), parts))
    for each in found:
        for name, wanted in vars(whole).items():
            got = getattr(each, name)
            assert torch.isfinite(got).all()
            torch.testing.assert_close(got[:3], wanted[:3], rtol=1e-11, atol=1e-11)
        assert each.n[3] < 1e-20


def test_outside_a_shared_run_there_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (distributed.world(), distributed.rank(), distributed.leads(), distributed.speaks()) == (1, 0, True, True)
    monkeypatch.setenv("WORLD_SIZE", "8")  # left over from something else: nobody says where the others are
    with distributed.joined():
        assert distributed.world() == 1


# The command line, whose second process is killed in the sixth step, but not when torchrun has started it again.
_KILLED_ONCE = """
import os, signal
from tasktheme import cli, distributed
from tasktheme.training import loop

train_step = loop.Trainer.train_step

def fail_once(trainer):
    if trainer.step == 5 and distributed.rank() == 1 and not distributed.restarted():
        os.kill(os.getpid(), signal.SIGKILL)
    if distributed.restarted():
        assert trainer.step >= 5, "it began anew"
    train_step(trainer)

loop.Trainer.train_step = fail_once
cli.main()
"""


@pytest.mark.slow
def test_torchrun_restarts_a_run_which_goes_on_to_the_same_numbers(tmp_path: Path) -> None:
    script = tmp_path / "killed_once.py"
    script.write_text(_KILLED_ONCE)
    data = small_vectors()
    np.savez(tmp_path / "data.npz", x=data.x, y=np.arange(96) // 12)
    settings = {"themes": 3, "ways": 3, "t_shots": 3, "v_shots": 3, "batch_tasks": 3, "polish_tasks": 9}
    settings["covariance_prior"] = 0  # which would wake themes that own nothing, wherever rounding left their means
    changes = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    fit = [
        "fit",
        "data.npz",
        "--checkpoint-every",
        "0",
        "--out",
        "model",
        "--tasks",
        "30",
        "--set",
        "initialisation=random",
        *changes,
    ]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    done = subprocess.run(
        [*torchrun, str(script), *fit],
        env={**os.environ, "PYTHONPATH": _PATH, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("tasktheme: another process of this run has ended") == 1
    assert not (tmp_path / "model.checkpoint").exists()
    wanted = tt.Settings(initialisation="random", **settings)  # type: ignore[arg-type]
    train = tt.load_dataset(tmp_path / "data.npz", progress=False).train
    whole = tt.PTM(settings=wanted, device="cpu").fit(train, tasks=30, progress=False)
    again = tt.PTM.load(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(again.themes.mu, whole.themes.mu, rtol=1e-4)
    for row, other in zip(again.history, whole.history, strict=True):
        assert row == pytest.approx(other, rel=1e-4)
