"""The names that are offered to authors of plugins and to programs that embed `tuner`."""

import inspect
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import tuner
from tuner.results.records.config import RunRequest

OFFERING = ("tuner", "tuner.plugin", "tuner.runtime", "tuner.task", "tuner_testing")


@pytest.mark.parametrize("first", ["tuner.run", "tuner.Run", "__import__('tuner.bundle')"])
def test_run_stays_the_function_whatever_is_imported_first(first: str) -> None:
    code = f"import tuner; {first}; assert callable(tuner.run); assert tuner.run is tuner.run; tuner.Run.open"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_options_of_a_run_are_its_keyword_arguments() -> None:
    names = [field.name for field in fields(RunRequest)]
    assert [*inspect.signature(tuner.run).parameters][: len(names) + 1] == ["task", *names]
    mistyped: dict[str, Any] = {"tiem": "5m"}
    with pytest.raises(TypeError, match=r"'tiem' \(did you mean 'time'\?\)$"):
        tuner.run("digits", **mistyped)


def test_no_module_has_the_name_of_something_offered() -> None:
    """Importing such a module would put it where the function belongs."""
    assert not {path.stem for path in Path(tuner.__file__).parent.iterdir()} & set(tuner.__all__)


@pytest.mark.parametrize("name", OFFERING)
def test_every_name_that_is_offered_is_there_and_documented(name: str) -> None:
    module = import_module(name)
    offered = {own: getattr(module, own) for own in module.__all__}
    assert list(offered) == sorted(offered)
    made = {own: value for own, value in offered.items() if inspect.isclass(value) or inspect.isfunction(value)}
    assert [own for own, value in made.items() if not value.__doc__] == []
    assert len(offered) >= 4
    assert module.__doc__
