"""What a watched bundle remembers from one start to the next, and what ``tuner status`` shows."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tuner.errors import BundleError
from tuner.runtime.drift import PageHinkley
from tuner.runtime.home import EXPORTED, FOLDER, write_whole

FILE = "state.json"
FORMAT = 1
SHOWN = 20  # rounds, and problems, that are remembered


@dataclass(frozen=True, slots=True)
class Round:
    """One round of training: when (seconds since 1970), on how many samples, and what came of it."""

    when: float
    samples: int
    asked: str
    accepted: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that went wrong without stopping the service."""

    when: float
    line: str


@dataclass(frozen=True, slots=True)
class State:
    """What is remembered.

    Attributes:
        round: Name of the round in use, which the counts and thresholds are of.
        answers: Given since it came into use.
        left: Of those, at each exit.
        seconds: The model took for all of them.
        explored: Samples on which every exit ran.
        losses: Mean loss of each exit but the last on those: 1 − its probability of the last exit's answer.
        thresholds: In use, where drift has raised them above the bundle's own; else None.
        tests: Page–Hinkley, by the stream it watches.
        new_samples: Kept since the last round.
        asked: What drift says that asks for a round; None where there is none.
        asked_at: What `new_samples` was then: a round wants samples of the changed world.
        due: Why a round is due; None where none is.
        waits: What a round that is due waits for.
        rounds: The last ones.
        problems: The last ones.
        watched: Change time (ns) and path of the last file answered.
    """

    round: str = EXPORTED
    answers: int = 0
    left: tuple[int, ...] = ()
    seconds: float = 0.0
    explored: int = 0
    losses: tuple[float, ...] = ()
    thresholds: tuple[float, ...] | None = None
    tests: Mapping[str, PageHinkley] = field(default_factory=dict)
    new_samples: int = 0
    asked: str | None = None
    asked_at: int = 0
    due: str | None = None
    waits: str | None = None
    rounds: tuple[Round, ...] = ()
    problems: tuple[Problem, ...] = ()
    watched: tuple[int, str] = (0, "")


def read_state(bundle: Path) -> State:
    """Return what is remembered of a bundle; a new one where nothing is.

    Raises:
        BundleError: The file is damaged.
    """
    path = bundle / FOLDER / FILE
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("format") != FORMAT:
            raise BundleError(f"{path} comes from another version: update tuner, or remove it to begin anew")
        tests = {
            name: PageHinkley(**{**one, "lowest": float("inf") if one["lowest"] is None else one["lowest"]})
            for name, one in content.pop("tests").items()
        }
        return State(
            **{name: _tuple(value) for name, value in content.items() if name not in {"rounds", "problems"}},
            tests=tests,
            rounds=tuple(Round(**one) for one in content["rounds"]),
            problems=tuple(Problem(**one) for one in content["problems"]),
        )
    except FileNotFoundError:
        return State()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BundleError(f"{path} is damaged ({error}): remove it to begin anew") from None


def write_state(bundle: Path, state: State) -> None:
    """Replace what is remembered, whole or not at all.

    Raises:
        OSError: The disk is full or cannot be written.
    """
    content = {"format": FORMAT, **asdict(state)}
    for test in content["tests"].values():
        test["lowest"] = test["lowest"] if test["count"] else None  # JSON has no infinity
    write_whole(bundle / FOLDER / FILE, json.dumps(content, indent=1))


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
