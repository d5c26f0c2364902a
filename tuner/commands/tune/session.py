"""One call of `tuner.run`: the task is opened, the study runs, and what was spent is written."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.commands.limits import CommandLimits
from tuner.commands.refit import Refit, refit_in_run
from tuner.commands.tune.setup import RunSetup
from tuner.errors import BudgetError, RunError
from tuner.machine.awake import CLOCK
from tuner.machine.control_group import usable_processors
from tuner.metrics import wilson
from tuner.plan.info import ModelInfo
from tuner.planner.data_terms import weight_bytes
from tuner.planner.device import BUSY
from tuner.plugin.core import differences, given_plans, taking_part
from tuner.results.folder import Identity, RunInfo, Spent, read_run, write_run
from tuner.results.prior.earlier import Earlier, earlier_plans, newest_run, remember_run
from tuner.results.prior.file import Prior
from tuner.results.records.baseline import UNTOUCHED, Baseline
from tuner.results.records.classes import Classes
from tuner.results.records.config import RunConfig
from tuner.results.records.judging import comparable
from tuner.results.records.origin import mark_of
from tuner.results.records.trial import plan_of
from tuner.results.run import Run
from tuner.results.scores.likeness import device_kind
from tuner.results.scores.objectives import Objective
from tuner.results.views.plausible import suspicion_of
from tuner.search.finals import has_finals
from tuner.search.listener import FINISHING, LOOKING, Listener
from tuner.search.processes.guard import Interrupt
from tuner.search.processes.remote import RemoteSession
from tuner.search.setting import CLOSING_SECONDS, RUN_RESERVE, Setting, measuring_seconds
from tuner.search.trials.access import StudyAccess
from tuner.store.files.disk import StoreFull
from tuner.store.kept import choose_engine
from tuner.store.store import Store, disk_bytes, open_store
from tuner.task.info import TaskOutline
from tuner.units import format_bytes, format_limit

#: In place of a run: no plan of an earlier one is tried first.
NO_RUN = "none"
#: Parts of an identity whose names say too little.
NAMES = {"folds": "number of folds"}
#: Baselines on all samples may take this share of the time.
FITTING_SHARE = 0.03

if TYPE_CHECKING:
    from tuner.search.study import Study


def load_study() -> type["Study"]:
    """Import what a study needs, which takes about a second."""
    with warnings.catch_warnings():  # in a notebook, on a progress bar that Optuna is not asked for
        warnings.filterwarnings("ignore", "IProgress not found")
        from tuner.search.study import Study
    return Study


@dataclass(eq=False)
class Tuning:
    """One call of `run`.

    Attributes:
        setup: What was asked, and what takes part.
        config: What it came to.
        task: The task.
        folder: The run's folder.
        listener: Receives progress.
        interrupt: The user's request to stop.
        prior: Plans of which those that suit the task are tried first.
        access: The run's way to its study.
        takes_newest: Whether the front of the task's newest run is tried first where none is named.
    """

    setup: RunSetup
    config: RunConfig
    task: TaskOutline
    folder: Path
    listener: Listener
    interrupt: Interrupt
    prior: Prior | None
    access: StudyAccess
    takes_newest: bool = True

    def __post_init__(self) -> None:
        self.threads = 1 if self.config.deterministic else usable_processors()
        self._identity = Identity(
            task=self.task.info.fingerprint,
            space=repr(replace(self.setup.space, limits={})),
            seed=self.config.seed,
            deterministic=self.config.deterministic,
            folds=self.config.folds,
        )
        self._earlier = Spent()
        self._baselines: tuple[Baseline, ...] = ()
        self._plugins: dict[str, str] = {}
        self._phases: dict[str, float] = {}
        self._worker, self._continues = "", False

    def resume(self) -> None:
        """Take over what earlier sessions spent and measured.

        Raises:
            RunError: They were of another task, space, seed or study; which, and the way out.
        """
        info = read_run(self.folder)
        changed = [
            NAMES.get(field.name, field.name)
            for field in fields(Identity)
            if getattr(info.identity, field.name) != getattr(self._identity, field.name)
        ]
        if changed:
            what = info.contents.differences(self.task.contents)
            now = f" (now {what})" if what else ""
            way = f"begin a new run from its front: --from {self.folder} --out NEW" if what else "another --out"
            raise RunError(
                f"{self.folder} was made with another {' and '.join(changed)}{now}, which --resume cannot change: "
                f"give the same, or {way}"
            )
        if self.config.study != info.config.study:
            of = f"of --study {info.config.study}" if info.config.study else "a run of its own, without --study"
            raise RunError(f"{self.folder} is {of}, which --resume cannot change: give the same, or another --out")
        self._worker, self._continues = info.worker, True
        self._earlier, self._baselines = info.spent, info.baselines
        if changed_plugins := differences(self.setup.host, info.plugins):
            self.listener.say(f"warning: {changed_plugins}")

    def tune(self, sessions: Mapping[str, RemoteSession], objectives: Sequence[Objective]) -> None:
        """Run the study, and write what was spent.

        Args:
            sessions: The task, opened on each backend; the first measures this device.
            objectives: The study's objectives.
        """
        host, asked = self.setup.host, self.setup.asked
        folder = None if asked.store is None else Path(asked.store)
        store, backends = open_store(folder, *self._store_cap()), list(sessions)
        for line in (self.setup.memory_note, *self.task.notes, *few_samples(self.task, self.config.folds)):
            if line:
                self.listener.say(line)
        self._plugins = taking_part(host, (strategy.name for strategy in self.setup.strategies), backends)
        study_class = load_study()  # while the child imports its tensor library
        self.listener.phase(LOOKING)  # it is known once the libraries are loaded
        session, access = sessions[backends[0]], self.access
        access.require_same(self._identity, session.model.fingerprint, [one.name for one in objectives])
        setting = self._setting(session, objectives)
        if setting.rates.complete:  # the engine holds for good: it is not chosen in haste
            try:
                choose_engine(store, setting.model.fingerprint, self.threads, setting.rates.prefix_kind)
            except StoreFull as error:
                self.listener.say(f"warning: {error}")
        info = self._info(setting)
        write_run(self.folder, info)  # first: a folder with a journal and without run.json is no run
        queue, info = access.join(setting, info)

        compared = _Compared(self, session, setting, store, info)
        study = study_class(
            setting, host, queue, sessions, store, compared.untouched, self.listener, self.interrupt, compared.fit
        )
        compared.study = study
        study.prepare()
        compared.report([one for one in info.baselines if one in compared.info.baselines])  # others are reported
        self.listener.resumed(study.records)
        try:
            study.run()
            self._refit(sessions, study.storage_bytes())
            self.listener.phase(FINISHING)
        finally:
            info = compared.info
            info = replace(info, ended=study.ended or info.ended, spent=self.spent(study), kinds=access.kinds)
            write_run(self.folder, info)
            store.close()
            access.spend(info.spent)
        if comparable(study.records):
            remember_run(setting.model, self.config.task, self.folder)
        self.listener.say(f"ended: {study.ended}")

    def _setting(self, session: RemoteSession, objectives: Sequence[Objective]) -> Setting:
        """Return the study's setting; the session is the one that measures this device."""
        config, end, space = self.config, self.setup.end, self.setup.space
        strategies, _ = self.setup.strategies_for(session)
        model = session.model
        for line in (model.note, *(f"input size not tried: {one.refused}" for one in model.sizes if one.refused)):
            if line:
                self.listener.say(line)
        started = CLOCK.now()
        self._phases["starting"] = started - self.setup.started
        within = math.inf if end is None else measuring_seconds(end - started)
        rates = self.setup.rates(session, within, self.listener)
        self._phases["measuring"] = CLOCK.now() - started
        earlier = self._plans_of_run(model)
        given = given_plans(strategies)
        return Setting(
            strategies=strategies,
            objectives=objectives,
            wanted=self.setup.wanted,
            sampler=self.setup.sampler,
            rungs=space.rungs,
            seed=config.seed,
            deterministic=config.deterministic,
            model=model,
            task=self.task.info,
            rates=rates,
            earlier=(*given, *earlier.plans),
            same_task=bool(given) or (bool(earlier.task) and earlier.task == self._identity.task),
            portfolio=self.prior,
            limits=config.limits,
            end=end,
            folder=self.folder,
            folds=config.folds,
            has_finals=has_finals(self.task) and space.rungs and self._is_timed,
            kind=self.access.kind,
            refits=self._is_timed,
        )

    def _refit(self, sessions: Mapping[str, RemoteSession], stored: int) -> None:
        """Refit what is picked by default, in the time that the trials left for it, where its weights have room."""
        started, end, (cap, _) = CLOCK.now(), self.setup.end, self._store_cap()
        if not self._is_timed or end is None or started > end - CLOSING_SECONDS:
            return
        run = Run.open(self.folder)
        if run.best is None:
            return
        again = Refit(run, run.record(run.best))
        plan = plan_of(again.record)
        if cap is None or stored + weight_bytes(plan) <= cap:
            within = CommandLimits(end - CLOSING_SECONDS, self.config.limits.memory_bytes)
            refit_in_run(again, sessions[plan.runtime.backend], within, self.listener)
        self._phases["refit"] = CLOCK.now() - started

    @property
    def _is_timed(self) -> bool:
        """Whether one process has a time and nothing else to keep to."""
        config, limits = self.config, self.config.limits
        has_end = limits.time_seconds is not None and limits.trials is None
        return has_end and not (config.folds or config.study or config.deterministic)

    def _plans_of_run(self, model: ModelInfo) -> Earlier:
        """Return plans of a run to try first: of the one that was named; without a prior, of this task's newest."""
        named = self.setup.asked.earlier
        if named is not None:
            return Earlier() if named == NO_RUN else earlier_plans(Run.open(named))
        if self.config.study or self.config.deterministic or self.prior or self._continues or not self.takes_newest:
            return Earlier()
        newest, other = newest_run(model, self.config.task), newest_run(model)
        if newest is not None and newest.info.contents.settings_changed(self.task.contents):
            newest = None
        if newest is not None and not self._is_own(newest):
            self.listener.say(f"starting from the front of {newest.folder} (--from none starts afresh)")
            return earlier_plans(newest)
        if newest is None and other is not None and not self._is_own(other):
            self.listener.say(
                f"note: {other.folder} is a run of another task on such a model; "
                f"--from {other.folder} tries its front first"
            )
        return Earlier()

    def _is_own(self, run: Run) -> bool:
        return run.folder.absolute() == self.folder.absolute()

    def _info(self, setting: Setting) -> RunInfo:
        """Return the content of ``run.json`` at the start."""
        return RunInfo(
            identity=self._identity,
            config=self.config,
            task_name=self.task.info.name,
            space_name=self.setup.space.name,
            threads=self.threads,
            model=setting.model,
            task=setting.task,
            objectives=tuple(setting.objectives),
            spent=self.spent(None),
            plugins=self._plugins,
            mark=mark_of(self.config),
            classes=Classes.of(self.task),
            device=device_kind(),
            worker=self._worker,
            baselines=self._baselines,
            strategies=self.setup.space.strategies or tuple(strategy.name for strategy in self.setup.strategies),
            notes=(*self.task.notes, *([BUSY] if setting.rates.latency_busy else ())),
            contents=self.task.contents,
        )

    def spent(self, study: "Study | None") -> Spent:
        """Return what the run has spent, earlier sessions included; `study` is None before there is one."""
        seconds = CLOCK.now() - self.setup.started
        if study is None:
            return Spent(self._earlier.seconds + seconds)
        now = {**self._phases, **study.phases}
        if self.access.seconds:
            now["database"] = self.access.seconds
        now["other"] = seconds - sum(now.values())
        before = self._earlier.phases
        summed = {name: before.get(name, 0.0) + now.get(name, 0.0) for name in {**before, **now}}
        return Spent(self._earlier.seconds + seconds, study.storage_bytes(), study.filled_samples, summed)

    def _store_cap(self) -> tuple[int | None, str]:
        """Return the bytes that are left to the store, and the limit in words."""
        storage = self.config.limits.storage_bytes
        if storage is None:
            return None, ""
        used = RUN_RESERVE + disk_bytes(self.folder)
        if storage <= RUN_RESERVE:
            least = format_limit(2 * RUN_RESERVE)
            raise BudgetError(
                f"--storage is too small for the run's folder, got {format_limit(storage)}: give {least} or more"
            )
        limit = f"--storage {format_limit(storage)}, of which {format_bytes(used)} are for the run's folder,"
        return max(0, storage - used), limit


