"""What the host itself costs: importing it, asking it for help, and a run of 20 trials beside the work in it.

Import and help: a fresh interpreter, wall-clock from start to exit; arms take turns, the first rounds are dropped.

The run: `tuner run` of 20 trials in a process of its own, on the clothing photos in the space `board-10min` where the
data is there (`$TUNER_DATA`). Otherwise, and with `--quick`, a few trials on digits show the parts, and no claim is
made of them. It runs twice, and the second run counts: features are stored and the device's rates are known by then,
so that the run has no prefix to hide behind. What is counted, from the process's start to its exit:

* start-up: until the first job begins in a child, which is Python and the tensor library being imported;
* work: the prefix (filling passes), training (every epoch of every trial), evaluation (every scoring of a trial, and of
  the untouched model), timed inside the children by the backend `timed` of this file, which is PyTorch's with a clock;
* the host's own: everything else. Loading and tracing the model, hashing the prefix, writing weights,
  forking, sampling, composing, estimating, the journal, reading the task, leaving.

The claim is about the host's own as a share of the whole run without start-up, which is printed beside it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.lib.delegate import Delegate
from benchmarks.lib.places import DATA, EXAMPLES, ROOT
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interleave
from tuner.backends.base import Backend, Filling, Session, Trial, silent
from tuner.backends.extensions import Extensions
from tuner.backends.torch.backend import TorchBackend
from tuner.plan.info import ModelInfo
from tuner.plan.trial import TrialPlan
from tuner.plugin.hookspecs import hookimpl
from tuner.results.records.trial import Outcome
from tuner.store.store import Store
from tuner.task import Task
from tuner.training.epochs import Report

START_SECONDS = 0.3
OWN_SHARE = 0.05
TRIALS = 20
#: Parts of a run that are work, and those that are the host's own.
WORK, OWN = ("prefix", "training", "evaluation"), ("loading the model", "rest of the children", "the study")
QUICK_TRIALS = 6
LOG = "TUNER_BENCHMARK_LOG"
TENSOR_LIBRARIES = ("torch", "torchvision", "onnx", "onnxruntime", "onnxscript", "optuna", "scipy")
LONG_DIGITS = """
strategies = ["gdm", "freeze", "cache"]
[knobs]
gdm.alpha = { low = 0.0, high = 0.1 }
freeze.trainable_blocks = [2, 3]
cache.by = "cache"
cache.augment = 0.0
[knobs.recipe]
epochs = { low = 30, high = 40 }
batch_size = 32
patience = 0
"""


class Timed(TorchBackend):
    """PyTorch's backend, with a clock on every job and on the work in it."""

    name = "timed"

    def open(self, task: Task, extensions: Extensions) -> Session:
        """Open the task, timed."""
        with timed_job("open"):
            return TimedSession(super().open(task, extensions))


class TimedSession(Delegate):
    """A session with a clock on its methods."""

    @property
    def model(self) -> ModelInfo:
        """The model's chain of blocks, timed."""
        with timed_job("model"):
            return super().model

    def untouched(
        self, store: Store, threads: int, report: Report = silent, share: float = 1.0, folds: int = 0
    ) -> Outcome:
        """Score the given model, timed."""
        with timed_job("untouched"):
            return super().untouched(store, threads, report, share, folds)

    def fill(self, plans: Sequence[TrialPlan], store: Store, report: Report = silent) -> Filling:
        """Fill the store, timed."""
        with timed_job("fill") as work:
            filling = super().fill(plans, store, report)
            work["prefix"] = work.get("prefix", 0.0) + filling.seconds
        return filling

    def train(self, trial: Trial) -> Outcome:
        """Carry a plan out, timed."""
        with timed_job("train"):
            return super().train(trial)


@hookimpl
def tuner_backends() -> Iterable[Backend]:
    """Offer the backend with a clock."""
    return [Timed()]


@contextmanager
def timed_job(method: str) -> Iterator[dict[str, float]]:
    """Write one line about a job: when it began, how long it took, and how much of that was work."""
    began = time.monotonic()
    from tuner.backends.torch import session
    from tuner.backends.torch.trial import scoring, untouched
    from tuner.training.epoch import EpochLoop

    work: dict[str, float] = {}
    watch(EpochLoop, "epoch", "training", work)
    watch(scoring, "logits", "evaluation", work)
    watch(untouched, "logits", "evaluation", work)
    watch(session, "load", "loading", work)
    yield work
    line = json.dumps({"method": method, "began": began, "seconds": time.monotonic() - began, **work})
    with Path(os.environ[LOG]).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def watch(owner: Any, name: str, phase: str, into: dict[str, float]) -> None:
    """Add the seconds of every call of ``owner.name`` to a phase, for as long as the process lives.

    A child adds to the dictionary of its own job; what the warmed process watched adds to dictionaries nobody reads.
    """
    plain: Callable[..., Any] = getattr(owner, name)

    def watched(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return plain(*args, **kwargs)
        finally:
            into[phase] = into.get(phase, 0.0) + time.perf_counter() - started

    setattr(owner, name, watched)


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a run with this file as a local plugin."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "TUNER_CACHE": str(folder / "cache"), LOG: str(folder / "log")}


def one_run(arguments: Sequence[str], folder: Path) -> dict[str, float]:
    """Run the command line once and return the seconds of every part."""
    variables = environment(folder)
    log = Path(variables[LOG])
    log.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tuner", "run", *arguments]
    command += ["--plugin", __file__, "--backend", "timed", "--json"]
    started = time.monotonic()
    done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, check=False)
    wall = time.monotonic() - started
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} exited with {done.returncode}: {done.stderr[-2000:]}")
    counts = json.loads(done.stdout)["counts"]
    jobs = [json.loads(line) for line in log.read_text().splitlines()]
    work = {phase: sum(job.get(phase, 0.0) for job in jobs) for phase in WORK}
    start_up = min(job["began"] for job in jobs) - started
    in_children = sum(job["seconds"] for job in jobs)
    loading = sum(job.get("loading", 0.0) for job in jobs)
    return {
        "trials": float(counts["done"] + counts["stopped"]), "wall": wall, "start-up": start_up, **work,
        "loading the model": loading, "rest of the children": in_children - loading - sum(work.values()),
        "the study": wall - start_up - in_children,
    }  # fmt: skip


