"""Which tensor libraries some code loads, and how long it takes."""

import importlib.util
import math
import os
import subprocess
import sys
from functools import cache
from types import ModuleType

import pytest

from tuner_testing.models.hosting import name_of

TENSOR_LIBRARIES = ("torch", "torchvision", "tensorflow", "jax", "onnxruntime")
#: Hooks that return functions by kind, for a backend.
BY_KIND = ("tuner_lowerings", "tuner_losses", "tuner_optimisers", "tuner_batches", "tuner_solvers")
#: Seconds that importing a plugin may take: every command that looks at plugins waits for all of them.
MOST_SECONDS = 0.5
#: Imports a module by its name, or, where only this process knows the name, from its file.
_IMPORT = """
import importlib.util, sys, time
import tuner.plugin.core, tuner_testing
started = time.perf_counter()
name, path = {name!r}, {path!r}
try:
    spec = importlib.util.find_spec(name)
except (ImportError, ValueError):
    spec = None
if spec is not None:
    plugin = importlib.import_module(name)
else:
    spec = importlib.util.spec_from_file_location(name, path)
    plugin = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)
print("seconds:", time.perf_counter() - started)
for hook in filter(None, (getattr(plugin, name, None) for name in {hooks!r})):
    hook(*("torch" for _ in hook.__code__.co_varnames[: hook.__code__.co_argcount]))
"""


def loaded_by(code: str) -> str:
    """Return which tensor libraries a fresh interpreter has loaded after running `code`, which must not fail."""
    return _printed_by(code).rpartition("loaded:")[2].strip()


def require_light_import(plugin: object) -> None:
    """Fail where importing a plugin's module loads a tensor library or takes long, or where its hooks load one.

    The module may be that of an object's class. Skip where another process cannot import it: it has no file.
    """
    module = plugin if isinstance(plugin, ModuleType) else sys.modules.get(type(plugin).__module__)
    name = module.__name__ if module is not None else type(plugin).__module__
    path = getattr(module, "__file__", None) or ""
    if not path and not _is_importable(name):
        pytest.skip(f"{name} has no file to be imported from")
    loaded, seconds = _import_of(name, path)
    name = name_of(module) if module is not None else name
    if loaded:
        pytest.fail(f"importing {name} must load no tensor library, but it loads {loaded}: import it in the lowering")
    if seconds > MOST_SECONDS:
        pytest.fail(
            f"importing {name} must take at most {MOST_SECONDS:g} s, but it takes {seconds:.1f} s: import what is slow "
            "where it is used"
        )


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


@cache
def _import_of(name: str, path: str) -> tuple[str, float]:
    """Return which tensor libraries an import loads, and the seconds it takes: a second try may find a warm disk."""
    loaded, seconds = "", math.inf
    for _ in range(2):
        if seconds > MOST_SECONDS:
            printed = _printed_by(_IMPORT.format(name=name, path=path, hooks=BY_KIND))
            loaded = printed.rpartition("loaded:")[2].strip()
            seconds = float(printed.rpartition("seconds:")[2].split()[0])
    return loaded, seconds


def _printed_by(code: str) -> str:
    """Run code in a fresh interpreter; return what it printed, the tensor libraries it loaded on the last line."""
    listing = f"print('loaded:', ', '.join(name for name in {TENSOR_LIBRARIES!r} if name in sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\n{listing}"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if process.returncode != 0:
        raise AssertionError(f"a fresh interpreter fails: {process.stderr.strip()}")
    return process.stdout
