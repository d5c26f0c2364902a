"""Bundles in service on this device: predict files as they come, and report how a bundle does."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from typing import Any

from tuner.bundle.rounds import folder_of, rounds_in_use
from tuner.commands.bundles.held import note_bundle
from tuner.commands.bundles.rings import ring_folder
from tuner.errors import TunerError
from tuner.files import cache_folder
from tuner.reading import kinds_of
from tuner.runtime import Bundle
from tuner.runtime.infer.personaliser import Sample
from tuner.runtime.infer.prediction import Prediction
from tuner.runtime.train.gate import Verdict
from tuner.task.data.samples import content_id
from tuner_watch.incoming import (
    Arrivals,
    IncomingFile,
    files_from_lines,
    files_in,
    folders_in,
    seconds_until_settled,
)
from tuner_watch.orchestrator import Orchestrator, Policy, World
from tuner_watch.ring import Ring
from tuner_watch.round import known_label, local_training
from tuner_watch.serving import UnusableError
from tuner_watch.state import Problem, Round, ServiceState, read_state

STREAM = "-"
#: Files that are named at the end as worth a label.
LABEL_NEXT = 5
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """One exit of a bundle in service.

    Attributes:
        threshold: Current threshold; None for the last exit.
        share: Share of the whole model's FLOPs that a sample costs which leaves here.
        rate: Share of predictions that left here; None before the first.
        loss: Mean loss on the explored samples; None without any, and for the last exit.
    """

    exit: int
    threshold: float | None
    share: float
    rate: float | None
    loss: float | None


@dataclass(frozen=True, slots=True)
class DriftStatus:
    """State of a drift test: the Page–Hinkley statistic of a stream, and the limit from which it is an alarm."""

    stream: str
    mean: float
    statistic: float
    limit: float
    samples: int


@dataclass(frozen=True, slots=True)
class KeptSamples:
    """Samples in a bundle's ring: their number and size, and how many came since the last round."""

    samples: int
    bytes: int
    new: int


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """How a bundle in service does.

    Attributes:
        name: Name of the task.
        round: Round in use.
        earlier: Rounds that a rollback returns to, latest first.
        answers: Number of predictions of the round in use.
        mean_seconds: Mean time of a prediction; None before the first.
        explored: Number of samples on which every exit ran.
        asked: Drift that asks for a round; None where there is none.
        due: Why a round is due; None where none is.
        waits: What a round that is due waits for.
    """

    bundle: str
    name: str
    round: str
    earlier: tuple[str, ...]
    answers: int
    mean_seconds: float | None
    exits: tuple[ExitStatus, ...]
    explored: int
    drift: tuple[DriftStatus, ...]
    kept: KeptSamples
    asked: str | None
    due: str | None
    waits: str | None
    rounds: tuple[Round, ...]
    problems: tuple[Problem, ...]


def ring_of(bundle: Path, most_bytes: int | None = None, *, takes: bool = False) -> Ring:
    """Return the ring of a bundle's samples, as `ring_folder` finds it."""
    folder = ring_folder(bundle, takes=takes)
    ring = Ring(folder) if most_bytes is None else Ring(folder, most_bytes=most_bytes)
    if len(ring):
        note_bundle(bundle)  # so that no copy takes over the samples of one that was moved here
    return ring


def watch(
    bundle: Path,
    samples: str,
    listener: Callable[[Event], None],
    *,
    once: bool = False,
    policy: Policy | None = None,
    most_bytes: int | None = None,
    label_next: int = LABEL_NEXT,
) -> None:
    """Predict files as they come, until there are no more or the user interrupts.

    A bundle exported with ``--trainable`` trains in rounds; for another one, rounds are only asked for.

    Args:
        bundle: Folder of the bundle.
        samples: A folder of files, or ``-`` for paths on standard input.
        listener: Called with an event for each prediction, refused file, finished round, and problem; at the end, also
            where the user ends it, with what was done and when the next round comes.
        once: Whether to end when every existing file has been predicted, instead of waiting for more.
        policy: How to decide.
        most_bytes: Largest size of the samples that are kept.
        label_next: Number of files without a label to name in the last event: those that are none of the user's
            classes, where the bundle can tell, then those whose label is least sure.
    """
    note_bundle(bundle)
    cache_folder()  # the samples are kept in it: it must be the user's own
    tally, world = _Tally(label_next), World(unknown=label_next > 0)
    ring = ring_of(bundle, most_bytes, takes=True)
    with Orchestrator(bundle, ring, local_training(bundle), policy, world) as service:
        try:
            _serve(service, _incoming(service, samples, listener, once=once), tally, listener)
        except KeyboardInterrupt:
            listener(tally.summary(service))
            raise
        listener(tally.summary(service))


def _serve(
    service: Orchestrator,
    files: Iterator[IncomingFile | None],
    tally: "_Tally",
    listener: Callable[[Event], None],
) -> None:
    last_reported = None
    for file in files:
        if file is not None:
            tally.add(file, _predict(service, file, listener))
        _report_round(service.tend(), listener)
        last = service.state.problems[-1] if service.state.problems else None
        if last is not None and last != last_reported:
            listener({"problem": last.line})
        last_reported = last
    _report_round(service.tend(wait=True), listener)  # the last samples may have made one due


