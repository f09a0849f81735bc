"""Zips that are damaged, or made to do harm."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

import tasktheme as tt
from fuzz.cases import Box, Case, Random, pick, spoil
from fuzz.images import encoded

_WAYS = (
    "spoiled, spoiled, spoiled, cut, outside, outside, link, encrypted, twice, backslash, claim, bomb, small claim, method, "
    "checksum, nested, empty, foreign, names, device, overlap, before"
).split(", ")


def bomb(copies: int) -> bytes:
    """A deflated stream of so many MiB of zeros, in about a thousandth of that: one flushed block again and again."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * copies + b"\x03\0"


def pack_raw(file: Path, name: str, packed: bytes, claimed: int) -> None:
    """A zip with one deflated entry of these bytes that claims any size."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:  # stored, then said to be deflated
        made.writestr(name, packed)
        entry = made.filelist[0]
        entry.compress_type, entry.file_size = zipfile.ZIP_DEFLATED, claimed
        made._didModify = True
    content = bytearray(buffer.getvalue())
    content[8:10] = (8).to_bytes(2, "little")  # the same in the entry's own header
    file.write_bytes(content)


def bad_zip(random: Random, box: Box) -> Case:
    """A zip of images."""
    file = box.folder / "data.zip"
    way = str(box.turn(_WAYS))
    sound = (box.stock / "photos.zip").read_bytes()
    may_load = way in ("spoiled", "backslash", "names", "before", "device", "overlap")
    if way in ("spoiled", "cut", "foreign", "empty", "before"):
        content = {
            "spoiled": spoil(sound, random),
            "cut": sound[: int(random.integers(len(sound) - 1))],
            "foreign": pick(
                random, [b"", b"PK", b"Rar!\x1a\x07\0", b"7z\xbc\xaf\x27\x1c", random.bytes(300), encoded(random), bytes(2000)]
            ),
            "empty": b"PK\x05\x06" + bytes(18),
            "before": random.bytes(100) + sound,
        }[way]
        file.write_bytes(content)
    elif way == "bomb":
        pack_raw(file, "a/x/0.png", bomb(300), 300 << 20)
    elif way == "small claim":
        pack_raw(file, "a/x/0.png", bomb(3000), 1000)
    else:
        _pack(file, way, random, sound)
    asks = [
        lambda: tt.load_dataset(file, size=16, progress=False),
        lambda: tt.load_tasks(file, size=16, progress=False),
        ["embed", box.stocked("model"), str(file), "--out", str(box.out / "tasks.parquet"), "--quiet"],
        [
            "embed",
            box.stocked("model"),
            str(file),
            "--labelled",
            "--ways",
            "2",
            "--shots",
            "2",
            "--out",
            str(box.out / "t.csv"),
            "-q",
        ],
    ]
    return Case(f"zip, {way}", asks[int(random.integers(len(asks)))], may_load)


def _pack(file: Path, way: str, random: Random, sound: bytes) -> None:
    image = encoded(random, "L", size=(16, 16))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for label in "xyzw":
            for i in range(3):
                made.writestr(f"a\\{label}\\{i}.png" if way == "backslash" else f"a/{label}/{i}.png", image)
        entry = made.filelist[-1]
        if way == "outside":
            names = [
                "../bad.png",
                "a/../../bad.png",
                "/tmp/bad.png",
                "C:\\bad.png",
                "a\\..\\..\\bad.png",
                "..\\bad.png",
                "//host/a.png",
            ]
            made.writestr(str(pick(random, names)), image)
        elif way in ("link", "device"):
            link = zipfile.ZipInfo("a/x/link.png")
            link.external_attr = (0o120777 if way == "link" else 0o020666) << 16
            made.writestr(link, str(pick(random, ["/etc/passwd", "../../0.png", "0.png"])) if way == "link" else image)
        elif way == "encrypted":
            entry.flag_bits |= 1
        elif way == "twice":
            made.filelist.append(entry)
        elif way == "claim":
            entry.file_size = int(pick(random, [1 << 29, 1 << 40, (1 << 63) - 1]))
        elif way == "method":
            entry.compress_type = int(pick(random, [1, 9, 12, 14, 93, 99]))
        elif way == "checksum":
            entry.CRC ^= 1
        elif way == "nested":
            made.writestr("a/x/inner.png", sound)
        elif way == "overlap":
            entry.header_offset = made.filelist[0].header_offset
        elif way == "names":
            odd = [
                "a//x.png",
                "a",
                "a/",
                "a/x/\0.png",
                "a/x/" + "n" * 60_000 + ".png",
                "./a/x/5.png",
                "a/x/new\nline.png",
                "a/日/ü.png",
            ]
            made.writestr(str(pick(random, odd)), image)
        made._didModify = True
