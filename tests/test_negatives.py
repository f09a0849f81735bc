from __future__ import annotations

import numpy as np
import pytest

import tasktheme as tt
from tasktheme.negatives import are_negatives


@pytest.mark.parametrize(
    ("brightness", "negatives"), [(0, False), (20, False), (130, False), (170, False), (235, True), (255, True)]
)
def test_only_images_far_on_the_other_side_are_negatives(brightness: int, negatives: bool) -> None:
    model = tt.PTM.load("omniglot-default")  # light strokes on a dark ground
    images = np.full((3, 1, 64, 64), brightness, dtype=np.uint8)
    assert are_negatives(tt.load_tasks([images]), model) is negatives


def test_dark_images_are_negatives_to_a_model_of_light_ones() -> None:
    x = np.full((60, 1, 16, 16), 250, dtype=np.uint8)
    x[:, :, 4:8] = np.random.default_rng(0).integers(0, 256, (60, 1, 4, 16))
    settings = tt.Settings(
        themes=2, latent_dim=2, filters=(2, 2), t_shots=2, v_shots=2, ways=(2, 2), polish_tasks=4, network_start="data"
    )
    model = tt.PTM(settings=settings).fit(tt.load_dataset((x, np.arange(60) // 6)).train, tasks=20, progress=False)
    assert are_negatives(tt.load_tasks([255 - x]), model)
    assert not are_negatives(tt.load_tasks([x]), model)


def test_features_have_no_negatives() -> None:
    features = tt.load_tasks([np.zeros((3, 5))])
    assert not are_negatives(features, tt.PTM.load("omniglot-default"))
    with pytest.raises(tt.TaskThemeError, match="only images can be inverted"):
        features.inverted()
