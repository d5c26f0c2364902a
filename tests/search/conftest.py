"""A made-up backend, installed as a plugin, so that a whole study runs in a second; and studies without processes."""

import importlib.util
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.backends.extensions import Extensions
from tuner.commands.tune.run import run
from tuner.errors import DivergedError, TunerError, UnsupportedError
from tuner.plan.parts import Scalar
from tuner.plan.trial import TrialPlan
from tuner.planner.device import nominal
from tuner.plugin.compose import compose
from tuner.plugin.core import build_host
from tuner.plugin.host import Host
from tuner.plugin.knobs import Numeric, Wanted
from tuner.plugin.sources import preferred_values
from tuner.results.folder import open_records
from tuner.results.records.baseline import Baseline
from tuner.results.records.config import Budget
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.scores.objectives import OBJECTIVES, Objective
from tuner.search import rungs
from tuner.search.fill.filling import Filler
from tuner.search.listener import Listener
from tuner.search.processes.guard import Interrupt, JobResult
from tuner.search.processes.messages import Failure, Job
from tuner.search.processes.remote import RemoteSession
from tuner.search.propose import anchors
from tuner.search.setting import Setting
from tuner.search.study import Study
from tuner.search.trials.journal import open_study
from tuner.search.trials.queue import Queue
from tuner.store.store import Store
from tuner.task import Domain, InputSpec, ModelSpec, Task
from tuner.task.data.samples import ArraySamples
from tuner.task.info import task_info

HERE = Path(__file__).parent
Tune = Callable[..., Run]
Moods = Callable[..., None]
MakeSetting = Callable[..., Setting]
Sessions = Mapping[str, RemoteSession]
Begin = Callable[..., Study]
DIRECTIONS = [objective.optuna_direction for objective in OBJECTIVES]
UNTOUCHED = {"local_accuracy": 0.0, "global_accuracy": 0.9}
SPACE = """
strategies = ["gdm", "freeze", "cache"]
[knobs.recipe]
epochs = { low = 1, high = 20 }
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the user's own cache out of it."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TUNER_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install `misbehaving` for this process and its children."""
    folder = tmp_path_factory.mktemp("site")
    about = folder / "misbehaving-1.0.dist-info"
    about.mkdir()
    shutil.copy(HERE / "misbehaving.py", folder)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: misbehaving\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[tuner]\nmisbehaving = misbehaving\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        yield folder


@pytest.fixture
def moods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Moods:
    """Say how the next trials behave; the last word is for good."""
    path = tmp_path / "moods"
    monkeypatch.setenv("MISBEHAVING", str(path))

    def say(*words: str) -> None:
        path.write_text("\n".join(words))

    return say


@pytest.fixture(scope="module")
def task() -> Task:
    """12 local and 200 global training samples of 2 × 2 pixels."""

    def samples(count: int, first: int, classes: int) -> ArraySamples:
        generator = np.random.default_rng(first + count)
        pixels = generator.random((count, 1, 2, 2), np.float32)
        return ArraySamples(pixels, np.arange(count) % classes + first, InputSpec(kind="arrays"), "made up")

    return Task(
        name="made-up",
        model=ModelSpec("nowhere:build"),
        input=InputSpec(kind="arrays"),
        loss="single-label",
        local=Domain(samples(12, 2, 1), samples(4, 2, 1)),
        global_=Domain(samples(200, 0, 2), samples(8, 0, 2)),
        labels=("a", "b", "c"),
        head_rows=(0, 1),
        local_labels=(2,),
    )


@pytest.fixture
def tune(plugin: Path, task: Task, tmp_path: Path) -> Tune:
    """Run the made-up task with the made-up backend, in `tmp_path / "run"`, trials in processes of their own."""

    def go(space: str = SPACE, **settings: Any) -> Run:
        path = tmp_path / "space.toml"
        path.write_text(space)
        asked = {"out": tmp_path / "run", "backend": "misbehaving", **settings}
        return run(task, space=str(path), **asked)

    return go


@dataclass
class InProcess:
    """Stands in for the supervisor: carries jobs out at once, in this process, and notes them."""

    host: Host
    task: Task
    jobs: list[Job] = field(default_factory=list)
    lacking: int = 0
    answer: Callable[[Job], JobResult[Any]] | None = None

    def run(
        self, job: Job, _limits: object, progress: Callable[[Mapping[str, Any]], None] | None = None
    ) -> JobResult[Any]:
        """Carry a job out as a child would, or answer; a filling is never missing more than `lacking` samples."""
        self.jobs.append(job)
        if self.answer is not None:
            return self.answer(job)

        def report(values: Mapping[str, Any]) -> bool:
            if progress is not None:
                progress(values)
            return False

        session = self.host.backend(job.backend).open(self.task, Extensions())
        if job.method == "missing":
            return JobResult("result", self.lacking)
        method = getattr(session, job.method)
        try:
            value = method(**job.arguments, **({"report": report} if job.reports else {}))
        except TunerError as error:
            known = DivergedError.__name__ if isinstance(error, DivergedError) else ""
            unsupported = isinstance(error, UnsupportedError)
            return JobResult("failure", failure=Failure(str(error), "", unsupported, error=known))
        except Exception as error:  # noqa: BLE001 - as in a child, whatever a backend raises
            return JobResult(
                "failure", failure=Failure(f"{type(error).__name__}: {error}", traceback.format_exc(), is_bug=True)
            )
        return JobResult("result", value)

    def session(self) -> RemoteSession:
        """Return the made-up task, opened on the made-up backend."""
        supervisor: Any = self
        return RemoteSession(supervisor, "misbehaving")

    def trained(self) -> list[str]:
        """Return the keys of the plans that were trained."""
        return [job.arguments["trial"].plan.key() for job in self.jobs if job.method == "train"]


