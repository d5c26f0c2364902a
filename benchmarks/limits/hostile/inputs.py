"""Is every malformed input answered in one line, at once and in little memory?

`benchmarks.limits.hostile.malformed` writes task files, search spaces, plans, model files, manifests, images, arrays,
recordings, options and code that no command can use; `benchmarks.limits.hostile.misread` writes what is easily taken
for something else, and what must be said of it: an answer without that is *silently wrong*. The command line is given each in a process of its own, with a
deadline and a limit on its memory. An answer is one line on stderr that begins with ``tuner:``, and exit code 1 or 2.
Hostile bundles are the subject of `benchmarks.limits.hostile.bundles`.
"""

import contextlib
import importlib
import io
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import psutil

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.limits.hostile.malformed import Case, cases
from benchmarks.limits.hostile.misread import misread

OUTCOMES = ("one line", "harmless", "said", "accepted", "traceback", "several lines", "hang", "memory", "silently wrong")
#: Those that are right.
GOOD = frozenset({"one line", "harmless", "said"})
DEADLINE_SECONDS = 60.0
#: Address space of the process, and of those it starts: PyTorch takes half of it.
MOST_BYTES = 12_000_000_000
RESIDENT_BYTES = 1_000_000_000
LEAST_CASES = 250
#: What the forked processes need not import again.
WARM = ("tasks.describe", "tune.dry_run", "tune.run", "bundles.export", "bundles.watch", "plugins", "store")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the command line did with an input.

    Attributes:
        case: The input's name.
        outcome: One of `OUTCOMES`.
        seconds: Wall time.
        line: Last line on stderr.
    """

    case: str
    outcome: str
    seconds: float
    line: str


def main() -> None:
    """Give the command line every input; print outcomes and claims."""
    parser = benchmark_parser(__doc__, "leave out what starts PyTorch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only inputs whose name holds this text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TUNER_CACHE"] = f"{scratch}/cache"
        os.environ.pop("TUNER_DATA", None)
        for command in WARM:
            importlib.import_module(f"tuner.commands.{command}")
        importlib.import_module("tuner.task.file.schema")
        place, answers = Path(scratch) / "inputs", list[Answer]()
        place.mkdir()
        os.chdir(place)
        for case in (*cases(place, options.seed), *misread(place)):
            if options.only in case.name and not (options.quick and case.name.startswith(("code: ", "misread: "))):
                answers.append(answer_to(case, Path(scratch)))
                show(answers[-1])
        os.chdir("/")
    finish("inputs", rows_of(answers), claims_of(answers), options.json)


def answer_to(case: Case, scratch: Path) -> Answer:
    """Give the command line an input, in a process of its own that is killed when it takes too long."""
    out, err = scratch / "stdout", scratch / "stderr"
    began = time.monotonic()
    pid = os.fork() or _command(case.argv, dict(case.environment), out, err)
    code, usage = _ended(pid, began + DEADLINE_SECONDS)
    lines = err.read_bytes().decode(errors="replace").splitlines()
    outcome = _outcome(code, usage, lines)
    outcome = "harmless" if outcome == "accepted" and case.is_harmless else outcome
    if case.must_say and outcome in {"accepted", "one line"}:
        answer = out.read_bytes().decode(errors="replace") + "\n".join(lines)
        is_said = re.search(case.must_say, answer) is not None
        outcome = "silently wrong" if not is_said else "said" if outcome == "accepted" else outcome
    return Answer(case.name, outcome, time.monotonic() - began, lines[-1] if lines else "")


def _command(argv: Sequence[str], environment: Mapping[str, str], out: Path, err: Path) -> NoReturn:
    """Be the command line, in a forked process; in a fresh one where the environment is another."""
    os.setsid()
    for path, descriptor in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    if environment:
        os.execve(  # noqa: S606 - no shell is wanted
            sys.executable, [sys.executable, "-m", "tuner", *argv], {**os.environ, **environment}
        )
    from tuner.__main__ import main as program

    sys.argv = ["tuner", *argv]
    sys.stdout, sys.stderr = (io.TextIOWrapper(os.fdopen(descriptor, "wb")) for descriptor in (1, 2))
    try:
        program()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 70
    except BaseException:  # noqa: BLE001 - this is what is looked for
        traceback.print_exc()
        code = 70
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def _ended(pid: int, deadline: float) -> tuple[int | None, resource.struct_rusage]:
    """Wait for a process; return its exit code, None where it had to be killed, and what it used."""
    code: int | None = None
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            _, _, usage = os.wait4(pid, 0)
            break
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what it started and did not end
    return code, usage


def _outcome(code: int | None, usage: resource.struct_rusage, lines: list[str]) -> str:
    if code is None:
        return "hang"
    inherited = psutil.Process().memory_info().rss  # a forked process begins with it
    if usage.ru_maxrss * 1024 > RESIDENT_BYTES + inherited or code == -signal.SIGKILL:
        return "memory"
    if any(line.startswith("Traceback") for line in lines):
        return "traceback"
    if code == 0:
        return "accepted"
    answers = [line for line in lines if line.startswith("tuner: ")]
    is_answer = code in {1, 2} and len(answers) == 1 and lines[-1:] == answers and answers[0].isprintable()
    return "one line" if is_answer else "several lines"


def show(answer: Answer) -> None:
    """Print an answer that is not one line, or was late, at once."""
    if answer.outcome not in GOOD or answer.seconds > DEADLINE_SECONDS / 3:
        print(f"{answer.outcome} after {answer.seconds:.1f} s: {answer.case}\n    {answer.line[:300]}", flush=True)


def rows_of(answers: list[Answer]) -> list[Row]:
    """Return the outcomes by kind of input, and all of them."""
    groups: dict[str, list[Answer]] = {}
    for answer in answers:
        groups.setdefault(answer.case.partition(":")[0], []).append(answer)
    rows: list[Row] = []
    for kind, of_kind in {**groups, "all inputs": answers}.items():
        counts = Counter(answer.outcome for answer in of_kind)
        slowest = max((answer.seconds for answer in of_kind), default=0.0)
        rows.append(
            {"input": kind, "cases": len(of_kind), **{one: counts[one] for one in OUTCOMES}, "slowest s": slowest}
        )
    return rows


def claims_of(answers: list[Answer]) -> list[Claim]:
    """Return what must hold for every input."""
    counts, total = Counter(answer.outcome for answer in answers), len(answers)
    good = sum(counts[one] for one in GOOD)
    rest = ", ".join(f"{counts[one]} {one}" for one in OUTCOMES[1:] if counts[one])
    return [
        Claim(
            f"at least {LEAST_CASES} malformed inputs get one line each or are harmless: no traceback, no hang, none silently wrong",
            "none published: the bound is this project's",
            f"{good} of {total}{'; ' + rest if rest else ''}",
            good == total >= LEAST_CASES,
        )
    ]


if __name__ == "__main__":
    main()
