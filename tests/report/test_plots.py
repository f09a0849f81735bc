"""What the pictures show, read back from the figures."""

from __future__ import annotations

import dataclasses
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text

import tasktheme as tt
from tasktheme.errors import DataError
from tasktheme.report import plots
from tasktheme.report.places import scale_down
from tasktheme.report.style import COLOURS


def _texts(figure: Figure) -> list[str]:
    """All texts of a picture that matplotlib draws, after a full draw (which would warn of a missing glyph)."""
    figure.draw_without_rendering()
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def _labels(axes: Axes, axis: str) -> list[str]:
    return [label.get_text() for label in getattr(axes, f"get_{axis}ticklabels")()]


def _same_texts_do_not_overlap(figure: Figure, axes: Axes) -> None:
    figure.draw_without_rendering()
    boxes = {text.get_text(): text.get_window_extent() for text in axes.texts}
    for (one, box), (other, other_box) in combinations(boxes.items(), 2):
        assert not box.overlaps(other_box), (one, other)


# distances


def test_distance_matrix_is_the_kl_sorted_by_group(planted: tt.TaskSet) -> None:
    figure = plots.distance_matrix(planted)
    axes, bar = figure.axes
    [picture] = axes.images
    order = [1, 4, 6, 0, 3, 7, 2, 5, 8]  # a, b, c
    expected = planted.kl(planted)[np.ix_(order, order)]
    shown = np.asarray(picture.get_array())
    assert isinstance(picture.norm, LogNorm)
    off = ~np.eye(9, dtype=bool) & (expected >= picture.norm.vmin)
    assert off.sum() >= 70
    np.testing.assert_allclose(np.log(shown[off]), np.log(expected[off]))
    np.testing.assert_allclose(np.diag(shown), picture.norm.vmin)
    assert picture.norm.vmax == expected.max()
    assert picture.get_cmap().name == "viridis"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("second task (column), 9 tasks", "first task (row)")
    assert bar.get_ylabel() == "KL[row ‖ column] in nats, log scale"


def test_distance_matrix_names_groups_and_draws_lines_between_them(planted: tt.TaskSet) -> None:
    figure = plots.distance_matrix(planted)
    axes = figure.axes[0]
    figure.draw_without_rendering()
    assert _labels(axes, "x") == _labels(axes, "y") == ["a", "b", "c"]
    np.testing.assert_allclose(axes.get_yticks(), [1, 4, 7])
    level = sorted(line.get_ydata()[0] for line in axes.lines if line.get_color() == "white" and line.get_ydata()[0] > 1)
    assert level == [2.5, 5.5]


def test_distance_matrix_without_groups_keeps_the_order(planted: tt.TaskSet) -> None:
    axes = plots.distance_matrix(dataclasses.replace(planted, columns={})).axes[0]
    shown = np.asarray(axes.images[0].get_array())
    expected = planted.kl(planted)
    off = expected > np.quantile(expected, 0.3)
    np.testing.assert_allclose(shown[off], expected[off])
    assert _labels(axes, "y") == [f"task {i}" for i in range(9)]


def test_distance_matrix_of_many_tasks_shows_some_of_each_group(planted: tt.TaskSet) -> None:
    axes = plots.distance_matrix(planted, most=6).axes[0]
    assert np.asarray(axes.images[0].get_array()).shape == (6, 6)
    assert "6 of 9 tasks" in axes.get_xlabel()
    assert _labels(axes, "y") == ["a", "b", "c"]


def test_distance_matrix_of_equal_tasks_does_not_show_rounding() -> None:
    gamma = np.full((4, 3), 5.0) + 1e-9 * np.arange(12).reshape(4, 3)
    tasks = tt.TaskSet(gamma, np.full(4, 9), np.ones(4, dtype=np.bool_))
    figure = plots.distance_matrix(tasks)
    assert len(np.unique(np.asarray(figure.axes[0].images[0].get_array()))) == 1
    assert any("not told apart" in text for text in _texts(figure))


def test_distance_matrix_of_different_tasks_makes_no_such_remark(planted: tt.TaskSet) -> None:
    assert not any("not told apart" in text for text in _texts(plots.distance_matrix(planted)))


