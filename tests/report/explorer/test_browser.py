"""The page as a reader meets it, in a real Chromium: what it shows is what the library says, by mouse and by keys."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

import tasktheme as tt
from tasktheme.report.explorer import write_explorer

EVIL = '</script><img src=x onerror="window.hurt=1"><svg onload=window.hurt=1>'
LEADERS = np.repeat(np.arange(100, 115), np.arange(1, 16))  # of the tasks of ``wide``


@pytest.fixture(scope="module")
def shown(model: tt.PTM, drawings: tt.Dataset, tasks: tt.TaskSet) -> tt.TaskSet:
    """Tasks with made-up mixtures, so that no two distances are alike."""
    return tasks.with_columns(name=[f"nr-{i}" for i in range(len(tasks))])


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory, model: tt.PTM, drawings: tt.Dataset, shown: tt.TaskSet) -> Path:
    episodes = drawings.episodes(ways=3, shots=4, n=12, seed=3)
    return write_explorer(
        tmp_path_factory.mktemp("atlas") / "atlas.html", model=model, tasks=shown, origin=episodes, title="Tiny"
    )


@pytest.fixture(scope="module")
def fine(model: tt.PTM, drawings: tt.Dataset) -> tt.PTM:
    """Four aspects of two themes."""
    return model.refit(drawings, themes=2, aspects=4, polish_tasks=6, progress=False)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 130 themes in 2 aspects; of its 120 tasks 1, 2, ..., 15 have theme 100, 101, ..., 114 as the strongest."""
    gamma = 1.0 + np.random.default_rng(5).uniform(0.0, 0.2, (120, 130))
    gamma[np.arange(120), LEADERS] += 400.0
    gamma[:, 3] += 100.0  # much of all tasks, and the strongest theme of none
    ones = np.ones(120, dtype=np.int64)
    tasks = tt.TaskSet(gamma, ones, ones == 1, {"group": ["one", "two"] * 60}, "made up", aspects=2)
    share = torch.from_numpy(tasks.mean_mixture()[0])
    like = SimpleNamespace(fingerprint="made up", themes=SimpleNamespace(share=share), decode_themes=lambda: None)
    return write_explorer(tmp_path_factory.mktemp("wide") / "wide.html", model=like, tasks=tasks)  # type: ignore[arg-type]


def numbers(text: str) -> list[float]:
    return [float(word.replace(",", "")) for word in re.findall(r"-?\d[\d,]*\.?\d*", text.replace("\N{MINUS SIGN}", "-"))]


def colours(page: Any, where: str) -> list[str]:
    """Of the swatches in some part of the page."""
    found = page.locator(f"{where} .swatch").evaluate_all("all => all.map((one) => one.style.background)")
    return [to_hex(np.array(numbers(colour)) / 255) for colour in found]


def ring(page: Any) -> tuple[float, float]:
    """Where the chosen task lies in the window."""
    page.wait_for_selector("#marks .ring.first")
    page.wait_for_timeout(350)  # the map may be moving
    box = page.locator("#marks .ring.first").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def hash_of(page: Any) -> str:
    return str(page.evaluate("location.hash"))


def arrive(page: Any, place: str) -> None:
    """Wait until the page is there; a condition that the browser waits for would be evaluated in the page, which forbids that."""
    for _ in range(200):
        if hash_of(page) == place:
            return
        page.wait_for_timeout(50)
    assert hash_of(page) == place


def test_it_opens_with_every_task_on_list_and_map(visit, atlas: Path, shown: tt.TaskSet) -> None:
    page = visit(atlas)
    assert page.locator("h1").inner_text() == "Tiny"
    assert page.locator("#results li").count() == len(shown)
    assert page.locator("#status").inner_text().startswith("12 tasks")
    assert page.locator("#legend button").all_inner_texts() == ["blocks", "columns", "rows"]
    colours = page.evaluate(
        "() => { const c = document.getElementById('dots');"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "return new Set(new Uint32Array(d.buffer)).size }"
    )
    assert colours > 6  # paper, three groups, and their edges


def test_a_dot_is_found_by_the_pointer_and_chosen_by_a_click(visit, atlas: Path) -> None:
    page = visit(atlas, "#task-5")
    x, y = ring(page)
    page.keyboard.press("Escape")
    page.wait_for_selector("#results")
    page.mouse.move(x, y)
    assert page.locator("#tip strong").inner_text() == "nr-5"
    page.mouse.click(x, y)
    arrive(page, "#task-5")
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(300)
    assert ring(page) == pytest.approx((x, y), abs=2.0)  # zooming keeps the place under the pointer
    page.go_back()
    arrive(page, "#find")


