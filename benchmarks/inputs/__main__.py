"""Is every malformed input answered in one line, at once and in little memory?

`benchmarks.inputs.malformed` writes task files, search spaces, plans, model files, manifests, images, arrays,
recordings, options and code that no command can use. The command line is given each in a process of its own, with a
deadline and a limit on its memory. An answer is one line on stderr that begins with ``tuner:``, and exit code 1 or 2.
Hostile bundles are the subject of `benchmarks.limits.hostile.bundles`.
"""

import importlib
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from benchmarks.inputs.malformed import Case, cases
from benchmarks.inputs.misread import misread
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.limits.hostile.child import ACCEPTED, ONE_LINE, Outcome, confined

HARMLESS, SAID, MEMORY, MANY_LINES, SILENT = "harmless", "said", "memory", "many lines", "silently wrong"
OUTCOMES = (ONE_LINE, HARMLESS, SAID, ACCEPTED, "traceback", MANY_LINES, "hang", MEMORY, SILENT)
#: Those that are right.
GOOD = frozenset({ONE_LINE, HARMLESS, SAID})
DEADLINE_SECONDS = 60.0
#: Data of the process, and of each that it starts.
MOST_BYTES = 12_000_000_000
RESIDENT_BYTES = 1_000_000_000
LEAST_CASES = 250
#: What the forked processes need not import again.
WARM = (
    *(f"tuner.commands.{name}" for name in ("tune.dry_run", "tune.run", "bundles.export", "plugins")),
    *("tuner.task.file.schema", "tuner_store.store", "tuner_watch.watch", "tuner_describe.description"),
)


def main() -> None:
    """Give the command line every input; print outcomes and claims."""
    parser = benchmark_parser(__doc__, "leave out what starts PyTorch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only inputs whose name holds this text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TUNER_CACHE"] = f"{scratch}/cache"
        os.environ.pop("TUNER_DATA", None)
        for name in WARM:
            importlib.import_module(name)
        place, answers = Path(scratch) / "inputs", list[tuple[str, Outcome]]()
        place.mkdir()
        os.chdir(place)
        for case in (*cases(place, options.seed), *misread(place)):
            if options.only in case.name and not (options.quick and case.name.startswith(("code: ", "misread: "))):
                answer = answer_to(case)
                answers.append((case.name, answer))
                if answer.kind not in GOOD or answer.seconds > DEADLINE_SECONDS / 3:
                    print(f"{answer.kind} after {answer.seconds:.1f} s: {case.name}\n    {answer.line}", flush=True)
        os.chdir("/")
    finish("inputs", rows_of(answers), claims_of([answer for _, answer in answers]), options.json)


def answer_to(case: Case) -> Outcome:
    """Give the command line an input, in a process of its own."""
    answer = confined(lambda: _command(case.argv, dict(case.environment)), None, DEADLINE_SECONDS, MOST_BYTES)
    inherited = psutil.Process().memory_info().rss  # a forked process begins with it
    if answer.peak_bytes > RESIDENT_BYTES + inherited or answer.kind == "killed by signal 9":
        return replace(answer, kind=MEMORY)
    if case.must_say and answer.kind in {ONE_LINE, MANY_LINES, ACCEPTED}:
        if re.search(case.must_say, answer.output + answer.errors) is None:
            return replace(answer, kind=SILENT)
        if answer.kind == ACCEPTED:
            return replace(answer, kind=SAID)
    if answer.kind in {ONE_LINE, MANY_LINES}:  # what a run says of its progress is no answer
        said = [line for line in answer.errors.splitlines() if line.startswith("tuner: ")]
        is_answer = said == [answer.line] and answer.line.isprintable()
        return replace(answer, kind=ONE_LINE if is_answer else MANY_LINES)
    return replace(answer, kind=HARMLESS) if answer.kind == ACCEPTED and case.is_harmless else answer


def _command(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Be the command line, in this process; in a fresh one where the environment is another."""
    if environment:
        os.execve(  # noqa: S606 - no shell is wanted
            sys.executable, [sys.executable, "-m", "tuner", *argv], {**os.environ, **environment}
        )
    from tuner.__main__ import main as program

    sys.argv = ["tuner", *argv]
    try:
        program()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 70
    return 0


def rows_of(answers: Sequence[tuple[str, Outcome]]) -> list[Row]:
    """Return the outcomes by kind of input, and all of them."""
    groups: dict[str, list[Outcome]] = {}
    for name, answer in answers:
        groups.setdefault(name.partition(":")[0], []).append(answer)
    rows: list[Row] = []
    for kind, of_kind in {**groups, "all inputs": [answer for _, answer in answers]}.items():
        counts = Counter(answer.kind for answer in of_kind)
        slowest = max((answer.seconds for answer in of_kind), default=0.0)
        rows.append(
            {"input": kind, "cases": len(of_kind), **{one: counts[one] for one in OUTCOMES}, "slowest s": slowest}
        )
    return rows


def claims_of(answers: Sequence[Outcome]) -> list[Claim]:
    """Return what must hold for every input."""
    counts, total = Counter(answer.kind for answer in answers), len(answers)
    good = sum(counts[kind] for kind in GOOD)
    rest = ", ".join(f"{count} {kind}" for kind, count in counts.items() if kind != ONE_LINE)
    return [
        Claim(
            f"at least {LEAST_CASES} inputs get one line, are harmless or told of: none hangs, none is silently wrong",
            "none published: the bound is this project's",
            f"{good} of {total}{'; ' + rest if rest else ''}",
            good == total >= LEAST_CASES,
        )
    ]


if __name__ == "__main__":
    main()
