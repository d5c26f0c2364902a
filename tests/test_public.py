"""The names that `import tuner` offers."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("first", ["run", "Run"])
def test_run_stays_the_function_though_a_module_has_its_name(first: str) -> None:
    code = f"import tuner; tuner.{first}; assert callable(tuner.run); assert tuner.run is tuner.run; tuner.Run.open"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
