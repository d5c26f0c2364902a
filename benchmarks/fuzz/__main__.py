"""Files, rows and requests changed at random: every command succeeds or says why in one line, within its limits.

``--minutes 60`` is the whole; a minute finds what is easily found. Seeds are real ones of every kind that people write,
copy or receive: tasks, search spaces, plans, priors, bundles with their graphs and weights, runs, records, journals,
states of services, recordings, databases of shared studies, requests to `tuner serve`. A change is of bytes (flipped,
cut, doubled), of a value anywhere in JSON or TOML, of a cell of a database, or of a graph's nodes, names and sizes.

Most are read in this process. Every so often one goes to a whole command in a child, whose exit code and whose bytes on
both streams are looked at. A finding is a traceback, a time or a memory past the limit, a control character on either
stream, or an exit code that the manual does not have. What was found is kept in ``--out`` with the call that shows it.
"""

import os
import random
import resource
import shutil
import signal
import tempfile
import time
import traceback
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

import psutil

from benchmarks.fuzz.changes import changed
from benchmarks.fuzz.rooms import Room, rooms
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.limits.hostile.child import ACCEPTED, ONE_LINE, Outcome, confined
from tuner.errors import DONE, LIMIT, MISTAKE, NO_TRIAL_FITS, USAGE, TunerError
from tuner.machine.process_memory import PeakMeter

#: Of the processor; an answer may take longer next to other work, but is not waited for without end.
MOST_SECONDS, PATIENCE_SECONDS = 10, 90
#: What ends a process that would take the machine's memory.
LAST_BYTES = 4 * 10**9
#: One of so many inputs goes to a command in a child.
COMMANDS = 4
#: Exit codes of the manual.
CODES = frozenset({DONE, MISTAKE, USAGE, LIMIT, NO_TRIAL_FITS})
KINDS = ("traceback", "time", "memory", "control character", "exit code")


def fuzz(
    seconds: float, seed: int, out: Path, wanted: Sequence[str] = (), files: int = 10**9
) -> tuple[list[Row], Mapping[str, int]]:
    """Read changed files until the time is over.

    Args:
        seconds: Time.
        seed: Decides the changes.
        out: Folder that findings are kept in; the first of each kind.
        wanted: Kinds of files; all where none are given.
        files: How many files are read at most.

    Returns:
        The findings, as rows of a table, and how many files of each kind were read.
    """
    draw, end = random.Random(seed), time.monotonic() + seconds
    findings, counts = dict[str, Row](), Counter[str]()
    with tempfile.TemporaryDirectory() as scratch:
        every = [room for room in rooms(Path(scratch)) if not wanted or room.name in wanted]
        for number in range(files):
            if time.monotonic() > end:
                break
            room = every[number % len(every)]
            place = _placed(draw, room, Path(scratch, "one"))
            kept = Path(scratch, "kept")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(place.parent, kept)
            counts[room.name] += 1
            command = _command(draw, room, place) if draw.randrange(COMMANDS) == 0 else ()
            says = of_command(command, room.most_bytes) if command else answered(room.read, place, room.most_bytes)
            if says and f"{room.name} {says}" not in findings:
                own = out / f"{room.name.replace(' ', '-')}-{seed}-{number}"
                shutil.rmtree(own, ignore_errors=True)
                shutil.copytree(kept, own)
                call = " ".join(command).replace(str(place.parent), str(own)) or f"--room {room.name!r}, in the process"
                row: Row = {"found in": room.name, "says": says, "input": str(own), "call": call}
                findings[f"{room.name} {says}"] = row
                print(f"{room.name}: {says}\n    {own}: {call}", flush=True)
    return list(findings.values()), counts


def _placed(draw: random.Random, room: Room, folder: Path) -> Path:
    """Copy one of a room's seeds into an empty folder, change it, and return its path."""
    source = draw.choice(room.seeds)
    shutil.rmtree(folder, ignore_errors=True)
    if source.is_dir():
        shutil.copytree(source, folder / source.name)
    else:
        folder.mkdir()
        shutil.copy(source, folder)
        for beside in source.parent.glob("*.npz"):
            shutil.copy(beside, folder)
    path = folder / source.name
    target = path / room.changed
    target.write_bytes(changed(draw, target.read_bytes(), target.name))
    room.seal(path)
    return path


