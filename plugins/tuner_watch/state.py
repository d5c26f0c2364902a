"""State of a watched bundle that outlives the process, and that ``tuner status`` shows."""

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

from tuner.bundle.rounds import EXPORTED, inside_device
from tuner.bundle.table import MOST, Table, Within
from tuner.errors import BundleError
from tuner.files import remove_parts, write_private
from tuner.runtime.train.gate import Evidence
from tuner.untrusted import read_json
from tuner_watch.drift import PageHinkley

FILE = "state.json"
FORMAT = 1
SAVE_SECONDS = 5.0
SHOWN = 20  # latest rounds, and problems, that the state holds


@dataclass(frozen=True, slots=True)
class Round:
    """One round of training.

    Attributes:
        when: Time of the verdict, in seconds since 1970.
        samples: Number of samples that were trained on.
        asked: Why the round was due.
        accepted: Whether the new model was accepted.
        reason: The gate's reason.
        evidence: Measured values that it rests on; None where nothing was measured.
        name: Name of the round that was put in place; empty where none was.
    """

    when: float
    samples: int
    asked: str
    accepted: bool
    reason: str
    evidence: Evidence | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that went wrong without stopping the service; `when` is in seconds since 1970."""

    when: float
    line: str


@dataclass(frozen=True, slots=True)
class ServiceState:
    """State of a bundle in service.

    Attributes:
        round: Name of the round in use, which counts and thresholds refer to.
        answers: Number of predictions of this round.
        left: Number of these predictions at each exit.
        seconds: Time that the model took for them.
        explored: Number of samples on which every exit ran.
        losses: Mean loss of each exit but the last on these: 1 − its probability of the last exit's answer.
        thresholds: Current thresholds where drift has raised them above the bundle's own; else None.
        tests: Page–Hinkley tests, by stream.
        new_samples: Number of samples kept since the last round.
        newest: Number of the newest sample that is counted: a kill may come before the state is written. None in a
            state that begins or is older: what was kept before it is not new.
        asked: Drift that asks for a round; None where there is none.
        asked_at: Value of `new_samples` at that time: the round needs samples from after the change.
        due: Why a round is due; None where none is.
        waits: What a round that is due waits for.
        rounds: Latest rounds.
        problems: Latest problems.
    """

    round: str = EXPORTED
    answers: int = 0
    left: tuple[int, ...] = ()
    seconds: Annotated[float, Within(0, math.inf)] = 0.0
    explored: int = 0
    losses: tuple[float, ...] = ()
    thresholds: Annotated[tuple[float, ...] | None, Within(0, 1)] = None
    tests: Mapping[str, PageHinkley] = field(default_factory=dict)
    new_samples: Annotated[int, Within(-MOST, MOST)] = 0
    newest: int | None = None
    asked: str | None = None
    asked_at: Annotated[int, Within(-MOST, MOST)] = 0
    due: str | None = None
    waits: str | None = None
    rounds: tuple[Round, ...] = ()
    problems: tuple[Problem, ...] = ()

    def fits(self, exits: int) -> bool:
        """Return whether the counts and thresholds are those of a model with so many exits."""
        side = exits - 1
        are_counted = len(self.left) == exits or not (self.left or self.answers)
        are_explored = len(self.losses) == side or not (self.losses or self.explored)
        return are_counted and are_explored and (self.thresholds is None or len(self.thresholds) == side)


def read_state(bundle: Path) -> ServiceState:
    """Return the state of a bundle; a new one where there is none."""
    path = inside_device(bundle, FILE)
    try:
        table = Table(read_json(path))
        if table.content["format"] == FORMAT:
            return _state(table)
    except FileNotFoundError:
        return ServiceState()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, BundleError) as error:
        raise BundleError(f"{path} is damaged ({error}): remove it to start anew") from None
    raise BundleError(f"{path} comes from another version: update tuner, or remove it to start anew")


def _state(table: Table) -> ServiceState:
    tests = table.table("tests")
    return table.read(
        ServiceState,
        whole=True,
        tests={name: _test(tests.table(name)) for name in tests.content},
        rounds=tuple(_round(entry) for entry in table.tables("rounds")[-SHOWN:]),
        problems=tuple(entry.read(Problem) for entry in table.tables("problems")[-SHOWN:]),
    )


def _round(entry: Table) -> Round:
    evidence = entry.table("evidence").read(Evidence) if "evidence" in entry else None
    return entry.read(Round, accepted=entry.flag("accepted", default=False), evidence=evidence)


def _test(entry: Table) -> PageHinkley:
    return entry.read(PageHinkley, whole=True, lowest=entry.number("lowest", math.inf))


def write_state(bundle: Path, state: ServiceState) -> None:
    """Write the state of a bundle, whole or not at all."""
    content = {"format": FORMAT, **asdict(state)}
    for test in content["tests"].values():
        test["lowest"] = test["lowest"] if test["count"] else None  # JSON has no infinity
    write_private(inside_device(bundle, FILE), json.dumps(content, indent=1))


class StateFile:
    """State of a bundle in service, in memory and written now and then; a file that is damaged is a `BundleError`."""

    def __init__(self, bundle: Path, clock: Callable[[], float]) -> None:
        self._bundle, self._clock = bundle, clock
        self._saved, self._written = -math.inf, ServiceState()
        remove_parts(inside_device(bundle, FILE))
        self.state = read_state(bundle)

    @property
    def is_due(self) -> bool:
        """Whether the state was written long enough ago."""
        return time.monotonic() - self._saved >= SAVE_SECONDS

    @property
    def is_changed(self) -> bool:
        """Whether the state is another one than was written: an idle service spares the flash."""
        return self.state is not self._written

    def save(self) -> None:
        """Write the state; a full disk is a problem, not the end."""
        self._saved = time.monotonic()  # the time of day may be set back, by a day say
        try:
            write_state(self._bundle, self.state)
            self._written = self.state
        except OSError as error:
            self.add_problem(
                f"{self._bundle} cannot be written ({error.strerror}), so the latest counts may be lost: "
                "check its permissions, and free space"
            )

    def add_problem(self, line: str) -> None:
        """Add a problem to the state; the same line twice in a row once."""
        problems = self.state.problems
        if not problems or problems[-1].line != line:
            self.state = replace(self.state, problems=(*problems, Problem(self._clock(), line))[-SHOWN:])
