"""A plugin with a backend that needs no tensor library and a strategy that raises; installed by `conftest.plugin`.

How training behaves is read from the file named by ``MISBEHAVING``: one word a line, used up from the top, the last
one for good.
"""

# ruff: noqa: ARG002 - the signatures are the contract's

import math
import os
import re
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tuner.backends.base import Backend, Exported, Filling, Session, Trial, silent
from tuner.backends.extensions import Extensions
from tuner.errors import DivergedError, TaskError, UnsupportedError
from tuner.plan.info import BlockInfo, ModelInfo
from tuner.plan.parts import Scalar, Stage
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import feature_records
from tuner.planner.device import Rates, nominal
from tuner.plugin.hookspecs import hookimpl
from tuner.plugin.knobs import Draw
from tuner.plugin.strategy import Strategy
from tuner.results.records.trial import Outcome
from tuner.store.store import Store
from tuner.task import Task
from tuner.training.epochs import Report

MEGABYTE = 1_000_000
OPENED: list[int] = []  # processes that opened the task before they forked
PREPARED: list[tuple[int, str]] = []  # processes that were prepared for a plan, and its key
BLOCKS = tuple(BlockInfo(f"b{at}", f"cut{at}", (4, 2, 2), 1_000_000, 1_000, 4_096) for at in range(4))


class Misbehaving(Backend):
    """Opens a session that does as it is asked, or as it should not."""

    name = "misbehaving"

    def supports(self, plan: TrialPlan) -> str | None:
        return "it sulks" if _mood() == "unsupported" else None

    def open(self, task: Task, extensions: Extensions) -> "MisbehavingSession":
        if _mood() == "cold":
            raise TaskError("the weights do not fit")
        OPENED.append(os.getpid())
        return MisbehavingSession(task)


