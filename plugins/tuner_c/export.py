"""Write ``head.h`` and ``head.c`` of a bundle whose head is solved for."""

import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.arrays import Array, Doubles
from tuner.bundle.format import Bundle
from tuner.bundle.info import TrainKind
from tuner.errors import BundleError, TunerError
from tuner.files import private_folder, write_private
from tuner.ort.parity import largest_difference, require_parity
from tuner.ridge.solve import LinearHead, solve, spread
from tuner.ridge.sums import Sums, coded
from tuner.ridge.union import Domain, UnionSettings, domain_scales, gate_sums, union_head
from tuner.runtime.train.files import REPLAY, replay_of
from tuner.runtime.train.solved import SolvedFile
from tuner.targets.strata import class_counts
from tuner_c.program import Action, compiler, program

#: Folder of the files in a bundle.
FOLDER = "c"
#: Samples that can be added on the board: with 256 features and ten labels, all takes less than 300 kB.
SAMPLES = 16
#: Most stored samples that the written head is compared on.
CHECKED = 200
#: Kinds of scores, in the order of the numbers in ``head.h``.
KINDS = ("ridge", "discriminant", "means", "joint")
_HERE = Path(__file__).parent
_COLUMNS = 100


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """What was written.

    Attributes:
        folder: Folder of ``head.h`` and ``head.c``.
        memory_bytes: Size of the struct, with floats of 32 bits.
        table_bytes: Size of the constants, which stay in flash; the code comes on top.
        difference: Largest difference of logits from the bundle's, over the largest logit; None without a C compiler.
    """

    folder: Path
    memory_bytes: int
    table_bytes: int
    difference: float | None

    @property
    def lines(self) -> tuple[str, ...]:
        """What was written, for people."""
        here = f"{self.folder}: head.h, head.c"
        sizes = f"{self.memory_bytes / 1000:.1f} kB of memory, {self.table_bytes / 1000:.1f} kB of tables in flash"
        checked = "not compiled here: there is no C compiler" if self.difference is None else "compiled and checked"
        return (f"{here}; {sizes}; {checked}",)


def write(bundle: Bundle | str | Path, folder: Path | None = None, samples: int = SAMPLES) -> Written:
    """Write the head of a bundle as C, and compare what it answers with the bundle's head where there is a compiler.

    Args:
        bundle: A bundle or its folder; its head is solved for, and it was exported with ``--trainable``.
        folder: Folder to write to; ``c`` in the bundle's where it is not given.
        samples: Samples that can be added on the board.

    Raises:
        BundleError: The head is of another kind, or the compiled one answers something else.
    """
    bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
    train, file = bundle.info.train, None
    if train is not None and train.kind == TrainKind.CLOSED_FORM:
        file = SolvedFile.load(bundle)
    if train is None or file is None or not bundle.targets.counted(bundle.labels):
        raise BundleError(
            f"{bundle.folder} has no head in closed form of one label a sample, which --c writes: export such a trial "
            "with --trainable"
        )
    folder = bundle.folder / FOLDER if folder is None else folder
    replay, outputs = replay_of(bundle, REPLAY), len(bundle.labels)
    known = Domain(coded(replay.read(np.arange(len(replay))), file.step), replay.labels, outputs, file.step)
    local = Domain(file.codes, file.labels, outputs, file.step)
    head = Head(file.given, local, known, file.settings)
    with tempfile.TemporaryDirectory() as scratch:  # nothing is left of a head that answers something else
        head.write(Path(scratch), bundle.labels, samples, bundle.info.name)
        difference = _checked(Path(scratch), head.solved, (local, known))
    head.write(private_folder(folder, BundleError), bundle.labels, samples, bundle.info.name)
    return Written(folder, head.memory_bytes(samples), head.table_bytes, difference)