def test_a_task_has_its_images_mixture_entropy_and_both_kinds_of_neighbours(visit, atlas: Path, shown: tt.TaskSet) -> None:
    page = visit(atlas, "#task-7")
    panel = page.locator("#panel")
    assert panel.locator("h2").inner_text() == "nr-7"
    assert panel.locator(".tiles").first.locator("canvas").count() == 10
    assert numbers(panel.locator("strong", has_text="nats").inner_text())[0] == pytest.approx(shown.entropy()[7], abs=0.06)
    below = np.mean(np.delete(shown.entropy(), 7) < shown.entropy()[7])
    assert f"less certain than {100 * below:.0f} %" in panel.inner_text()
    low, high = shown.interval(0.9)
    for item in panel.locator(".mixture li").all():
        theme = int(item.locator("a").inner_text().removeprefix("theme "))
        values = 100 * np.array([shown.mean_mixture()[7, theme], low[7, theme], high[7, theme]])
        np.testing.assert_allclose(numbers(item.locator(".value").inner_text().replace("\N{EN DASH}", " ")), values, atol=0.51)
    kl = shown.kl(shown)
    for place, distances in enumerate((kl[7], kl[:, 7])):
        items = panel.locator(".list").nth(place).locator("li").all()
        expected = [j for j in np.argsort(distances, kind="stable") if j != 7][:8]
        assert [item.locator("a").first.get_attribute("href") for item in items] == [f"#task-{j}" for j in expected]
        found = [numbers(item.locator(".number").inner_text())[0] for item in items]
        np.testing.assert_allclose(found, distances[expected], rtol=6e-3)
    panel.locator(".list").nth(1).locator("a").first.click()
    arrive(page, f"#task-{expected[0]}")
    assert panel.locator("h2").inner_text() == f"nr-{expected[0]}"


def test_images_are_drawn(visit, atlas: Path) -> None:
    page = visit(atlas, "#task-0")
    page.wait_for_timeout(200)
    spread = page.evaluate(
        "() => [...document.querySelectorAll('#panel .tiles canvas')].map(c => {"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; const own = d.filter((_, i) => i % 4 === 0);"
        "return Math.max(...own) - Math.min(...own) })"
    )
    assert len(spread) == 10
    assert min(spread) > 150


def test_two_tasks_are_compared_in_both_directions_and_in_words(visit, atlas: Path, shown: tt.TaskSet) -> None:
    page = visit(atlas, "#task-2")
    page.get_by_text("Compare with…").click()
    page.locator("#panel .list a").first.click()
    there = shown.kl(shown)
    j = int(np.argsort(there[2])[1])
    arrive(page, f"#compare-2-{j}")
    ways = page.locator(".way").all()
    assert [numbers(way.locator("strong").inner_text())[0] for way in ways] == [
        pytest.approx(there[2, j], rel=6e-3),
        pytest.approx(there[j, 2], rel=6e-3),
    ]
    assert "B is the one that describes A best" in ways[0].inner_text()
    rank = 1 + int((np.delete(there[j], [j, 2]) < there[j, 2]).sum())
    said = "the one that describes B best" if rank == 1 else f"the {rank}"
    assert said in ways[1].inner_text()
    assert page.locator("#panel .pair section").count() == 2
    page.keyboard.press("x")
    arrive(page, f"#compare-{j}-2")
    page.goto(f"{atlas.as_uri()}#compare-4-4")
    assert "distance 0 to itself" in page.locator("#panel").inner_text()


def test_search_filters_list_and_map_and_can_be_cleared(visit, atlas: Path, shown: tt.TaskSet) -> None:
    page = visit(atlas)
    rows = [i for i, group in enumerate(shown.columns["group"]) if group == "rows"]
    page.locator("#search").fill("ROWS nr")
    assert page.locator("#results li").count() == len(rows)
    assert page.locator("#status").inner_text() == f"{len(rows)} of 12 tasks found"
    page.locator("#search").fill("nothing like it")
    assert "No task is found" in page.locator("#panel").inner_text()
    page.get_by_text("Clear search and filters").click()
    assert page.locator("#results li").count() == 12
    page.locator("#legend button", has_text="rows").click()
    assert page.locator("#results li").count() == len(rows)
    page.keyboard.press("Escape")
    assert page.locator("#results li").count() == 12
    page.locator(".filters select").last.select_option("uncertain")
    first = page.locator("#results a").first.get_attribute("href")
    assert first == f"#task-{int(shown.entropy().argmax())}"


