"""The embedded data set ``glyphs``: writing systems drawn from the DejaVu fonts that matplotlib ships.

Two levels, like Omniglot: scripts (groups) of up to 26 characters (classes), 20 drawings each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from tasktheme.data.cache import Arrays, Info, append_rows, cache_folder, load_or_build, load_or_fill
from tasktheme.data.dataset import Dataset, DataSplit
from tasktheme.data.drawing import DRAWERS, SIDE, CodePoints, render_scripts
from tasktheme.data.images import ImageForm, Pixels, form_image
from tasktheme.errors import SettingsError
from tasktheme.progress import progress_bar

TRAIN_SCRIPTS: Mapping[str, CodePoints] = {
    "Latin capitals": (range(0x41, 0x5B),),
    "Latin small": (range(0x61, 0x7B),),
    "Latin African": (range(0x181, 0x1C0),),
    "Latin medieval": (range(0xA726, 0xA784), range(0x2C60, 0x2C7C)),
    "Phonetic (IPA)": (range(0x250, 0x2B0),),
    "Double-struck": (range(0x1D538, 0x1D551), range(0x1D552, 0x1D56C)),
    "Greek": (range(0x3B1, 0x3CA),),
    "Cyrillic": (range(0x410, 0x430),),
    "Cyrillic historic": (range(0x460, 0x482, 2), range(0x500, 0x524, 2)),
    "Cyrillic Asian": (range(0x490, 0x4C0, 2),),
    "Georgian Asomtavruli": (range(0x10A0, 0x10C6),),
    "Georgian Nuskhuri": (range(0x2D00, 0x2D26),),
    "Arabic": (range(0x627, 0x63B), range(0x641, 0x64B)),
    "Arabic initial forms": (range(0xFE91, 0xFE92), range(0xFE97, 0xFEA8, 4), range(0xFEB3, 0xFEEC, 4), range(0xFEF3, 0xFEF4)),
    "Lisu": (range(0xA4D0, 0xA4F8),),
    "Old Italic": (range(0x10300, 0x10324),),
    "Braille": (tuple(map(ord, "⠁⠃⠉⠙⠑⠋⠛⠓⠊⠚⠅⠇⠍⠝⠕⠏⠟⠗⠎⠞⠥⠧⠺⠭⠽⠵")),),
    "Yijing hexagrams": (range(0x4DC0, 0x4E00),),
    "Currency signs": (range(0x20A0, 0x20C0),),
    "Arrows": (range(0x2190, 0x2200),),
    "Astrological signs": (range(0x2609, 0x260E), range(0x263D, 0x2654)),
    "Dingbats": (range(0x2701, 0x2768),),
}
TEST_SCRIPTS: Mapping[str, CodePoints] = {
    "Armenian capitals": (range(0x531, 0x557),),
    "Armenian small": (range(0x561, 0x588),),
    "Georgian Mkhedruli": (range(0x10D0, 0x10FB),),
    "Hebrew": (range(0x5D0, 0x5EB),),
    "Lao": (range(0xE81, 0xEAF),),
    "N'Ko": (range(0x7CA, 0x7EB),),
    "Tifinagh": (range(0x2D30, 0x2D68),),
    "Canadian syllabics": (range(0x1401, 0x1580),),
    "Ogham": (range(0x1681, 0x169B),),
    "Mathematical operators": (range(0x2200, 0x2300),),
}

_VERSION = 1  # raise it whenever a drawing changes, so that no old cache is taken for the new data


def load_glyphs(*, seed: int = 0, size: int = SIDE, channels: int = 1, progress: bool = True) -> DataSplit:
    """The glyphs, rendered on first use (some seconds, with a progress bar) and cached: uint8 (M, 1, 64, 64), ink 255 on 0.

    Training and test part share no script. The same seed gives the same drawings; the characters do not depend on it.
    Another size, or colour, is what files of these drawings would become.
    """
    if seed < 0:
        raise SettingsError(f"seed of the glyphs: expected a number >= 0, got {seed}")
    form = ImageForm(size, channels)
    parts = {"train": TRAIN_SCRIPTS, "test": TEST_SCRIPTS}

    def build() -> tuple[Arrays, Info]:
        rendered = render_scripts({**TRAIN_SCRIPTS, **TEST_SCRIPTS}, seed=seed, progress=progress)
        pictures = {part: np.concatenate([rendered[name].pictures for name in scripts]) for part, scripts in parts.items()}
        return pictures, {"codes": {name: script.codes for name, script in rendered.items()}}

    folder = cache_folder() / f"glyphs-v{_VERSION}-seed{seed}"
    pictures, info = load_or_build(folder, build)
    codes = {part: {name: info["codes"][name] for name in scripts} for part, scripts in parts.items()}
    drawn = {part: pictures[part].reshape(-1, 1, SIDE, SIDE) for part in parts}
    if form != ImageForm(SIDE, 1):
        formed = folder.with_name(f"{folder.name}-{channels}x{size}x{size}")
        drawn, _ = load_or_fill(formed, lambda fresh: _form_all(drawn, form, fresh, progress=progress))
    return DataSplit(name="glyphs", train=_dataset(drawn["train"], codes["train"]), test=_dataset(drawn["test"], codes["test"]))


def _form_all(drawn: Mapping[str, Pixels], form: ImageForm, fresh: Path, *, progress: bool) -> Info:
    """Write the drawings of each part in another form, one after the other: large ones need not fit in memory."""
    with progress_bar("resizing glyphs", sum(map(len, drawn.values())), show=progress) as advance:
        for part, pictures in drawn.items():
            with append_rows(fresh / f"{part}.npy", (form.channels or 1, form.size, form.size), np.uint8) as append:
                for picture in pictures:
                    append(form_image(Image.fromarray(picture[0]), form)[None])
                    advance(1, "")
    return {}


def _dataset(pictures: npt.NDArray[np.generic], codes: Mapping[str, Sequence[int]]) -> Dataset:
    sizes = [len(of_script) for of_script in codes.values()]
    return Dataset(
        name="glyphs",
        x=pictures,
        counts=np.full(sum(sizes), DRAWERS, dtype=np.int64),
        class_names=tuple(f"U+{code:04X} {chr(code)}" for of_script in codes.values() for code in of_script),
        class_group=np.repeat(np.arange(len(codes), dtype=np.int64), sizes),
        group_names=tuple(codes),
    )
