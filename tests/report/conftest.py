"""A tiny model of tiny drawings, fitted once for all tests of the report."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tasktheme as tt

SIDE = 16
EVIL = "<script>alert(1)</script>"
_TINY = {"ways": (2, 2), "t_shots": 3, "v_shots": 3, "batch_tasks": 5, "polish_tasks": 20, "learning_rate": 3e-3}


@pytest.fixture(scope="session")
def drawings() -> tt.Dataset:
    """Bars and blocks at several places, white on black: 3 groups of 3 classes of 8 images; one class has an evil name."""
    rng = np.random.default_rng(0)
    images, labels, groups = [], [], []
    for g, group in enumerate(["rows", "columns", "blocks"]):
        for c in range(3):
            for _ in range(8):
                image = rng.integers(0, 20, (SIDE, SIDE)).astype(np.uint8)
                near, far = 4 * c + int(rng.integers(0, 3)), 4 * c + 4
                cut = (slice(near, far + 1), slice(1, 15)) if g == 0 else (slice(1, 15), slice(near, far + 1))
                image[cut if g < 2 else (slice(near, far + 4), slice(near, far + 4))] = 255
                images.append(image)
                labels.append(EVIL if (g, c) == (0, 0) else f"{group} {c}")
                groups.append(group)
    return tt.Dataset.from_arrays(np.stack(images), np.array(labels), np.array(groups), name="drawings")


@pytest.fixture(scope="session")
def model(drawings: tt.Dataset) -> tt.PTM:
    settings = tt.Settings(
        themes=3, latent_dim=8, filters=(4, 4, 4, 4), bound_weight=1.0, network_start="data", **_TINY
    )  # so that the themes of so short a training are not all one
    return tt.PTM(settings=settings, device="cpu").fit(drawings, tasks=100, progress=False)


@pytest.fixture(scope="session")
def tasks(model: tt.PTM, drawings: tt.Dataset) -> tt.TaskSet:
    """Tasks of the drawings; their mixtures are made up, as so small a model hardly tells them apart."""
    embedded = model.embed(drawings.episodes(ways=3, shots=4, n=12, seed=3))
    gamma = 1.0 + np.random.default_rng(4).gamma(1.0, 4.0, embedded.concentration.shape)
    return dataclasses.replace(embedded, concentration=gamma)


@pytest.fixture(scope="session")
def vectors() -> tt.Dataset:
    """Vectors instead of images."""
    x = np.random.default_rng(1).normal(size=(60, 4)).astype(np.float32)
    return tt.Dataset.from_arrays(x, np.repeat(np.arange(6), 10), name="vectors")


@pytest.fixture(scope="session")
def vector_model(vectors: tt.Dataset) -> tt.PTM:
    return tt.PTM(settings=tt.Settings(themes=2, **_TINY), device="cpu").fit(vectors, tasks=20, progress=False)


@pytest.fixture
def planted() -> tt.TaskSet:
    """Nine tasks of three groups, in mixed order; tasks of a group are much alike, and of rising entropy c < a < b."""
    rng = np.random.default_rng(2)
    groups = list("bacbacabc")
    strength = {"a": 20.0, "b": 5.0, "c": 100.0}
    gamma = np.stack([1.0 + strength[g] * np.eye(4)["abc".index(g)] + rng.uniform(0, 0.5, 4) for g in groups])
    return tt.TaskSet(gamma, np.full(9, 12), np.ones(9, dtype=np.bool_), {"group": groups}, "planted")
