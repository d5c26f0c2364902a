"""Search spaces: what a user asks to be tried. Code says what is legal; the search sees the overlap."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from tuner.errors import KnobError, SpaceError, nearest
from tuner.plan.info import ModelInfo, TaskInfo
from tuner.plugin.compose import StrategyError, compose
from tuner.plugin.knobs import Knob, Numeric, ValueSource, Wanted
from tuner.plugin.sources import corners
from tuner.plugin.strategy import Strategy
from tuner.reading import kind_of, path_from, read_toml
from tuner.results.prior.file import Prior, read_prior
from tuner.results.records.config import RunRequest
from tuner.search.budget import LIMITS
from tuner.untrusted import parse_json

#: Keys of a search space: the type of each, and what it must be.
KEYS: Mapping[str, tuple[type, str]] = {
    "for": (str, "a sentence"),
    "strategies": (list, "a list of names"),
    "objectives": (list, "a list of names"),
    "sampler": (object, ""),
    "rungs": (bool, "true or false"),
    "prior": (str, "the name of a file"),
    "plugins": (list, "a list of names"),
    "limits": (dict, "a table of limits"),
    "knobs": (dict, "a table of knobs"),
}
#: In place of a prior's file: the one that comes with the project, of the tasks of ``benchmarks.search.prior``.
SHIPPED = "shipped"
RANGE_KEYS = frozenset({"low", "high", "log"})
PLAIN_SAMPLERS = ("tpe", "gp", "nsga2", "random")
SAMPLERS = (*PLAIN_SAMPLERS, "cmaes")
#: Begins the name of a sampler of OptunaHub.
HUB = "hub:"
HUGE = 1e300
#: Name of a search space that is no file.
GIVEN = "given"
WANTED = "a value, a list of values of one type, or low, high and log, where numbers are finite"


@dataclass(frozen=True, slots=True)
class Space:
    """A search space.

    Attributes:
        name: Name of the file, without its suffix.
        audience: For whom it is, in a sentence.
        strategies: Names of the strategies that take part; None for all that are installed.
        objectives: Names of the objectives; None for the default ones.
        sampler: One of `SAMPLERS`, a name that begins with `HUB`, or the class of an object.
        limits: Limits as text, by name, for those that the command line does not give.
        knobs: What is asked of each knob; the legal range is searched for a knob that is not named.
        rungs: Whether plans are first tried on fewer samples and epochs.
        prior: File of plans to try first; empty for none.
        plugins: Files of local plugins.
    """

    name: str
    audience: str = ""
    strategies: tuple[str, ...] | None = None
    objectives: tuple[str, ...] | None = None
    sampler: str = "tpe"
    limits: Mapping[str, str] = field(default_factory=dict)
    knobs: Mapping[str, Wanted] = field(default_factory=dict)
    rungs: bool = field(default=True, repr=False)  # no part of what a resumed run is compared by
    prior: str = field(default="", repr=False)  # the same
    plugins: tuple[str, ...] = field(default=(), repr=False)  # the same: their knobs are in the space


def shipped() -> dict[str, Path]:
    """Return the search spaces that come with the project, by name."""
    return {path.stem: path for path in sorted(_shipped_folder().glob("*.toml"))}


def _shipped_folder() -> Path:
    """Return where search spaces are: inside an installed package; in a checkout in ``search_spaces/``."""
    inside = Path(str(files("tuner"))) / "search_spaces"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "search_spaces"


def load_prior(file: str | Path) -> Prior:
    """Read a prior: a file, or ``shipped`` for the one that comes with the project."""
    return read_prior(_shipped_folder() / "priors" / "shipped.toml" if str(file) == SHIPPED else Path(file))


def load_space(text: str) -> Space:
    """Read a search space by name, by path, or from JSON; SpaceError where there is none, or it cannot be read."""
    known = shipped()
    if text.startswith("{"):
        try:
            return _given(parse_json(text.encode()), known[RunRequest().space])
        except ValueError as error:
            raise SpaceError(
                f"a search space that begins with {{ must be JSON, but it cannot be read ({error})"
            ) from None
    path = known.get(text, Path(text))
    if kind_of(path) in {"nothing", "folder"}:
        raise SpaceError(
            f"there is no search space {text!r}{nearest(text, known)}: give a file, or one of {', '.join(known)}"
        )
    return _parsed(path, read_toml(path, SpaceError, "give a search space"))


def check_knobs(space: Space, strategies: Sequence[Strategy[Any]], model: ModelInfo, task: TaskInfo) -> dict[str, Knob]:
    """Return every knob of the strategies; SpaceError where the space names another one, with the nearest."""
    found: dict[str, Knob] = {}
    raised: list[Exception] = []

    def draw(source: ValueSource) -> None:
        try:
            compose(strategies, source, model, task)
        except KnobError:  # of what the space asks for
            raise
        except Exception as error:  # noqa: BLE001 - a plugin's strategy may raise anything; its trials will say what
            raised.append(error)

    for knobs in corners(draw, most=64):
        found.update(knobs)
        if any(isinstance(error, StrategyError) and error.ends for error in raised):
            break  # it took its time, and would take it again
    for name in space.knobs:
        if name not in found and not raised:
            owner = name.split(".")[0]
            hint = nearest(name, found)
            if owner not in {known.split(".")[0] for known in found} and not hint:
                hint = f": no strategy {owner!r} takes part"
            raise SpaceError(f"{space.name}: knobs: there is no knob {name!r}{hint}")
    return found


def _given(content: Any, default: Path) -> Space:
    """Return a search space that is no file: what such a file holds, or knobs that differ from a default space's."""
    if set(content) & set(KEYS):
        return _parsed(Path(GIVEN), content)
    base = read_toml(default, SpaceError, "give a search space")
    knobs = dict(_flattened(base.get("knobs", {}))) | dict(_flattened(content))
    return _parsed(Path(GIVEN), {**base, "knobs": knobs})


