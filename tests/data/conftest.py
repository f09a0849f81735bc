"""Small trees of images, and a cache of each test's own."""

from __future__ import annotations

import struct
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from PIL import Image

Tree = Callable[[Iterable[str]], Path]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, in use."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TASKTHEME_CACHE", str(folder))
    monkeypatch.delenv("TASKTHEME_DATA", raising=False)
    return folder


@pytest.fixture
def tree(tmp_path: Path, cache: Path) -> Tree:
    """Makes a folder ``pictures`` with an image of each name: 10 x 8 pixels of red, green and blue that differ by name."""

    def make(names: Iterable[str]) -> Path:
        root = tmp_path / "pictures"
        for i, name in enumerate(names):
            file = root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (10, 8), (i, 100 + i, 200)).save(file)
        return root

    return make


@pytest.fixture
def zipped(tmp_path: Path) -> Callable[[Path], Path]:
    """Packs a folder's files into a zip beside it, in the reverse of their order."""

    def pack(folder: Path) -> Path:
        path = tmp_path / f"{folder.name}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(folder.rglob("*"), reverse=True):
                archive.write(file, file.relative_to(folder).as_posix())
        return path

    return pack


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], str]]:
    """Serves a folder on this machine, and says at which address."""
    pytest.importorskip("pooch")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ExitStack() as stack:

        def serve(folder: Path) -> str:
            server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            for end in (server.server_close, thread.join, server.shutdown):  # called in reverse
                stack.callback(end)
            return f"http://127.0.0.1:{server.server_port}"

        yield serve


@pytest.fixture
def huge_png() -> Callable[[int, int], bytes]:
    """Makes a small PNG file whose header claims any size."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    def make(width: int, height: int) -> bytes:
        header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
        return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")

    return make
