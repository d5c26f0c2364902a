"""Files changed at random: every reader succeeds or raises one `TunerError`; anything else is a finding.

``--seconds 3600`` is the whole; a minute finds what is easily found. Seeds are real files of every kind that people
write or copy: tasks, search spaces, plans, priors, bundles, runs, records, journals, states of services, recordings. A
change is of bytes (flipped, cut, doubled), or of a value anywhere in JSON or TOML. What fails is kept in ``--out``, and
its path printed.
"""

import json
import random
import resource
import shutil
import signal
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import tomli_w

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.limits.hostile.fuzz_rooms import rooms
from tuner.errors import TunerError

MOST_SECONDS, MOST_BYTES = 10, 4 * 10**9
ODD: tuple[Any, ...] = (
    *(0, 1, -1, 2**31, 2**63, -(2**63), 10**30, 0.0, -0.5, 1e308, 5e-324, float("nan"), float("inf")),
    *("", "x", "\0", "../..", "/dev/zero", "\x1b[2J", "ü" * 300, "1", "nan", "[/]", True, False),
    *([], {}, [[]], [1, "a"], {"a": {}}, [0] * 1000),
)


def changed(draw: random.Random, content: bytes, name: str) -> bytes:
    """Return a file's content after one change or several."""
    with suppress(ValueError, TypeError, AttributeError):  # bytes that are not what the name says, or cannot be written
        if draw.random() < 0.6:
            if name.endswith(".json"):
                return json.dumps(_odd(draw, json.loads(content))).encode()
            if name.endswith(".toml"):
                return tomli_w.dumps(_odd(draw, tomllib.loads(content.decode()))).encode()
            if name.endswith((".jsonl", ".log")):
                lines = content.splitlines(keepends=True)
                at = draw.randrange(len(lines))
                lines[at] = json.dumps(_odd(draw, json.loads(lines[at]))).encode() + b"\n"
                return b"".join(lines)
    result = bytearray(content)
    for _ in range(draw.choice([1, 1, 4, 32])):
        at = draw.randrange(len(result) + 1)
        end = min(len(result), at + draw.choice([1, 2, 8, 200]))
        result[at:end] = draw.choice(
            [bytes([draw.randrange(256)]), b"", result[at:end] * 2, draw.randbytes(end - at), b"\xff" * 8, b"[" * 2000]
        )
    return bytes(result)


def _odd(draw: random.Random, content: Any) -> Any:
    """Put an odd value, or another value of the same file, somewhere into what JSON or TOML holds."""
    places: list[tuple[Any, Any]] = []
    stack = [content]
    while stack:
        one = stack.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        places += [(one, key) for key in keys]
        stack += [one[key] for key in keys]
    for _ in range(draw.choice([1, 1, 1, 3])):
        holder, key = draw.choice(places)
        other, at = draw.choice(places)
        with suppress(KeyError, IndexError):
            how = draw.random()
            if how < 0.15:
                del holder[key]
            elif how < 0.3 and isinstance(holder, dict):
                holder[draw.choice(["x", "", "class", key + "s"])] = draw.choice(ODD)
            elif how < 0.5:
                holder[key] = json.loads(json.dumps(other[at]))
            else:
                holder[key] = draw.choice(ODD)
    return content


def fuzz(seconds: float, seed: int, out: Path, wanted: Sequence[str] = ()) -> tuple[list[Row], Mapping[str, int]]:
    """Read changed files until the time is over.

    Args:
        seconds: Time.
        seed: Decides the changes.
        out: Folder that findings are kept in; the first of each kind.
        wanted: Kinds of files; all where none are given.

    Returns:
        The findings, as rows of a table, and how many files of each kind were read.
    """
    draw, end = random.Random(seed), time.monotonic() + seconds
    findings, counts = dict[str, Row](), Counter[str]()
    with tempfile.TemporaryDirectory() as scratch:
        every = [room for room in rooms(Path(scratch)) if not wanted or room.name in wanted]
        for number in range(10**9):
            if time.monotonic() > end:
                break
            room = every[number % len(every)]
            source = draw.choice(room.seeds)
            place = Path(scratch, "one")
            shutil.rmtree(place, ignore_errors=True)
            if source.is_dir():
                shutil.copytree(source, place / source.name)
            else:
                place.mkdir()
                shutil.copy(source, place)
                for beside in source.parent.glob("*.npz"):
                    shutil.copy(beside, place)
            target = place / source.name / room.changed
            target.write_bytes(changed(draw, target.read_bytes(), target.name))
            kept = target.read_bytes()
            counts[room.name] += 1
            if says := answered(room.read, place / source.name):
                path = out / f"{room.name.replace(' ', '-')}-{seed}-{number}{target.suffix}"
                if f"{room.name} {says}" not in findings:
                    path.write_bytes(kept)
                    findings[f"{room.name} {says}"] = {"found in": room.name, "input": str(path), "says": says}
    return list(findings.values()), counts


def answered(read: Callable[[Path], object], path: Path) -> str:
    """Return what is wrong with an answer; nothing where it is a success or one line."""

    def too_long(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"{MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(MOST_SECONDS)
    try:
        read(path)
    except TunerError:
        return ""
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is the finding
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} {Path(last.filename).name}:{last.lineno} {str(error)[:80]!r}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return ""


def main() -> None:
    """Print what was read and found, and the claim."""
    parser = benchmark_parser(__doc__, "10 seconds")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", action="append", default=[], help="only this kind of file; may be repeated")
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"))
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    arguments.out.mkdir(exist_ok=True)
    seconds = 10.0 if arguments.quick else arguments.seconds
    findings, counts = fuzz(seconds, arguments.seed, arguments.out, arguments.room)
    rows: list[Row] = [{"room": name, "files": count} for name, count in counts.items()]
    claim = Claim("every changed file is read or refused in one line", "project's bound",
                  f"{len(findings)} findings in {sum(counts.values()):,} files", not findings)  # fmt: skip
    finish("fuzz", [*rows, *findings], [claim], arguments.json)


if __name__ == "__main__":
    main()
