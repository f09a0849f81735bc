from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from oracles.faults import empty_disk, fill_disk, full_disk, own_folder
from tasktheme.errors import Interrupted, OutputError, SettingsError, TrainingError
from tasktheme.training.checkpoint_file import read_checkpoint, write_checkpoint
from tasktheme.training.resumable import check_run, run_resumably


class Counting:
    """A run that counts to ten, saves its state after each number, and meets what the test plans."""

    def __init__(self, plan: dict[int, Callable[[], None]] | None = None, stop: int | None = None) -> None:
        self.plan, self.stop, self.step = plan or {}, stop, 0

    def run(self, *, progress: bool = True, checkpoint: Callable[[], None] | None = None) -> None:
        while self.step < 10:
            self.step += 1
            self.plan.get(self.step, lambda: None)()
            if checkpoint is not None:
                checkpoint()
            if self.step == self.stop:
                raise Interrupted(f"interrupted after {self.step}")


def save(run: Counting, path: Path) -> None:
    write_checkpoint(path, {"step": torch.tensor(run.step)}, {"step": run.step})


def load(run: Counting, path: Path) -> None:
    run.step = read_checkpoint(path)[1]["step"]


def count(file: Path | None, **how: Any) -> Counting:
    run = Counting(**how)
    run_resumably(run, file, save=save, load=load, progress=False)
    return run


@pytest.fixture(autouse=True)
def _room_again():
    yield
    empty_disk()


def test_a_run_goes_on_from_its_state(tmp_path: Path) -> None:
    file = tmp_path / "state"
    with pytest.raises(Interrupted, match=r"interrupted after 4; the last good state is in '.*state': fit again with resume"):
        count(file, stop=4)
    seen: list[int] = []
    count(file, plan={step: lambda step=step: seen.append(step) for step in range(11)})
    assert seen == [5, 6, 7, 8, 9, 10]
    assert count(None).step == 10


def test_a_disk_full_for_a_while_costs_one_warning(tmp_path: Path) -> None:
    file = tmp_path / "state"
    with pytest.warns(UserWarning, match=r"cannot write '.*state.*: File too large; the run goes on and will try again") as said:
        count(file, plan={3: fill_disk, 7: empty_disk})
    assert len(said) == 1
    assert read_checkpoint(file)[1]["step"] == 10


def test_a_second_outage_is_a_second_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="cannot write") as said:
        count(tmp_path / "state", plan={2: fill_disk, 4: empty_disk, 6: fill_disk})
    assert len(said) == 2


def test_a_stop_on_a_full_disk_is_an_error_and_the_last_good_state_stays(tmp_path: Path) -> None:
    file = tmp_path / "state"
    wanted = r"after 6, and its state could not be saved: cannot write .*too large; the last good state is in '.*state'"
    with pytest.warns(UserWarning, match="cannot write"), pytest.raises(OutputError, match=wanted) as error:
        count(file, plan={4: fill_disk}, stop=6)
    assert not isinstance(error.value, Interrupted)
    empty_disk()
    assert read_checkpoint(file)[1]["step"] == 3
    assert read_checkpoint(tmp_path / "state.before")[1]["step"] == 2
    assert count(file).step == 10


def test_a_stop_after_the_disk_has_room_again_is_a_plain_stop(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="cannot write"), pytest.raises(Interrupted, match="last good state"):
        count(tmp_path / "state", plan={4: fill_disk, 5: empty_disk}, stop=6)
    assert read_checkpoint(tmp_path / "state")[1]["step"] == 6


def test_a_folder_taken_away_does_not_end_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.warns(UserWarning, match="No such file or directory; the run goes on"):
        assert count(folder / "state", plan={3: lambda: shutil.rmtree(folder)}).step == 10
    assert not folder.exists()
    folder.mkdir()
    none_left = r"could not be saved: cannot write [^;]*$"
    with pytest.warns(UserWarning, match="cannot write"), pytest.raises(OutputError, match=none_left):
        count(folder / "state", plan={3: lambda: shutil.rmtree(folder)}, stop=5)


def test_a_folder_made_read_only_keeps_the_last_good_state() -> None:
    with own_folder() as folder:
        file = folder / "state"
        with (
            pytest.warns(UserWarning, match="Permission denied; the run goes on"),
            pytest.raises(OutputError, match=r"could not be saved.*Permission denied; the last good state"),
        ):
            count(file, plan={3: lambda: folder.chmod(0o500)}, stop=5)
        assert read_checkpoint(file)[1]["step"] == 2


def test_a_training_gone_wrong_names_the_last_good_state(tmp_path: Path) -> None:
    def fail() -> None:
        raise TrainingError("not finite")

    with pytest.raises(TrainingError, match="not finite; the last good state is in"):
        count(tmp_path / "state", plan={3: fail})
    with pytest.raises(TrainingError, match=r"^not finite$"):
        count(tmp_path / "other", plan={1: fail})


def test_half_written_files_of_a_killed_run_go_at_the_start(tmp_path: Path) -> None:
    for name in (".state.123.tmp", ".state.before.123.tmp"):
        (tmp_path / name).write_bytes(b"half")
    seen: list[list[Path]] = []
    count(tmp_path / "state", plan={1: lambda: seen.append(list(tmp_path.iterdir()))})
    assert seen == [[]]


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write in '.*absent': No such file or directory"):
        check_run(5, tmp_path / "absent" / "state", resume=False)
    with own_folder() as folder:
        folder.chmod(0o500)
        with pytest.raises(OutputError, match=r"cannot write in .*Permission denied"):
            check_run(5, folder / "state", resume=True)
    with full_disk():  # an empty file fits: the disk may have room again when it is needed
        assert check_run(5, tmp_path / "state", resume=False) == (5, tmp_path / "state")


@pytest.mark.parametrize("every", [-1, float("nan"), float("inf"), "soon", True, None])
def test_the_time_between_checkpoints_is_a_number_from_0(every: object, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="checkpoint_every"):
        check_run(5, tmp_path / "state", resume=False, every=every)


def test_a_second_ctrl_c_tells_where_the_state_before_is(tmp_path: Path) -> None:
    def press() -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"inside a step; the last good state is in '.*state': fit again with resume"):
        count(tmp_path / "state", plan={4: press})
    assert read_checkpoint(tmp_path / "state")[1]["step"] == 3
