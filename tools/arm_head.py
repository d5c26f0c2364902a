"""A head in C on an emulated ARM processor: compiled there by a compiler of one program, and compared with Python."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import coded, step_of
from tuner.ridge.union import Domain, UnionSettings
from tuner_c.export import KINDS, Head
from tuner_c.program import Action, program

#: An emulator runs no program that another one starts, as a driver of GCC does; this compiler links by itself.
COMPILER = ("bookworm", "arm64", ("libc6", "libc6-dev", "libgcc-s1", "linux-libc-dev", "tcc"))
FEATURES, LABELS, OWN, OTHERS, ADDED = 64, 10, 120, 80, 8
#: Largest difference of logits, as a share of the largest.
MOST = 1e-4


def command(emulator: Path, root: Path) -> tuple[Sequence[str], Sequence[str]]:
    """Return the command that compiles in a folder of Debian's packages, and the one that runs what it made."""
    library = root / "usr" / "lib" / "aarch64-linux-gnu" / "libm.so"
    if library.is_symlink():  # it is absolute, and would be looked up on this machine
        library.unlink()
        library.symlink_to("../../../lib/aarch64-linux-gnu/libm.so.6")
    run = [str(emulator), "-L", str(root)]
    return [*run, str(root / "usr" / "bin" / "tcc")], run


def differences(cc: Sequence[str], emulator: Sequence[str]) -> dict[str, float]:
    """Return by how much answers differ from Python's as written, for each kind of scores.

    Samples are then added and forgotten again, and the second answers differ from the first by no more.
    """
    draw = np.random.default_rng(0)
    labels = np.concatenate([draw.integers(7, LABELS, OWN + ADDED), draw.integers(0, 7, OTHERS)])
    middles = draw.uniform(0, 1, (LABELS, FEATURES))[labels]
    features = np.maximum(middles + draw.normal(0, 0.7, middles.shape), 0).astype(np.float32)
    step, rows = step_of(features), np.split(np.arange(len(labels)), [OWN, OWN + ADDED])
    local, known = (Domain(coded(features[one], step), labels[one], LABELS, step) for one in rows[::2])
    given = LinearHead(draw.normal(0, 0.05, (LABELS, FEATURES)), np.zeros(LABELS))
    answers = [Action.answer(row) for row in features[::4]]
    turns = [Action.add(int(labels[row]), features[row]) for row in rows[1]]
    turns += [Action.forget_sample(features[row]) for row in rows[1]]
    found = {}
    for scores in KINDS:
        gate = "none" if scores == "joint" else "soft"
        head = Head(given, local, known, UnionSettings(ridge=30.0, gate_ridge=30.0, scores=scores, gate=gate))
        expected = head.solved.scores(features[::4])
        with tempfile.TemporaryDirectory() as folder:
            head.write(Path(folder), [str(label) for label in range(LABELS)], ADDED)
            with program(Path(folder), FEATURES, LABELS, cc=cc, emulator=emulator) as run:
                done = run([*answers, *turns, *answers])
        logits = [np.stack([one.logits for one in part]) for part in (done[: len(answers)], done[-len(answers) :])]
        found[scores] = float(max(np.abs(own - expected).max() for own in logits) / np.abs(expected).max())
    return found