def test_clustered_matrix_puts_the_most_alike_together_and_names_each_group_once(planted: tt.TaskSet) -> None:
    figure = plots.distance_matrix(planted, clustered=True)
    axes = figure.axes[0]
    figure.draw_without_rendering()
    assert sorted(_labels(axes, "y")) == ["a", "b", "c"]
    assert _labels(axes, "x") == []
    shown = np.asarray(axes.images[0].get_array())
    blocks = shown.reshape(3, 3, 3, 3)
    for i, j in combinations(range(3), 2):  # tasks that are alike stand together
        assert max(blocks[i, :, i].max(), blocks[j, :, j].max()) < min(blocks[i, :, j].min(), blocks[j, :, i].min())
    strips = [patch for patch in axes.patches if patch.get_height() == 3]
    assert len(strips) == 3
    assert len({to_rgba(strip.get_facecolor()) for strip in strips}) == 3


def test_clustered_tree_joins_at_the_mean_distance_between_clusters() -> None:
    gamma = np.array([[9.0, 1.0], [8.0, 1.2], [1.0, 9.0]])
    tasks = tt.TaskSet(gamma, np.full(3, 10), np.ones(3, dtype=np.bool_))
    axes = plots.distance_matrix(tasks, clustered=True).axes[0]
    [tree] = axes.child_axes
    heights = sorted(float(np.asarray(bracket)[1, 1]) for bracket in tree.collections[0].get_segments())
    apart = np.sqrt(tasks.symmetric_kl(tasks))
    np.testing.assert_allclose(heights, [apart[0, 1], (apart[0, 2] + apart[1, 2]) / 2.0])
    assert "task 2" in (_labels(axes, "y")[0], _labels(axes, "y")[-1])


def test_a_single_task_has_no_tree(planted: tt.TaskSet) -> None:
    assert plots.distance_matrix(planted[:1], clustered=True).axes[0].child_axes == []


# the simplex


def _corners(axes: Axes) -> npt.NDArray[np.float64]:
    return np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3.0) / 2.0]])


