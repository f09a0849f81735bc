"""The page: whole, offline, and inert whatever the names say."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import tasktheme as tt
from tasktheme.errors import DataError, OutputError
from tasktheme.report.explorer import write, write_explorer

EVIL = ['</script><img src=x onerror="window.hurt=1">', "<!--<script>", "]]>&lt;\u2028'\"`${window.hurt=1}", "<b>bold</b>"]
VENDOR = resources.files("tasktheme.report.explorer").joinpath("vendor")


class Reader(HTMLParser):
    """Tags with their attributes, and the text of each element that holds text alone."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._inside = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.texts.append("")
        self._inside = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[-1] += data

    def of(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, text) for (name, attributes), text in zip(self.tags, self.texts, strict=True) if name == tag]


def payload_of(html: str) -> dict[str, Any]:
    [text] = [text for attributes, text in Reader(html).of("script") if attributes.get("id") == "payload"]
    return json.loads(text)


@pytest.fixture(scope="module")
def evil(tasks: tt.TaskSet) -> tt.TaskSet:
    return tasks.with_columns(name=EVIL * 3, group=EVIL[::-1] * 3, **{EVIL[0]: EVIL * 3})


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory, model: tt.PTM, evil: tt.TaskSet) -> str:
    path = tmp_path_factory.mktemp("atlas") / "new" / "atlas.html"
    assert write_explorer(path, model=model, tasks=evil, title=EVIL[0], facts=[(EVIL[1], EVIL[2])]) == path
    assert [file.name for file in path.parent.iterdir()] == ["atlas.html"]  # no temporary file is left
    return path.read_text(encoding="utf-8")


def test_images_come_from_whatever_the_tasks_were_embedded_from(tmp_path: Path, model: tt.PTM, drawings: tt.Dataset) -> None:
    arrays = {"ann": drawings.x[:3], "bob": drawings.x[3:8]}
    pages = []
    for given in (arrays, list(arrays.values()), tt.Dataset.from_tasks(list(arrays.values()), names=["ann", "bob"])):
        path = write_explorer(tmp_path / "page.html", model=model, tasks=model.embed(given), origin=given)
        pages.append(payload_of(path.read_text(encoding="utf-8"))["images"])
    assert pages[0]["samples"] == pages[1]["samples"] == pages[2]["samples"]
    with pytest.raises(DataError, match="'drawings' is a labelled data set, not tasks"):
        write_explorer(tmp_path / "page.html", model=model, tasks=model.embed(arrays), origin=drawings)


def test_only_what_the_policy_names_may_run(html: str) -> None:
    read = Reader(html)
    [policy] = [a["content"] for a, _ in read.of("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    rules = dict(rule.split(maxsplit=1) for rule in policy.split("; "))
    assert (rules["default-src"], rules["img-src"]) == ("'none'", "data:")
    assert "unsafe" not in policy
    scripts = [text for attributes, text in read.of("script") if "type" not in attributes]
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts]
    assert rules["script-src"].split() == hashes
    [(_, style)] = read.of("style")
    assert rules["style-src"] == f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"


def test_nothing_is_fetched(html: str) -> None:
    read = Reader(html)
    names = {name for name, _ in read.tags}
    assert not names & {"link", "iframe", "object", "img", "base"}
    sources = [value for _, a in read.tags for key, value in a.items() if key in ("src", "href", "action", "srcset")]
    assert sources
    assert all(value and value.startswith("#") for value in sources)
    assert not any(key.startswith("on") or key == "style" for _, a in read.tags for key in a)


def test_hostile_names_come_through_as_text_and_only_as_text(html: str, evil: tt.TaskSet) -> None:
    payload = payload_of(html)
    lines = [" ".join(name.split()) for name in EVIL]
    assert payload["columns"]["name"] == lines * 3
    assert payload["columns"][EVIL[0]] == lines * 3
    assert set(payload["groups"]) == set(lines)
    assert (payload["title"], payload["facts"]) == (EVIL[0], [[EVIL[1], EVIL[2]]])
    raw = html[html.index('id="payload">') + len('id="payload">') :]
    raw = raw[: raw.index("</script>")]
    assert json.loads(raw) == payload  # the element ends where it should
    assert not set(raw) & set("<>&\u2028")
    [(_, title)] = Reader(html).of("title")
    assert title == EVIL[0]


def test_names_that_are_not_text_are_written(tmp_path: Path, model: tt.PTM, tasks: tt.TaskSet) -> None:
    odd = tasks.with_columns(group=[None, 3, "bad \udcff bytes"] * 4)  # a folder name that is not UTF-8 reads like the last
    html = write_explorer(tmp_path / "a.html", model=model, tasks=odd, title="\udcff").read_text(encoding="utf-8")
    assert payload_of(html)["groups"] == ["3", "bad \udcff bytes", "none"]


def test_the_library_is_the_recorded_one_and_its_licence_travels(html: str) -> None:
    record = VENDOR.joinpath("README.md").read_text(encoding="utf-8")
    files = re.findall(r"^\| `([^`]+)` \|.*`([0-9a-f]{64})` \|$", record, flags=re.MULTILINE)
    assert [name for name, _ in files] == ["d3.min.js"]
    for name, checksum in files:
        assert hashlib.sha256(VENDOR.joinpath(name).read_bytes()).hexdigest() == checksum
    assert VENDOR.joinpath("d3.LICENSE").read_text(encoding="utf-8") in html
    assert VENDOR.joinpath("d3.min.js").read_text(encoding="utf-8") in html


def test_every_script_of_the_page_is_in_it(html: str) -> None:
    files = sorted(file.name for file in resources.files("tasktheme.report.explorer").joinpath("page").iterdir())
    assert sorted(f"{name}.js" for name in write._SCRIPTS) == [name for name in files if name.endswith(".js")]
    assert set(files) - {f"{name}.js" for name in write._SCRIPTS} == {"page.css", "page.html.j2"}


def test_what_cannot_be_shown_is_refused_and_an_old_page_survives(tmp_path: Path, model: tt.PTM, tasks: tt.TaskSet) -> None:
    file = tmp_path / "atlas.html"
    file.write_text("old", encoding="utf-8")
    with pytest.raises(DataError, match="not embedded by this model"):
        write_explorer(file, model=model, tasks=dataclasses.replace(tasks, fingerprint="another"))
    with pytest.raises(DataError, match="1 to 20,000 tasks, got 0"):
        write_explorer(file, model=model, tasks=tasks[:0])
    with pytest.raises(DataError, match="got 24,000"):
        write_explorer(file, model=model, tasks=tasks[[0] * 24_000])
    with pytest.raises(OutputError, match="cannot make the folder"):
        write_explorer(file / "below" / "atlas.html", model=model, tasks=tasks)
    assert file.read_text(encoding="utf-8") == "old"