def _checked(folder: Path, head: LinearHead, domains: Sequence[Domain]) -> float | None:
    """Return the largest difference of logits of stored samples from a head's; None without a C compiler."""
    if compiler() is None:
        return None
    rows = np.concatenate([one.features[:: -(-len(one) // CHECKED)] for one in domains if len(one)])
    with program(folder, *head.weight.shape[::-1]) as run:
        answers = run([Action.answer(row.astype(np.float32)) for row in rows])
    logits, expected = np.stack([one.logits for one in answers]), head.scores(rows).astype(np.float32)
    difference = largest_difference(logits, expected)
    require_parity("the written head", "the bundle", difference)
    return difference


class Head:
    """A solved head in numbers of C; features are less the mean of the user's, where the bias is apart from them.

    Arguments and errors are those of `union_head`.

    Attributes:
        solved: One linear layer that answers the same until something is learned.
    """

    def __init__(self, given: LinearHead, local: Domain, known: Domain, settings: UnionSettings) -> None:
        solved, sums = union_head(given, local, known, settings), local.sums()
        self.solved, self._given, self._local, self._scores = solved.head, given, local, settings.scores
        self._centre = (sums.gram[-1, :-1] / sums.count * sums.step).astype(np.float32)
        self._known_scale, self._own_scale, self._gate_scale, self._offset = solved.numbers
        ours, theirs = domain_scales(local, known, settings.local_weight)
        if settings.scores == "joint":
            sums = sums.weighted(ours) + known.sums().weighted(theirs)
        self._local_scale, self._known_counts = ours, class_counts(known.labels, local.outputs)
        self._penalty = settings.ridge * (spread(sums) or 1.0)
        self._ridge = solve(sums, self._penalty).head
        self._inverse = self._inverse_of(sums, self._penalty)
        self._gate: tuple[Doubles, Doubles] | None = None
        if len(known) and settings.gate != "none" and settings.scores != "joint":
            gate = gate_sums(local, known, settings.local_weight)
            penalty = settings.gate_ridge * (spread(gate) or 1.0)
            head = solve(gate, penalty).head
            self._gate = self._inverse_of(gate, penalty), self._moved(head.weight, head.bias)[0]

    def _inverse_of(self, sums: Sums, penalty: float) -> Doubles:
        """Return the inverse of penalised sums, by rows up to the diagonal; the bias has no penalty."""
        size = len(sums.gram)
        moved = np.diag(np.append(np.full(size - 1, sums.step), 1.0))
        moved[:-1, -1] = -self._centre
        inverse: Array = np.linalg.inv(
            moved @ sums.gram @ moved.T + np.diag(np.append(np.full(size - 1, penalty), 0.0))
        )
        return inverse[np.tril_indices(size)].astype(np.float64)

    def _moved(self, weight: Doubles, bias: Doubles) -> Doubles:
        """Return weights with the bias last, of features less the centre, float64 [outputs, features + 1]."""
        return np.column_stack([weight, bias + weight @ self._centre])

    def write(self, folder: Path, labels: Sequence[str], samples: int, title: str = "a head") -> None:
        """Write ``head.h`` and ``head.c`` into a folder that is there."""
        outputs, features = self._given.weight.shape
        sizes = {"features": features, "labels": outputs, "given": len(self._local), "samples": samples}
        sizes |= {"gate": int(self._gate is not None), "scores": KINDS.index(self._scores)}
        text = {name: str(value) for name, value in sizes.items()}
        # a comment holds the title, and a name of a task may hold what ends a comment
        text |= {"title": re.sub(r"[^\w .,()-]", "_", title), "tables": "\n".join(self._tables(labels))}
        for name in ("head.h", "head.c"):
            content = (_HERE / name).read_text(encoding="utf-8")
            write_private(folder / name, re.sub("@([a-z]+)@", lambda found: text[found[1]], content))

    def _arrays(self) -> Iterator[tuple[str, str, str, Array]]:
        """Yield type, name, sizes and values of each table."""
        own, known = "[HEAD_LABELS][HEAD_ROW]", self._known_scale * self._moved(self._given.weight, self._given.bias)
        yield "float", "centre", "[HEAD_FEATURES]", self._centre
        yield "float", "known_weight", own, known
        yield "float", "given_weight", own, self._moved(self._ridge.weight, self._ridge.bias)
        if self._scores == "joint":
            yield "float", "given_inverse", "[HEAD_TRIANGLE]", self._inverse
        if self._gate is not None:
            yield "float", "given_gate_inverse", "[HEAD_TRIANGLE]", self._gate[0]
            yield "float", "given_gate", "[HEAD_ROW]", self._gate[1]
        yield "float", "given_counts", "[HEAD_GIVEN]", self._local.weights
        # labels that are scored without samples of the user
        scored = (self._known_counts > 0) & (self._scores == "joint")
        yield "uint16_t", "known_labels", "[HEAD_LABELS]", scored
        yield "uint16_t", "given_labels", "[HEAD_GIVEN]", self._local.labels
        yield "int16_t", "given_codes", "[HEAD_GIVEN][HEAD_FEATURES]", self._local.codes

    def _tables(self, labels: Sequence[str]) -> Iterator[str]:
        """Yield the tables in C."""
        names = ", ".join('"' + "".join(_escaped(byte) for byte in name.encode()) + '"' for name in labels)
        yield f"const char *const head_names[HEAD_LABELS] = {{{names}}};"
        numbers = {"step": self._local.step, "own_scale": self._own_scale, "local_offset": self._offset}
        if self._gate is not None:
            numbers["gate_scale"] = self._gate_scale
        if self._gate is not None or self._scores != "means":
            numbers["local_scale"] = self._local_scale
        if self._scores in {"ridge", "discriminant"}:
            numbers["penalty"] = self._penalty
        for name, value in numbers.items():
            yield f"static const float {name} = {_number(value)};"
        for kind, name, sizes, values in self._arrays():
            yield f"static const {kind} {name}{sizes} = {{"
            yield from _rows(np.asarray(values), kind)
            yield "};"

    @property
    def table_bytes(self) -> int:
        """Size of the tables."""
        return sum((4 if kind == "float" else 2) * np.asarray(values).size for kind, _, _, values in self._arrays())

    def memory_bytes(self, samples: int) -> int:
        """Return the size of the struct."""
        outputs, features = len(self._given.weight), len(self._centre)
        row, gate = features + 1, int(self._gate is not None)
        systems = gate + int(self._scores != "means")
        reals = systems * row * (row + 1) // 2 + (outputs + gate + 2) * row
        reals += outputs * row if self._scores in {"discriminant", "means"} else 0
        size: int = 4 * (reals + len(self._local) + samples + outputs) + 2 * max(1, samples) * (features + 1)
        if self._scores != "discriminant":
            return (size + 3) // 4 * 4
        return (size + 7) // 8 * 8 + 8 * outputs * outputs  # in doubles


def _rows(values: Array, kind: str) -> Iterator[str]:
    """Yield lines of a table's numbers, with braces around each row of several."""
    if values.ndim > 1:
        for row in values:
            yield "{"
            yield from _rows(row, kind)
            yield "},"
        return
    line = ""
    for value in values:
        word = _number(float(value)) if kind == "float" else str(int(value))
        if len(line) + len(word) > _COLUMNS:
            yield line
            line = ""
        line += f"{word},"
    yield line


def _number(value: float) -> str:
    """Return a float of 32 bits in C."""
    if not np.isfinite(np.float32(value)):
        raise TunerError(f"a head in C takes numbers of 32 bits, but one is {value}: export again")
    text = f"{np.float32(value):.9g}"
    return f"{text}F" if "." in text or "e" in text else f"{text}.0F"


def _escaped(byte: int) -> str:
    """Return a byte of a string in C."""
    return chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"  # noqa: PLR2004 - ASCII
