"""Kills a short training (SIGKILL) at random moments of its life, resumes it, and compares the result with that of a run that
was never stopped, byte by byte.

    python benchmarks/kill.py --rounds 100                                    # forked: about a second for each round
    python benchmarks/kill.py --rounds 100 --command meta-train
    python benchmarks/kill.py --each-call                                     # before each single operation on files
    python benchmarks/kill.py --rounds 20 --prefix "python -m tasktheme"      # real processes, their start included
    python benchmarks/kill.py --rounds 20 --prefix "torchrun --nproc-per-node 2 -m tasktheme"
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from tasktheme import cli
from tasktheme.training.checkpoint_file import read_checkpoint

_LONGEST = 300.0  # seconds that a run which nobody kills may take
_MOST_KILLS = 4  # in one round; then the run may end
_FILE_CALLS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"}

Files = dict[str, bytes]


def small_data(file: Path) -> None:
    """Eight classes of ten small images in two groups."""
    x = np.random.default_rng(0).integers(0, 256, size=(80, 1, 16, 16), dtype=np.uint8)
    np.savez(file, x=x, y=np.arange(80) // 10, groups=np.arange(80) // 40)


def command_words(command: str, data: Path, steps: int) -> list[str]:
    """A training of some steps that saves its state after each of them."""
    words = ["--out", "model", "--resume", "--checkpoint-every", "0", "--device", "cpu", "--quiet", "--held-out", "0.5"]
    if command == "fit":
        settings = ["filters=[4,8]", "themes=3", "latent_dim=5", "ways=[3,3]", "t_shots=3", "v_shots=3", "batch_tasks=4"]
        settings += ["polish_tasks=8", f"polish_sweeps={max(2, steps // 4)}"]
        words = ["fit", str(data), "--tasks", str(4 * steps), *words]
    else:
        settings = ["filters=4", "modules=3", "batch_tasks=2", "inner_steps=1", "test_steps=1"]
        words = ["meta-train", "maml", str(data), "--tasks", str(2 * steps), "--ways", "3", "--queries", "3", *words]
    return words + [word for setting in settings for word in ("--set", setting)]


def run_here(words: list[str], folder: Path, before: Callable[[], None] | None = None) -> int:
    """Run the command line in this process and return its exit status."""
    os.chdir(folder)
    sys.argv = ["tasktheme", *words]
    if before is not None:
        before()
    try:
        cli.main()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0


class Forked:
    """A run of the command line in a copy of this process, which has imported everything already."""

    def __init__(self, words: list[str], folder: Path, before: Callable[[], None] | None = None) -> None:
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            log = os.open(folder.with_name("log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            try:
                os._exit(run_here(words, folder, before))
            finally:
                os._exit(70)

    def wait(self, seconds: float) -> int | None:
        """The exit status, or None if it still runs."""
        end = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() >= end:
                return None
            time.sleep(0.001)

    def kill(self) -> None:
        """SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Spawned:
    """A run of a command of its own, such as torchrun, killed with all its descendants."""

    def __init__(self, prefix: list[str], words: list[str], folder: Path) -> None:
        with folder.with_name("log").open("wb") as log:
            self.process = subprocess.Popen([*prefix, *words], cwd=folder, stdout=log, stderr=log)

    def wait(self, seconds: float) -> int | None:
        """The exit status, or None if it still runs."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """SIGKILL for each, the eldest first, so that none can clean up after another."""
        for pid in [self.process.pid, *_descendants(self.process.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


def _descendants(pid: int) -> list[int]:
    table = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = dict(tuple(map(int, line.split())) for line in table.splitlines())
    found = [pid]
    for parent in found:
        found += [child for child, its in parents.items() if its == parent]
    return found[1:]


class Harness:
    """One training, its result where nobody stops it, and rounds in which somebody does."""

    def __init__(self, words: list[str], prefix: list[str], work: Path) -> None:
        self.words, self.prefix, self.work = words, prefix, work
        self.moments: Counter[str] = Counter()
        folder = self.fresh()
        if prefix:
            self.finish(folder)
        else:
            run_here(words, folder)  # in this process, whose copies then find every library loaded
        self.wanted = contents(folder)
        folder, started = self.fresh(), time.monotonic()
        self.finish(folder)
        self.life = time.monotonic() - started
        if contents(folder) != self.wanted:
            raise SystemExit("two runs that nobody stopped differ: nothing can be compared on this machine")

    def start(self, folder: Path, before: Callable[[], None] | None = None) -> Forked | Spawned:
        if self.prefix:
            return Spawned(self.prefix, self.words, folder)
        return Forked(self.words, folder, before)

    def fresh(self) -> Path:
        folder = self.work / "run"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def finish(self, folder: Path) -> None:
        run = self.start(folder)
        status = run.wait(_LONGEST)
        if status is None:
            run.kill()
        if status != 0:
            raise SystemExit(f"the run ended with {status}: {folder.with_name('log').read_text(errors='replace')}")

    def random_round(self, chance: random.Random) -> int:
        """Kill and resume a few times, let it end; return the number of kills."""
        kills = 0
        while not kills:  # again, where the run was faster than the first kill
            folder = self.fresh()
            for _ in range(chance.randint(1, _MOST_KILLS)):
                run = self.start(folder)
                if run.wait(chance.uniform(0.0, self.life)) is not None:
                    break
                run.kill()
                kills += 1
                self.moments[moment(folder)] += 1
                self.moments["(of these with a half-written file)"] += any(path.suffix == ".tmp" for path in folder.iterdir())
        self.check(folder)
        return kills

    def each_call(self) -> int:
        """Kill before the n-th operation on files, for each n there is; return the number of kills."""
        number = 0
        while True:
            folder = self.fresh()
            if self.start(folder, before=lambda count=number: kill_at_call(count)).wait(_LONGEST) != -signal.SIGKILL:
                return number
            self.moments[moment(folder)] += 1
            self.check(folder)
            number += 1

    def check(self, folder: Path) -> None:
        """Resume to the end; the folder must then be as if nobody had ever stopped the run."""
        state = sorted(path.name for path in folder.iterdir())
        if state != ["model"]:  # else it had ended but for its last breath, and says on a new start that the model is there
            self.finish(folder)
        found = contents(folder)
        if found != self.wanted:
            differing = sorted(name for name in found.keys() | self.wanted.keys() if found.get(name) != self.wanted.get(name))
            raise SystemExit(f"LOST: killed with {state} in the folder, resumed, and these differ: {', '.join(differing)}")


def contents(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def moment(folder: Path) -> str:
    """How far the run had come, by what it left."""
    if (folder / "model").exists():
        return "model written"
    if not (folder / "model.checkpoint").exists():
        return "before the first checkpoint"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a kill must never damage a checkpoint
        info = read_checkpoint(folder / "model.checkpoint")[1]
    if info["finished"]:
        return "finished, model not written"
    if info.get("sweeps"):
        return "final EM"
    if info["kind"] == "tasktheme checkpoint" and info["step"] <= round(0.3 * info["training"]["steps"]):
        return "warm-up"
    return "training"


def kill_at_call(number: int) -> None:
    """SIGKILL this process just before it opens, renames or deletes something in its folder for the n-th time."""
    count, here = 0, os.getcwd()  # noqa: PTH109 (Path itself may open nothing here)

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if event not in _FILE_CALLS or not isinstance(arguments[0], str | Path):
            return
        path = os.path.abspath(arguments[0])  # noqa: PTH100
        if path.startswith(f"{here}/") or (path == here and event == "open"):
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1

    sys.addaudithook(watch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--each-call", action="store_true", help="kill before each operation on files instead")
    parser.add_argument("--command", choices=["fit", "meta-train"], default="fit")
    parser.add_argument("--prefix", default="", help="run this command, in processes of its own")
    parser.add_argument("--steps", type=int, default=20, help="of the training")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # a fork copies one thread
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kill-") as work:
        small_data(Path(work) / "small.npz")
        words = command_words(arguments.command, Path(work) / "small.npz", arguments.steps)
        harness = Harness(words, shlex.split(arguments.prefix), Path(work))
        print(f"a run that nobody stops takes {harness.life:.2f} s", flush=True)
        if arguments.each_call:
            kills = rounds = harness.each_call()
        else:
            chance, rounds = random.Random(arguments.seed), arguments.rounds
            kills = sum(harness.random_round(chance) for _ in range(rounds))
    for name, count in sorted(harness.moments.items(), key=lambda item: -item[1]):
        print(f"{count:6d}  {name}")
    seconds = time.monotonic() - started
    print(f"{rounds} rounds, {kills} kills, {rounds} models the same to the bit, 0 lost; {seconds:.0f} s")


if __name__ == "__main__":
    main()