def _command(draw: random.Random, room: Room, path: Path) -> tuple[str, ...]:
    if not room.commands:
        return ()
    return tuple(word.replace("{}", str(path)) for word in draw.choice(room.commands))


def of_command(arguments: Sequence[str], most_bytes: int) -> str:
    """Return what is wrong with how a command ends in a child; nothing where all is well."""
    from tuner.cli.app import call

    def limited() -> int:
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
        return call(list(arguments))

    own = psutil.Process().memory_info().rss  # the child begins as a copy of this process
    return wrong_with(confined(limited, None, PATIENCE_SECONDS, LAST_BYTES), most_bytes + own)


def wrong_with(outcome: Outcome, most_bytes: int) -> str:
    """Return what is wrong with how a command ended; nothing where all is well."""
    last, said = outcome.line[:80], [line for line in outcome.errors.splitlines() if line.startswith("tuner: ")]
    is_told = outcome.kind in {ACCEPTED, ONE_LINE} or len(said) == 1
    if outcome.kind == "traceback":
        return f"traceback: {last!r}"
    if outcome.kind == "hang" or outcome.code in {-signal.SIGXCPU, -signal.SIGKILL}:
        return f"time: {MOST_SECONDS} s were over"
    if outcome.peak_bytes > most_bytes:
        return f"memory: {outcome.peak_bytes / 1e6:,.0f} MB, {last!r}"
    if shown := controls(outcome.output + outcome.errors):
        return f"control character: {shown}"
    if outcome.code not in CODES or not is_told:
        return f"exit code: {outcome.code} with {len(said)} lines of the reason, {last!r}"
    return ""


def controls(text: str) -> str:
    """Return the characters of a text that steer a terminal or turn its letters, escaped; nothing without any."""
    return "".join(
        sorted({ascii(one) for one in text if one not in "\n\t" and unicodedata.category(one) in {"Cc", "Cf"}})
    )


def answered(read: Callable[[Path], object], path: Path, most_bytes: int = 10**9) -> str:
    """Return what is wrong with an answer in this process; nothing where it is a success or one line."""

    def too_long(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = [(number, signal.signal(number, too_long)) for number in (signal.SIGALRM, signal.SIGPROF)]
    meter, streams = PeakMeter(), [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile() as noise:
        for number in (1, 2):
            os.dup2(noise.fileno(), number)
        signal.alarm(PATIENCE_SECONDS)
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
        try:
            says = _reading(read, path)
        finally:
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            for number, handler in before:
                signal.signal(number, handler)
            for number, stream in enumerate(streams, 1):
                os.dup2(stream, number)
                os.close(stream)
        noise.seek(0)
        shown = controls(noise.read().decode(errors="replace"))
    if not says and meter.peak_bytes() > most_bytes:
        says = f"memory: {meter.peak_bytes() / 1e6:,.0f} MB"
    return says or (f"control character: {shown}" if shown else "")


def _reading(read: Callable[[Path], object], path: Path) -> str:
    try:
        read(path)
    except TunerError:
        return ""
    except TimeoutError:
        return f"time: {MOST_SECONDS} s were over"
    except MemoryError:
        return "memory: none was left"
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is the finding
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"traceback: {type(error).__name__} {Path(last.filename).name}:{last.lineno} {str(error)[:80]!r}"
    return ""


def main() -> None:
    """Print what was read and found, and the claims."""
    parser = benchmark_parser(__doc__, "10 seconds")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", action="append", default=[], help="only this kind of file; may be repeated")
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"))
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (LAST_BYTES, LAST_BYTES))
    arguments.out.mkdir(exist_ok=True)
    seconds = 10.0 if arguments.quick else 60 * arguments.minutes
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TUNER_CACHE"] = cache
        findings, counts = fuzz(seconds, arguments.seed, arguments.out.resolve(), arguments.room)
    rows: list[Row] = [{"room": name, "inputs": count} for name, count in counts.items()]
    claims = []
    for kind in KINDS:
        found = [row for row in findings if str(row["says"]).startswith(kind)]
        measured = f"{len(found)} kinds of {kind} in {sum(counts.values()):,} inputs of seed {arguments.seed}"
        claims.append(Claim(f"no {kind} that should not be", "project's bound", measured, not found))
    finish("fuzz", [*rows, *findings], claims, arguments.json)


if __name__ == "__main__":
    main()
