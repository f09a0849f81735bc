from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tasktheme as tt
from oracles.small import SMALL, small_images, small_vectors
from tasktheme.errors import Interrupted, ModelFileError, OutputError, SettingsError, TrainingError
from tasktheme.model.themes import Themes
from tasktheme.nets.build import Networks
from tasktheme.training import finish, loop
from tasktheme.training.checkpoint import differences, resume_training, save_training
from tasktheme.training.checkpoint_file import read_checkpoint, write_checkpoint
from tasktheme.training.loop import Trainer


def trainer(settings: tt.Settings = SMALL, data: tt.Dataset | None = None, steps: int = 12) -> Trainer:
    data = data or small_images()
    return Trainer(settings, Networks(settings, data.point_shape, torch.device("cpu")), data, steps, torch.device("cpu"))


def state(value: Trainer) -> dict[str, torch.Tensor]:
    return {
        **value.networks.state_dict(),
        "mu": value.themes.mu,
        "Sigma": value.themes.moments.Sigma,
        "n": value.themes.moments.n,
    }


def assert_same_state(first: Trainer, second: Trainer) -> None:
    for (name, ours), theirs in zip(state(first).items(), state(second).values(), strict=True):
        assert torch.equal(ours, theirs), name


class StopAfter:
    """Interrupts a training by SIGINT, as Ctrl-C does, inside its n-th step."""

    def __init__(self, value: Trainer, step: int) -> None:
        self.step, self.original = step, value.train_step
        self.trainer = value

    def __call__(self) -> dict[str, torch.Tensor]:
        if self.trainer.step == self.step:
            signal.raise_signal(signal.SIGINT)
        return self.original()


@pytest.mark.parametrize("step", [1, 4, 9])  # in the warm-up, at the theme start, after it
@pytest.mark.parametrize("kind", ["images", "vectors"])
def test_interrupted_and_resumed_gives_the_same_bits(tmp_path: Path, step: int, kind: str) -> None:
    data = small_images() if kind == "images" else small_vectors()
    whole = trainer(data=data)
    whole.run(progress=False)

    file = tmp_path / "state"
    first = trainer(data=data)
    first.train_step = StopAfter(first, step)  # type: ignore[method-assign]
    with pytest.raises(Interrupted, match=f"after {(step + 1) * 4} of 48 tasks"):
        first.run(progress=False, checkpoint=lambda: save_training(first, file))
    assert first.step == step + 1  # the step went to its end

    second = trainer(data=data)
    resume_training(second, file)
    second.run(progress=False)
    assert_same_state(whole, second)
    assert second.history == whole.history


def test_a_stop_while_the_bar_moves_is_saved_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, value = tmp_path / "state", trainer()
    asked: list[int] = []

    def interrupt_once(steps: int, note: str) -> None:
        if not asked:
            asked.append(value.step)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("tasktheme.training.loop._SHOW_SECONDS", 0.0)
    monkeypatch.setattr("tasktheme.training.loop.progress_bar", lambda *_, **__: nullcontext(interrupt_once))
    with pytest.raises(Interrupted):
        value.run(progress=False, checkpoint=lambda: save_training(value, file))
    assert file.exists()


def test_a_stop_in_the_final_em_says_so_and_resumes_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, data = tmp_path / "state", small_images()
    whole = tt.PTM(settings=SMALL).fit(data, tasks=48, progress=False)
    polish = finish.polish

    def interrupt(*arguments: Any) -> Iterator[Themes]:
        for themes in polish(*arguments):
            if arguments[-1] == SMALL.polish_sweeps:  # not the sweeps that start the themes
                signal.raise_signal(signal.SIGINT)
            yield themes

    monkeypatch.setattr(finish, "polish", interrupt)
    with pytest.raises(Interrupted, match=r"the final EM was interrupted after 1 of 3 sweeps.*resume"):
        tt.PTM(settings=SMALL).fit(data, tasks=48, progress=False, checkpoint=file)
    monkeypatch.undo()
    again = tt.PTM(settings=SMALL).fit(data, tasks=48, progress=False, checkpoint=file, resume=True)
    assert again.fingerprint == whole.fingerprint


def test_a_stop_in_an_aspect_resumes_to_the_same_bits_and_what_is_finished_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, data, settings = tmp_path / "state", small_images(), SMALL.changed({"aspects": 5, "themes": 2})
    whole = tt.PTM(settings=settings).fit(data, tasks=48, progress=False)
    polish = finish.polish

    def interrupt(*arguments: Any) -> Iterator[Themes]:
        signal.raise_signal(signal.SIGINT)
        yield from polish(*arguments)

    monkeypatch.setattr(finish, "polish", interrupt)
    with pytest.raises(Interrupted, match=r"the final EM was interrupted in aspect 1 of 5.*resume"):
        tt.PTM(settings=settings).fit(data, tasks=48, progress=False, checkpoint=file)
    monkeypatch.undo()
    for _ in range(2):  # from before the aspects, and from the end
        again = tt.PTM(settings=settings).fit(data, tasks=48, progress=False, checkpoint=file, resume=True)
        assert again.fingerprint == whole.fingerprint
        assert again.settings == whole.settings


