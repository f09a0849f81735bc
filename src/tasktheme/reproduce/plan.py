"""What is run for the whole paper: pieces, each a command of this program, at three scales.

A piece has a folder of its own, ``OUT/NAME``. In its command ``{here}`` stands for that folder and ``{NAME}`` for the folder of
an earlier piece, so a piece's inputs are the names in its command.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter

LIFELONG = (("maml", "induction"), ("maml", "transduction"), ("protonet", "induction"), ("abml", "induction"))  # the paper's
WORST_CASE = "lifelong-worst-case"


@dataclass(frozen=True)
class Piece:
    """A command, and the file in its folder that is there when it is done."""

    name: str
    command: str
    makes: str

    @property
    def needs(self) -> tuple[str, ...]:
        """The pieces whose folders the command reads."""
        named = (field for _, field, _, _ in Formatter().parse(self.command) if field)
        return tuple(dict.fromkeys(name for name in named if name != "here"))

    def words(self, out: Path) -> list[str]:
        """The command with its folders below ``out``."""
        folders = {name: str(out / name) for name in self.needs} | {"here": str(out / self.name)}
        return [word.format(**folders) for word in shlex.split(self.command)]


@dataclass(frozen=True)
class Scale:
    """How large everything is; options are written as on the command line.

    Attributes:
        about: in a few words.
        omniglot, mini_imagenet: the data that stand in for each, the same for both if there is only one.
        size: side of the images in pixels.
        model, maml: options of ``fit`` and of ``meta-train maml``, by data set.
        tested: test tasks of each meta-learner, a number or "all".
        known: training tasks that distances are measured to.
        lifelong: options of all lifelong experiments; learners: those of each.
        worst_case: options of one more, of MAML in induction with all policies, where the others go without the worst case.
    """

    about: str
    omniglot: str
    mini_imagenet: str
    size: int
    model: Mapping[str, str]
    maml: Mapping[str, str]
    tested: Mapping[str, str]
    known: int
    lifelong: str
    learners: Mapping[str, str]
    worst_case: str = ""


SCALES = {
    "tiny": Scale(
        about="the embedded glyphs in the place of both data sets, very short trainings; shows that all runs, not what is true",
        omniglot="glyphs",
        mini_imagenet="glyphs",
        size=64,
        model={
            "glyphs": "--tasks 600 --latent-dim 32 --set covariance_floor=0.2 --set covariance_prior=0 "
            "--set batch_tasks=5 --set t_shots=5 --set v_shots=5 --set learning_rate=2e-3 "
            "--set polish_tasks=200 --set polish_sweeps=10"
        },
        maml={
            "glyphs": "--tasks 300 --queries 5 --set filters=8 --set batch_tasks=4 --set inner_steps=2 --set test_steps=3 "
            "--set inner_rate=0.1"
        },
        tested={"glyphs": "200"},
        known=200,
        lifelong="--seeds 2 --steps 8 --tasks 12 --set pool=4 --set evaluate_every=2 --set test_tasks=4 --set queries=3 "
        "--set filters=8",
        learners={
            "maml": "--set inner_steps=2 --set test_steps=3 --set inner_rate=0.1",
            "protonet": "",
            "abml": "--set inner_steps=2 --set test_steps=3 --set inner_rate=0.1",
        },
    ),
    "small": Scale(
        about="the real data at 32x32 pixels, short trainings; shows where it goes",
        omniglot="omniglot",
        mini_imagenet="mini-imagenet",
        size=32,
        model=dict.fromkeys(
            ("omniglot", "mini-imagenet"),
            "--tasks 6000 --set covariance=diagonal --set t_shots=5 --set v_shots=5 --set batch_tasks=5 --set network_start=data",
        ),
        maml={
            "omniglot": "--tasks 6000 --queries 5 --set filters=16 --set batch_tasks=4 --set inner_rate=0.4 "
            "--set inner_steps=1 --set test_steps=3",
            "mini-imagenet": "--tasks 4000 --queries 5 --set filters=16 --set batch_tasks=4 --set inner_steps=3 "
            "--set test_steps=5 --set inner_rate=0.05 --set validation_tasks=100",
        },
        tested={"omniglot": "400", "mini-imagenet": "400"},
        known=1000,
        lifelong="--seeds 2 --steps 60 --tasks 100 --set pool=10 --set evaluate_every=10 --set test_tasks=20 --set queries=5 "
        "--set filters=16",
        learners={
            "maml": "--set inner_steps=3 --set test_steps=5 --set inner_rate=0.05",
            "protonet": "",
            "abml": "--set inner_steps=2 --set test_steps=3 --set inner_rate=0.05 --set test_samples=3",
        },
    ),
    "paper": Scale(
        about="the paper's data, networks, tests and pool, on one GPU; of its 300,000 steps of lifelong learning 10,000 (ABML: "
        "3,000, worst case: 1,000, in induction alone), where means of weights over about 1,000 steps are tested, not the last",
        omniglot="omniglot",
        mini_imagenet="mini-imagenet",
        size=64,
        model={
            "omniglot": "--tasks 1000000",
            "mini-imagenet": "--tasks 200000 --latent-dim 128 --set filters=[32,64,128,256] --set t_shots=16 --set v_shots=16 "
            "--compile",
        },
        maml={
            "omniglot": "--tasks 100000 --set filters=64 --set batch_tasks=32 --set inner_rate=0.4 --set inner_steps=1 "
            "--set test_steps=3",
            "mini-imagenet": "--tasks 240000 --set inner_rate=0.05 --set augment=true --compile",
        },
        tested={"omniglot": "10000", "mini-imagenet": "all"},
        known=10_000,
        lifelong="--seeds 3 --set average=1000",  # one test of the last weights catches them where they happen to swing
        learners={
            "maml": "--policies ptm,task2vec,random --steps 10000 --compile",
            "protonet": "--policies ptm,task2vec,random --steps 10000 --compile",
            "abml": "--policies ptm,task2vec,random --steps 3000 --tasks 1500",
        },
        worst_case="--policies ptm,task2vec,worst-case,random --steps 1000 --tasks 3000",
    ),
}


def make_plan(scale: Scale) -> list[Piece]:
    """The pieces in an order in which they can run."""
    data, side = dict.fromkeys((scale.omniglot, scale.mini_imagenet)), f"--size {scale.size}"
    pieces = []
    for name in data:
        fit = f"fit {name} --out {{here}}/model {scale.model[name]} {side} --resume"
        train = f"meta-train maml {name} --out {{here}}/run {scale.maml[name]} {side} --resume"
        pieces += [Piece(f"model-{name}", fit, "model"), Piece(f"maml-{name}", train, "run")]

    def add(piece: str, command: str, makes: str) -> None:
        pieces.append(Piece(piece, f"{command} --out {{here}} {side} --overwrite", makes))

    matrix = f"experiment distance-matrix {scale.omniglot} --model {{model-{scale.omniglot}}}/model"
    add("matrix", matrix, "distance-matrix.json")
    simplex = "plot simplex {matrix}/distance-matrix.parquet --out {here}/simplex.png --overwrite"
    pieces.append(Piece("simplex", simplex, "simplex.png"))
    photos = scale.mini_imagenet
    histogram = f"experiment accuracy-histogram {photos} --learner {{maml-{photos}}}/run --tasks {scale.tested[photos]}"
    add("histogram", histogram, "accuracy-histogram.json")
    for name in data:
        tested = f"{name} --learner {{maml-{name}}}/run --model {{model-{name}}}/model --tasks {scale.tested[name]}"
        add(f"entropy-{name}", f"experiment entropy-accuracy {tested}", "entropy-accuracy.json")
        distance = f"experiment distance-accuracy {tested} --training-tasks {scale.known}"
        add(f"distance-{name}", distance, "distance-accuracy.json")

    def add_lifelong(piece: str, learner: str, setting: str, options: str) -> None:
        arms = f"--learner {learner} --setting {setting} --model {{model-{photos}}}/model --probe {{maml-{photos}}}/run"
        words = " ".join(part for part in (scale.lifelong, options, side) if part)
        command = f"experiment lifelong {photos} {arms} {words} --out {{here}}"
        pieces.append(Piece(piece, command, f"{learner}-{setting}/lifelong.json"))

    for learner, setting in LIFELONG:
        add_lifelong(f"lifelong-{learner}-{setting}", learner, setting, scale.learners[learner])
    if scale.worst_case:
        add_lifelong(WORST_CASE, "maml", "induction", scale.worst_case)
    return pieces


def with_inputs(plan: list[Piece], names: set[str]) -> list[Piece]:
    """The named pieces and all that they need, in the plan's order."""
    wanted = set(names)
    for piece in reversed(plan):
        if piece.name in wanted:
            wanted.update(piece.needs)
    return [piece for piece in plan if piece.name in wanted]