class Heard(Listener):
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.records: list[TrialRecord] = []
        self.earlier: list[TrialRecord] = []
        self.untouched_values: list[Mapping[str, float]] = []
        self.end: float | None = None
        self.order: list[str] = []
        self.steps: list[tuple[str, float, float]] = []

    def ends(self, at: float | None) -> None:
        """Keep the end."""
        self.end = at

    def baseline(self, baseline: Baseline, objectives: Sequence[Objective], scored: Mapping[str, int]) -> None:
        """Keep the values."""
        assert objectives
        assert scored
        self.order.append(baseline.name)
        self.untouched_values.append(baseline.values)

    def resumed(self, records: Sequence[TrialRecord]) -> None:
        """Keep the earlier records."""
        self.order.append("resumed")
        self.earlier += records

    def say(self, line: str) -> None:
        """Keep a line."""
        self.lines.append(line)

    def step(self, what: str, done: float, of: float) -> None:
        """Keep how much is done."""
        self.steps.append((what, done, of))

    def trial(self, record: TrialRecord) -> None:
        """Keep a record."""
        self.records.append(record)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def stand_in(task: Task, monkeypatch: pytest.MonkeyPatch) -> InProcess:
    """Return a supervisor without processes, over the made-up backend."""
    made = importlib.util.spec_from_file_location("misbehaving_in_process", HERE / "misbehaving.py")
    assert made is not None
    assert made.loader is not None
    module = importlib.util.module_from_spec(made)
    monkeypatch.setitem(sys.modules, made.name, module)
    made.loader.exec_module(module)
    return InProcess(build_host({"misbehaving": module}), task)


@pytest.fixture
def make_setting(stand_in: InProcess, task: Task, tmp_path: Path) -> MakeSetting:
    """Return the setting of a study of the made-up task, or a changed one."""

    def make(
        limits: Budget = Budget(trials=6),  # noqa: B008 - frozen
        strategies: Sequence[str] = ("gdm", "freeze", "cache"),
        wanted: Mapping[str, Wanted] | None = None,
        *,
        deterministic: bool = True,
        sampler: str = "tpe",
        step_seconds: float | None = None,
        **changed: Any,
    ) -> Setting:
        host = stand_in.host
        knobs: dict[str, Wanted] = {
            "runtime.backend": "misbehaving",
            "runtime.threads": 1,
            "runtime.precision": "fp32",
            "recipe.epochs": Numeric("recipe.epochs", 1, 20, whole=False),
            **(wanted or {}),
        }
        model = host.backend("misbehaving").open(task, Extensions()).model
        rates = nominal(model)
        rates = rates if step_seconds is None else replace(rates, step_seconds=step_seconds)
        setting = Setting(
            [host.strategies[name] for name in (*strategies, "recipe", "runtime")],
            OBJECTIVES,
            knobs,
            sampler,
            3,
            deterministic,
            model,
            task_info(task),
            rates,
            limits,
            None if limits.time_seconds is None else time.monotonic() + limits.time_seconds,
            tmp_path,
        )
        return replace(setting, **changed)

    return make


@pytest.fixture
def begin(
    stand_in: InProcess,
    make_setting: MakeSetting,
    sessions: Sessions,
    store: Store,
    tmp_path: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> Begin:
    """Open the study in `tmp_path / "journal.log"`, new or as it is; options of its setting as for `make_setting`."""
    monkeypatch.setattr(anchors, "DRAWN", 32)  # of a small space: to draw 128 takes longest of all

    def journal(setting: Setting, path: Path) -> Queue:
        records = open_records(tmp_path, TrialPlan(setting.model, setting.task))
        recorded = records[-1].trial + 1 if records else 0
        directions = [objective.optuna_direction for objective in setting.objectives]
        return Queue(open_study(path, directions, recorded), setting, records)

    def start(
        *limits: Budget,
        path: Path | None = None,
        untouched: Callable[[float, int], Mapping[str, float]] = lambda _share, _folds: UNTOUCHED,
        queue_of: Callable[[Setting], Queue] | None = None,
        **options: Any,
    ) -> Study:
        setting = make_setting(*limits, **options)
        queue = journal(setting, path or tmp_path / "journal.log") if queue_of is None else queue_of(setting)
        study = Study(setting, stand_in.host, queue, sessions, store, untouched, heard, Interrupt())
        study.prepare()
        return study

    return start


@pytest.fixture
def sessions(stand_in: InProcess) -> Sessions:
    """The made-up task, opened on each backend of a study."""
    return {"misbehaving": stand_in.session()}


@pytest.fixture
def store(cache: Path) -> Store:
    return Store(cache)


@pytest.fixture
def ladder_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a made-up task of 12 samples have three rungs."""
    monkeypatch.setattr(rungs, "LEAST_SAMPLES", 1)
    monkeypatch.setattr(rungs, "QUICK_SECONDS", 0.0)
    monkeypatch.setattr(rungs, "LEAST_STEPS", 1)
    monkeypatch.setattr(rungs, "LOWEST", 2)


@pytest.fixture
def setting(make_setting: MakeSetting) -> Setting:
    """The setting of a study that measures."""
    return make_setting(deterministic=False)


@pytest.fixture
def filler(setting: Setting, sessions: Sessions, store: Store, heard: Heard) -> Filler:
    """Fills the store for a study that has filled nothing."""
    return Filler(setting, sessions, store, heard)


@pytest.fixture
def plan(setting: Setting) -> TrialPlan:
    wanted: dict[str, Scalar] = {"freeze.trainable_blocks": 1, "cache.by": "cache", "cache.bits": 8, "gdm.alpha": 0.05}
    return compose(setting.strategies, preferred_values(wanted), setting.model, setting.task, setting.wanted).plan