class _Compared:
    """Scores what the search is compared with; `run.json` keeps the scores on the largest share of the samples."""

    study: "Study | None" = None

    def __init__(self, tuning: Tuning, session: RemoteSession, setting: Setting, store: Store, info: RunInfo) -> None:
        self._tuning, self._session, self._setting, self._store, self.info = tuning, session, setting, store, info

    def untouched(self, share: float, folds: int) -> dict[str, float]:
        """Score the given model on a share of the validation samples, and on folds of the others."""
        info = self.info
        known = info.untouched.share, info.untouched.folds
        if info.baselines and known == (share, folds):
            return info.untouched.values
        samples = info.samples_of(Baseline(UNTOUCHED, {}, share, folds=folds))

        def report(progress: Mapping[str, Any]) -> bool:
            before = samples["local"] if progress.get("scoring") == "global_accuracy" else 0
            self._tuning.listener.step("samples", progress.get("scored", before), sum(samples.values()))
            return False

        given = self._session.untouched(self._store, self._tuning.threads, report, share, folds)
        if not info.baselines or (share, folds) > known:
            note = "; ".join(given.notes)
            scored = Baseline(UNTOUCHED, given.values, share, note, classes=given.classes, right=given.right)
            self._keep([replace(scored, folds=folds)])
            if warning := suspicion_of(self.info):
                self._tuning.listener.say(warning)
        return given.values

    def fit(self, share: float, folds: int) -> None:
        """Fit what anybody would try first on a share of the samples, unless it was on as large a one."""
        if any((one.share, one.folds) >= (share, folds) for one in self.info.baselines if one.name != UNTOUCHED):
            return
        setting, within, threads = self._setting, math.inf, self._tuning.threads
        if setting.end is not None and not setting.deterministic:
            of_time = FITTING_SHARE * (setting.end - self._tuning.setup.started)
            within = max(0.0, min(of_time, setting.seconds_left - CLOSING_SECONDS))
        self._keep(self._session.baselines(self._store, threads, share=share, folds=folds, within=within))

    def report(self, baselines: Sequence[Baseline]) -> None:
        """Report scores to the listener."""
        for one in baselines:
            self._tuning.listener.baseline(one, self.info.objectives, self.info.samples_of(one))

    def _keep(self, baselines: Sequence[Baseline]) -> None:
        """Write what was scored, in place of what has the same names, and report it."""
        named = {one.name: one for one in (*self.info.baselines, *baselines)}
        self.info = replace(self.info, baselines=tuple(named.values()), spent=self._tuning.spent(self.study))
        write_run(self._tuning.folder, self.info)
        self._tuning.access.share_baselines(self.info.baselines)
        self.report(baselines)


