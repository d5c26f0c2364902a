"""Apply a bundle's plan to a task: train it again, from the bundle's weights or from the original ones."""

import tempfile
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tuner.backends.base import Trial
from tuner.bundle.format import WEIGHTS, Bundle, new_folder
from tuner.bundle.tensors import read_tensors
from tuner.commands.bundles.export import write_bundle
from tuner.commands.bundles.held import note_bundle
from tuner.commands.limits import NO_LIMITS, CommandLimits
from tuner.commands.refit import shown_on
from tuner.distribution import CANDIDATES, offered
from tuner.errors import BundleError, TunerError, UsageError
from tuner.plugin.core import build_host, differences, trained_by
from tuner.plugin.host import Host
from tuner.search.listener import FINISHING, OPENING, SCORING, TRAINING, Listener
from tuner.search.processes.guard import JobLimits
from tuner.search.processes.remote import open_remote
from tuner.search.trials.seeds import seeded
from tuner.store.store import open_store
from tuner.task.inputs import plugin_of_kind
from tuner_apply.adapt import adapted

SOURCES = ("bundle", "original")


def apply_bundle(
    folder: Path,
    task: str,
    out: Path,
    source: str,
    listener: Listener,
    plugins: Iterable[Path] = (),
    limits: CommandLimits = NO_LIMITS,
) -> Path:
    """Train a bundle's plan on a task's data, write a bundle that names the given one as its parent, and return `out`.

    Training starts from the bundle's weights where `source` is ``bundle``, from the task's where it is ``original``.
    """
    if source not in SOURCES:
        raise UsageError(f"--from must be {' or '.join(SOURCES)}, got {source!r}")
    bundle = Bundle.open(folder)
    if source == "bundle":
        read_tensors(bundle.file(WEIGHTS))  # what is no finite number is named before anything is trained
    host = build_host(local=plugins, end=limits.end)
    host.check_local()
    if changed := differences(host, bundle.info.plugins):
        listener.say(f"warning: the bundle was trained with other plugins: {changed}")
    if bundle.info.needs not in {"", reader := plugin_of_kind(bundle.input.kind)}:
        listener.say(f"warning: the bundle's samples were read by {bundle.info.needs}, and are by {reader} now")
    _check_plugins(bundle, host)
    if (point := offered(CANDIDATES).get("matching")) is not None:
        task = point.load()(task, bundle.plan().model.name, bundle.input.size)
    adapt = partial(adapted, folder=folder.absolute(), starts_from_bundle=source == "bundle")
    plan = bundle.plan()
    backend = plan.runtime.backend
    try:
        with new_folder(out) as part, tempfile.TemporaryDirectory() as scratch:
            listener.phase(OPENING)
            opening = open_remote(
                host, task, [backend], kill_at=limits.end, memory_bytes=limits.memory_bytes, adapt=adapt
            )
            with opening as sessions, closing(open_store()) as store:
                session, weights = sessions[backend], Path(scratch) / WEIGHTS
                for line in session.task.notes:
                    listener.say(line)
                if plan.heads.small:
                    session.sized([plan.heads.small])
                plan = plan.carried_to(session.model, session.task.info)
                if source == "bundle":  # its weights hold these edits already; the original weights do not
                    plan = replace(plan, shape=tuple(one for one in plan.shape if one.kind not in bundle.info.evolved))
                listener.phase(SCORING)
                untouched = session.untouched(store, plan.runtime.threads).values
                trial = Trial(plan, seeded(0, plan.key()), store, weights)
                listener.phase(TRAINING)
                job_limits = JobLimits(kill_at=limits.end, memory_bytes=limits.memory_bytes)
                result = session.try_train(trial, job_limits, shown_on(listener))
                try:
                    outcome = result.unwrap("training")
                except (TunerError, RuntimeError) as error:
                    raise BundleError(f"the plan could not be carried out: {error}") from None
                origin = {
                    "plugins": {**bundle.info.plugins, **trained_by(host, plan, ())},
                    "scores": {"trial": outcome.values, "untouched": untouched},
                    "parent": bundle.identity,
                }
                listener.phase(FINISHING)
                train = bundle.info.train
                kept: dict[str, Any] = {} if train is None or train.own_bytes is None else {"replay": train.own_bytes}
                write_bundle(session, plan, weights, part, origin, trainable=train is not None, **kept)
    finally:
        listener.close()
    note_bundle(out)
    return out


def _check_plugins(bundle: Bundle, host: Host) -> None:
    """Require what realises the bundle's plan, before anything trains; the plugins to install are named."""
    plan = bundle.plan()
    lacking = host.extensions(plan.runtime.backend).lacking(plan)
    if lacking is not None:
        there = {one.name for one in host.plugins if not one.refused and not one.off}
        gone = [origin for name, origin in sorted(bundle.info.plugins.items()) if name not in there]
        way_out = f"; install {', '.join(gone)}, or give its file by --plugin" if gone else ""
        raise BundleError(f"the plan cannot be carried out: {lacking}{way_out}")
