"""Short trainings on glyphs, white on black as they are and black on white: does the embedding collapse?

    python benchmarks/collapse.py --batches 30 100 300 --seeds 0 1 [--start data random] [--drawings ordinary white]

Images of 32x32, tasks of 5 classes with 5 + 5 images; for "white" 60 classes only, in three channels. A Markdown row as each
training ends: entropy of q(u) against that of its prior, KL of q(u), and the AUC of "same script" on 100 held-out tasks.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import time

import numpy as np

import tasktheme as tt
from tasktheme.data.glyphs import load_glyphs
from tasktheme.evaluation.retrieval import retrieval

CLASSES = 60  # of the white drawings that are trained on
SETTINGS = tt.Settings(t_shots=5, v_shots=5, polish_tasks=300)


def drawn(part: tt.Dataset, kind: str) -> tt.Dataset:
    """The glyphs at half the size: as they are, or black on white in three channels."""
    ink = part.x.reshape(-1, 1, 32, 2, 32, 2).mean(axis=(3, 5)) / 255.0
    if kind == "white":
        ink = 1.0 - ink.repeat(3, axis=1)
    return dataclasses.replace(part, x=np.round(255.0 * ink).astype(np.uint8))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, nargs="+", default=[30, 100, 300])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--start", nargs="+", choices=["data", "random"], default=["random", "data"])
    parser.add_argument("--drawings", nargs="+", choices=["ordinary", "white"], default=["ordinary", "white"])
    arguments = parser.parse_args()
    glyphs = load_glyphs(progress=False)
    print("| drawings | mini-batches | start | seed | entropy of q(u) | KL of q(u) | AUC by KL | AUC mean embedding | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in arguments.drawings:
        train, test = drawn(glyphs.train, kind), drawn(glyphs.test, kind)
        if kind == "white":
            train = train.select_classes(np.arange(CLASSES))
        tasks = test.episodes(ways=5, shots=20, n=100, seed=1)
        group = np.array(tasks.groups())
        for batches in arguments.batches:
            for start in arguments.start:
                for seed in arguments.seeds:
                    began = time.perf_counter()
                    model = tt.PTM(settings=SETTINGS.changed({"network_start": start, "seed": seed}), device="cpu")
                    model.fit(train, tasks=batches * SETTINGS.batch_tasks, progress=False)
                    last, embedded = model.history[-1], model.embed(tasks)
                    means = model.mean_embedding(tasks)
                    prior = 0.5 * SETTINGS.latent_dim * (1.0 + math.log(2.0 * math.pi))
                    kl = -(last["ln_p_u"] + last["entropy_u"])
                    by_kl = retrieval(embedded.kl(embedded), group).auc
                    by_mean = retrieval(np.linalg.norm(means[:, None] - means, axis=-1), group).auc
                    print(
                        f"| {kind} | {batches} | {start} | {seed} | {last['entropy_u']:.1f} of {prior:.1f} | {kl:.1f} | "
                        f"{by_kl:.3f} | {by_mean:.3f} | {time.perf_counter() - began:.0f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