#: Fewer validation samples are warned of.
FEW_SAMPLES = 100
#: Folds that are suggested: of more, each trial takes longer than its surer score is worth.
FOLDS = 5


def few_samples(task: TaskOutline, folds: int = 0) -> Iterator[str]:
    """Yield a warning for each domain with too few samples to score on; those of folds are scored on too."""
    info, possible = task.info, min(FOLDS, task.most_folds)
    local = ("local.val and the folds of local.train", info.local_val + info.local_train)
    domains = {"local": local if folds else ("local.val", info.local_val), "global": ("global.val", info.global_val)}
    for domain, (where, count) in domains.items():
        if not 0 < count < FEW_SAMPLES:
            continue
        low, high = wilson(0.5, count)
        way_out = f"add {info.noun} to {domain}.val"
        if domain == "local" and folds:
            way_out = f"add {info.noun} to local.train"
        elif domain == "local" and possible > 1:
            way_out += f", or give --folds {possible}, which scores on those of local.train too"
        uncertain = info.targets.uncertain.format(50 * (high - low))
        yield (
            f"warning: {where} {'have' if ' and ' in where else 'has'} {count} {info.noun}, fewer than {FEW_SAMPLES}: "
            f"{uncertain}, and the best of many trials looks better than it is: {way_out}"
        )
