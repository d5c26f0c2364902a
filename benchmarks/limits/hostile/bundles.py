"""Bundles from elsewhere that mean harm: each is refused in one line, and nothing outside its folder is touched.

More than a hundred are made of two bundles of the digits, by a seed: names that lead out of the folder, links, pipes,
sizes that are declared and not there, graphs that grow, damaged rounds. Each goes to a command in a child of its own,
next to a canary folder that must stay as it is. The claims: every one is refused in one line or is harmless, none takes
more than 20 s or 1 GB.
"""

import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.limits.hostile.cases import cases
from benchmarks.limits.hostile.malformed import Case

#: Exit codes of a child that broke a rule of its own; the command line's are 0, 1, 2 and 130.
TRACEBACK, TOUCHED = 70, 71
WATCHED = ("open", "os.", "shutil.", "glob.", "tempfile.")
ONE_LINE = "one line"
MOST_SECONDS, MOST_BYTES = 20.0, 10**9


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended.

    Attributes:
        kind: ``one line``, ``accepted``, ``traceback``, ``hang``, ``killed``, ``outside`` or ``many lines``.
        line: Last line that it printed on stderr.
        seconds: Wall time.
        peak_bytes: Most resident memory, that of the warmed process included.
        output: What it printed on stdout.
    """

    kind: str
    line: str
    seconds: float
    peak_bytes: int
    output: str = ""


def confined(action: Callable[[], int], canary: Path, seconds: float = 20.0, most_bytes: int = 4 * 10**9) -> Outcome:
    """Call in a forked child, under a deadline and a limit of memory.

    Args:
        action: Returns an exit code as the command line does: 0 done, 1 a mistake told in one line.
        canary: Folder that nothing may touch.
        seconds: Time after which the child counts as hanging.
        most_bytes: Bytes of data that the child may have.
    """
    before, began = _content(canary), time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if not child:
            _run(action, canary, most_bytes, out.fileno(), err.fileno())
        status, usage, hangs = _wait(child, began + seconds)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    kind = _kind(status, texts[1], hangs=hangs, touched=_content(canary) != before)
    last = (texts[1].strip().splitlines() or [""])[-1]
    return Outcome(kind, last, time.monotonic() - began, usage * 1024, texts[0])


def _run(action: Callable[[], int], canary: Path, most_bytes: int, out: int, err: int) -> None:
    """Be the child; does not return."""
    code = TRACEBACK
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
        touched: list[str] = []
        inside = os.path.realpath(canary)

        def watch(event: str, arguments: Sequence[Any]) -> None:
            if event.startswith(WATCHED):
                for argument in arguments[:2]:
                    if isinstance(argument, str | bytes | os.PathLike):
                        with suppress(OSError, ValueError):
                            path = os.path.realpath(os.fsdecode(argument))
                            if path == inside or path.startswith(inside + os.sep):
                                touched.append(f"{event} {path}")

        sys.addaudithook(watch)
        code = action()
        if touched:
            print(f"touched: {touched[0]}", file=sys.stderr)
            code = TOUCHED
    except BaseException:  # noqa: BLE001 - whatever it is, it is the finding
        traceback.print_exc()
        code = TRACEBACK
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _wait(child: int, end: float) -> tuple[int, int, bool]:
    """Return the child's status, its peak in KiB, and whether it had to be killed."""
    while time.monotonic() < end:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            return status, usage.ru_maxrss, False
        time.sleep(0.002)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    return status, usage.ru_maxrss, True


def _kind(status: int, errors: str, *, hangs: bool, touched: bool) -> str:
    code = os.waitstatus_to_exitcode(status)
    if touched or code == TOUCHED:
        return "outside"
    if hangs:
        return "hang"
    if code < 0:
        return f"killed by signal {-code}"
    if code == TRACEBACK:
        return "traceback"
    if code == 0:
        return "accepted"
    return ONE_LINE if len(errors.strip().splitlines()) == 1 else "many lines"


def _content(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return what would show a change of a folder: modes, times and contents."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
    }


def judged(case: Case, canary: Path) -> Outcome:
    """Run one case in a child, under the deadline and twice the claimed memory."""
    from tuner.cli.app import call

    outcome = confined(lambda: call(list(case.argv)), canary, MOST_SECONDS, 2 * MOST_BYTES)
    if "\x1b" in outcome.output or "\x1b" in outcome.line:
        return Outcome("steers the terminal", outcome.line, outcome.seconds, outcome.peak_bytes)
    return outcome


def is_well(case: Case, outcome: Outcome) -> bool:
    """Return whether a case ended as it should."""
    return outcome.kind == ONE_LINE or (case.is_harmless and outcome.kind == "accepted")


def main() -> None:
    """Print the outcomes, what is wrong, and the claims."""
    parser = benchmark_parser(__doc__, "every fourth case")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    kinds, wrong, count = Counter[str](), list[Row](), 0
    slowest, largest = ("", 0.0), ("", 0)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TUNER_CACHE"] = str(Path(folder, "cache"))
        warm()
        for number, case in enumerate(cases(Path(folder), arguments.seed)):
            if arguments.quick and number % 4:
                continue
            outcome = judged(case, Path(folder, "canary"))
            count += 1
            kinds[outcome.kind if is_well(case, outcome) or outcome.kind != "accepted" else "accepted wrongly"] += 1
            slowest = max(slowest, (case.name, outcome.seconds), key=lambda pair: pair[1])
            largest = max(largest, (case.name, outcome.peak_bytes), key=lambda pair: pair[1])
            if not is_well(case, outcome):
                wrong.append({"case": case.name, "outcome": outcome.kind, "says": outcome.line[:120]})
    rows: list[Row] = [{"outcome": kind, "bundles": number} for kind, number in kinds.most_common()]
    within = slowest[1] <= MOST_SECONDS and largest[1] <= MOST_BYTES
    claims = [
        Claim(
            "every hostile bundle is refused in one line, or harmless; nothing outside is read or written",
            "project's bound",
            f"{count - len(wrong)} of {count}",
            not wrong,
        ),
        Claim(
            f"none takes more than {MOST_SECONDS:.0f} s or {MOST_BYTES / 1e9:.0f} GB",
            "project's bound",
            f"{slowest[1]:.1f} s ({slowest[0]}), {largest[1] / 1e6:.0f} MB ({largest[0]})",
            within,
        ),
    ]
    finish("hostile_bundles", [*rows, *wrong], claims, arguments.json)


def warm() -> None:
    """Import what the commands import, once; no session is opened, as its threads do not survive a fork."""
    import onnxruntime  # noqa: F401 - the children inherit it
    import pydantic  # noqa: F401

    import tuner.cli.app
    import tuner.commands.bundles.watch
    import tuner.runtime.train.exits  # noqa: F401


if __name__ == "__main__":
    main()