@dataclass(slots=True)
class _Tally:
    """What was done since the start.

    Attributes:
        label_next: Number of files to name as worth a label.
        predicted: Number of files that were predicted; `refused` of those that could not be.
        unsure: How much a label of these files would tell, by path.
    """

    label_next: int
    predicted: int = 0
    refused: int = 0
    unsure: dict[str, float] = field(default_factory=dict)

    def add(self, file: IncomingFile, doubt: float | None) -> None:
        """Count a file; `doubt` is what `_predict` returns."""
        self.predicted += doubt is not None
        self.refused += doubt is None
        pairs = [*self.unsure.items(), (str(file.path), doubt or 0.0)]
        self.unsure = {path: value for path, value in nlargest(self.label_next, pairs, key=itemgetter(1)) if value > 0}

    def summary(self, service: Orchestrator) -> Event:
        """Return the last event."""
        kept = len(service.ring)
        event = {"predicted": self.predicted, "not_predicted": self.refused, "kept": kept, "outlook": service.outlook()}
        return event | ({"label_next": list(self.unsure)} if self.unsure else {})


def status(bundle: Path) -> ServiceStatus:
    """Return how a bundle in service does."""
    names = rounds_in_use(bundle)
    in_use = Bundle.read(folder_of(bundle, names[0]))
    state, ring = read_state(bundle), ring_of(bundle)
    if state.round != names[0] or not state.fits(len(in_use.models)):
        state = ServiceState(rounds=state.rounds, problems=state.problems, new_samples=state.new_samples)
    if not len(ring):  # they were forgotten since the state was written: nothing is left that a round could learn
        state = replace(state, asked=None, due=None, waits=None)
    return ServiceStatus(
        bundle=str(bundle),
        name=in_use.name,
        round=names[0],
        earlier=names[1:],
        answers=state.answers,
        mean_seconds=state.seconds / state.answers if state.answers else None,
        exits=_exits(in_use, state),
        explored=state.explored,
        drift=tuple(
            DriftStatus(name, test.mean, test.statistic, test.limit, test.count)
            for name, test in sorted(state.tests.items())
        ),
        kept=KeptSamples(len(ring), ring.size_bytes, min(state.new_samples, len(ring))),
        asked=state.asked,
        due=state.due,
        waits=state.waits,
        rounds=state.rounds,
        problems=state.problems,
    )


def _exits(bundle: Bundle, state: ServiceState) -> tuple[ExitStatus, ...]:
    shares = bundle.exits.shares if bundle.exits else (1.0,)
    thresholds = state.thresholds or (bundle.exits.thresholds if bundle.exits else ())
    last = len(thresholds)
    return tuple(
        ExitStatus(
            exit=index,
            threshold=thresholds[index] if index < last else None,
            share=shares[index],
            rate=state.left[index] / state.answers if state.answers else None,
            loss=state.losses[index] if state.explored and index < last else None,
        )
        for index in range(last + 1)
    )


def _report_round(verdict: Verdict | None, listener: Callable[[Event], None]) -> None:
    if verdict is not None:
        listener({"round": "accepted" if verdict.accepted else "refused", "reason": verdict.reason})


def _predict(service: Orchestrator, file: IncomingFile, listener: Callable[[Event], None]) -> float | None:
    """Predict a file; return how much its label would tell: above 1 where it is unknown, 0 where it has one.

    None where it cannot be predicted.
    """
    name, label, predictions = str(file.path), None, list[Prediction]()

    def infer(sample: Sample, recording: str = "", **begin: int) -> None:
        predictions.append(service.infer(sample, label, recording))
        listener({"file": name, **begin, **replace(predictions[-1], unknown=None).to_dict()})

    try:
        sample, label = service.model.load(file.path), known_label(file.label, service.model.bundle)
        if service.model.bundle.kind.windowed:
            recording = content_id(sample.tobytes())  # its windows are alike: none judges a model that saw another
            for begin, window in service.model.windows(sample, name):
                infer(window, recording, begin=begin)
        else:
            infer(sample)
    except UnusableError:
        raise
    except TunerError as error:
        listener({"file": name, "refused": str(error)})
        return None
    finally:
        if file.changed_ns:
            service.predicted.add(file)
    return max((_doubt(one) for one in predictions if label is None), default=0.0)


def _doubt(prediction: Prediction) -> float:
    if prediction.unknown is not None and prediction.unknown > 1:
        return prediction.unknown
    return 0.0 if prediction.values is not None else 1 - prediction.probability


def _incoming(
    service: Orchestrator, samples: str, listener: Callable[[Event], None], *, once: bool
) -> Iterator[IncomingFile | None]:
    """Yield files as they come, and None now and then while there are none."""
    if samples == STREAM:
        yield from files_from_lines(sys.stdin)
        return
    folder, suffixes = Path(samples), service.model.bundle.kind.suffixes
    service.predicted.keep(files_in(folder, suffixes)[0])
    unreadable, suffixes_told = set[str](), set[str]()
    with Arrivals() as arrivals:
        while True:
            arrivals.follow(folders_in(folder))  # before the files are listed: none comes unnoticed
            closed = list[OSError]()
            files, others = files_in(folder, suffixes, closed.append)
            for error in closed:
                if error.filename not in unreadable:
                    unreadable.add(error.filename)
                    listener({"problem": f"{error.filename}: cannot be read ({error.strerror}): check its permissions"})
            if endings := {path.suffix.lower() for path in others} - suffixes_told:
                suffixes_told |= endings
                listener({"left_out": len(others), "kinds": kinds_of(others)})
            new = [file for file in files if file not in service.predicted]
            now_ns = time.time_ns()
            unsettled = {} if once else {file: seconds_until_settled(file, now_ns) for file in new}
            whole = [file for file in new if not unsettled.get(file)]
            yield from whole
            if once and not new:
                return
            if not whole:
                yield None
                arrivals.wait(max(unsettled.values(), default=service.rest_seconds))
