"""Install this checkout into an environment of its own: ``python tools/install.py FOLDER EXTRA``, which `make` runs.

With uv where there is one, else with venv and pip. PyTorch comes first, from the index of its processor-only builds: as
another package's dependency it would be the package index's build, which is for CUDA and brings gigabytes. Where that
index does not answer, pip decides: it reads the user's own settings (mirrors, local wheels), which uv does not.
"""

import re
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "constraints.txt"
PROBE_SECONDS = 2.0
#: What is installed from PyTorch's own index.
TENSOR_LIBRARIES = ("torch", "torchvision")
#: Sum of the wheels of torch 2.15 for Linux on x86-64 and of NVIDIA's libraries that it needs.
CUDA_GIGABYTES = 3
INSTALLED = "import torch; from pathlib import Path; print(torch.__version__, Path(torch.__file__).parent)"


def cpu_index() -> str:
    """Return the address of the index that pyproject.toml names for PyTorch."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (index,) = settings["tool"]["uv"]["index"]
    return str(index["url"])


def answers(url: str, seconds: float = PROBE_SECONDS) -> bool:
    """Say whether an index answers in time; a look-up of its name that hangs counts as no."""
    pages: list[int] = []

    def ask() -> None:
        try:
            with urllib.request.urlopen(f"{url}/torch/", timeout=seconds) as page:  # noqa: S310 - our own https address
                pages.append(page.status)
        except OSError:
            return

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(seconds)
    return bool(pages)


def pinned(*names: str) -> list[str]:
    """Return the requirements of constraints.txt for some libraries."""
    lines = PINS.read_text(encoding="utf-8").splitlines()
    return [line for name in names for line in lines if re.match(rf"{name}==", line)]


def run(*command: str | Path) -> bool:
    """Run a command, which prints for itself, and say whether it succeeded."""
    return subprocess.run([str(word) for word in command], check=False, stdin=subprocess.DEVNULL).returncode == 0


class Installer:
    """What installs into an environment.

    Args:
        folder: The environment's folder; created where there is none.
        uv: The program uv; None for pip alone.
    """

    def __init__(self, folder: Path, uv: str | None) -> None:
        self.python = folder / "bin" / "python"
        self._uv = uv
        made = self.python.exists() or run(sys.executable, "-m", "venv", folder)
        if not made and not (uv and run(uv, "venv", "--quiet", "--seed", "--python", sys.executable, folder)):
            sys.exit("tuner: no environment could be made; the line above says why (uv makes one without ensurepip)")

    def with_uv(self, *arguments: str | Path) -> bool:
        """Install with uv; False where there is none or where it failed."""
        if self._uv is None:
            return False
        return run(self._uv, "pip", "install", "--python", self.python, "--constraint", PINS, *arguments)

    def with_pip(self, *arguments: str | Path) -> bool:
        """Install with pip, under the user's settings for it."""
        pip = (self.python, "-m", "pip", "install", "--disable-pip-version-check", "--constraint", PINS)
        return run(*pip, *arguments)

    def install_torch(self, index: str) -> None:
        """Install PyTorch for processors, or what pip finds, and print what came."""
        wanted = pinned(*TENSOR_LIBRARIES)
        host = urlsplit(index).hostname
        there = answers(index)
        from_index = ("--no-deps", "--index-url", index, *wanted)
        if there:
            print(f"{' '.join(wanted)} for processors only, from {host}", flush=True)
        if not (there and (self.with_uv(*from_index) or self.with_pip(*from_index))):
            print(
                f"{host} {'has none for this machine' if there else f'did not answer in {PROBE_SECONDS:g} s'}: "
                f"{' '.join(wanted)} as pip finds it (PyPI's is built for CUDA: {CUDA_GIGABYTES} GB to download)",
                flush=True,
            )
            if not self.with_pip("--no-deps", *wanted):
                sys.exit("tuner: PyTorch could not be installed: the lines above say why")

    def install_rest(self, extra: str) -> None:
        """Install this checkout and what its extra needs.

        hatchling builds the editable package in the environment itself, at its pinned version, instead of in another.
        """
        editable = ("-qq", "--no-build-isolation", "--editable", f"{ROOT}[{extra}]")
        builds = ("-qq", *pinned("hatchling"))
        if self.with_uv(*builds) and self.with_uv("--no-sources", *editable):  # PyTorch is there already
            return
        if not (self.with_pip(*builds) and self.with_pip(*editable)):
            sys.exit("tuner: the install failed: the lines above say why; run make again once that is put right")


def size(folder: Path) -> int:
    """Return the bytes of a folder's files."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def main(arguments: Sequence[str]) -> None:
    """Install."""
    folder, extra = Path(arguments[0]), arguments[1]
    start = time.monotonic()
    uv = shutil.which("uv")
    version = ".".join(str(part) for part in sys.version_info[:3])
    print(f"installing tuner[{extra}] into {folder}, once: Python {version}, {'uv' if uv else 'pip'}", flush=True)
    installer = Installer(folder, uv)
    installer.install_torch(cpu_index())
    print("the other libraries", flush=True)
    installer.install_rest(extra)
    done = subprocess.run([installer.python, "-c", INSTALLED], check=True, capture_output=True, text=True)
    torch_version, torch_folder = done.stdout.strip().split(" ", 1)
    torch_gigabytes, gigabytes = size(Path(torch_folder)) / 1e9, size(folder) / 1e9
    seconds = time.monotonic() - start
    print(f"installed in {seconds:.0f} s: torch {torch_version} ({torch_gigabytes:.1f} GB), {gigabytes:.1f} GB in all")


if __name__ == "__main__":
    main(sys.argv[1:])
