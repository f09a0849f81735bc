"""What a file's place says about it: its part, group and class, or its task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tasktheme.errors import DataError

_PARTS = ({"train", "test"}, {"train", "val", "test"})
_EXPECTED = "class/image or group/class/image throughout"


class Entry(NamedTuple):
    """One image: its part of the data set ("" where there is but one), its group ("" likewise), class and file name."""

    part: str
    group: str
    label: str
    name: str


Arrange = Callable[[Sequence[str]], list[Entry]]


def arrange_classes(names: Sequence[str]) -> list[Entry]:
    """``class/image`` or ``group/class/image``, below ``train``, ``test`` and perhaps ``val`` where there are just these.

    A folder around everything does not count.
    """
    places = _without_wrapper(names)
    parted = {place[0] for place in places} in _PARTS and all(len(place) > 2 for place in places)
    entries = []
    for name, place in zip(names, places, strict=True):
        part, rest = (place[0], place[1:]) if parted else ("", place)
        if len(rest) not in (2, 3):
            raise DataError(f"image {name!r} lies too {'high' if len(rest) < 2 else 'deep'}: expected {_EXPECTED}")
        entries.append(Entry(part, rest[0] if len(rest) == 3 else "", rest[-2], name))
    with_group = [entry for entry in entries if entry.group]
    without = [entry for entry in entries if not entry.group]
    if with_group and without:
        raise DataError(f"images {with_group[0].name!r} and {without[0].name!r} lie at different depths: expected {_EXPECTED}")
    check_parts_apart(entries)
    return entries


def arrange_tasks(names: Sequence[str], zipped: str | None = None) -> list[Entry]:
    """Each folder is a task, with all images in it and below, be it the only one.

    In a zip, called ``zipped``, a folder around everything does not count, nor those around that; one that is called like
    the zip is the last: a zip made of a folder and called like it holds the same tasks as the folder.
    """
    places = _task_places(names, zipped)
    entries = []
    for name, place in zip(names, places, strict=True):
        if len(place) < 2:
            raise DataError(f"image {name!r} belongs to no task: expected task/image, a folder for each task")
        entries.append(Entry("", "", place[0], name))
    return entries


def empty_tasks(folders: Iterable[str], names: Sequence[str], zipped: str | None = None) -> list[str]:
    """Those of the ``folders`` that would be tasks beside those of the images, but hold none."""
    places = _task_places(names, zipped)
    around = names[0].split("/")[: -len(places[0])]
    found = [folder.split("/") for folder in folders]
    beside = {place[len(around)] for place in found if len(place) > len(around) and place[: len(around)] == around}
    return sorted(beside - {place[0] for place in places})


def check_parts_apart(entries: Sequence[Entry]) -> None:
    """A class belongs to one part, or the held-out part would not be held out."""
    owner: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        first = owner.setdefault((entry.group, entry.label), entry)
        if first.part != entry.part:
            raise DataError(
                f"class {entry.label!r} is in {first.part} and in {entry.part} ({first.name!r}, {entry.name!r}), but the parts "
                "may share no class; pass one of them, and it will be split by class"
            )


def _task_places(names: Sequence[str], zipped: str | None) -> list[list[str]]:
    return [name.split("/") for name in names] if zipped is None else _without_wrapper(names, last=zipped)


def _without_wrapper(names: Sequence[str], last: str | None = None) -> list[list[str]]:
    places = [name.split("/") for name in names]
    while all(len(place) > 2 for place in places) and len(tops := {place[0] for place in places}) == 1:
        places = [place[1:] for place in places]
        if last in tops:
            break
    return places
