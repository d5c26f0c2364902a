"""What a user can put right. Each error says the rule, the value that broke it, and the way out, in one line.

The command line prints a `TunerError` without a traceback and exits 1; any other exception is a bug of ours, or of a
plugin, and keeps its traceback.
"""

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any


class TunerError(Exception):
    """The user's to put right; told in one line."""


class TaskError(TunerError):
    """A task file, its data or its model cannot be used as they are."""


class ModelError(TunerError):
    """A model description cannot be read, or its layers do not fit together."""


class PlanError(TunerError):
    """A plan breaks a rule, or two strategies claim the same value."""


class KnobError(TunerError):
    """A knob, or the range a search space wants for it, is not one the strategy allows."""


class SpaceError(TunerError):
    """A search-space file cannot be used as it is."""


class PluginError(TunerError):
    """A plugin broke the contract; the message names it."""


class StoreError(TunerError):
    """The feature store cannot be read or written."""


class BudgetError(TunerError):
    """A limit leaves no room for what was asked."""


class UnsupportedError(TunerError):
    """A backend found, when it began, that it cannot carry out a plan; another backend may."""


class RunError(TunerError):
    """A run folder cannot be used as asked."""


class BundleError(TunerError):
    """A bundle is not one this version can open."""


def nearest(word: str, known: "Iterable[str]") -> str:
    """Return ``" (did you mean 'x'?)"`` for the nearest known word, or an empty string."""
    match = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {match[0]!r}?)" if match else ""


#: Which extra brings a library that the base package does without.
EXTRAS = {
    "onnx": "tune",
    "onnxscript": "tune",
    "optuna": "tune",
    "scipy": "tune",
    "sklearn": "demo",
    "torch": "tune",
    "torchvision": "tune",
}


def lacking(error: ModuleNotFoundError) -> TunerError | None:
    """Return what to install for an import that failed, or None where no extra would bring the module."""
    library = (error.name or "").split(".")[0]
    if library not in EXTRAS:
        return None
    return TunerError(f'this needs {library}, which is not installed: pip install "tuner[{EXTRAS[library]}]"')


def first_mistake(mistakes: "Sequence[Mapping[str, Any]]", known: "Iterable[str]") -> str:
    """Say one of pydantic's mistakes, with its place; a misspelt key comes before the key it leaves missing.

    Args:
        mistakes: At least one, as ``ValidationError.errors()`` gives them.
        known: Every key there could be.
    """
    unknown = "unexpected_keyword_argument"
    first = min(mistakes, key=lambda mistake: mistake["type"] != unknown)
    where = ".".join(map(str, first["loc"]))
    if first["type"] == unknown:
        return f"there is no key {where!r}{nearest(str(first['loc'][-1]), known)}"
    return (
        f"{where} is missing"
        if first["type"] == "missing"
        else f"{where}: {first['msg']}, but it is {first['input']!r}"
    )
