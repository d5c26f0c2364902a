"""Bundles in service on this device: watch files, say how it goes, and where the samples are kept."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tuner.errors import TunerError
from tuner.folders import cache_folder
from tuner.runtime import Bundle, Orchestrator, Policy, Ring
from tuner.runtime.files import Given, Mark, given_files, listed_files
from tuner.runtime.gate import Verdict
from tuner.runtime.home import folder_of, standing
from tuner.runtime.learning import training_of
from tuner.runtime.orchestrator import UnusableError
from tuner.runtime.state import State, read_state
from tuner.task.samples import content_id
from tuner.units import said_bytes, said_seconds

POLL_SECONDS = 1.0
DAY_SECONDS = 24 * 60 * 60
STREAM = "-"
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """Where files come from.

    Attributes:
        samples: A folder, or ``-`` for paths on standard input.
        once: End when every file there is has been answered; else wait for more.
    """

    samples: str
    once: bool = False


def ring_of(bundle: Path, most_bytes: int | None = None) -> Ring:
    """Return the ring of a bundle's samples: in the user's cache, never in the bundle's folder.

    Raises:
        BundleError: It is no bundle.
    """
    exported = Bundle.read(bundle)
    folder = cache_folder() / "rings" / f"{_task_mark(exported.name)}-{exported.identity[:16]}"
    return Ring(folder) if most_bytes is None else Ring(folder, most_bytes=most_bytes)


def rings_of_task(name: str) -> list[Ring]:
    """Return the rings of all bundles that were made from a task."""
    return [Ring(folder) for folder in sorted((cache_folder() / "rings").glob(f"{_task_mark(name)}-*"))]


def watch(
    bundle: Path,
    source: Source,
    heard: Callable[[Event], None],
    *,
    policy: Policy | None = None,
    most_bytes: int | None = None,
) -> None:
    """Answer files as they come, until there are no more or the user interrupts.

    A bundle exported with ``--trainable`` trains in rounds; of another one, rounds are only asked for.

    Args:
        bundle: The bundle's folder.
        source: Of the files.
        heard: Gets an event for each answer, refused file, ended round, and problem.
        policy: How to decide.
        most_bytes: Of samples kept.

    Raises:
        TunerError: The bundle or the folder cannot be used.
    """
    with Orchestrator(bundle, ring_of(bundle, most_bytes), training_of(bundle), policy) as service:
        told = None
        for given in _coming(service, source):
            if given is not None:
                _answer(service, given, heard)
            _tell_round(service.tend(), heard)
            last = service.state.problems[-1] if service.state.problems else None
            if last is not None and last != told:
                heard({"problem": last.line})
            told = last
        _tell_round(service.tend(wait=True), heard)  # the last samples may have made one due


def status(bundle: Path) -> dict[str, Any]:
    """Return how a bundle in service is doing.

    Raises:
        BundleError: It is no bundle, or what is remembered of it is damaged.
    """
    names = standing(bundle)
    found = Bundle.read(folder_of(bundle, names[0]))
    state, ring = read_state(bundle), ring_of(bundle)
    if state.round != names[0]:
        state = State(rounds=state.rounds, problems=state.problems, new_samples=state.new_samples)
    thresholds = state.thresholds or (found.exits.thresholds if found.exits else ())
    return {
        "bundle": str(bundle),
        "name": found.name,
        "round": names[0],
        "earlier": list(names[1:]),
        "answers": state.answers,
        "mean_seconds": state.seconds / state.answers if state.answers else None,
        "exits": _exits(found, state, thresholds),
        "explored": state.explored,
        "drift": [
            {"stream": name, "mean": test.mean, "statistic": test.statistic, "limit": test.limit, "samples": test.count}
            for name, test in sorted(state.tests.items())
        ],
        "kept": {"samples": len(ring), "bytes": ring.size_bytes, "new": min(state.new_samples, len(ring))},
        "asked": state.asked,
        "due": state.due,
        "waits": state.waits,
        "rounds": [asdict(one) for one in state.rounds],
        "problems": [asdict(one) for one in state.problems],
    }


def said_status(found: dict[str, Any]) -> str:
    """Return the status for people."""
    used = "as it was exported" if found["round"] == "0000" else f"round {found['round']}"
    lines = [f"{found['name']} · {used} · {found['answers']:,} answers"]
    if found["mean_seconds"] is not None:
        lines[0] += f", {1000 * found['mean_seconds']:.2f} ms each"
    for one in found["exits"]:
        threshold = "last" if one["threshold"] is None else f"threshold {one['threshold']:g}"
        rate = "no answers yet" if one["rate"] is None else f"{100 * one['rate']:.0f} % leave"
        loss = "" if one["loss"] is None else f", loss {one['loss']:.3f} over {found['explored']} explored"
        lines.append(f"  exit {one['exit']} ({threshold}): {rate}{loss}")
    lines += [
        f"  drift, {one['stream']}: {one['statistic']:.2f} of {one['limit']:g}, mean {one['mean']:.3f} over "
        f"{one['samples']:,}"
        for one in found["drift"]
    ]
    kept = found["kept"]
    lines.append(f"  kept: {kept['samples']:,} samples ({kept['new']:,} new), {said_bytes(kept['bytes'])}")
    waits = f"; it waits: {found['waits']}" if found["waits"] else ""
    lines.append(f"  a round is due: {found['due']}{waits}" if found["due"] else "  no round is due")
    for one in found["rounds"]:
        fate = "accepted" if one["accepted"] else "refused"
        lines.append(f"  {_ago(one['when'])}: a round on {one['samples']:,} samples was {fate}: {one['reason']}")
    lines += [f"  {_ago(one['when'])}: {one['line']}" for one in found["problems"]]
    return "\n".join(lines)


def _exits(bundle: Bundle, state: State, thresholds: tuple[float, ...]) -> list[dict[str, Any]]:
    count = len(thresholds) + 1
    shares = bundle.exits.shares if bundle.exits else (1.0,)
    return [
        {
            "exit": index,
            "threshold": thresholds[index] if index < count - 1 else None,
            "share": shares[index],
            "rate": state.left[index] / state.answers if state.answers else None,
            "loss": state.losses[index] if state.explored and index < count - 1 else None,
        }
        for index in range(count)
    ]


def _tell_round(verdict: Verdict | None, heard: Callable[[Event], None]) -> None:
    if verdict is not None:
        heard({"round": "accepted" if verdict.accepted else "refused", "reason": verdict.reason})


def _answer(service: Orchestrator, given: Given, heard: Callable[[Event], None]) -> None:
    try:
        sample = service.model.load(given.path)
        if service.model.bundle.input.kind == "signals":
            for begin, window in service.model.windows(sample, str(given.path)):
                heard({"file": str(given.path), "begin": begin, **service.infer(window, given.label).to_dict()})
        else:
            heard({"file": str(given.path), **service.infer(sample, given.label).to_dict()})
    except UnusableError:
        raise
    except TunerError as error:
        heard({"file": str(given.path), "refused": str(error)})
    finally:
        if given.changed_ns:
            service.state = replace(service.state, watched=max(service.state.watched, given.mark))


def _coming(service: Orchestrator, source: Source) -> Iterator[Given | None]:
    """Yield files as they come, and None now and then while there are none."""
    if source.samples == STREAM:
        yield from listed_files(sys.stdin)
        return
    folder, kind = Path(source.samples), service.model.bundle.input.kind
    begun, seen = service.state.watched, set[Mark]()
    while True:
        new = [one for one in given_files(folder, kind) if one.mark > begun and one.mark not in seen]
        seen |= {one.mark for one in new}
        yield from new
        if source.once and not new:
            return
        if not new:
            yield None
            time.sleep(POLL_SECONDS)


def _task_mark(name: str) -> str:
    return content_id(name.encode())[:8]


def _ago(when: float) -> str:
    seconds = max(0.0, time.time() - when)
    return f"{seconds / DAY_SECONDS:.0f} days ago" if seconds > 2 * DAY_SECONDS else f"{said_seconds(seconds)} ago"
