"""What a search has after how long: hypervolume of (local, global) accuracy against wall time, on real photos.

Arms, all on the clothing task and the search space `board-10min`:

- ours: `tuner.run` as it is;
- one rung: `tuner.run` with `rungs = false`;
- Optuna, our store: TPE over the same knobs, every trial at full fidelity on stored features;
- Optuna, PyTorch: the same without a store, as a plain training loop has it: the frozen blocks run in every epoch.

Every arm starts in a new process with an empty cache; start-up counts. Only scores on all validation samples count in
the hypervolume, so that a trial on a lower rung adds nothing to it.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.lib.places import DATA
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.lib.setup import CLOTHING

SPACE = "board-10min"
ARMS = ("ours", "one rung", "Optuna, our store", "Optuna, PyTorch")
MARKS = (10, 20, 40, 60, 97, 120, 180, 240, 300, 600, 960)
Point = tuple[float, float, float]
#: Our own arms run no longer: all that is asked of them has to come before.
LONGEST = 300.0
#: Of Optuna's time with PyTorch, that ours may take to have as much: 97 s of 16 min.
TENTH = 97 / 960


class Had(NamedTuple):
    """What an arm had.

    Attributes:
        points: (seconds, local, global) of the trials that were scored on all validation samples.
        untouched: The untouched model's global accuracy.
        first: Seconds until the front's first member, on whatever rung.
    """

    points: list[Point]
    untouched: float
    first: float


def tuned(seconds: float, seed: int, *, rungs: bool, note: Callable[[float, float], None]) -> None:
    """Run `tuner.run`, and note the accuracies of every trial on the top rung."""
    from tuner import run
    from tuner.results.records.baseline import UNTOUCHED, Baseline
    from tuner.results.records.trial import SCORED, TrialRecord
    from tuner.results.scores.objectives import Objective
    from tuner.search.listener import Listener
    from tuner.search.space import shipped

    class Notes(Listener):
        waits = True

        def baseline(
            self,
            baseline: Baseline,
            objectives: Sequence[Objective],  # noqa: ARG002
            scored: Mapping[str, int],  # noqa: ARG002
        ) -> None:
            if baseline.name == UNTOUCHED:  # the last is of all samples
                print(json.dumps({"untouched": baseline.values["global_accuracy"]}), flush=True)

        def front(self, area: float, rung: int, gain: float | None) -> None:  # noqa: ARG002
            if self.waits:
                self.waits = False
                print(json.dumps({"first": time.monotonic() - STARTED}), flush=True)

        def trial(self, record: TrialRecord) -> None:
            if record.state in SCORED and record.rung == 0 and record.same_as is None:
                note(record.values["local_accuracy"], record.values["global_accuracy"])

    with tempfile.TemporaryDirectory() as folder:
        space = Path(folder) / "space.toml"
        space.write_text(f"rungs = {str(rungs).lower()}\n{shipped()[SPACE].read_text()}")
        run(
            str(CLOTHING), space=str(space), time=f"{seconds:g}s", memory="2GB", seed=seed, out=Path(folder) / "run",
            earlier="none", listener=Notes(), started=STARTED,
        )  # fmt: skip


def plain(seconds: float, seed: int, *, stored: bool, note: Callable[[float, float], None]) -> None:
    """Run Optuna's TPE over the same knobs, each trial at full fidelity; the store is filled before the first."""
    import optuna

    from tuner.backends.base import Trial
    from tuner.plugin.compose import compose
    from tuner.plugin.core import build_host
    from tuner.results.scores.objectives import OBJECTIVES
    from tuner.search.processes.guard import JobLimits
    from tuner.search.processes.remote import open_remote
    from tuner.search.propose.anchors import reachable
    from tuner.search.setting import participants, wanted_knobs
    from tuner.search.space import load_space
    from tuner.search.trials.journal import optuna_values
    from tuner.store.store import Store
    from tuner.task import open_task
    from tuner.task.info import task_info

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    end, host, task, space = STARTED + seconds, build_host(), open_task(str(CLOTHING), {}), load_space(SPACE)
    strategies, _ = participants(host, space)
    wanted = dict(wanted_knobs(space, "torch", deterministic=False))
    if not stored:
        strategies = [*strategies, host.strategies["none"]] if host.strategies["none"] not in strategies else strategies
        wanted |= {"cache.by": "none", "none.augment": 0.0}
    study = optuna.create_study(
        directions=[one.optuna_direction for one in OBJECTIVES], sampler=optuna.samplers.TPESampler(seed=seed)
    )
    with tempfile.TemporaryDirectory() as folder, open_remote(host, str(CLOTHING), ["torch"], many_jobs=True) as opened:
        session, store = opened["torch"], Store(Path(folder) / "store")

        def composed(source: Any) -> Any:
            return compose(strategies, source, session.model, task_info(task), wanted)

        limits = JobLimits(end - 1.0, end)
        if stored:
            session.try_fill(list({plan.split: plan for plan in reachable(composed)}.values()), store, limits)
        while time.monotonic() < end - 1.0:
            trial = study.ask()
            plan = composed(optuna_values(trial)).plan
            job = Trial(plan, seed, store, Path(folder) / "weights.safetensors")
            ended = session.try_train(job, limits)
            if ended.value is None or ended.value.stopped:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                continue
            values = ended.value.values
            note(values["local_accuracy"], values["global_accuracy"])
            study.tell(trial, [values[one.name] for one in OBJECTIVES])