def _check_keys(content: Mapping[str, Any], fail: Callable[[str, str], SpaceError]) -> None:
    for name, value in content.items():
        if name not in KEYS:
            raise fail(name, f"unknown key{nearest(name, KEYS)}; known: {', '.join(KEYS)}")
        kind, rule = KEYS[name]
        if name == "objectives" and value == []:
            raise fail(name, "at least one name, but the list is empty: name one, or leave the key out")
        if not isinstance(value, kind) or (isinstance(value, list) and not all(isinstance(one, str) for one in value)):
            raise fail(name, f"{rule}, but it is {value!r}")


def _parsed(path: Path, content: dict[str, Any]) -> Space:
    def fail(where: str, rule: str) -> SpaceError:
        return SpaceError(f"{path}: {where}: {rule}")

    _check_keys(content, fail)
    sampler, limits, prior = content.get("sampler", "tpe"), content.get("limits", {}), content.get("prior", "")
    checked_sampler(sampler, f"{path}: ")
    for name in limits:
        if name not in LIMITS:
            raise fail(f"limits.{name}", f"unknown limit{nearest(name, LIMITS)}; known: {', '.join(LIMITS)}")
    knobs = dict[str, Wanted]()
    for name, value in _flattened(content.get("knobs", {})):
        if (wanted := _wanted(name, value)) is None:
            raise fail(f"knobs.{name}", f"{WANTED}, but it is {value!r}")
        knobs[name] = wanted
    return Space(
        name=path.stem,
        audience=content.get("for", ""),
        strategies=tuple(content["strategies"]) if "strategies" in content else None,
        objectives=tuple(content["objectives"]) if "objectives" in content else None,
        sampler=sampler,
        rungs=content.get("rungs", True),
        prior=prior if prior in {"", SHIPPED} else str(path.parent / path_from(prior)),
        plugins=tuple(str((path.parent / path_from(name)).absolute()) for name in content.get("plugins", ())),
        limits={name: str(value) for name, value in limits.items()},
        knobs=knobs,
    )


def checked_sampler(sampler: object, place: str = "") -> str:
    """Return the name of a sampler, of an object that of its class; a SpaceError where there is none of the name."""
    if not hasattr(sampler, "sample_relative") and sampler not in SAMPLERS and not str(sampler).startswith(HUB):
        known = f"one of {', '.join(SAMPLERS)} or {HUB}NAME, but it is {sampler!r}{nearest(str(sampler), SAMPLERS)}"
        raise SpaceError(f"{place}sampler: {known}")
    return sampler if isinstance(sampler, str) else type(sampler).__name__


def _flattened(tables: Mapping[str, Any], scope: str = "") -> Iterable[tuple[str, Any]]:
    """Yield (knob, value): a table that is no range is a scope (``[knobs.recipe]``)."""
    for name, value in tables.items():
        full = f"{scope}.{name}" if scope else name
        if isinstance(value, dict) and not set(value) & RANGE_KEYS:
            yield from _flattened(value, full)
        else:
            yield full, value


def _wanted(name: str, value: Any) -> Wanted | None:
    """Return what is asked of a knob; None where it cannot be read."""
    if isinstance(value, dict):
        low, high, log = value.get("low", -HUGE), value.get("high", HUGE), value.get("log", False)
        known = set(value) <= RANGE_KEYS and isinstance(log, bool) and {_kind(low), _kind(high)} == {float}
        return Numeric(name, low, high, whole=False, log=log) if known and low <= high else None
    if isinstance(value, list):
        kinds = set(map(_kind, value))
        return tuple(value) if len(kinds) == 1 and None not in kinds else None
    return None if _kind(value) is None else value


def _kind(value: Any) -> type | None:
    """Return what a value is, a float for all numbers; None for what no knob has."""
    if isinstance(value, bool | str):
        return type(value)
    return float if isinstance(value, int | float) and -HUGE <= value <= HUGE else None