def unlabelled() -> tt.Dataset:
    data = small_vectors()
    return tt.Dataset.from_tasks([data.x[start : start + 5 + start % 7] for start in range(0, 80, 8)], name="tasks")


@pytest.mark.parametrize(
    ("changes", "data"),
    [
        ({"warm_up": 0.3}, small_images),
        ({"warm_up": 0.0, "covariance": "diagonal", "learn_concentration": True}, small_images),
        ({"norm": "batch", "classification_weight": 1.0, "covariance": "isotropic"}, small_images),
        ({"initialisation": "random", "update": "parameters", "polish_sweeps": 0}, small_images),
        ({"encoder": "vector"}, small_vectors),
        ({"learn_concentration": True}, small_vectors),  # no network, no optimiser
        ({"encoder": "vector", "covariance": "diagonal"}, unlabelled),
        ({"themes": "auto", "ways": (2, 2)}, small_vectors),
        ({"training_aspects": 5}, small_images),
        ({"training_aspects": 5, "themes": "auto", "ways": (2, 2)}, small_images),
    ],
    ids=["default", "concentration", "labels", "random", "vector", "identity", "unlabelled", "auto", "aspects", "aspects, auto"],
)
def test_from_each_state_of_a_run_the_rest_is_the_same_to_the_bit(
    changes: dict[str, Any], data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run stopped at any moment goes on from one of these states. The last file has all there is: weights, optimiser,
    statistics, step, sweeps, history, running means."""
    monkeypatch.setattr(loop, "_RECORDS", 3)  # a row of history every second step: running means are kept in between
    settings, dataset = SMALL.changed(changes), data()

    def fresh() -> Trainer:
        made = trainer(settings, dataset, steps=6)
        made.networks.standardise_by(dataset.tensor)
        made.checkpoint_every = 0.0
        return made

    whole, states = fresh(), []

    def keep() -> None:
        states.append(tmp_path / f"{whole.step}-{whole.sweeps}{' finished' if whole.finished else ''}")
        save_training(whole, states[-1])

    whole.run(progress=False, checkpoint=keep)
    sweeps = settings.polish_sweeps
    expected = [f"{s}-0" for s in range(1, 7)] + [f"6-{s}" for s in range(1, sweeps + 1)] + [f"6-{sweeps} finished"]
    assert [path.name for path in states] == expected
    for path in states:
        second = fresh()
        resume_training(second, path)
        second.run(progress=False)
        save_training(second, tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == states[-1].read_bytes(), path.name


def test_signal_handlers_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    trainer(steps=2).run(progress=False)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_checkpoint_of_another_version_or_kind_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "state"
    save_training(trainer(), file)
    tensors, info = read_checkpoint(file)
    write_checkpoint(file, tensors, {name: value for name, value in info.items() if name != "format"})
    with pytest.raises(ModelFileError, match="written by another version of tasktheme"):
        resume_training(trainer(), file)
    write_checkpoint(file, tensors, {**info, "kind": "another"})
    with pytest.raises(ModelFileError, match="not a checkpoint of a training"):
        resume_training(trainer(), file)


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "state"
    save_training(trainer(), file)
    shifted = tt.Dataset.from_arrays(255 - small_images().x, np.arange(80) // 10, np.arange(80) // 40, name="small")
    regrouped = tt.Dataset.from_arrays(small_images().x, np.arange(80) // 10, np.arange(80) // 20, name="small")
    two_ways = SMALL.changed({"ways": (2, 2)})
    for other, said in (
        (trainer(steps=13), r"other number of tasks \(48 there, 52 here\),"),
        (trainer(settings=SMALL.changed({"themes": 4})), r"other settings \(themes 3 there, 4 here\),"),
        (trainer(data=shifted), "other data,"),
        (trainer(two_ways, regrouped), r"other settings \(ways \(3, 3\) there, \(2, 2\) here\), data,"),
    ):
        with pytest.raises(ModelFileError, match=f"belongs to a training with {said} and cannot be resumed here"):
            resume_training(other, file)


def test_differences_name_settings_with_both_values() -> None:
    theirs, ours = {"policy": {"a": 1, "gone": 2}, "old": 3, "data": [1]}, {"policy": {"a": 1}, "data": [2]}
    assert differences(theirs, ours) == "policy (gone 2 there, None here), old, data"
    assert differences({"sha256": 1, "shape": [1]}, {"sha256": 2, "shape": [2]}) == "data"
    apart = {"settings": {"rate": 1}, "experiment": {"pool": 2}}, {"settings": {"rate": 3}, "experiment": {"pool": 4}}
    assert differences(*apart) == "settings (rate 1 there, 3 here, pool 2 there, 4 here)"
    longer = [{"settings": {"batch_tasks": 5}, "steps": steps} for steps in (1000, 3000)]
    assert differences(*longer) == "number of tasks (5,000 there, 15,000 here)"
    assert not differences(ours, ours)


def test_a_damaged_or_foreign_checkpoint_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "state"
    save_training(trainer(), file)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ModelFileError, match="damaged"):
        resume_training(trainer(), file)
    with pytest.raises(ModelFileError, match="missing"):
        resume_training(trainer(), tmp_path / "absent")


def test_checkpoints_come_on_schedule_at_the_end_of_the_steps_and_of_the_final_em(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr("tasktheme.training.loop.time.monotonic", lambda: float(next(clock)))
    value, kept = trainer(), []
    value.checkpoint_every = 5.0
    value.run(progress=False, checkpoint=lambda: kept.append((value.step, value.sweeps)))
    assert kept == [(5, 0), (10, 0), (12, 0), (12, 3)]


def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, value = tmp_path / "state", trainer()
    value.run(progress=False, checkpoint=lambda: save_training(value, file))
    for name in ("train_step", "embedded_tasks", "_initialise_themes"):
        monkeypatch.setattr(Trainer, name, lambda *_: pytest.fail("trained on"))
    again = trainer()
    resume_training(again, file)
    again.run(progress=False)
    assert_same_state(value, again)
    assert again.finished


@pytest.mark.parametrize("poison", ["weights", "covariance"])
def test_nothing_trains_on_through_a_nan(tmp_path: Path, poison: str) -> None:
    value = trainer(SMALL.changed({"warm_up": 0.0}), steps=300)  # a look at the numbers every third step
    value._initialise_themes()
    for _ in range(3):
        value.train_step()
    if poison == "weights":
        with torch.no_grad():
            next(value.networks.parameters()).fill_(torch.nan)
    else:
        value.themes.moments.Sigma.copy_(-torch.eye(5).expand(3, 5, 5))
    kept: list[int] = []
    with pytest.raises(TrainingError, match=r"not finite|not positive definite"):
        value.run(progress=False, checkpoint=lambda: kept.append(value.step))
    assert value.step <= 6
    assert kept == []  # nothing bad was saved over the last good checkpoint


def test_a_training_gone_wrong_resumes_with_a_gentler_rate(tmp_path: Path) -> None:
    file = tmp_path / "state"
    save_training(trainer(), file)
    gentle = trainer(settings=SMALL.changed({"learning_rate": 1e-5}))
    resume_training(gentle, file)
    assert gentle.optimiser is not None
    assert gentle.optimiser.param_groups[0]["lr"] == 1e-5


def test_a_checkpoint_never_overwrites_another_file(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("precious")
    with pytest.raises(OutputError, match="exists already"):
        tt.PTM(settings=SMALL).fit(small_images(), tasks=8, progress=False, checkpoint=notes)
    with pytest.raises(ModelFileError, match="not tasktheme's"):
        tt.PTM(settings=SMALL).fit(small_images(), tasks=8, progress=False, checkpoint=notes, resume=True)
    with pytest.raises(SettingsError, match="checkpoint file"):
        tt.PTM(settings=SMALL).fit(small_images(), tasks=8, progress=False, resume=True)
    assert notes.read_text() == "precious"


def test_fit_keeps_a_checkpoint_and_resumes(tmp_path: Path) -> None:
    data, file = small_images(), tmp_path / "state"
    whole = tt.PTM(settings=SMALL).fit(data, tasks=48, progress=False, checkpoint=file)
    assert file.exists()
    again = tt.PTM(settings=SMALL).fit(data, tasks=48, progress=False, checkpoint=file, resume=True)
    assert again.fingerprint == whole.fingerprint
    assert again.history == whole.history


# Runs the command line with a SIGINT in the third step: what Ctrl-C does, at a moment that does not depend on the clock.
_INTERRUPTED_RUN = """
import signal
from tasktheme.training.loop import Trainer
step = Trainer.train_step
def interrupt(self):
    if self.step == 2:
        signal.raise_signal(signal.SIGINT)
    return step(self)
Trainer.train_step = interrupt
from tasktheme.cli import main
main()
"""


def test_ctrl_c_on_the_command_line_keeps_the_state_and_resume_goes_on(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["fit", "glyphs", "--out", "model", "--tasks", "80", "--quiet"]
    for setting in ("filters=[2,2,2,2]", "themes=2", "polish_sweeps=0", "t_shots=2", "v_shots=2"):
        command += ["--set", setting]
    alone = [sys.executable, "-c", _INTERRUPTED_RUN, *command]
    stopped = subprocess.run(alone, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert stopped.returncode == 130
    assert stopped.stderr.startswith("tasktheme: training was interrupted after 60 of 80 tasks")
    assert "--resume" in stopped.stderr
    assert stopped.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["model.checkpoint"]

    monkeypatch.chdir(tmp_path)
    code, _, err = run(*command)
    assert code == 2
    assert "keeps an interrupted training" in err

    code, _, err = run(*command, "--resume")
    assert code == 0, err
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    model = tt.PTM.load(tmp_path / "model")
    assert (model.trained_on["data"], model.trained_on["tasks"], model.point_shape) == ("glyphs", 80, (1, 64, 64))
