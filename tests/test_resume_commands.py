"""`fit` and `meta-train` on the command line when something goes wrong around them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tasktheme as tt
from oracles.faults import empty_disk, fill_disk
from oracles.small import small_images
from tasktheme import cli
from tasktheme.errors import OutputError
from tasktheme.learners.training import MetaTrainer
from tasktheme.training.checkpoint_file import read_checkpoint
from tasktheme.training.loop import Trainer

pytestmark = pytest.mark.filterwarnings("default")  # on the command line a warning is a line

STEPS = 6
FIT = [
    "network_start=data",
    "filters=[4,8]",
    "themes=3",
    "latent_dim=5",
    "ways=[3,3]",
    "t_shots=3",
    "v_shots=3",
    "batch_tasks=4",
    "polish_tasks=8",
]
FIT += ["polish_sweeps=3"]
META = ["filters=4", "modules=3", "batch_tasks=2", "inner_steps=1", "test_steps=1"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(file, x=small_images().x, y=np.repeat(np.arange(8), 10), groups=np.repeat(np.arange(2), 40))
    return file


@pytest.fixture(params=["fit", "meta-train"])
def command(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def run(command: str, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """Train in this process, saving after each step, in a folder of its own: exit code and standard error."""
    if command == "fit":
        words = ["fit", str(data), "--tasks", str(4 * STEPS)]
    else:
        words = ["meta-train", "maml", str(data), "--tasks", str(2 * STEPS), "--ways", "3", "--queries", "3"]
    words += [word for setting in (FIT if command == "fit" else META) for word in ("--set", setting)]
    words += ["--out", str(tmp_path / "run" / "model"), "--checkpoint-every", "0", "--device", "cpu", "-q", "--held-out", "0.5"]

    def call(*more: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["tasktheme", *words, *more])
        try:
            with pytest.raises(SystemExit) as leaving:
                cli.main()
        finally:
            empty_disk()
        return int(leaving.value.code or 0), capsys.readouterr().err

    return call


@pytest.fixture
def meet(command: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[int, Callable[[], None]]], None]:
    """Let something happen at the beginning of some steps, once."""

    def plan(events: dict[int, Callable[[], None]]) -> None:
        kind: Any = Trainer if command == "fit" else MetaTrainer
        step = kind.train_step

        def train_step(self: Any) -> None:
            events.pop(self.step, lambda: None)()
            step(self)

        monkeypatch.setattr(kind, "train_step", train_step)

    return plan


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


_WANTED: dict[str, dict[str, bytes]] = {}


@pytest.fixture
def wanted(command: str, run, tmp_path: Path) -> dict[str, bytes]:
    """What a run leaves that nothing happens to."""
    if command not in _WANTED:
        assert run()[0] == 0
        _WANTED[command] = files(tmp_path / "run")
        assert sorted(_WANTED[command]) == ["model/model.json", "model/weights.safetensors"]
        shutil.rmtree(tmp_path / "run")
    return _WANTED[command]


def test_a_stop_by_a_signal_resumes_to_the_same_bytes(run, meet, wanted, tmp_path: Path) -> None:
    meet({1: lambda: signal.raise_signal(signal.SIGTERM), 4: lambda: signal.raise_signal(signal.SIGINT)})
    for _ in range(2):
        code, err = run("--resume")
        assert code == 130
        assert err.count("\n") == 1
        assert "run the same command with --resume to go on" in err
    assert run("--resume") == (0, "")
    assert files(tmp_path / "run") == wanted


def test_a_disk_full_for_a_while_costs_one_line(run, meet, wanted, tmp_path: Path) -> None:
    meet({2: fill_disk, 4: empty_disk})
    code, err = run()
    assert code == 0
    assert err.startswith("tasktheme: cannot write")
    assert "File too large; the run goes on and will try again" in err
    assert err.count("\n") == 1
    assert files(tmp_path / "run") == wanted


def test_a_disk_full_to_the_end_keeps_the_last_good_state(run, meet, wanted, tmp_path: Path) -> None:
    meet({3: fill_disk})
    code, err = run()
    assert code == 2
    warned, ended = err.splitlines()
    assert "the run goes on" in warned
    assert ended.startswith("tasktheme: cannot write")
    assert "model': File too large; " in ended
    assert "model.checkpoint' keeps the training: go on with --resume" in ended
    assert sorted(files(tmp_path / "run")) == ["model.checkpoint", "model.checkpoint.before"]
    assert read_checkpoint(tmp_path / "run" / "model.checkpoint")[1]["step"] == 3
    assert run("--resume") == (0, "")
    assert files(tmp_path / "run") == wanted


def test_a_stop_on_a_full_disk_is_exit_2(run, meet, wanted, tmp_path: Path) -> None:
    meet({3: fill_disk, 4: lambda: signal.raise_signal(signal.SIGTERM)})
    code, err = run()
    assert code == 2
    warned, ended = err.splitlines()
    assert "the run goes on" in warned
    assert "could not be saved" in ended
    assert "run it again with --resume to go on" in ended
    assert read_checkpoint(tmp_path / "run" / "model.checkpoint")[1]["step"] == 3
    assert run("--resume") == (0, "")
    assert files(tmp_path / "run") == wanted


def test_a_folder_taken_away_does_not_cost_the_model(run, meet, wanted, tmp_path: Path) -> None:
    meet({3: lambda: shutil.rmtree(tmp_path / "run")})
    code, err = run()
    assert code == 0
    assert err.count("\n") == 1
    assert "No such file or directory; the run goes on" in err
    assert files(tmp_path / "run") == wanted


def test_a_damaged_checkpoint_is_told_and_the_one_before_leads_to_the_same_bytes(run, meet, wanted, tmp_path: Path) -> None:
    meet({3: lambda: signal.raise_signal(signal.SIGINT)})
    assert run()[0] == 130
    last = tmp_path / "run" / "model.checkpoint"
    last.write_bytes(last.read_bytes()[:-1])
    code, err = run("--resume")
    assert code == 0
    assert err.count("\n") == 1
    assert "model.checkpoint' is damaged" in err
    assert "going on from the checkpoint before it" in err
    assert files(tmp_path / "run") == wanted


def test_two_damaged_checkpoints_are_one_clear_error(run, meet, tmp_path: Path) -> None:
    meet({3: lambda: signal.raise_signal(signal.SIGINT)})
    assert run()[0] == 130
    for file in (tmp_path / "run").iterdir():
        file.write_bytes(b"rubbish")
    code, err = run("--resume")
    assert code == 2
    assert err.count("\n") == 1
    assert "delete both to start anew" in err
    assert set(files(tmp_path / "run").values()) == {b"rubbish"}


@pytest.fixture
def killed_before_its_last_breath(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a run that was killed after it wrote the model, before it removed its state."""
    with monkeypatch.context() as patch:
        patch.setattr("tasktheme.training.checkpoint_file.remove_checkpoint", lambda path: None)
        assert run()[0] == 0
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["model", "model.checkpoint", "model.checkpoint.before"]
    return tmp_path / "run"


