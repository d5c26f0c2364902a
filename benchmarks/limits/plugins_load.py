"""What installed plugins add to the time of loading none: 50 made-up distributions, each with a strategy and an edit.

Prints the seconds of `tuner.plugin.core.build_host` in fresh processes, without and with them; the claim is at most 0.3
s between the two.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.lib.report import benchmark_parser

PLUGINS, MOST_SECONDS = 50, 0.3
MODULE = """
from dataclasses import replace
from tuner.plugin import Stage, Strategy, TailEdit, hookimpl

class Made(Strategy):
    name, stage = "NAME", Stage.SHAPE

    def sample(self, draw, model):
        return draw.choice("used", (True, False))

    def apply(self, plan, knobs):
        return replace(plan, shape=(*plan.shape, TailEdit("NAME"))) if knobs else plan

@hookimpl
def tuner_strategies():
    return [Made()]

@hookimpl
def tuner_lowerings(backend):
    return {"NAME": lambda tail, settings: tail.module}
"""
#: Importing the tensor library or the hooks is no part of it.
TIMED = """
import time
from tuner.plugin.core import build_host
started = time.perf_counter()
host = build_host()
print(time.perf_counter() - started, len(host.strategies), len(host.refused))
"""


def install(folder: Path, count: int) -> None:
    """Put distributions with one plugin each into a folder, as an installer would."""
    for number in range(count):
        name = f"made_{number:02}"
        (folder / f"{name}.py").write_text(MODULE.replace("NAME", name), encoding="utf-8")
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[tuner]\n{name} = {name}\n", encoding="utf-8")


def seconds(folder: Path, repeats: int, strategies: int) -> float:
    """Return the median seconds of building a host, with the plugins of a folder.

    Raises:
        RuntimeError: Not as many strategies were found, or a plugin was refused.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
    taken = []
    for _ in range(repeats):
        command = [sys.executable, "-c", TIMED]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        taken_seconds, found, refused = done.stdout.split()
        if int(found) < strategies or int(refused):
            raise RuntimeError(f"{found} strategies were found, of at least {strategies}; {refused} were refused")
        taken.append(float(taken_seconds))
    return statistics.median(taken)


def main() -> None:
    """Print the table and the claim."""
    arguments = benchmark_parser(__doc__, "3 repetitions instead of 10").parse_args()
    repeats = 3 if arguments.quick else 10
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as full:
        install(Path(full), PLUGINS)
        without, loaded = seconds(Path(empty), repeats, 3), seconds(Path(full), repeats, PLUGINS)
    print(f"plugins installed  seconds to load (median of {repeats})")
    print(f"first-party only   {without:.3f}")
    print(f"{PLUGINS} more            {loaded:.3f}")
    added = loaded - without
    held = added <= MOST_SECONDS
    print(f"claim: {PLUGINS} plugins add at most {MOST_SECONDS} s: {added:.3f} s, {'held' if held else 'missed'}")
    if arguments.json:
        figures = {"without": without, "with": loaded, "held": held}
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
