"""Small data and settings that train in a blink."""

from __future__ import annotations

import numpy as np

import tasktheme as tt

SMALL = tt.Settings(
    themes=3,
    latent_dim=5,
    filters=(4, 8),
    hidden=(8,),
    ways=(3, 3),
    t_shots=3,
    v_shots=3,
    batch_tasks=4,
    polish_tasks=8,
    polish_sweeps=3,
)
TOLD_APART = SMALL.changed({"network_start": "data"})  # so short a training leaves SMALL's tasks all alike


def small_images(seed: int = 0) -> tt.Dataset:
    """Two groups of four classes of ten 16x16 images: stripes across or down, at a place of the class's own."""
    generator = np.random.default_rng(seed)
    images, labels, groups = [], [], []
    for group in range(2):
        for label in range(4):
            for _ in range(10):
                image = generator.integers(0, 60, size=(16, 16))
                place = 3 * label + generator.integers(0, 2)
                image[:, place : place + 3] = 255
                images.append(image if group else image.T)
                labels.append(f"class {label}")
                groups.append(f"group {group}")
    return tt.Dataset.from_arrays(np.array(images, dtype=np.uint8), labels, groups, name="small")


def small_vectors(seed: int = 0) -> tt.Dataset:
    """Two groups of four classes of twelve vectors of six features, far from the origin and of unlike scales."""
    generator = np.random.default_rng(seed)
    centres = 3.0 * generator.normal(size=(8, 6))
    x = centres.repeat(12, axis=0) + generator.normal(size=(96, 6))
    return tt.Dataset.from_arrays(x * [1, 2, 3, 1, 2, 3] + 100.0, np.arange(96) // 12, np.arange(96) // 48, name="small")
