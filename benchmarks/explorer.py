"""How smoothly the explorer page moves: frame times of zooming and moving a map of synthetic tasks in Chromium.

    python benchmarks/explorer.py --tasks 20000

Needs playwright and a Chromium of the system (CHROMIUM names another one).
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

import tasktheme as tt
from tasktheme.report.explorer import write_explorer

# Moves and zooms the map by its own wheel and pointer handling, a step in every frame.
MOVE = """frames => new Promise(done => {
  const target = document.getElementById("marks"), box = target.getBoundingClientRect(), times = [];
  const x = box.left + box.width / 2, y = box.top + box.height / 2;
  let last = performance.now(), n = 0;
  const step = now => {
    times.push(now - last);
    last = now;
    if (n++ === frames) return done(times.slice(2));
    const by = { deltaY: Math.floor(n / 15) % 2 ? 40 : -40, clientX: x + n % 7, clientY: y, bubbles: true, cancelable: true };
    target.dispatchEvent(new WheelEvent("wheel", by));
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""


def synthetic(tasks: int, themes: int) -> tuple[tt.PTM, tt.TaskSet]:
    """A tiny model, and made-up tasks that pass for its own: each group likes some themes."""
    x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    data = tt.Dataset.from_arrays(x, np.repeat(np.arange(6), 10), name="vectors")
    settings = tt.Settings(themes=themes, ways=(2, 2), t_shots=3, v_shots=3, batch_tasks=5, polish_tasks=20)
    model = tt.PTM(settings=settings, device="cpu").fit(data, tasks=20, progress=False)
    rng = np.random.default_rng(1)
    group = rng.integers(0, 20, tasks)
    liking = rng.dirichlet(np.full(themes, 0.3), 20)
    gamma = 1.1 + 100.0 * np.stack([rng.dirichlet(0.05 + 8.0 * liking[g]) for g in group])
    columns = {"name": [f"task number {i}" for i in range(tasks)], "group": [f"group {g}" for g in group]}
    return model, tt.TaskSet(gamma, np.full(tasks, 100), np.ones(tasks, dtype=np.bool_), columns, model.fingerprint)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--themes", type=int, default=24)
    parser.add_argument("--frames", type=int, default=120)
    options = parser.parse_args()
    model, tasks = synthetic(options.tasks, options.themes)
    browser = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        started = time.perf_counter()
        page = write_explorer(Path(folder) / "atlas.html", model=model, tasks=tasks)
        print(
            f"page of {len(tasks):,} tasks: {page.stat().st_size / 1e6:.1f} MB, written in {time.perf_counter() - started:.1f} s"
        )
        chromium = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        view = chromium.new_page(viewport={"width": 1400, "height": 860})
        started = time.perf_counter()
        view.goto(page.as_uri())
        view.wait_for_selector("#results a")
        print(f"opened in {time.perf_counter() - started:.1f} s")
        for name, address in (("all tasks", "#find"), ("a task chosen", "#task-5")):
            view.evaluate("address => { location.hash = address }", address)
            view.wait_for_timeout(500)
            times = np.array(view.evaluate(MOVE, options.frames))
            print(f"{name}: median frame {np.median(times):.1f} ms, 95th percentile {np.quantile(times, 0.95):.1f} ms")
        spent = view.evaluate("() => { const t = performance.now(); location.hash = '#task-77'; return t }")
        view.wait_for_function("document.querySelector('#panel h2').textContent.includes('77')")
        print(f"choosing a task, with its exact neighbours both ways: {view.evaluate('performance.now()') - spent:.0f} ms")
        chromium.close()


if __name__ == "__main__":
    main()