def test_the_keyboard_is_enough(visit, atlas: Path) -> None:
    page = visit(atlas)
    page.keyboard.press("/")
    page.keyboard.type("nr-1")
    assert page.locator("#results li").count() == 3  # 1, 10 and 11
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    arrive(page, "#task-10")
    page.keyboard.press("n")
    arrive(page, "#task-11")
    page.keyboard.press("p")
    arrive(page, "#task-10")
    page.keyboard.press("c")
    arrive(page, "#compare-10")
    page.keyboard.press("n")
    arrive(page, "#compare-10-11")
    page.keyboard.press("Escape")  # the search first, then the comparison
    page.keyboard.press("Escape")
    arrive(page, "#task-10")
    page.evaluate(
        "() => { for (const key of 'nnn') document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true })) }"
    )
    arrive(page, "#task-1")  # 11, 0 and 1: keys that come faster than the page is drawn
    page.locator("#map").focus()
    x, y = ring(page)
    page.keyboard.press("ArrowRight")
    assert ring(page)[0] < x - 20
    page.keyboard.press("+")
    page.wait_for_timeout(400)
    page.keyboard.press("0")
    page.wait_for_timeout(400)
    assert ring(page) == pytest.approx((x, y), abs=1.0)
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#keys").is_hidden()
    page.keyboard.press("t")
    arrive(page, "#themes")


def test_themes_have_a_gallery_and_colour_the_map(visit, atlas: Path, model: tt.PTM, shown: tt.TaskSet) -> None:
    page = visit(atlas, "#themes")
    cards = page.locator("#panel .theme")
    assert cards.count() == 3
    share = model.themes.share.numpy()
    largest = int(share.argmax())
    assert cards.first.locator("h3 a").inner_text() == f"Theme {largest}"
    assert f"{100 * share[largest]:.0f} % of the training data" in cards.first.inner_text()
    assert page.locator(".tile.mean").count() == 3
    assert "its mean, decoded; beside it are the images most typical of it. Choose" in page.locator("#panel").inner_text()
    cards.first.locator("h3 a").click()
    arrive(page, f"#theme-{largest}")
    assert page.locator("#colour option:checked").inner_text() == f"Share of theme {largest}"
    most = int(shown.mean_mixture()[:, largest].argmax())
    assert page.locator("#panel .theme.chosen .list a").first.get_attribute("href") == f"#task-{most}"
    page.locator("#colour").select_option("entropy")
    assert page.locator("#legend").inner_text().split("\n") == ["more certain", "less certain"]


def test_themes_that_lead_most_tasks_have_colours_of_their_own_and_the_others_are_one_grey(visit, wide: Path) -> None:
    page = visit(wide)
    page.locator("#colour").select_option("theme")
    legend = dict(zip(page.locator("#legend button").all_inner_texts(), colours(page, "#legend"), strict=True))
    assert list(legend) == [*(f"theme {k}" for k in range(114, 105, -1)), "other themes"]
    assert len(set(legend.values())) == 10
    grey = legend["other themes"]
    page.get_by_text("Show 20 more").click()
    assert colours(page, "#results") == [legend.get(f"theme {k}", grey) for k in LEADERS]
    page.get_by_role("button", name="other themes").click()
    assert page.locator("#results li").count() == (LEADERS < 106).sum()
    assert page.locator(".filters option:checked").nth(1).inner_text() == "other themes"
    page.get_by_role("button", name="theme 110").click()
    assert page.locator("#results li").count() == 11


def test_the_dots_of_lists_follow_the_colours_of_the_map(visit, wide: Path) -> None:
    page = visit(wide)
    scale = page.evaluate("JSON.parse(document.getElementById('payload').textContent).palette.light.scale")
    page.locator(".filters select").last.select_option("uncertain")
    assert len(set(colours(page, "#results"))) == 2  # groups
    page.locator("#colour").select_option("entropy")
    assert colours(page, "#results") == [scale[round((119 - place) / 119 * 63)] for place in range(100)]
    page.goto(f"{wide.as_uri()}#task-119")
    page.locator("#panel .list").first.wait_for()
    page.locator("#colour").select_option("distance")
    assert colours(page, "#panel")[:8] == [scale[round((119 - place) / 119 * 63)] for place in range(1, 9)]


