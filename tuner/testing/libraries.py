"""Which tensor libraries some code loads."""

import os
import subprocess
import sys

TENSOR_LIBRARIES = ("torch", "torchvision", "tensorflow", "jax", "onnxruntime")


def loaded_by(code: str) -> str:
    """Return which tensor libraries a fresh interpreter has loaded after running `code`.

    Raises:
        AssertionError: The code failed.
    """
    script = f"{code}\nimport sys\nprint('loaded:', *(name for name in {TENSOR_LIBRARIES!r} if name in sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    if process.returncode != 0:
        raise AssertionError(f"a fresh interpreter fails: {process.stderr.strip()}")
    return ", ".join(process.stdout.splitlines()[-1].removeprefix("loaded:").split())
