"""Published methods, each a plugin of at most forty lines, in one fair table: ten tasks, equal seconds and equal bytes.

The tasks are the eight of `benchmarks.alternatives`, with their tests, which no method sees, and two continual ones:
digits 5 to 9 after 0 to 4, and another person's gestures. Each method is one plan, made by its strategies from that of
fine-tuning: the same cut of the model, the same stored features in eight bits, the same tenth of the old samples, the
same batches. It has the same seconds of the processor for the choice of one setting on validation samples, mostly of
the learning rate, and then trains on all of the user's samples. What differs is the method, and what its row says.

`--add FILE` puts a stranger's plugin next to fine-tuning, or next to `--methods`. With `--keep FILE` a lane that was
cut goes on, and several processes may share it. `--page` writes `docs/methods.md` of what the file has, and the index
that `tuner plugins search` reads.
"""

import ast
import hashlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.alternatives.problem import Problem
from benchmarks.alternatives.tasks import ORDINARY, without_tests
from benchmarks.lib.kept import Kept
from benchmarks.lib.places import DATA, EXAMPLES
from benchmarks.lib.report import benchmark_parser, finish
from benchmarks.methods.gallery import INDEX, index
from benchmarks.methods.methods import BASELINE, METHODS, Method, added
from benchmarks.methods.table import PAGE, Cells, page, rows_of
from benchmarks.papers.growth.continual import PAIRS, another
from tuner.task import open_task

#: Tasks of the quick lane.
QUICK = ("digits", "emg", "sign")
#: Seconds of the processor that the choice of a setting may take.
SECONDS = 6.0
#: Results that are shipped.
TABLE = Path(__file__).parent / "table.jsonl"


def new_digits(seed: int) -> Problem:
    """Return digits 5 to 9 after 0 to 4."""
    return without_tests(open_task(f"{EXAMPLES / 'continual' / 'new_digits.py'}:task", {}), seed)


def new_person(seed: int) -> Problem:
    """Return another person's gestures after one person's, a pair of people a seed."""
    return without_tests(another(*PAIRS[seed % len(PAIRS)]), seed)


#: All tasks.
TASKS: Mapping[str, Callable[[int], Problem]] = {
    **ORDINARY,
    "new-digits": new_digits,
    "new-person": new_person,
}


def is_both(name: str, problem: Problem) -> bool:
    """Return whether local and global accuracy count alike."""
    return problem.adds_classes or name.startswith("new-")


def key_of(task: str, seed: int, method: Method, seconds: float) -> tuple[str, int, str, str, float]:
    """Return what a result depends on; the version of a plugin is the hash of its file."""
    content = b"" if method.file is None else method.file.read_bytes()
    about = f"{method.strategies}{sorted(method.knobs.items())}{method.tried}{method.replays}"
    return task, seed, method.name, hashlib.sha256(content + about.encode()).hexdigest()[:12], seconds


def lane(task: str, seed: int, methods: Sequence[Method], seconds: float, keep: Path) -> list[str]:
    """Measure all methods that the file lacks on a task with a seed; return what failed."""
    from benchmarks.methods.measure import Bench, hosted

    kept, failed = Kept(keep), list[str]()
    known = kept.read()
    missing = [one for one in methods if repr(key_of(task, seed, one, seconds)) not in known]
    if not missing:
        return []
    problem = TASKS[task](seed)
    with TemporaryDirectory() as folder:
        bench = Bench(problem, hosted(missing), Path(folder) / "store", both=is_both(task, problem))
        for method in missing:
            try:
                run = partial(bench.measured, method, seed, seconds)
                values = kept.outcome(key_of(task, seed, method, seconds), run).values
                shown = " / ".join(
                    f"{100 * values[name]:.1f} %" for name in ("local_accuracy", "global_accuracy") if name in values
                )
            except Exception as error:  # noqa: BLE001 - a stranger's plugin may raise anything, and the others go on
                shown = f"failed: {error}"
                failed.append(f"{method.name} on {task}, seed {seed}: {error}")
            print(f"{task}, seed {seed}, {method.name}: {shown}", file=sys.stderr, flush=True)
    return failed


def cells_of(keep: Path, methods: Sequence[Method], seconds: float) -> Cells:
    """Return what a file has of methods as they are now: values by method, task and seed."""
    cells: Cells = {}
    versions = {method.name: key_of("", 0, method, seconds)[3:] for method in methods}
    for text, outcome in Kept(keep).read().items():
        task, seed, name, *version = ast.literal_eval(text)
        if tuple(version) == versions.get(name):
            cells.setdefault(name, {})[task, seed] = outcome.values
    return cells


def main() -> None:
    """Measure, print, and write the page."""
    parser = benchmark_parser(__doc__, f"one seed of {', '.join(QUICK)}")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=[one.name for one in METHODS], help="rows; all by default")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for the choice of a setting")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tasks at a time; one a core by default")
    parser.add_argument("--add", type=Path, metavar="FILE", help="a plugin of one file: a row next to fine-tuning")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="results of this and earlier calls")
    parser.add_argument(
        "--page", action="store_true", help="measure nothing; write docs/methods.md and the index of what is kept"
    )
    asked = parser.parse_args()
    os.environ.setdefault("TUNER_DATA", str(DATA.resolve()))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    names = asked.methods or ([BASELINE] if asked.add else [one.name for one in METHODS])
    methods = [*(one for one in METHODS if one.name in {BASELINE, *names}), *([added(asked.add)] if asked.add else [])]
    if asked.page:
        cells = cells_of(asked.keep or TABLE, METHODS, asked.seconds)
        PAGE.write_text(page(cells, asked.seconds, list(TASKS)))
        INDEX.write_text(index(cells, list(TASKS)))
        return
    tasks = [name for name in asked.tasks if name in QUICK or not asked.quick]
    jobs = [(task, seed) for seed in range(1 if asked.quick else asked.seeds) for task in tasks]
    with TemporaryDirectory() as temporary:
        keep = asked.keep or Path(temporary) / "kept.jsonl"
        failed = measure(jobs, methods, asked.seconds, keep, asked.jobs)
        cells = cells_of(keep, methods, asked.seconds)
    cells = {name: {place: values for place, values in own.items() if place in jobs} for name, own in cells.items()}
    finish("methods", rows_of(cells, methods, tasks), [], asked.json)
    print("\n".join(failed))
    sys.exit(bool(failed))


def measure(
    jobs: Sequence[tuple[str, int]], methods: Sequence[Method], seconds: float, keep: Path, at_once: int
) -> list[str]:
    """Measure tasks and seeds, several at a time; return what failed."""
    if at_once == 1:
        return [line for task, seed in jobs for line in lane(task, seed, methods, seconds, keep)]
    with ProcessPoolExecutor(at_once, get_context("spawn")) as pool:
        running = [pool.submit(lane, task, seed, methods, seconds, keep) for task, seed in jobs]
        return [line for one in running for line in one.result()]


if __name__ == "__main__":
    main()
