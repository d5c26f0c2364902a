"""A stand-in for a tensor library, for plugins and backends that import one where they must not."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], ModuleType]:
    """Write modules that may import a stand-in for a tensor library, and import them here without it."""
    (tmp_path / "jax.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))

    def imported(name: str, source: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(source)
        module = importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
        return module

    return imported
