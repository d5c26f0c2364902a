"""Crashes: a run that is killed again and again, files that are cut, disks that are full; nothing finished is lost.

- kills: `tuner run digits --deterministic` is sent SIGKILL, SIGTERM or SIGINT at a random moment, to the main process,
  to its whole group, to the process that trials are forked from, or to a trial; then it is resumed.
- cuts: the journal and the records, cut at each of their last bytes, are opened, and the study is brought up to date.
  The same cuts of the journal are given to Optuna alone.
- full disks: the run is made on a small file system in memory, at random sizes, then resumed where there is room.
"""

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend, JournalStorage

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.limits.killed_runs import ENDING, SHARES, Runs, Tally, killed
from tuner.results.folder import JOURNAL, TRIALS, open_records, read_run
from tuner.results.scores.objectives import OBJECTIVES
from tuner.search.trials.journal import open_study, tell_unreported

CUT_BYTES = 400
PARTS = ("kills", "cuts", "disks")


def of_cuts(home: Path, step: int) -> tuple[list[Row], list[Claim]]:
    """Cut the files of the undisturbed run at their last bytes; return a row for each, and what they show."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    whole, folder = home / "whole", home / "cut"
    folder.mkdir()
    template = read_run(whole).template
    count, rows, bad = len(open_records(whole, template)), list[Row](), 0
    for name in (JOURNAL, TRIALS):
        content = (whole / name).read_bytes()
        results, begun = Counter[str](), time.monotonic()
        for lost in range(1, CUT_BYTES + 1, step):
            for other in (JOURNAL, TRIALS):
                shutil.copyfile(whole / other, folder / other)
            (folder / name).write_bytes(content[:-lost])
            if name == JOURNAL:
                results["optuna " + _by_optuna(folder / JOURNAL, count)] += 1
                (folder / name).write_bytes(content[:-lost])
            results[_by_tuner(folder, template, count, lost if name == TRIALS else 0)] += 1
        bad += sum(number for result, number in results.items() if result.startswith("bad"))
        rows.append(
            {"file": name, "cuts": len(range(1, CUT_BYTES + 1, step)), **results, "s": time.monotonic() - begun}
        )
    shutil.rmtree(folder)
    measured = f"{bad} of {2 * len(range(1, CUT_BYTES + 1, step))} cuts failed"
    return rows, [Claim("cut files open, and no finished trial is lost", "all", measured, bad == 0)]


def _by_tuner(folder: Path, template: Any, count: int, lost_bytes: int) -> str:
    """Open a cut run; a trial whose record was cut must be waiting to run again, and no other lost."""
    try:
        records = open_records(folder, template)
        study = open_study(folder / JOURNAL, [one.optuna_direction for one in OBJECTIVES], len(records))
        tell_unreported(study, records, OBJECTIVES)
    except Exception as error:  # noqa: BLE001 - what it is does not matter
        return f"bad: {type(error).__name__}"
    finished = [trial.number for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
    kept = len(records) == count or (lost_bytes > 1 and len(records) == count - 1)
    return "all there, or to run again" if kept and finished == list(range(len(records))) else "bad: lost"


def _by_optuna(path: Path, count: int) -> str:
    try:
        study = optuna.load_study(study_name="tuner", storage=JournalStorage(JournalFileBackend(str(path))))
        finished = sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))
    except Exception as error:  # noqa: BLE001 - as above
        return type(error).__name__
    return "all finished" if finished == count else "one lost"


def full_disks(runs: Runs, count: int, draw: random.Random) -> list[Row]:
    """Run on file systems in memory that are too small, resume where there is room; return a row for each."""
    places, wanted, rows = (runs.home / "whole", runs.home / "cache"), runs.outcomes("whole"), list[Row]()
    total = sum(path.stat().st_size for place in places for path in place.rglob("*"))
    for number in range(count):
        size, out = draw.randrange(total // 20, total), f"full-{number}"
        small, kept = runs.home / "small", runs.home / "kept"
        small.mkdir(exist_ok=True)
        script = (
            f"mount -t tmpfs -o size={size} none {small} || exit 99; "
            f'TUNER_CACHE={small}/cache "$@"; code=$?; cp -a {small} {kept}; exit $code'
        )
        process = runs.start(str(small / "run"), wrap=["unshare", "-rm", "sh", "-c", script, "sh"])
        error = process.communicate()[1]
        if process.returncode == 99 or not kept.exists():
            return [*rows, {"full disk": "skipped: no mounts here"}]
        if (kept / "run").exists():
            (kept / "run").rename(runs.home / out)
        shutil.rmtree(kept)
        before = runs.lines(out)
        resumed = runs.finish(out)
        rows.append(
            {
                "full disk": f"{size / 1e3:,.0f} kB", "code": process.returncode, "records": len(before),
                "traceback": "Traceback" in error + resumed, "lost": before != runs.lines(out)[: len(before)],
                "identical": runs.outcomes(out) == wanted, "says": (error.splitlines() or [""])[-1][-60:],
                "resumed says": (resumed.splitlines() or [""])[-1][-60:],
            }
        )  # fmt: skip
    return rows


def of_kills(tallies: dict[str, Tally]) -> tuple[list[Row], list[Claim]]:
    """Return a row for each target, and what they show."""
    rows: list[Row] = [
        {
            "killed": name, **{number.name: tally.kills[number.name] for number in ENDING}, "runs": tally.runs,
            "identical": tally.identical, "lost": tally.lost, "repeated": tally.repeated,
            "failed trials": tally.failed, "tracebacks": tally.tracebacks,
        }
        for name, tally in tallies.items()
    ]  # fmt: skip
    kills = sum(sum(tally.kills.values()) for tally in tallies.values())
    lost, twice, traces = (
        sum(getattr(one, name) for one in tallies.values()) for name in ("lost", "repeated", "tracebacks")
    )
    undisturbed = [tally for name, tally in tallies.items() if name != "trial"]
    identical, ran = sum(tally.identical for tally in undisturbed), sum(tally.runs for tally in undisturbed)
    answers = [
        ("no finished trial is lost", f"{lost} after {kills} kills", lost == 0),
        ("no plan is trained twice", f"{twice} after {kills} kills", twice == 0),
        ("no kill ends in a traceback", f"{traces} of {kills}", traces == 0),
        ("the sequence of trials is the undisturbed run's", f"{identical} of {ran} runs", identical == ran),
    ]
    return rows, [Claim(claim, "all", measured, met) for claim, measured, met in answers]


def of_disks(rows: list[Row]) -> tuple[list[Row], list[Claim]]:
    """Return the rows, and what they show."""
    tried = [row for row in rows if "code" in row]
    fine = sum(bool(row["identical"]) and not row["traceback"] and not row["lost"] for row in tried)
    claim = "a full disk is one line, and the resumed run is the undisturbed one"
    return rows, [Claim(claim, "all", f"{fine} of {len(tried)}", fine == len(tried))]


def main() -> None:
    """Run the benchmark."""
    parser = benchmark_parser(__doc__, "4 kills, 1 disk, every 20th cut")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--disks", type=int, default=20, help="sizes of a full disk")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--seed", type=int, default=3)
    options = parser.parse_args()
    kills, disks, step = (4, 1, 20) if options.quick else (options.kills, options.disks, 1)
    draw, rows, claims = random.Random(options.seed), list[Row](), list[Claim]()
    memory = Path("/dev/shm")  # noqa: S108 - a folder in it is made here; a disk waits for every write
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        runs = Runs(Path(folder), options.trials, options.seed)
        runs.finish("warm")  # the store is filled: else the first run takes longer than those that are killed
        begun = time.monotonic()
        error = runs.finish("whole")
        if error:
            raise RuntimeError(error)
        seconds = time.monotonic() - begun
        parts: dict[str, Callable[[], tuple[list[Row], list[Claim]]]] = {
            "kills": lambda: of_kills(
                {
                    name: killed(runs, name, max(1, round(share * kills)), seconds, draw)
                    for name, share in SHARES.items()
                }
            ),
            "cuts": lambda: of_cuts(Path(folder), step),
            "disks": lambda: of_disks(full_disks(runs, disks, draw)),
        }
        for part in options.parts:
            some_rows, some_claims = parts[part]()
            rows, claims = [*rows, *some_rows], [*claims, *some_claims]
    finish("crash", rows, claims, options.json)


if __name__ == "__main__":
    main()
