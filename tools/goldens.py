"""What must stay as it is while the code is rebuilt: runs, bundles, conformance sets, JSON, help and public names.

`python -m tools.goldens FILE [--only NAME ...]` writes the file where it is missing, else compares with it and exits
with 1 where something differs. Runs are deterministic; it takes some minutes, so it is no test. ``TUNER_DATA`` names
the folder with the real data; without it, runs of real data are left out.
"""

import argparse
import difflib
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parent.parent
#: Runs by name: the task, and the options that a run is given.
RUNS: Mapping[str, tuple[str, Sequence[str]]] = {
    "digits": ("digits", ("--trials", "30", "--seed", "3")),
    "digits-exits": ("digits", ("--trials", "12", "--seed", "3", "--space", "early-exits")),
    "digits-every": ("digits", ("--trials", "16", "--seed", "3", "--space", "every-strategy")),
    "emg": ("examples/emg/task.toml", ("--trials", "8", "--seed", "3")),
    "clothing": ("examples/clothing/task.toml", ("--trials", "8", "--seed", "3")),
}
#: Names of values that a clock or this machine decides, even in a deterministic run.
UNSTABLE = re.compile(
    "seconds|bytes|time|created|host|machine|version|finished|pid|^store$|folder|path|latency|phases|^made$"
    "|replay|estimate_errors|safetensors$"
)
COMMANDS = (
    "init run worker show diff report dashboard export apply predict serve describe demo forget watch status rollback"
)
GROUPS = ("bundle check", "bundle conformance", "store", "prior", "labels", "plugins", "plugins new", "plugins check")


def tuner(*arguments: str) -> str:
    """Run a command of the program, and return what it printed."""
    command = [sys.executable, "-m", "tuner", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"tuner {' '.join(arguments)} failed: {done.stderr.strip()[-600:]}")
    return done.stdout


def stable(value: Any) -> Any:
    """Return a JSON value without what a clock decides."""
    if isinstance(value, dict):
        return {name: stable(one) for name, one in sorted(value.items()) if not UNSTABLE.search(name)}
    return [stable(one) for one in value] if isinstance(value, list) else value


def digest(file: Path) -> str:
    """Return a short hash: of tensors by their values, as the order of metadata in their files is random."""
    if file.suffix != ".safetensors":
        return hashlib.blake2b(file.read_bytes(), digest_size=12).hexdigest()
    tensors = sorted(load_file(file).items())
    values = b"".join(name.encode() + str(one.dtype).encode() + one.tobytes() for name, one in tensors)
    return hashlib.blake2b(values, digest_size=12).hexdigest()


def run_golden(name: str) -> dict[str, Any]:
    """Run a study, export its best trial, and return what must not change of them."""
    task, options = RUNS[name]
    with tempfile.TemporaryDirectory() as temporary:
        run, bundle = Path(temporary) / "run", Path(temporary) / "bundle"
        shared = ("--store", f"{temporary}/store", "--from", "none", "--deterministic", "--out", str(run), "--json")
        tuner("run", task, *options, *shared)
        shown = stable(json.loads(tuner("show", str(run), "--json")))
        exported = "--trainable" if name != "digits-every" else ""
        tuner(*filter(None, ("export", str(run), str(bundle), exported)))
        files = {
            str(file.relative_to(bundle)): digest(file)
            for file in sorted(bundle.rglob("*"))
            if file.is_file() and file.suffix != ".json" and not UNSTABLE.search(file.name)
        }
        about = stable(json.loads((bundle / "bundle.json").read_text(encoding="utf-8")))
        tuner("bundle", "conformance", str(bundle), "--out", f"{temporary}/set")
        told = {
            str(file.relative_to(f"{temporary}/set")): digest(file)
            for file in sorted(Path(f"{temporary}/set").rglob("*"))
            if file.is_file() and file.suffix != ".json"
        }
    return {"show": shown, "bundle": files, "about": about, "conformance": told}


def help_golden() -> dict[str, Any]:
    """Return the help of every command."""
    return {command: tuner(*command.split(), "--help") for command in (*COMMANDS.split(), *GROUPS)}


def names_golden() -> dict[str, Any]:
    """Return the public names, and what the plugins offer."""
    code = "import json, tuner, tuner.plugin as p; print(json.dumps([sorted(tuner.__all__), sorted(p.__all__)]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return {"names": json.loads(done.stdout), "plugins": stable(json.loads(tuner("plugins", "--json")))}


def goldens(only: Sequence[str]) -> dict[str, Any]:
    """Return the goldens asked for, by name."""
    makers: dict[str, Callable[[], dict[str, Any]]] = {"help": help_golden, "names": names_golden}
    makers |= {name: lambda name=name: run_golden(name) for name in RUNS}  # type: ignore[misc]  # mypy cannot infer it
    if "TUNER_DATA" not in os.environ:
        makers = {name: make for name, make in makers.items() if name not in {"emg", "clothing"}}
    found = {}
    for name in only or makers:
        print(f"goldens: {name}", file=sys.stderr)
        found[name] = makers[name]()
    return found


def main() -> None:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="+", default=[], choices=["help", "names", *RUNS])
    asked = parser.parse_args()
    now = goldens(asked.only)
    if not asked.file.exists():
        asked.file.write_text(json.dumps(now, indent=1, sort_keys=True), encoding="utf-8")
        return
    before = json.loads(asked.file.read_text(encoding="utf-8"))
    failed = False
    for name, golden in now.items():
        old, new = (json.dumps(one, indent=1, sort_keys=True).splitlines() for one in (before.get(name), golden))
        lines = list(difflib.unified_diff(old, new, "before", "now", lineterm="", n=1))
        print(f"{name}: {'differs' if lines else 'the same'}", *lines, sep="\n")
        failed = failed or bool(lines)
    sys.exit(failed)


if __name__ == "__main__":
    main()