def run_rows(parts: Mapping[str, float]) -> list[Row]:
    """Return the run as a table: seconds, and the share of the run without start-up."""
    whole = parts["wall"] - parts["start-up"]
    rows: list[Row] = [
        {
            "what": name,
            "seconds": round(parts[name], 2),
            "share": "" if name == "start-up" else f"{100 * parts[name] / whole:.1f} %",
        }
        for name in ("start-up", *WORK, *OWN)
    ]
    return [*rows, {"what": "all but start-up", "seconds": round(whole, 2), "share": "100 %"}]


def start_arms() -> dict[str, Callable[[], object]]:
    """Return what is timed from a fresh interpreter."""

    def fresh(*arguments: str) -> Callable[[], object]:
        command = [sys.executable, *arguments]
        return lambda: subprocess.run(command, check=True, capture_output=True, cwd=ROOT)

    script = Path(sys.executable).with_name("tuner")
    help_command = (str(script), "--help") if script.exists() else ("-m", "tuner", "--help")
    return {
        "python": fresh("-c", "pass"),
        "import tuner": fresh("-c", "import tuner"),
        "tuner --help": fresh(*help_command),
    }


def loaded_libraries(code: str) -> list[str]:
    """Return which tensor libraries a fresh interpreter has loaded after some code."""
    look = f"{code}\nimport sys\nprint('\\n' + ' '.join(sorted({set(TENSOR_LIBRARIES)!r} & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True, cwd=ROOT)
    return done.stdout.splitlines()[-1].split()


def judge(
    seconds: Mapping[str, Sequence[float]], libraries: Mapping[str, list[str]], parts: Mapping[str, float] | None
) -> list[Claim]:
    """Compare the figures with the project's bounds."""
    claims = []
    for name in ("import tuner", "tuner --help"):
        said = f"{median(seconds[name]):.3f} s of medians, {min(seconds[name]):.3f} s at least; loaded: "
        claims.append(
            Claim(f"{name} takes under {START_SECONDS} s and loads no tensor library", "project's bound",
                  said + (", ".join(libraries[name]) or "none"),
                  median(seconds[name]) < START_SECONDS and not libraries[name], busy())
        )  # fmt: skip
    if parts is None:
        return claims
    whole = parts["wall"] - parts["start-up"]
    own, work = (sum(parts[name] for name in names) for names in (OWN, WORK))
    claims.append(
        Claim(f"the host's own time is at most {OWN_SHARE:.0%} of a run of {TRIALS} trials", "project's bound",
              f"{own:.1f} s of {whole:.1f} s, {100 * own / whole:.1f} %, on clothing photos ({parts['trials']:.0f} "
              f"trials ended, warm store, work {work:.1f} s); start-up {parts['start-up']:.1f} s beside it",
              own <= OWN_SHARE * whole, busy())
    )  # fmt: skip
    return claims


def busy() -> str:
    """Return the machine's load, which stretches every wall-clock figure once it exceeds the cores."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    return f"the machine was busy: load {load:.1f} on {cores} cores" if load > cores + 0.5 else ""


def clothing(folder: Path) -> tuple[str, ...] | None:
    """Return the arguments of the run on real photos, where they are."""
    if not (DATA / "images").is_dir():
        return None
    task = EXAMPLES / "clothing" / "task.toml"
    limits = ("--time", "12m", "--trials", str(TRIALS), "--seed", "1")
    return (str(task), "--space", "board-10min", *limits, "--store", str(folder / "store"))


def main() -> None:
    """Measure, print, judge."""
    arguments = benchmark_parser(__doc__, "under 2 minutes: the run is on digits").parse_args()
    seconds = interleave(start_arms(), 5 if arguments.quick else 15)
    libraries = {
        "import tuner": loaded_libraries("import tuner"),
        "tuner --help": loaded_libraries("from tuner.cli.app import call\ncall(['--help'])"),
    }
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        asked = None if arguments.quick else clothing(folder)
        is_small = asked is None
        if asked is None:
            (folder / "long.toml").write_text(LONG_DIGITS)
            asked = ("digits", "--space", "long.toml", "--trials", str(QUICK_TRIALS), "--store", str(folder / "store"))
        one_run([*asked, "--out", "cold"], folder)
        parts = one_run([*asked, "--out", "warm"], folder)
    rows: list[Row] = [
        {"what": name, "median s": round(median(values), 3), "least s": round(min(values), 3)}
        for name, values in seconds.items()
    ]
    claims = judge(seconds, libraries, None if is_small else parts)
    if is_small:
        print("The run below is on digits, whose trials take under a second: it shows the parts, and is not judged.\n")
    finish("overhead", [*rows, *run_rows(parts)], claims, arguments.json)


if __name__ == "__main__":
    main()