def test_a_kill_after_the_model_was_written_is_no_obstacle(
    run, meet, wanted, killed_before_its_last_breath: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("nothing is left to train")

    monkeypatch.setattr(Trainer, "train_step", never)
    monkeypatch.setattr(Trainer, "embedded_tasks", never)
    monkeypatch.setattr(MetaTrainer, "train_step", never)
    assert run("--resume") == (0, "")
    assert files(killed_before_its_last_breath) == wanted


def test_a_model_of_another_run_is_not_overwritten_by_resuming(run, killed_before_its_last_breath: Path) -> None:
    weights = killed_before_its_last_breath / "model" / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    code, err = run("--resume")
    assert code == 2
    assert "exists already" in err
    assert weights.read_bytes() == content
    assert (killed_before_its_last_breath / "model.checkpoint").exists()


def test_an_unfinished_run_does_not_train_for_a_name_that_is_taken(run, meet, tmp_path: Path) -> None:
    meet({3: lambda: signal.raise_signal(signal.SIGINT), 4: lambda: pytest.fail("trained on")})
    assert run()[0] == 130
    (tmp_path / "run" / "model").mkdir()
    code, err = run("--resume")
    assert code == 2
    assert "exists already" in err


def test_an_old_model_set_aside_by_a_kill_is_found_and_put_back(tmp_path: Path) -> None:
    model = tt.PTM(settings=tt.Settings(themes=2, ways=2, t_shots=2, v_shots=2, polish_sweeps=0))
    rng = np.random.default_rng(0)
    model.fit([rng.normal(size=(9, 3)) for _ in range(4)], tasks=4, progress=False)
    model.save(tmp_path / "model")
    (tmp_path / "model").rename(tmp_path / ".model.old")  # between the two renames of an overwriting save
    (tmp_path / ".model.123.tmp").mkdir()
    assert tt.PTM.load(tmp_path / "model").fingerprint == model.fingerprint
    with pytest.raises(OutputError, match="exists already"):
        model.save(tmp_path / "model")
    model.save(tmp_path / "model", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("how", ["--rounds 1", pytest.param("--rounds 20 --command meta-train", marks=pytest.mark.slow)])
def test_killed_at_random_moments_it_resumes_to_the_same_bytes(how: str) -> None:
    """A few rounds of the harness; `python benchmarks/kill.py --rounds 100` runs more."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    script = Path(__file__).parents[1] / "benchmarks" / "kill.py"
    seed = str(np.random.SeedSequence().entropy % 2**32)  # other moments each time; the message names them
    command = [sys.executable, script, *how.split(), "--steps", "8", "--seed", seed]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{seed}: {done.stdout}{done.stderr}"
    assert "0 lost" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", ["fit", "meta-train"])
def test_killed_before_each_operation_on_files_it_resumes_to_the_same_bytes(command: str) -> None:
    script = Path(__file__).parents[1] / "benchmarks" / "kill.py"
    words = [sys.executable, script, "--each-call", "--steps", "3", "--command", command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost" in done.stdout