def test_themes_of_several_aspects_say_which(visit, wide: Path, atlas: Path) -> None:
    note = "Shares add up to 100 % in each of 2 aspects."
    for width in (1300, 340):
        page = visit(wide, "#task-119", width=width)
        names = page.locator(".mixture .name")
        assert names.first.inner_text() == "theme 114\naspect 1"
        assert note in page.locator("#panel").inner_text()
        page.locator("summary").click()
        assert max(names.locator("a").evaluate_all("all => all.map((one) => one.getClientRects().length)")) == 1
        assert all(names.evaluate_all("all => all.map((one) => one.scrollWidth <= one.clientWidth)"))
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    page.goto(f"{wide.as_uri()}#themes")
    page.locator("#panel .theme").first.wait_for()
    share = np.array(page.evaluate("JSON.parse(document.getElementById('payload').textContent).share"))
    order = [*np.argsort(-share[:65], kind="stable"), *(65 + np.argsort(-share[65:], kind="stable"))]
    assert page.locator("#panel .theme h3").all_inner_texts() == [f"Theme {k} aspect {k // 65}" for k in order]
    page = visit(atlas, "#task-7")
    assert page.locator(".aspect").count() == 0
    assert "100 % in each" not in page.locator("#panel").inner_text()


def test_a_few_tasks_have_their_names_on_the_map_where_there_is_room(visit, atlas: Path, wide: Path) -> None:
    page = visit(atlas)
    page.wait_for_selector("#marks text")
    names = page.locator("#marks text").all_text_contents()
    assert len(names) == len(set(names)) > 6
    assert set(names) <= {f"nr-{i}" for i in range(12)}
    boxes = [text.bounding_box() for text in page.locator("#marks text").all()]
    for a, b in combinations(boxes, 2):
        apart = abs(a["x"] - b["x"]) >= min(a["width"], b["width"]) or abs(a["y"] - b["y"]) >= a["height"]
        assert apart, (a, b)
    under = (
        "box => { const c = document.getElementById('dots'); const { x, y } = c.getBoundingClientRect();"
        "const d = c.getContext('2d').getImageData(box.x - x, box.y - y, box.width, box.height).data;"
        "return new Set(new Uint32Array(d.buffer)).size }"
    )
    assert [page.evaluate(under, box) for box in boxes] == [1] * len(boxes)  # paper alone
    page.locator("#search").fill("nr-3")
    page.wait_for_timeout(200)
    assert page.locator("#marks text").all_text_contents() == ["nr-3"]
    page = visit(wide)
    page.wait_for_selector("#marks text")
    assert set(page.locator("#marks text").all_text_contents()) <= {"one", "two"}


def test_light_and_dark(visit, atlas: Path) -> None:
    page = visit(atlas, scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    corner = "() => [...document.getElementById('dots').getContext('2d').getImageData(1, 1, 1, 1).data].slice(0, 3)"
    assert page.evaluate(ground) == "rgb(21, 23, 27)"
    page.wait_for_timeout(200)
    assert page.evaluate(corner) == [21, 23, 27]
    page.keyboard.press("d")
    page.wait_for_timeout(200)
    assert page.evaluate(ground) == "rgb(251, 250, 248)"
    assert page.evaluate(corner) == [251, 250, 248]


def test_it_fits_a_narrow_screen(visit, atlas: Path) -> None:
    page = visit(atlas, width=340, height=700)
    for address in ("#task-3", "#themes", "#compare-1-2", "#about", "#find"):
        page.evaluate("address => { location.hash = address }", address)
        page.wait_for_timeout(60)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 340, address
    above, below = page.locator("#map").bounding_box(), page.locator("#panel").bounding_box()
    assert below["y"] >= above["y"] + above["height"]


def test_hostile_names_stay_text_in_every_view(
    visit, tmp_path: Path, model: tt.PTM, drawings: tt.Dataset, tasks: tt.TaskSet
) -> None:
    episodes = drawings.episodes(ways=3, shots=4, n=12, seed=3)
    evil = tasks.with_columns(name=[EVIL] * 12, **{EVIL: [EVIL] * 12})
    file = write_explorer(tmp_path / "a.html", model=model, tasks=evil, origin=episodes, title=EVIL, facts=[(EVIL, EVIL)])
    page = visit(file)
    for address in ("#task-3", "#themes", "#theme-1", "#compare-1-2", "#compare-5", "#about", f"#{EVIL}", "#task-99", "#find"):
        page.evaluate("address => { location.hash = address }", address)
        page.wait_for_timeout(60)
        assert page.locator("#panel h2").count() == 1
        assert page.locator("img, #panel svg").count() == 0
    page.locator("#search").fill("onerror")
    assert page.locator("#results a bdi").first.inner_text() == EVIL
    assert page.evaluate("window.hurt") is None


def test_the_policy_stops_what_gets_in_all_the_same(browser, atlas: Path) -> None:
    page = browser.new_page()
    page.goto(atlas.as_uri())
    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.hurt = 1'; document.body.append(s);"
        "document.body.insertAdjacentHTML('beforeend', '<img src=data:, onerror=\"window.hurt = 2\">') }"
    )
    page.wait_for_timeout(200)
    assert page.evaluate("window.hurt") is None
    page.close()


