"""The names that `import tuner` offers."""

import subprocess
import sys
from pathlib import Path

import pytest

import tuner


@pytest.mark.parametrize("first", ["tuner.run", "tuner.Run", "__import__('tuner.bundle')"])
def test_run_stays_the_function_whatever_is_imported_first(first: str) -> None:
    code = f"import tuner; {first}; assert callable(tuner.run); assert tuner.run is tuner.run; tuner.Run.open"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_no_module_has_the_name_of_something_offered() -> None:
    """Importing such a module would put it where the function belongs."""
    assert not {path.stem for path in Path(tuner.__file__).parent.iterdir()} & set(tuner.__all__)
