"""What the choice of K picks on the glyphs, beside the AUC by KL that each K reaches.

    python benchmarks/number_of_themes.py --tasks 6000 --seeds 0 [--set covariance=diagonal ...]

Trains once with the demo's settings; then prints what is chosen, and in what processor time, where k-means starts as often as
for themes that are kept, and as often as it does in the choice; for each K the held-out bound of the latter, and the AUC of
"same script" on the training scripts that the choice holds out and on the evaluation scripts, with themes fitted to the others.
"""

from __future__ import annotations

import argparse
import time
from unittest import mock

import numpy as np
import torch

import tasktheme as tt
from tasktheme.data.glyphs import load_glyphs
from tasktheme.demo import SETTINGS
from tasktheme.evaluation.retrieval import retrieval
from tasktheme.model.e_step import e_step
from tasktheme.model.initialise import STARTS
from tasktheme.model.themes import Themes
from tasktheme.options import parse_changes
from tasktheme.training import choice
from tasktheme.training.embedding import TaskPoints, embed_tasks
from tasktheme.training.polish import log_likelihoods, start_themes


def auc(settings: tt.Settings, themes: Themes, data: TaskPoints, halves: int, group: np.ndarray) -> float:
    """Of tasks whose data points are in as many batches as there are ``halves``, one after the other."""
    log_likelihood = log_likelihoods(themes, data)
    gamma = []
    for parts in zip(*(data.tasks[half::halves] for half in range(halves)), strict=True):
        likelihood = torch.cat([part.gather(log_likelihood) for part in parts], dim=1)
        mask = torch.cat([part.mask for part in parts], dim=1)
        gamma.append(e_step(likelihood, themes.alpha, mask, iterations=settings.embed_iterations).gamma)
    found = torch.cat(gamma).double().numpy()
    embedded = tt.TaskSet(found, np.ones(len(found), dtype=np.int64), np.ones(len(found), dtype=np.bool_))
    return retrieval(embedded.kl(embedded), group).auc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=6000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    data = load_glyphs(progress=False)
    for seed in arguments.seeds:
        settings = SETTINGS.changed({**parse_changes(arguments.changes), "seed": seed})
        model = tt.PTM(settings=settings, device="cpu").fit(data.train, tasks=arguments.tasks, progress=False)
        encoder = model._require_fitted().networks.encoder
        halves = (settings.t_shots, settings.v_shots)
        fitted, held_out = choice.embedded_parts(settings, encoder, data.train, data.train.tensor, halves)
        episodes = data.test.episodes(ways=5, shots=20, n=200, seed=1)
        outer = embed_tasks(encoder, data.test.tensor, list(episodes.batches(50)))
        for starts in (STARTS, choice._STARTS):
            with mock.patch.object(choice, "_STARTS", starts):
                began = time.process_time()
                found = choice.choose_themes(settings, fitted, held_out)
            print(f"seed {seed}, {starts} starts of k-means, {time.process_time() - began:.1f} s: {found}", flush=True)
        print("| K | held-out bound | below the best | error | AUC, held-out training scripts | AUC, evaluation scripts |")
        print("|---|---|---|---|---|---|")
        curve = {int(row["themes"]): row for row in found.curve}
        for themes in choice.LADDER:
            mixture = start_themes(settings.changed({"themes": themes}), fitted, sweeps=20)
            row = curve.get(themes)
            scores = "not tried | |" if row is None else f"{row['bound']:.2f} | {row['below']:.2f} | {row['error']:.2f}"
            aucs = [
                auc(settings, mixture, held_out.halves, 2, held_out.group.numpy()),
                auc(settings, mixture, outer, 1, np.array(episodes.groups())),
            ]
            print(f"| {themes} | {scores} | {aucs[0]:.3f} | {aucs[1]:.3f} |", flush=True)


if __name__ == "__main__":
    main()
