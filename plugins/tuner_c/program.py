"""The written head as a program of this device: compiled, and asked through a pipe."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.arrays import Array, Floats
from tuner.errors import BundleError

FLAGS = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2")
_ANSWER, _ADD, _FORGET, _FORGET_SAMPLE, _INIT = range(5)


@dataclass(frozen=True, slots=True, eq=False)
class Action:
    """What the program is to do.

    Attributes:
        number: Of the function.
        label: Its label, if it takes one.
        features: Its sample, if it takes one, float32 [features].
        times: How often.
    """

    number: int
    label: int = 0
    features: Floats | None = None
    times: int = 1

    @property
    def is_answer(self) -> bool:
        """Whether it is a call of ``head_answer``."""
        return self.number == _ANSWER

    @classmethod
    def answer(cls, features: Floats, times: int = 1) -> "Action":
        """Call ``head_answer``."""
        return cls(_ANSWER, 0, features, times)

    @classmethod
    def add(cls, label: int, features: Floats) -> "Action":
        """Call ``head_add``."""
        return cls(_ADD, label, features)

    @classmethod
    def forget(cls, label: int) -> "Action":
        """Call ``head_forget``."""
        return cls(_FORGET, label)

    @classmethod
    def forget_sample(cls, features: Floats) -> "Action":
        """Call ``head_forget_sample``."""
        return cls(_FORGET_SAMPLE, 0, features)

    @classmethod
    def init(cls) -> "Action":
        """Call ``head_init``; the result is the size of the struct in bytes."""
        return cls(_INIT)


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """What an action gave.

    Attributes:
        result: What the function returned.
        microseconds: Time on a processor, for each time.
        logits: Those of the last answer, float32 [labels].
    """

    result: int
    microseconds: float
    logits: Floats


def compiler() -> str | None:
    """Return the C compiler of this device, if there is one."""
    return shutil.which("cc")


@contextmanager
def program(
    folder: Path, features: int, labels: int, *flags: str, cc: Sequence[str] = (), emulator: Sequence[str] = ()
) -> Iterator[Callable[[Sequence[Action]], list[Done]]]:
    """Compile the head in a folder; what is yielded carries out actions from ``head_init`` on.

    Args:
        folder: Folder of ``head.h`` and ``head.c``.
        features: Number of features of a sample.
        labels: Number of labels.
        flags: Further flags of the compiler, such as ``-DHEAD_REAL=double``.
        cc: Command that compiles; that of this device where it is not given.
        emulator: Command that runs the program, where this device's processor does not.

    Raises:
        BundleError: There is no compiler, it refuses the head, or the program ends early.
    """
    asked = np.dtype([("action", "=i4"), ("label", "=i4"), ("times", "=i4"), ("features", "=f4", features)])
    done = np.dtype([("result", "=i4"), ("microseconds", "=f4"), ("logits", "=f4", labels)])
    with tempfile.TemporaryDirectory() as scratch:
        binary = Path(scratch) / "head"
        sources = [str(folder / "head.c"), str(Path(__file__).parent / "driver.c"), "-I", str(folder)]
        _run([*(cc or [compiler() or "cc"]), *FLAGS, *flags, *sources, "-o", str(binary), "-lm"])

        def run(actions: Sequence[Action]) -> list[Done]:
            given = np.zeros(len(actions), asked)
            for row, action in zip(given, actions, strict=True):
                row["action"], row["label"], row["times"] = action.number, action.label, action.times
                row["features"] = 0 if action.features is None else action.features
            answers: Array = np.frombuffer(_run([*emulator, str(binary)], given.tobytes()), done)
            if len(answers) != len(actions):
                raise BundleError(f"the head in {folder} ended early: write it again")
            return [Done(int(one["result"]), float(one["microseconds"]), one["logits"].copy()) for one in answers]

        yield run


def _run(command: Sequence[str], given: bytes = b"") -> bytes:
    """Return what a command writes; a BundleError says how it failed."""
    try:
        ended = subprocess.run(command, input=given, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", b"") or str(error).encode()
        raise BundleError(
            f"{command[0]} failed ({said.decode(errors='replace').strip()[:300]}): write the head again"
        ) from None
    return ended.stdout
