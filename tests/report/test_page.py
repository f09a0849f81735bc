"""The page: whole, offline, safe, and with the right numbers in it."""

from __future__ import annotations

import base64
import dataclasses
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tasktheme.report.page import write_pictures, write_report

import tasktheme as tt
from tasktheme.errors import DataError, OutputError
from tasktheme.report import page

EVIL = "<script>alert(1)</script>"
FACTS = [("data", "drawings & more"), (EVIL, EVIL)]
NAMES = ["map", "distances", "themes", "mixtures", "entropy", "training"]


class _Reader(HTMLParser):
    """Tags, attributes, and the text of each cell of the table."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.rows: dict[str, list[str]] = {}
        self._row: list[str] | None = None
        self._in_cell = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "tr":
            name = dict(attrs).get("id")
            self._row = None if name is None else self.rows.setdefault(name, [])
        if tag in ("td", "th") and self._row is not None:
            self._row.append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False
        if tag == "li":
            self.handle_data("\n")

    def handle_data(self, data: str) -> None:
        if self._in_cell and self._row is not None:
            self._row[-1] += data


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory, model: tt.PTM, tasks: tt.TaskSet, drawings: tt.Dataset) -> str:
    path = tmp_path_factory.mktemp("report") / "page.html"
    written = write_report(path, model=model, tasks=tasks, data=drawings, title=f"Tiny {EVIL}", facts=FACTS)
    assert written == path
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]  # no temporary file is left
    return path.read_text(encoding="utf-8")


def test_nothing_is_fetched_and_nothing_runs(html: str) -> None:
    assert "<script" not in html.lower()
    assert re.search(r"https?://", html) is None
    found = _Reader(html)
    sources = [value or "" for name, value in found.attributes if name in ("src", "href", "action", "srcset")]
    assert sources
    assert all(value.startswith(("data:image/png;base64,", "#task-")) for value in sources)
    assert not {"script", "link", "iframe", "object", "form"} & set(found.tags)
    assert not any(name.startswith("on") for name, _ in found.attributes)
    assert "url(" not in html
    assert "@import" not in html


def test_names_cannot_inject(html: str, tasks: tt.TaskSet) -> None:
    escaped = "&lt;script&gt;alert(1)&lt;/script&gt;"
    assert f"<h1>Tiny {escaped}</h1>" in html
    assert f"<dt>{escaped}</dt><dd>{escaped}</dd>" in html
    with_it = sum(EVIL in classes for classes in tasks.columns["classes"])
    assert with_it >= 1
    assert html.count(escaped) == 2 + 2 + with_it  # title and heading, the fact, the classes


def test_pictures_are_inline_and_whole(html: str) -> None:
    encoded = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    assert len(encoded) == len(NAMES)
    for picture in encoded:
        image = Image.open(io.BytesIO(base64.b64decode(picture, validate=True)))
        image.load()
        assert image.width >= 800
        assert len(np.unique(np.asarray(image.convert("L")))) > 20
    assert html.count("<figcaption>") == len(NAMES)
    assert html.count(' alt="') == len(NAMES)


def test_the_page_explains_and_adapts(html: str) -> None:
    for word in ("<strong>Themes</strong>", "<strong>entropy</strong>", "<strong>distance</strong>"):
        assert word in html
    assert "prefers-color-scheme: dark" in html
    assert 'name="viewport"' in html
    assert "drawings &amp; more" in html


def test_the_table_has_every_task_with_its_numbers(html: str, tasks: tt.TaskSet) -> None:
    rows = _Reader(html).rows
    assert sorted(rows) == sorted(f"task-{i}" for i in range(len(tasks)))
    kl, mixture, entropy = tasks.kl(tasks), tasks.mean_mixture(), tasks.entropy()
    for i in range(len(tasks)):
        name, size, uncertainty, themes, nearest = rows[f"task-{i}"]
        assert name.split() == [str(i), tasks.columns["group"][i], *tasks.columns["classes"][i].split()]
        assert size == "12"
        assert uncertainty == f"{entropy[i]:.1f}".replace("-", "\N{MINUS SIGN}")
        best = int(mixture[i].argmax())
        assert themes.startswith(f"theme {best} {100 * mixture[i, best]:.0f} %")
        order = sorted((j for j in range(len(tasks)) if j != i), key=lambda j: kl[i, j])
        shown = re.findall(r"(\d+) (?:rows|columns|blocks) ([\d.]+)(?=\s)", nearest)
        assert [int(j) for j, _ in shown] == order[:3]
        np.testing.assert_allclose([float(distance) for _, distance in shown], kl[i, order[:3]], atol=0.06)


def test_distances_of_all_sizes_are_readable() -> None:
    shown = [page._nats(distance) for distance in (0.0, 1e-9, 0.0123, 1.234, 12.34, 123.4, 1234.5)]
    assert shown == ["0.000", "< 0.001", "0.012", "1.23", "12.3", "123.4", "1,234"]


def test_rows_are_sorted_by_group(html: str, tasks: tt.TaskSet) -> None:
    groups = [tasks.columns["group"][int(name.removeprefix("task-"))] for name in _Reader(html).rows]
    assert groups == sorted(groups)
    assert len(set(groups)) > 1


def test_vectors_have_no_gallery_and_one_task_no_neighbours(tmp_path: Path, vector_model: tt.PTM, vectors: tt.Dataset) -> None:
    tasks = vector_model.embed([vectors.x[:7]])
    stopped = dataclasses.replace(tasks, converged=np.array([False]), columns={"name": ["only one"]})
    path = write_report(tmp_path / "new" / "page.html", model=vector_model, tasks=stopped, data=vectors, title="t", facts=[])
    html = path.read_text(encoding="utf-8")
    assert html.count("<figure>") == len(NAMES) - 1
    assert "The themes" not in html
    assert "<dl>" not in html
    [row] = _Reader(html).rows.values()
    assert row[0].strip() == "0 only one"
    assert "not converged" in row[2]
    assert row[4] == ""


def test_names_that_are_not_text_are_written(tmp_path: Path, model: tt.PTM, tasks: tt.TaskSet, drawings: tt.Dataset) -> None:
    odd = tasks.with_columns(group=[None, 3, "bad \udcff bytes"] * 4)  # a folder name that is not UTF-8 reads like the last
    path = write_report(tmp_path / "page.html", model=model, tasks=odd, data=drawings, title="t", facts=[])
    assert "bad ? bytes" in path.read_text(encoding="utf-8")


def test_tasks_of_another_model_are_refused(tmp_path: Path, model: tt.PTM, tasks: tt.TaskSet, drawings: tt.Dataset) -> None:
    foreign = dataclasses.replace(tasks, fingerprint="another")
    with pytest.raises(DataError, match="not embedded by this model"):
        write_report(tmp_path / "page.html", model=model, tasks=foreign, data=drawings, title="t", facts=[])
    assert list(tmp_path.iterdir()) == []


def test_an_old_page_survives_a_failure(tmp_path: Path, model: tt.PTM, tasks: tt.TaskSet, drawings: tt.Dataset) -> None:
    file = tmp_path / "page.html"
    file.write_text("old", encoding="utf-8")
    with pytest.raises(DataError):
        write_report(file, model=model, tasks=tasks[:0], data=drawings, title="t", facts=[])
    assert file.read_text(encoding="utf-8") == "old"
    with pytest.raises(OutputError, match="cannot make the folder"):
        write_report(file / "below" / "page.html", model=model, tasks=tasks, data=drawings, title="t", facts=[])


def test_pictures_as_files(tmp_path: Path, model: tt.PTM, tasks: tt.TaskSet, drawings: tt.Dataset) -> None:
    written = write_pictures(tmp_path / "pictures", model=model, tasks=tasks, data=drawings)
    assert [file.name for file in written] == [f"{name}.png" for name in NAMES]
    assert sorted((tmp_path / "pictures").iterdir()) == sorted(written)
    for file in written:
        with Image.open(file) as image:
            assert image.info["dpi"][0] >= 149.0
            assert image.width >= 5.4 * 150
