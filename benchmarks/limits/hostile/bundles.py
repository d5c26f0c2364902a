"""Bundles from elsewhere that mean harm: each is refused in one line, and nothing outside its folder is touched.

More than a hundred are made of two bundles of the digits, by a seed: names that lead out of the folder, links, pipes,
sizes that are declared and not there, graphs that grow, damaged rounds. Each goes to a command in a child of its own,
next to a canary folder that must stay as it is. The claims: every one is refused in one line or is harmless, none takes
more than 20 s or 1 GB.
"""

import importlib
import os
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.inputs.malformed import Case
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.limits.hostile.cases import cases
from benchmarks.limits.hostile.child import ACCEPTED, ONE_LINE, Outcome, confined

MOST_SECONDS, MOST_BYTES = 20.0, 10**9
#: What the children inherit; no session is opened, as its threads do not survive a fork.
WARM = ("onnxruntime", "pydantic", "tuner.cli.app", "tuner_watch.watch", "tuner.runtime.train.exits")


def judged(case: Case, canary: Path) -> Outcome:
    """Run one case in a child, under the deadline and twice the claimed memory."""
    from tuner.cli.app import call

    outcome = confined(lambda: call(list(case.argv)), canary, MOST_SECONDS, 2 * MOST_BYTES)
    if "\x1b" in outcome.output or "\x1b" in outcome.line:
        return Outcome("steers the terminal", outcome.line, outcome.seconds, outcome.peak_bytes)
    return outcome


def is_well(case: Case, outcome: Outcome) -> bool:
    """Return whether a case ended as it should."""
    return outcome.kind == ONE_LINE or (case.is_harmless and outcome.kind == ACCEPTED)


def main() -> None:
    """Print the outcomes, what is wrong, and the claims."""
    parser = benchmark_parser(__doc__, "every fourth case")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    kinds, wrong, count = Counter[str](), list[Row](), 0
    slowest, largest = ("", 0.0), ("", 0)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TUNER_CACHE"] = str(Path(folder, "cache"))
        for name in WARM:
            importlib.import_module(name)
        for number, case in enumerate(cases(Path(folder), arguments.seed)):
            if arguments.quick and number % 4:
                continue
            outcome = judged(case, Path(folder, "canary"))
            count += 1
            kinds[outcome.kind if is_well(case, outcome) or outcome.kind != ACCEPTED else "accepted wrongly"] += 1
            slowest = max(slowest, (case.name, outcome.seconds), key=lambda pair: pair[1])
            largest = max(largest, (case.name, outcome.peak_bytes), key=lambda pair: pair[1])
            if not is_well(case, outcome):
                wrong.append({"case": case.name, "outcome": outcome.kind, "says": outcome.line[:120]})
    rows: list[Row] = [{"outcome": kind, "bundles": number} for kind, number in kinds.most_common()]
    within = slowest[1] <= MOST_SECONDS and largest[1] <= MOST_BYTES
    claims = [
        Claim("every hostile bundle is refused in one line, or harmless; nothing outside is read or written",
              "project's bound", f"{count - len(wrong)} of {count}", not wrong),
        Claim(f"none takes more than {MOST_SECONDS:.0f} s or {MOST_BYTES / 1e9:.0f} GB", "project's bound",
              f"{slowest[1]:.1f} s ({slowest[0]}), {largest[1] / 1e6:.0f} MB ({largest[0]})", within),
    ]  # fmt: skip
    finish("hostile_bundles", [*rows, *wrong], claims, arguments.json)


if __name__ == "__main__":
    main()
