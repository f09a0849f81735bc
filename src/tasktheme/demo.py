"""The demo: the main job on embedded data, from training to a report, in a few minutes on two cores."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tasktheme.data.glyphs import load_glyphs
from tasktheme.evaluation import evaluate_tasks
from tasktheme.ptm import PTM
from tasktheme.report.explorer import write_explorer
from tasktheme.report.pictures import write_pictures
from tasktheme.report.tables import evaluation_table, task_table
from tasktheme.settings import Settings
from tasktheme.storage import check_output, versions

TASKS = 6000
# a short training on few images: many small steps, and covariances shrunk towards a sphere (docs/decisions.md)
SETTINGS = Settings(
    themes=24,
    latent_dim=32,
    covariance_floor=0.2,
    covariance_prior=0.0,
    batch_tasks=5,
    t_shots=5,
    v_shots=5,
    learning_rate=2e-3,
    polish_tasks=600,
)


def run_demo(out: Path, *, seed: int, device: str, progress: bool, say: Callable[[object], None]) -> None:
    """Train on the glyphs' training scripts, embed tasks of the held-out ones, write and say what came out."""
    started = time.monotonic()
    check_output(out / "model", overwrite=True)  # before the training, not after it
    data = load_glyphs(progress=progress)
    say(f"training on {len(data.train.group_names)} scripts, {len(data.train.class_names)} characters, {TASKS:,} tasks")
    model = PTM(settings=SETTINGS, seed=seed, device=device).fit(data.train, tasks=TASKS, progress=progress)

    episodes = data.test.episodes(ways=5, shots=20, n=200, seed=1)
    tasks = model.embed(episodes, progress=progress)
    result = evaluate_tasks(model, episodes, embedded=tasks)
    say(task_table(tasks, most=16))
    say(evaluation_table(result))

    model.save(out / "model", overwrite=True)
    tasks.save(out / "tasks.parquet", overwrite=True)
    pictures = write_pictures(out / "pictures", model=model, tasks=tasks, data=data.test)
    report = write_explorer(
        out / "report.html",
        model=model,
        tasks=tasks,
        origin=episodes,
        title="Tasks from writing systems the model never saw",
        facts=[
            ("Trained on", f"{TASKS:,} tasks from {len(data.train.group_names)} scripts"),
            ("Embedded", f"{result.tasks} tasks from {result.groups} held-out scripts, 5 characters of 20 drawings each"),
            ("AUC of same script by KL distance", f"{result.auc:.3f} (0.5 is chance)"),
            ("AUC by mean embedding", f"{result.auc_mean_embedding:.3f}"),
            ("Largest theme's share", f"{result.largest_share:.2f} of {SETTINGS.themes} themes"),
            ("Made by", ", ".join(f"{name} {version}" for name, version in versions().items())),
        ],
    )
    say(f"AUC of same script by KL distance: {result.auc:.3f} (0.5 is chance); largest theme's share: {result.largest_share:.2f}")
    say(f"wrote in {time.monotonic() - started:.0f} s: model, tasks, {len(pictures)} pictures and report in {out}/")
    say(f"open   {report.resolve().as_uri()}")
    say(f"try    tasktheme nearest {out / 'tasks.parquet'} {out / 'tasks.parquet'} -k 3")
    say("       tasktheme fit glyphs --out my-model --tasks 20000")
