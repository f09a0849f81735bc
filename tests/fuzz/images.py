"""Folders in which one image is bad: damaged, of an odd mode, too large, or no image at all."""

from __future__ import annotations

import io
import os
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

import tasktheme as tt
from fuzz.cases import Box, Case, Random, pick, spoil

FORMATS = {"png": "PNG", "jpg": "JPEG", "gif": "GIF", "bmp": "BMP", "tif": "TIFF", "webp": "WEBP", "ppm": "PPM"}


def encoded(random: Random, mode: str = "RGB", form: str = "PNG", size: tuple[int, int] = (17, 13), **options: object) -> bytes:
    """A sound image file."""
    image = Image.fromarray(random.integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)).convert(mode)
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def claiming_png(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims any size."""
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + _chunk(b"IDAT", zlib.compress(bytes(1000))) + _chunk(b"IEND", b"")


def _claiming(random: Random) -> tuple[str, bytes]:
    side = int(pick(random, [10_000, 65_000, 2**20, 2**31 - 1]))
    small = min(side, 65_535)
    bmp = bytearray(encoded(random, form="BMP"))
    bmp[18:26] = struct.pack("<ii", side, side)
    gif = bytearray(encoded(random, "P", "GIF"))
    gif[6:10] = struct.pack("<HH", small, small)
    tif = encoded(random, form="TIFF", size=(177, 13))
    tif = tif.replace(struct.pack("<H", 177), struct.pack("<H", small), 1)
    choices = {
        "png": claiming_png(side, side),
        "bmp": bytes(bmp),
        "gif": bytes(gif),
        "tif": tif,
        "ppm": f"P6 {side} {side} 255\n".encode() + bytes(100),
        "pgm": f"P5 {side} {side} 65535\n".encode() + bytes(100),
    }
    ending = str(pick(random, list(choices)))
    return ending, choices[ending]


def _odd_mode(random: Random) -> tuple[str, bytes]:
    """Odd, but images: they load, or are refused."""
    high = Image.fromarray(random.integers(0, 65_535, (13, 17)).astype(np.uint16))
    deep = Image.fromarray(random.random((13, 17)).astype(np.float32) * float(pick(random, [1.0, 300.0])))
    wide = Image.fromarray(random.integers(-5, 2**31 - 1, (13, 17)).astype(np.int32))
    holes = Image.fromarray(np.full((13, 17), np.nan, dtype=np.float32))
    frames = [Image.fromarray(random.integers(0, 255, (13, 17), dtype=np.uint8)) for _ in range(3)]
    buffer = io.BytesIO()
    form = str(
        pick(random, ["cmyk", "palette", "bits", "la", "high", "deep", "wide", "holes", "animated", "lab", "alpha", "line"])
    )
    if form in ("high", "deep", "wide", "holes"):
        {"high": high, "deep": deep, "wide": wide, "holes": holes}[form].save(buffer, "PNG" if form == "high" else "TIFF")
        return ("png" if form == "high" else "tif"), buffer.getvalue()
    if form == "animated":
        frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=10)
        return "gif", buffer.getvalue()
    if form == "palette":
        Image.fromarray(random.integers(0, 255, (13, 17, 3), dtype=np.uint8)).quantize(8).save(buffer, "PNG", transparency=3)
        return "png", buffer.getvalue()
    if form == "line":
        return "png", encoded(random, size=(1, 5000))
    mode, ending = {
        "cmyk": ("CMYK", "jpg"),
        "bits": ("1", "png"),
        "la": ("LA", "png"),
        "lab": ("LAB", "tif"),
        "alpha": ("RGBA", "webp"),
    }[form]
    return ending, encoded(random, mode, FORMATS[ending])


def _no_image(random: Random) -> tuple[str, bytes]:
    content = pick(
        random,
        [
            b"",
            b"\0",
            b"<html>not found</html>",
            random.bytes(500),
            b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n(/tmp/x) (w) file\n",
            b"<svg xmlns='http://www.w3.org/2000/svg'/>",
            b"%PDF-1.4\n",
            b"\x80\x04\x95\x1d\0\0\0\0\0\0\0\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R.",
            b"P6 -3 -3 255\n",
            b"P6 3 3 0\n" + bytes(30),
            b"P1 10 10\n2 2 2 2",
            b"GIF89a" + bytes(7) + b";",
            b"RIFF\xff\xff\xff\xffWEBPVP8 " + bytes(20),
            b"II*\0\x08\0\0\0\xff\xff" + bytes(100),
            b"BM" + b"\xff" * 60,
            b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", b""),
            b"\xff\xd8\xff\xe0" + bytes(10),
        ],
    )
    return str(pick(random, list(FORMATS))), content


def bad_image(random: Random, box: Box) -> Case:
    """One image of a folder is bad."""
    root = box.folder / "data"
    shutil.copytree(box.stock / "photos", root)
    way = box.turn(["damaged", "damaged", "damaged", "claiming", "odd mode", "no image", "exchanged", "special"])
    may_load = way in ("damaged", "odd mode", "exchanged")
    name = way
    file = root / "a" / "x"
    if way == "special":
        name = _special_file(random, file)
        may_load = name.startswith(("link to a sound", "name"))
    else:
        if way == "damaged":
            ending = str(pick(random, list(FORMATS)))
            content = spoil(encoded(random, form=FORMATS[ending]), random)
        elif way == "exchanged":
            ending, other = str(pick(random, list(FORMATS))), str(pick(random, list(FORMATS.values())))
            content = encoded(random, form=other)
        else:
            ending, content = {"claiming": _claiming, "odd mode": _odd_mode, "no image": _no_image}[way](random)
        (file / f"bad.{ending}").write_bytes(content)
        name = f"{way}.{ending}"
    return _question(random, box, root, name, may_load)


def _special_file(random: Random, home: Path) -> str:
    """Something in the place of an image that is no plain file, or has an odd name."""
    file = home / "bad.png"
    way = str(
        pick(
            random,
            ["pipe", "device", "broken link", "loop", "link to a sound file", "deep folder", "bytes", "name", "name", "high"],
        )
    )
    if way == "pipe":
        os.mkfifo(file)
    elif way == "device":
        file.symlink_to("/dev/zero")
    elif way == "broken link":
        file.symlink_to("/nowhere/at/all.png")
    elif way == "loop":
        file.symlink_to(file)
    elif way == "link to a sound file":
        file.symlink_to(home / "0.png")
    elif way == "deep folder":
        (file / "b" / "c").mkdir(parents=True)
        shutil.copy(home / "0.png", file / "b" / "c" / "0.png")
    elif way == "bytes":
        shutil.copy(home / "0.png", os.fsencode(home) + b"/\xff\xfe.png")
    elif way == "high":
        shutil.copy(home / "0.png", home.parent.parent / "0.png")
    else:
        odd = str(
            pick(random, ["a b", "línea", "new\nline", "日本語", "x" * 240, "'quo\"te", "$(id)", "..hm", "a;b", "\u202e", "-r"])
        )
        way = f"name {odd[:10]!r}"
        shutil.copy(home / "0.png", home / f"{odd}.png")
    return way


def _question(random: Random, box: Box, root: Path, name: str, may_load: bool) -> Case:
    asks = [
        lambda: _check(tt.load_dataset(root, size=16, progress=False), root),
        lambda: _check(tt.load_tasks(root, size=16, progress=False), root),
        ["embed", box.stocked("model"), str(root), "--out", str(box.out / "tasks.parquet"), "--quiet"],
        [
            "embed",
            box.stocked("model"),
            str(root),
            "--labelled",
            "--ways",
            "2",
            "--shots",
            "2",
            "--out",
            str(box.out / "t.csv"),
            "-q",
        ],
        ["embed", box.stocked("model"), str(root), "--allow-damaged", "--out", str(box.out / "tasks.npz"), "--quiet"],
    ]
    ask = asks[int(random.integers(len(asks)))]
    may_load = may_load or (isinstance(ask, list) and "--allow-damaged" in ask) or name == "deep folder"
    return Case(f"image, {name}", ask, may_load)


def _check(loaded: tt.Dataset | tt.DataSplit, root: Path) -> None:
    """What is loaded is all there is, as pixels."""
    parts = [loaded.train, loaded.test] if isinstance(loaded, tt.DataSplit) else [loaded]
    files = [file for file in root.rglob("*") if file.is_file() and not file.name.startswith(".")]
    assert sum(map(len, parts)) == len(files)
    assert all(part.x.dtype == np.uint8 and part.point_shape[1:] == (16, 16) for part in parts)
