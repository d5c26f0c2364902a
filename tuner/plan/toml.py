"""A plan as TOML: what a bundle exports as ``plan.toml``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from tuner.errors import PlanError, nearest
from tuner.plan.info import Part
from tuner.plan.text import describe
from tuner.plan.trial import TrialPlan, check
from tuner.reading import parse_toml

if TYPE_CHECKING:
    from pydantic import TypeAdapter

FORMAT = 1
_UNKNOWN_KEY = "unexpected_keyword_argument"


def to_toml(plan: TrialPlan) -> str:
    """Return a plan as TOML; `from_toml` reads it back equal."""
    import tomli_w

    content = asdict(plan)
    decisions = {"format": FORMAT, **plan.settings()}
    comment = "".join(letter if letter.isprintable() else " " for letter in describe(plan))
    model = {name: value for name, value in content["model"].items() if name != "sizes"}
    return f"# {comment}\n" + tomli_w.dumps(decisions | {"task": content["task"], "model": model})


def from_toml(text: str) -> TrialPlan:
    """Read a plan.

    Raises:
        PlanError: The text is not TOML, has an unknown or missing key, breaks a rule, or comes from a newer version.
    """
    from pydantic import ValidationError

    try:
        content = parse_toml(text)
    except ValueError as error:
        raise PlanError(f"plan: not valid TOML ({error})") from None
    version = content.pop("format", None)
    if version != FORMAT:
        raise PlanError(f"plan: format must be {FORMAT}, got {version!r}: use the version of tuner that wrote it")
    try:
        # as JSON, where strict types leave lists to be tuples
        return check(_adapter().validate_json(json.dumps(content, default=str), strict=True))
    except ValidationError as error:
        raise PlanError(f"plan: {_first_mistake(list(map(dict, error.errors())))}") from None


@cache
def _adapter() -> "TypeAdapter[TrialPlan]":
    from pydantic import TypeAdapter

    return TypeAdapter(TrialPlan)


def _first_mistake(mistakes: Sequence[Mapping[str, Any]]) -> str:
    """Return one of pydantic's mistakes as a sentence; a misspelt key goes before the key it leaves missing."""
    first = min(mistakes, key=lambda mistake: mistake["type"] != _UNKNOWN_KEY)
    where = ".".join(map(str, first["loc"]))
    if first["type"] == _UNKNOWN_KEY:
        keys = {name for part in Part.__subclasses__() for name in part.__annotations__}
        return f"unknown key {where!r}{nearest(str(first['loc'][-1]), keys)}"
    if first["type"] == "missing":
        return f"{where} is missing"
    return f"{where}: {first['msg']}, got {first['input']!r}"
