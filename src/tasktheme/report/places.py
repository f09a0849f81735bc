"""Tasks on a plane: multidimensional scaling of their distances, for hundreds of tasks or tens of thousands."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from tasktheme.tasks.taskset import TaskSet

Floats = npt.NDArray[np.float64]

_LANDMARKS = 500  # tasks that are scaled all together; the others are placed among them
_ROUNDS = 40  # of placing a task among the landmarks
_BLOCK = 1 << 22  # distances held at once while placing


def place_tasks(tasks: TaskSet) -> tuple[Floats, float]:
    """(T, 2) places whose distances follow the square root of the symmetrised KL, and the stress.

    Of many tasks, some that are drawn at random are scaled together; each other task is then put where its distances to
    these are kept best. The stress is that of the tasks scaled together.
    """
    order = np.random.default_rng(0).permutation(len(tasks))
    chosen = np.sort(order[:_LANDMARKS])
    landmarks = tasks[chosen]
    places, stress = scale_down(_distance(landmarks, landmarks))
    place = np.empty((len(tasks), 2))
    place[chosen] = places
    others = np.sort(order[_LANDMARKS:])
    for rows in np.array_split(others, -(-len(others) * len(chosen) // _BLOCK) or 1):
        place[rows] = _place_among(_distance(tasks[rows], landmarks), places)
    return place, stress


def _distance(tasks: TaskSet, others: TaskSet) -> Floats:
    """Square root of the symmetrised KL."""
    distance: Floats = np.sqrt((tasks.kl(others) + others.kl(tasks).T) / 2.0)
    return distance


def _place_among(distance: Floats, landmarks: Floats) -> Floats:
    """(R, 2) places of tasks that keep their ``distance`` (R, L) to ``landmarks`` (L, 2) best.

    Majorisation as in :func:`scale_down`, with the landmarks held where they are; starts near the closest landmark.
    """
    target, fixed = torch.from_numpy(distance), torch.from_numpy(landmarks)
    centre = fixed.mean(dim=0)
    place = fixed[target.argmin(dim=1)] + 1e-3 * (centre - fixed[target.argmin(dim=1)])
    for _ in range(_ROUNDS):
        apart = _apart(place, fixed)
        ratio = (target / apart).where(apart > 0.0, torch.zeros(()).double())
        place = centre + (ratio.sum(dim=1, keepdim=True) * place - ratio @ fixed) / len(fixed)
    placed: Floats = place.numpy()
    return placed


def scale_down(distance: Floats, *, rounds: int = 300) -> tuple[Floats, float]:
    """(T, 2) places by multidimensional scaling, and Kruskal's stress: 0 keeps all distances.

    Starts from classical scaling, so the result is the same each time, and improves it by majorisation (SMACOF).
    """
    count = len(distance)
    if count < 3:
        return np.stack([distance[0], np.zeros(count)], axis=1), 0.0
    squared = distance**2
    centred = -0.5 * (squared - squared.mean(axis=0) - squared.mean(axis=1, keepdims=True) + squared.mean())
    values, vectors = np.linalg.eigh(centred)
    place = vectors[:, -2:][:, ::-1] * np.sqrt(np.maximum(values[-2:][::-1], 0.0))
    apart = _pairwise(place)
    for _ in range(rounds):
        ratio = np.divide(distance, apart, out=np.zeros_like(distance), where=apart > 0.0)
        place = (ratio.sum(axis=1, keepdims=True) * place - ratio @ place) / count
        apart = _pairwise(place)
    total = float((distance**2).sum())
    return place, float(np.sqrt(((distance - apart) ** 2).sum() / total)) if total > 0.0 else 0.0


def _pairwise(place: Floats) -> Floats:
    distance: Floats = _apart(*2 * (torch.from_numpy(place),)).numpy()
    return distance


def _apart(places: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    return torch.cdist(places, others, compute_mode="donot_use_mm_for_euclid_dist")  # exact where places are close