def test_vectors_a_single_task_and_no_group_have_their_empty_states(visit, tmp_path: Path, vector_model: tt.PTM) -> None:
    tasks = vector_model.embed([np.zeros((3, 4))])
    page = visit(write_explorer(tmp_path / "a.html", model=vector_model, tasks=tasks), "#task-0")
    assert "There is no other task" in page.locator("#panel").inner_text()
    page.keyboard.press("t")
    arrive(page, "#themes")
    page.locator("#panel", has_text="This page has no images").wait_for()  # drawn after the address has changed
    page.keyboard.press("c")
    arrive(page, "#compare")
    page.locator("#panel", has_text="only one task").wait_for()
    assert "group" not in page.locator("#colour option").all_inner_texts()


def test_tasks_brought_to_one_size_are_compared_so_and_say_so(visit, tmp_path: Path, model: tt.PTM, drawings: tt.Dataset) -> None:
    images = drawings.x
    tasks = model.embed([images[:4], images[:40], images[40:60]])
    page = visit(write_explorer(tmp_path / "a.html", model=model, tasks=tasks, resized=5), "#task-0")
    assert "4, compared as 5" in page.locator("#panel .facts").inner_text()
    page.goto(f"{(tmp_path / 'a.html').as_uri()}#compare-1-2")
    arrive(page, "#compare-1-2")
    page.locator("#panel .way").first.wait_for()
    one_size = tasks.resized(5)
    assert numbers(page.locator(".way strong").first.inner_text())[0] == pytest.approx(one_size.kl(one_size)[1, 2], rel=6e-3)
    assert "A has 40 data points, B 20: they are compared as if both had 5." in page.locator("#panel").inner_text()
    page.goto(f"{(tmp_path / 'a.html').as_uri()}#about")
    page.locator("#panel", has_text="every task counts as 5 data points").wait_for()


def test_tasks_of_several_aspects_have_the_distances_of_the_library(
    visit, tmp_path: Path, fine: tt.PTM, drawings: tt.Dataset
) -> None:
    tasks = fine.embed([drawings.x[first : first + count] for first, count in ((0, 9), (9, 40), (49, 5), (20, 12), (30, 25))])
    page = visit(write_explorer(tmp_path / "a.html", model=fine, tasks=tasks), "#compare-1-4")
    page.locator("#panel .way").first.wait_for()
    kl = tasks.kl(tasks)
    found = [numbers(way.locator("strong").inner_text())[0] for way in page.locator(".way").all()]
    assert found == [pytest.approx(kl[1, 4], rel=6e-3), pytest.approx(kl[4, 1], rel=6e-3)]
    mixture = 100 * tasks.mean_mixture()[[1, 4]]
    shown = [numbers(value.inner_text())[0] for value in page.locator(".mixture li").first.locator(".value div").all()]
    np.testing.assert_allclose(shown, mixture[:, mixture.max(axis=0).argmax()], atol=0.51)
    page.goto(f"{(tmp_path / 'a.html').as_uri()}#about")
    page.locator("#panel", has_text="they fall into 4 aspects, 2 themes each").wait_for()
    page.goto(f"{(tmp_path / 'a.html').as_uri()}#themes")
    words = "its mean, decoded. There are 2 of each of 4 aspects, and their shares add up to 100 % in each. Choose"
    page.locator("#panel", has_text=words).wait_for()