def test_simplex_puts_each_task_at_its_mean_among_the_three_themes(planted: tt.TaskSet) -> None:
    [axes] = plots.simplex(planted, themes=[3, 0, 2]).axes
    dots = [line for line in axes.lines if line.get_marker() in ("o", "s") and len(line.get_xdata()) == 1]
    found = sorted((float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in dots)
    three = planted.concentration[:, [3, 0, 2]]
    expected = sorted(map(tuple, (three / three.sum(axis=1, keepdims=True) @ _corners(axes)).tolist()))
    np.testing.assert_allclose(found, expected)
    texts = [text.get_text() for text in axes.texts]
    assert [text for text in texts if text.startswith("theme")] == ["theme 3", "theme 0", "theme 2"]


def test_simplex_regions_hold_the_probability_they_say() -> None:
    from matplotlib.path import Path as Outline

    gamma = np.array([[4.0, 6.0, 9.0], [20.0, 3.0, 8.0]])
    axes = plots.simplex(tt.TaskSet(gamma, np.full(2, 20), np.ones(2, dtype=np.bool_))).axes[0]
    lines = [contour for contour in axes.collections if not contour.get_fill()]
    order = np.argsort(-(gamma / gamma.sum(axis=1, keepdims=True)).mean(axis=0))
    for contour, own in zip(lines, gamma, strict=True):
        draws = np.random.default_rng(0).dirichlet(own[order], size=20_000) @ _corners(axes)
        inside = [Outline(path.vertices, path.codes).contains_points(draws).mean() for path in contour.get_paths()]
        np.testing.assert_allclose(inside, [0.9, 0.5], atol=0.02)


def test_simplex_of_one_task_shows_its_density() -> None:
    gamma = np.array([[5.0, 3.0, 2.0]])
    figure = plots.simplex(tt.TaskSet(gamma, np.array([9]), np.ones(1, dtype=np.bool_)), themes=[0, 1, 2])
    axes, bar = figure.axes
    [mesh] = [artist for artist in axes.collections if artist.get_array() is not None]
    values, places = np.asarray(mesh.get_array()), mesh._triangulation
    top = int(values.argmax())
    mode = np.array([4.0, 2.0, 1.0]) / 7.0 @ _corners(axes)  # (gamma - 1) / sum
    np.testing.assert_allclose([places.x[top], places.y[top]], mode, atol=0.02)
    assert bar.get_xlabel() == "density of the posterior, relative to its highest"


def test_simplex_chooses_the_strongest_themes_and_says_what_they_hold(planted: tt.TaskSet) -> None:
    figure = plots.simplex(planted)
    strongest = np.argsort(-planted.mean_mixture().mean(axis=0))[:3]
    texts = _texts(figure)
    assert {text for text in texts if text.startswith("theme")} == {f"theme {k}" for k in strongest}
    held = 100 * planted.mean_mixture()[:, strongest].sum(axis=1).mean()
    assert any(f"hold {held:.0f} % of the mixture" in text for text in texts)
    assert {"a", "b", "c"} <= set(texts)


def test_simplex_of_several_aspects_is_of_the_one_where_three_themes_hold_the_most() -> None:
    gamma = np.array([[3.0, 3.0, 3.0, 3.0, 1.0, 2.0, 4.0, 6.0], [3.0, 3.0, 3.0, 3.0, 1.0, 3.0, 2.0, 5.0]])
    tasks = tt.TaskSet(gamma, np.full(2, 9), np.ones(2, dtype=np.bool_), aspects=2)
    texts = _texts(plots.simplex(tasks))
    assert {text for text in texts if text.startswith("theme")} == {"theme 7", "theme 6", "theme 5"}
    held = 100.0 * np.mean([12.0 / 13.0, 10.0 / 11.0])
    assert any(f"hold {held:.0f} % of aspect 1 on average" in text for text in texts)
    plots.simplex(tasks, themes=[0, 1, 3])
    one = dataclasses.replace(tasks, aspects=1)
    assert not any("aspect" in text for text in _texts(plots.simplex(one)))
    three = tt.TaskSet(gamma[:, :6], np.full(2, 9), np.ones(2, dtype=np.bool_), aspects=2)
    texts = _texts(plots.simplex(three))
    assert not any("which hold" in text for text in texts)
    assert any(text.endswith("the three themes of aspect 0") for text in texts)
    with pytest.raises(DataError, match=r"three themes of one aspect, 4 in a row, got \[0, 1, 4\]"):
        plots.simplex(tasks, themes=[0, 1, 4])
    with pytest.raises(DataError, match="needs three themes of an aspect, but these tasks have 2"):
        plots.simplex(tt.TaskSet(gamma, np.full(2, 9), np.ones(2, dtype=np.bool_), aspects=4))


@pytest.mark.parametrize("themes", [[0, 1], [0, 1, 1], [0, 1, 4], [-1, 0, 1]])
def test_simplex_wants_three_different_themes(planted: tt.TaskSet, themes: list[int]) -> None:
    with pytest.raises(DataError, match="three different themes from 0 to 3"):
        plots.simplex(planted, themes=themes)
    with pytest.raises(DataError, match="needs three themes"):
        plots.simplex(tt.TaskSet(np.ones((2, 2)), np.ones(2, dtype=np.int64), np.ones(2, dtype=np.bool_)))


# intervals


def test_intervals_are_those_of_the_tasks(planted: tt.TaskSet) -> None:
    figure = plots.mixture_intervals(planted, level=0.8, most=3)
    panels = [axes for axes in figure.axes if axes.collections]
    chosen = planted[[1, 0, 2]]  # the first of a, b and c
    order = np.argsort(-chosen.mean_mixture().mean(axis=0))
    low, high = chosen.interval(0.8)
    assert len(panels) == 3
    for i, axes in enumerate(panels):
        segments = np.stack([np.asarray(segment) for segment in axes.collections[0].get_segments()])
        np.testing.assert_allclose(segments[:, 0, 1], low[i, order])
        np.testing.assert_allclose(segments[:, 1, 1], high[i, order])
        np.testing.assert_allclose([bar.get_height() for bar in axes.patches], chosen.mean_mixture()[i, order])
    texts = _texts(figure)
    assert "share, with 80 % credible interval" in texts
    two = dataclasses.replace(planted, aspects=2)
    assert "share of its aspect, with 80 % credible interval" in _texts(plots.mixture_intervals(two, level=0.8, most=3))
    assert any(text.startswith("a · task 1") for text in texts)


# the map


def test_map_keeps_distances_that_a_plane_can_hold() -> None:
    place = np.random.default_rng(0).normal(size=(30, 2))
    distance = np.linalg.norm(place[:, None] - place, axis=-1)
    found, stress = scale_down(distance)
    np.testing.assert_allclose(np.linalg.norm(found[:, None] - found, axis=-1), distance, atol=1e-8)
    assert stress < 1e-8


@pytest.mark.parametrize("count", [1, 2, 3])
def test_map_of_very_few_tasks(count: int) -> None:
    distance = 2.0 * (1.0 - np.eye(count))  # an equilateral triangle, or less
    found, stress = scale_down(distance)
    np.testing.assert_allclose(np.linalg.norm(found[:, None] - found, axis=-1), distance, atol=1e-8)
    assert stress < 1e-8


def test_map_improves_on_the_classical_solution() -> None:
    place = np.random.default_rng(1).normal(size=(20, 6))
    distance = np.linalg.norm(place[:, None] - place, axis=-1)
    _, start = scale_down(distance, rounds=0)
    _, end = scale_down(distance)
    assert end < 0.9 * start


def test_map_colours_groups_and_names_each_once(planted: tt.TaskSet) -> None:
    figure = plots.task_map(planted)
    [axes] = figure.axes
    assert [len(dots.get_offsets()) for dots in axes.collections] == [3, 3, 3]
    assert [to_rgba(dots.get_facecolor()[0], 1.0) for dots in axes.collections] == [to_rgba(colour) for colour in COLOURS[:3]]
    assert [text.get_text() for text in axes.texts] == ["a", "b", "c"]
    assert axes.get_xlabel() == "first direction of the map, in √nats"
    assert axes.get_title(loc="left").startswith("9 tasks, stress 0.")
    assert axes.get_aspect() == 1.0
    _same_texts_do_not_overlap(figure, axes)


def test_map_puts_like_tasks_together_and_a_name_nearest_its_own_dots(planted: tt.TaskSet) -> None:
    figure = plots.task_map(planted)
    [axes] = figure.axes
    figure.draw_without_rendering()
    places = [np.asarray(dots.get_offsets()) for dots in axes.collections]
    centres = np.stack([place.mean(axis=0) for place in places])
    within = max(np.linalg.norm(place - centre, axis=1).max() for place, centre in zip(places, centres, strict=True))
    between = min(float(np.linalg.norm(centres[i] - centres[j])) for i, j in combinations(range(3), 2))
    assert within < 0.5 * between
    for i, text in enumerate(axes.texts):
        away = [np.linalg.norm(place - text.get_position(), axis=1).min() for place in places]
        assert int(np.argmin(away)) == i


def test_map_dots_grow_with_entropy(planted: tt.TaskSet) -> None:
    [axes] = plots.task_map(planted).axes
    areas = np.concatenate([dots.get_sizes() for dots in axes.collections])
    entropy = planted.entropy()[[1, 4, 6, 0, 3, 7, 2, 5, 8]]
    assert np.argsort(areas).tolist() == np.argsort(entropy).tolist()
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend[0] == "entropy in nats"
    assert legend[1] == f"{entropy.min():.1f}".replace("-", "\N{MINUS SIGN}")


def test_map_without_groups_names_the_tasks(planted: tt.TaskSet) -> None:
    named = dataclasses.replace(planted, columns={"name": [f"customer {i}" for i in range(9)]})
    figure = plots.task_map(named)
    [axes] = figure.axes
    assert sorted(text.get_text() for text in axes.texts) == [f"customer {i}" for i in range(9)]
    _same_texts_do_not_overlap(figure, axes)


# themes


def _expected_rows(model: tt.PTM, data: tt.Dataset, columns: int) -> list[list[int]]:
    """The slow, obvious way to the typical images."""
    score = model.theme_log_likelihood(data.x).astype(np.float64)
    share = model.themes.share.double().numpy()
    posterior = (np.exp(score - score.max(axis=1, keepdims=True)) * share).reshape(len(score), model.themes.aspects, -1)
    likeliest = (posterior >= posterior.max(axis=2, keepdims=True)).reshape(score.shape)  # of its aspect
    result = []
    for theme in range(len(share)):
        row: list[int] = []
        for i in sorted(range(len(data)), key=lambda i: -score[i, theme]):
            label = [c for c in range(len(data.counts)) if data.starts[c] <= i][-1]
            alike = sum(data.starts[label] <= j < data.starts[label] + data.counts[label] for j in row)
            if likeliest[i, theme] and alike < 2 and len(row) < columns:
                row.append(i)
        result.append(row)
    return result


@pytest.mark.parametrize("aspects", [1, 4])
def test_gallery_shows_means_and_typical_images_by_share(aspects: int, model: tt.PTM, drawings: tt.Dataset) -> None:
    model = model.refit(drawings, themes=3, aspects=aspects, polish_tasks=6, progress=False)
    figure = plots.theme_gallery(model, drawings, columns=5)
    [axes] = figure.axes
    share = model.themes.share.numpy()
    order = np.argsort(-share, kind="stable")
    rows = _expected_rows(model, drawings, 5)
    decoded = model.decode_themes()
    assert decoded is not None
    tiles = [np.asarray(image.get_array()) for image in axes.images]
    expected: list[npt.NDArray[np.float64]] = []
    for theme in order:
        expected.append((decoded[theme, 0] - decoded.min()) / (decoded.max() - decoded.min()))
        expected += [drawings.x[i, 0] / 255.0 for i in rows[theme]]
    assert sum(map(len, rows)) > 3
    assert len(tiles) == len(expected)
    for tile, wanted in zip(tiles, expected, strict=True):
        np.testing.assert_allclose(tile, wanted, atol=1e-6)
    labels = [text.get_text() for text in axes.texts if text.get_text().startswith("theme ")]
    place = {k: f"\nof aspect {k // 3}" if aspects > 1 else "" for k in order}
    assert labels == [f"theme {k} · {100 * share[k]:.0f} %{place[k]}" for k in order]


def test_gallery_rows_are_apart_and_inside(model: tt.PTM, drawings: tt.Dataset) -> None:
    [axes] = plots.theme_gallery(model, drawings, columns=4).axes
    corners = sorted({(round(image.get_extent()[0], 3), round(image.get_extent()[3], 3)) for image in axes.images})
    assert len(corners) == len(axes.images)
    right = max(image.get_extent()[1] for image in axes.images)
    assert right <= axes.get_xlim()[1]
    tops = sorted({top for _, top in corners})
    assert len(tops) == 3
    assert min(b - a for a, b in pairwise(tops)) > 1.0


def test_gallery_shows_drawings_as_ink_on_paper(model: tt.PTM, drawings: tt.Dataset) -> None:
    assert {image.get_cmap().name for image in plots.theme_gallery(model, drawings).axes[0].images} == {"gray_r"}
    inverted = dataclasses.replace(drawings, x=255 - np.asarray(drawings.x, dtype=np.uint8))
    assert {image.get_cmap().name for image in plots.theme_gallery(model, inverted).axes[0].images} == {"gray"}


def test_gallery_says_when_a_theme_is_nobodys(model: tt.PTM, drawings: tt.Dataset) -> None:
    one = dataclasses.replace(drawings, x=drawings.x[:1], counts=np.array([1]), class_names=("only",), class_group=np.array([0]))
    axes = plots.theme_gallery(model, one).axes[0]
    assert len(axes.images) == 3 + 1
    assert sum("no image" in text.get_text() for text in axes.texts) == 2


def test_gallery_of_colour_images_leaves_colours_alone() -> None:
    x = np.random.default_rng(0).integers(0, 256, (24, 3, 8, 8)).astype(np.uint8)
    data = tt.Dataset.from_arrays(x, np.repeat(np.arange(4), 6), name="colours")
    small = tt.Settings(themes=2, latent_dim=2, filters=(2,), ways=(2, 2), t_shots=2, v_shots=2, batch_tasks=2, polish_tasks=4)
    model = tt.PTM(settings=small, device="cpu").fit(data, tasks=4, progress=False)
    tiles = [np.asarray(image.get_array()) for image in plots.theme_gallery(model, data, columns=3).axes[0].images]
    assert {tile.shape for tile in tiles} == {(8, 8, 3)}
    decoded = model.decode_themes()
    assert decoded is not None
    theme = int(model.themes.share.argmax())
    np.testing.assert_allclose(tiles[0], decoded[theme].transpose(1, 2, 0), atol=1e-6)


def test_gallery_refuses_vectors(vector_model: tt.PTM, vectors: tt.Dataset, model: tt.PTM, drawings: tt.Dataset) -> None:
    with pytest.raises(DataError, match=r"shows images, but 'vectors' holds vectors of shape \(4,\)"):
        plots.theme_gallery(vector_model, vectors)
    with pytest.raises(DataError, match="at least 1, got 0"):
        plots.theme_gallery(model, drawings, columns=0)


# mixtures


def test_mixtures_stack_to_one_and_say_group_and_entropy(planted: tt.TaskSet) -> None:
    figure = plots.mixtures(planted)
    [axes] = figure.axes
    order = [1, 4, 6, 0, 3, 7, 2, 5, 8]
    mixture = planted.mean_mixture()[order]
    [legend] = figure.legends
    themes = [int(text.get_text()) for text in legend.get_texts()]
    assert sorted(themes) == [0, 1, 2, 3]
    assert legend.get_title().get_text() == "theme"
    widths = np.stack([[bar.get_width() for bar in bars] for bars in axes.containers])  # type: ignore[attr-defined]
    np.testing.assert_allclose(widths.T, mixture[:, themes])
    ends = [bar.get_x() + bar.get_width() for bar in axes.containers[-1]]  # type: ignore[attr-defined]
    np.testing.assert_allclose(ends, 1.0)
    assert _labels(axes, "y") == ["a", "b", "c"]
    texts = _texts(figure)
    for value in planted.entropy():
        assert f"{value:.1f}".replace("-", "\N{MINUS SIGN}") in texts
    assert axes.get_xlabel() == "expected share of each theme"


def test_mixtures_shows_at_most_so_many_of_every_group(planted: tt.TaskSet) -> None:
    [axes] = plots.mixtures(planted, most=4).axes
    assert len(axes.containers[0]) == 4
    assert _labels(axes, "y") == ["a", "b", "c"]


def test_mixtures_writes_the_number_of_a_theme_into_long_pieces(planted: tt.TaskSet) -> None:
    [axes] = plots.mixtures(planted[[2]]).axes
    [text] = [
        text for text in axes.texts if text.get_text().isdecimal() and planted.mean_mixture()[2, int(text.get_text())] > 0.5
    ]
    assert text.get_text() == "2"


def test_mixtures_gathers_the_weakest_of_many_themes() -> None:
    gamma = np.ones((20, 50))
    gamma[:, :25] = 5.0
    gamma[0, 40] = 30.0  # strong in one task only, weak on average
    tasks = tt.TaskSet(gamma, np.full(20, 9), np.ones(20, dtype=np.bool_))
    figure = plots.mixtures(tasks)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(names) == 2 * len(COLOURS) + 1
    assert names[-2:] == ["40", "others"]
    ends = [bar.get_x() + bar.get_width() for bar in figure.axes[0].containers[-1]]  # type: ignore[attr-defined]
    np.testing.assert_allclose(ends, 1.0)


# entropy


def test_entropy_strips_are_ordered_by_median(planted: tt.TaskSet) -> None:
    figure = plots.entropy_histogram(planted)
    top, bottom = figure.axes
    assert sum(bar.get_height() for bar in top.patches) == 9  # type: ignore[attr-defined]
    assert _labels(bottom, "y") == ["c (3)", "a (3)", "b (3)"]  # from below: the most uncertain on top
    for dots, group in zip(bottom.collections, "cab", strict=True):
        own = [value for value, name in zip(planted.entropy(), planted.columns["group"], strict=True) if name == group]
        np.testing.assert_allclose(np.asarray(dots.get_offsets())[:, 0], sorted(own))
    medians = [line.get_xdata()[0] for line in bottom.lines]
    assert medians == sorted(medians)
    assert bottom.get_xlabel() == "entropy in nats: less certain to the right"
    assert top.get_title(loc="left") == "9 tasks, 12 data points each"


def test_entropy_of_very_many_groups_says_that_some_are_not_drawn() -> None:
    gamma = 1.0 + np.random.default_rng(0).gamma(2.0, 3.0, (300, 4))
    tasks = tt.TaskSet(gamma, np.full(300, 9), np.ones(300, dtype=np.bool_), {"name": [f"n{i}" for i in range(300)]})
    _, bottom = plots.entropy_histogram(tasks, group="name").axes
    assert len(bottom.collections) == 60
    [line] = bottom.texts
    assert line.get_text() == "240 groups between these not drawn"
    assert line.get_position()[1] not in bottom.get_yticks()  # a row of its own
    assert not plots.entropy_histogram(tasks[:60], group="name").axes[1].texts


def test_entropy_without_groups_is_a_histogram_that_warns_of_sizes(planted: tt.TaskSet) -> None:
    [axes] = plots.entropy_histogram(dataclasses.replace(planted, sizes=np.arange(9) + 2, columns={})).axes
    assert sum(bar.get_height() for bar in axes.patches) == 9  # type: ignore[attr-defined]
    assert axes.get_ylabel() == "tasks"
    assert axes.get_title(loc="left") == "9 tasks, 2 to 10 data points: larger tasks are less uncertain"


# training


def test_training_curves_draw_every_term(model: tt.PTM) -> None:
    figure = plots.training_curves(model.history)
    tasks = [row["tasks"] for row in model.history]
    drawn = {}
    for axes in figure.axes:
        if axes.lines:
            [line] = axes.lines
            assert line.get_xdata().tolist() == tasks  # type: ignore[union-attr]
            drawn[axes.get_title(loc="left")] = line.get_ydata()
    terms = set(model.history[0]) - {"tasks", "gradient_norm"}
    assert len(drawn) == len(terms) == 10
    for title, name in {"loss": "loss", "entropy of q(π)": "entropy_pi", "E[ln p(u | z)]": "ln_p_u"}.items():
        np.testing.assert_array_equal(drawn[title], [row[name] for row in model.history])
    assert "training tasks seen" in _texts(figure)
    first = figure.axes[0]
    assert all(first.get_shared_x_axes().joined(first, other) for other in figure.axes[1:])


def test_long_trainings_are_counted_in_thousands() -> None:
    figure = plots.training_curves([{"tasks": 5000.0, "loss": 2.0}, {"tasks": 40_000.0, "loss": 1.0}])
    assert figure.axes[0].lines[0].get_xdata().tolist() == [5.0, 40.0]  # type: ignore[union-attr]
    assert "training tasks seen (thousands)" in _texts(figure)


def test_training_curves_show_unknown_terms_and_gaps() -> None:
    figure = plots.training_curves([{"tasks": 5.0, "loss": 1.0}, {"tasks": 10.0, "loss": 0.5, "novel": 2.0}])
    assert [axes.get_title(loc="left") for axes in figure.axes[:2]] == ["loss", "novel"]
    np.testing.assert_array_equal(figure.axes[1].lines[0].get_ydata(), [np.nan, 2.0])
    assert not figure.axes[2].axison


@pytest.mark.parametrize(("unused", "top"), [([0.0, 0.0], 1.0), ([0.0, 4.0], 4.2)])
def test_training_curves_count_unused_themes_in_whole_numbers_from_zero(unused: list[float], top: float) -> None:
    figure = plots.training_curves([{"tasks": 5.0 * place, "unused_themes": count} for place, count in enumerate(unused)])
    assert figure.axes[0].get_ylim() == pytest.approx((0.0, top))
    assert all(float(tick).is_integer() for tick in figure.axes[0].get_yticks())


def test_training_curves_need_a_history() -> None:
    with pytest.raises(DataError, match="history is empty"):
        plots.training_curves([])


# all of them


def test_every_picture_is_drawn_whatever_the_names(planted: tt.TaskSet) -> None:
    odd = planted.with_columns(group=["$x_1$", "猫", "a\nb"] * 3)
    for draw in (plots.distance_matrix, plots.task_map, plots.mixtures, plots.entropy_histogram):
        texts = " ".join(_texts(draw(odd)))
        assert r"\$x_1\$" in texts
        assert "a b" in texts
        assert "group 2" in texts