class MisbehavingSession(Session):
    """The made-up task, opened."""

    def __init__(self, task: Task) -> None:
        self._task = task

    @property
    def model(self) -> ModelInfo:
        return ModelInfo("made-up", self._task.fingerprint(), len(self._task.labels), BLOCKS)

    def prepare(self, plan: TrialPlan) -> None:
        PREPARED.append((os.getpid(), plan.key()))
        if plan.split == 0:
            raise ValueError("the job says what is wrong")

    def measure(
        self,
        threads: int,
        within: float = math.inf,
        known: Mapping[str, float] | None = None,
        report: Report = silent,
        plan: TrialPlan | None = None,
    ) -> Rates:
        """Get stuck after the first block on a slow device that has measured nothing yet."""
        figures = dict(known or {})
        for index in range(len(BLOCKS)) if _mood() == "slow-device" else ():
            if f"forward {index}" not in figures:
                if index and not known:
                    time.sleep(3600)
                figures[f"forward {index}"] = 1e-4
                report({"figure": f"forward {index}", "value": 1e-4})
        return nominal(self.model)

    def untouched(
        self, store: Store, threads: int, report: Report = silent, share: float = 1.0, folds: int = 0
    ) -> Outcome:
        report({"scoring": "local_accuracy"})
        report({"scoring": "global_accuracy"})
        return Outcome({"local_accuracy": 0.0, "global_accuracy": 0.9})

    def missing(self, plans: Sequence[TrialPlan], store: Store) -> int:
        return 1_000_000

    def fill(self, plans: Sequence[TrialPlan], store: Store, report: Report = silent) -> Filling:
        if _mood() == "bad-sample":
            raise TaskError("hat.jpg: not an image that can be decoded: replace or remove it")
        return Filling(0, 0.0, {}, 0, {at: () for plan in plans for at in feature_records(plan)})

    def train(self, trial: Trial) -> Outcome:  # noqa: C901 - one branch a mood
        plan, weights = trial.plan, trial.weights
        trial.report({"resting_bytes": _resident()})
        mood = _mood(use_up=True)
        seconds = 0.01 * plan.trainable * plan.recipe.epochs
        peak: Any = 1e6 * plan.trainable
        if mood == "sleep":
            time.sleep(3600)
        elif mood == "slow":
            time.sleep(0.3)
        elif mood == "raise":
            raise ValueError("this is no tensor")
        elif mood == "diverge":
            raise DivergedError("the loss became nan in epoch 1: lower recipe.learning_rate")
        elif mood == "lacking":
            raise UnsupportedError("an operator has no form here")
        elif mood == "nan":
            seconds = float("nan")
        elif mood == "hoard":
            self.hoard(1000, "", trial.report)
        elif mood == "crash":
            os._exit(9)
        elif mood == "stop-server":
            os.kill(os.getppid(), signal.SIGSTOP)
            os._exit(0)
        elif mood == "numpy":
            peak = np.float32(peak)
        elif mood == "text":
            peak = "much"
        elif mood == "big":
            peak = 1e9
        weights.parent.mkdir(parents=True, exist_ok=True)
        weights.write_bytes(b"weights")
        score = 1.0 if mood == "right" else 1 - 1 / (plan.train_samples + plan.trainable + plan.recipe.epochs)
        kept = 1.0 if mood == "right" else 1 - score / 2
        values = {"local_accuracy": score, "global_accuracy": kept, "train_seconds": seconds}
        return Outcome({**values, "peak_bytes": peak})

    def export(self, plan: TrialPlan, weights: Path, folder: Path, **asked: Any) -> Exported:
        (folder / "model.onnx").write_bytes(b"\x3a\x00")  # the smallest that a bundle may hold: an empty graph
        (folder / "weights.safetensors").write_bytes(weights.read_bytes())
        return Exported({"local_accuracy": 0.5})

    # Jobs of the supervisor's own tests.

    def answer(self, value: Any) -> dict[str, Any]:
        print("a job's own words")  # noqa: T201 - they must not reach the parent's stdout
        return {
            "value": value,
            "task": self._task.name,
            "pid": os.getpid(),
            "array": np.arange(3),
            "opened": list(OPENED),
            "prepared": list(PREPARED),
        }

    def sleep(self, note: str = "") -> None:
        if note:
            Path(note).write_text(f"{os.getpid()} {os.getppid()}")
        time.sleep(3600)

    def spin(self, note: str) -> None:
        """Compute for years without giving other threads of the process a turn, and leave a process in a session."""
        started = os.fork()
        if started == 0:
            os.setsid()
            time.sleep(3600)
        Path(note).write_text(f"{os.getpid()} {os.getppid()} {started}")
        re.fullmatch("(a+)+", "a" * 60 + "b")

    def hurry(self, report: Report = silent) -> float:
        """Report a thousand steps and two epochs at once; return the seconds that it took."""
        started = time.monotonic()
        for step in range(1000):
            report({"step": step, "steps": 1000})
        for epoch in range(2):
            report({"epoch": epoch, "loss": 1.0})
        return time.monotonic() - started

    def heed(self, report: Report = silent) -> str:
        while not report({"step": 1, "steps": 2}):
            time.sleep(0.005)
        return "stopped in time"

    def hoard(self, limit_mb: int, note: str, report: Report = silent) -> None:
        """Take a megabyte every 2 ms; note the clock when the limit is crossed, as the process itself sees it."""
        resting, held, crossed = _resident(), [], False
        report({"resting_bytes": resting})
        while True:
            held.append(np.ones(MEGABYTE, np.uint8))
            if not crossed and _resident() - resting > limit_mb * MEGABYTE:
                crossed = True
                if note:
                    part = Path(f"{note}.part")  # it may be killed between any two lines
                    part.write_text(repr(time.monotonic()))
                    part.replace(note)
            time.sleep(0.002)

    def obey(self, code: str, report: Report = silent) -> Any:
        """Run some lines of Python, which may know `report`, the job's own `pipe`, and set `answer`."""
        links = {int(path.name): _link(path) for path in Path("/proc/self/fd").iterdir()}
        pipe = max(number for number, link in links.items() if link.startswith("socket:"))
        names: dict[str, Any] = {"os": os, "signal": signal, "time": time, "report": report, "pipe": pipe}
        exec(code, names)  # noqa: S102 - what a plugin may do
        return names.get("answer")


class Raises(Strategy[float]):
    """A strategy with a bug."""

    name, stage = "raises", Stage.SHAPE

    def sample(self, draw: Draw, model: ModelInfo) -> float:
        return draw.number("much", 0.0, 1.0)

    def apply(self, plan: TrialPlan, knobs: float) -> TrialPlan:
        nothing: Mapping[str, TrialPlan] = {}
        return nothing["a plan"]


class RaisesWhereItDecides(Raises):
    """A strategy with a bug, in a stage where a knob draws who decides; its anchors raise too."""

    name, stage = "cuts", Stage.SPLIT

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:
        raise IndexError(model.blocks[99:])


@hookimpl
def tuner_backends() -> Iterable[Backend]:
    return [Misbehaving()]


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    return [Raises(), RaisesWhereItDecides()]


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""  # it was that of the listing


def _mood(*, use_up: bool = False) -> str:
    path = os.environ.get("MISBEHAVING")
    if not path or not Path(path).exists():
        return "well"
    words = Path(path).read_text().split() or ["well"]
    if use_up and len(words) > 1:
        Path(path).write_text("\n".join(words[1:]))
    return words[0]