def arm(name: str, seconds: float, seed: int) -> None:
    """Carry an arm out in this process, and print what it has, a JSON line for every better front."""

    def note(local: float, global_: float) -> None:
        print(json.dumps([time.monotonic() - STARTED, local, global_]), flush=True)

    if name in ARMS[:2]:
        tuned(seconds, seed, rungs=name == ARMS[0], note=note)
    else:
        plain(seconds, seed, stored=name == ARMS[2], note=note)


def had_by(name: str, seconds: float, seed: int) -> Had:
    """Run an arm in a new process with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TUNER_CACHE": cache, "TUNER_DATA": str(DATA)}
        command = [sys.executable, "-m", "benchmarks.search.anytime", "--arm", name, "--seconds", str(seconds)]
        done = subprocess.run(
            [*command, "--seed", str(seed)], env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode:
        print(f"{name}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    points: list[Point] = [tuple(one) for one in said if isinstance(one, list)]
    untouched = [one["untouched"] for one in said if isinstance(one, dict) and "untouched" in one]
    firsts = [one["first"] for one in said if isinstance(one, dict) and "first" in one]
    first = min([*firsts, *(when for when, _, _ in points)], default=math.inf)
    return Had(points, untouched[-1] if untouched else math.nan, first)


def curve(points: Sequence[Point]) -> list[tuple[float, float]]:
    """Return (seconds, hypervolume) whenever it grows."""
    from tuner.results.scores.pareto import area

    grown, seen = [(0.0, 0.0)], list[Mapping[str, float]]()
    for seconds, local, global_ in points:
        seen.append({"local_accuracy": local, "global_accuracy": global_})
        if (size := area(seen)) > grown[-1][1]:
            grown.append((seconds, size))
    return grown


def at(grown: Sequence[tuple[float, float]], seconds: float) -> float:
    """Return the hypervolume after some seconds."""
    return max(size for when, size in grown if when <= seconds)


def reached(points: Sequence[Point], local: float, least_global: float) -> float | None:
    """Return the seconds after which a trial has a local accuracy at a global one; None where none has."""
    return next((when for when, mine, other in points if mine >= local and other >= least_global), None)


def main() -> None:
    """Measure, print, judge."""
    parser = benchmark_parser(__doc__, "one seed, 60 s, ours and Optuna with PyTorch: 2 minutes")
    parser.add_argument("--seconds", type=float, default=960.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", nargs="*", default=list(ARMS), choices=ARMS)
    parser.add_argument("--arm", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.arm:
        arm(asked.arm, asked.seconds, asked.seed)
        return
    seconds = 60.0 if asked.quick else asked.seconds
    seeds = 1 if asked.quick else asked.seeds
    arms = [ARMS[0], ARMS[3]] if asked.quick else asked.arms
    lengths = {name: min(seconds, LONGEST) if name in ARMS[:2] else seconds for name in arms}
    had = {name: [had_by(name, lengths[name], seed) for seed in range(seeds)] for name in arms}
    curves = {name: [curve(one.points) for one in own] for name, own in had.items()}
    marks = [mark for mark in MARKS if mark <= seconds]
    rows: list[Row] = [
        {"arm": name, "first s": median(one.first for one in had[name]),
         **{f"{mark} s": round(median(at(one, mark) for one in own), 3) for mark in marks}}
        for name, own in curves.items()
    ]  # fmt: skip
    finish("anytime", rows, claims(had[ARMS[0]], curves, seconds) if ARMS[0] in had else [], asked.json)


def claims(
    ours: Sequence[Had], curves: Mapping[str, Sequence[Sequence[tuple[float, float]]]], seconds: float
) -> list[Claim]:
    """Compare the figures with the bounds."""
    mine, firsts = curves[ARMS[0]], [one.first for one in ours]
    found: list[Claim] = []

    def claim(text: str, said: str, *, met: bool) -> None:
        found.append(Claim(text, "project's bound", said, met))

    claim("the first member of the front ≤ 20 s after the start", f"{max(firsts):.0f} s", met=max(firsts) <= 20)
    for local, limit in ((0.80, 60.0), (0.85, 240.0)):
        if limit <= seconds:
            times = [reached(one.points, local, one.untouched - 0.03) for one in ours]
            met = all(one is not None and one <= limit for one in times)
            said = ", ".join("not reached" if one is None else f"{one:.0f} s" for one in times)
            claim(f"local ≥ {local} with a global drop ≤ 3 points in ≤ {limit:.0f} s", said, met=met)
    if target := max((one[-1][1] for one in curves.get(ARMS[3], ())), default=0.0):  # 0: it has nothing by then
        times = [next((when for when, size in one if size >= target), None) for one in mine]
        reached_all = [one for one in times if one is not None]
        ratio = f", {seconds / median(reached_all):.1f}× as fast" if len(reached_all) == len(times) else ""
        said = ", ".join("not reached" if one is None else f"{one:.0f} s" for one in times)
        met = len(reached_all) == len(times) and max(reached_all) <= TENTH * seconds
        claim(
            f"the largest hypervolume of Optuna with PyTorch after {seconds:.0f} s, {target:.3f}, in a tenth of it",
            f"{said}{ratio}", met=met,
        )  # fmt: skip
    return found


STARTED = time.monotonic()

if __name__ == "__main__":
    main()
