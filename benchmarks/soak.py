"""A soak: `tuner watch` predicts thousands of samples and trains in rounds; memory, descriptors and disk stay level.

The digits are tuned in two trials and exported with ``--trainable``. Noisy copies of the user's digits are then handed
to one process of `tuner watch`, one at a time; a round is due each time enough are kept.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from benchmarks.report import Claim, Row, finish
from tuner.task.builtin import digits

SLOPE_BYTES = 1e6  # per 1,000 samples
KEEP = "300KB"
LOOK = 100  # samples between two looks at the process
SPACE = """
strategies = ["gdm", "freeze", "cache"]
[knobs]
freeze.trainable_blocks = 1
recipe.epochs = [1, 2]
recipe.patience = 0
"""


def tuner(home: Path, *arguments: str) -> None:
    """Run a command in a folder, with a cache of its own."""
    environment = {**os.environ, "TUNER_CACHE": str(home / "cache")}
    subprocess.run(
        [sys.executable, "-m", "tuner", *arguments], cwd=home, env=environment, check=True, capture_output=True
    )


def samples(home: Path, seed: int) -> Iterator[str]:
    """Yield lines for standard input: the path of a noisy digit, a tab, its label."""
    task, draw = digits(), np.random.default_rng(seed)
    source = task.local.train
    while True:
        index = int(draw.integers(len(source)))
        sample = np.asarray(source.load(index), np.float32)
        np.save(
            home / "sample.npy", sample + draw.normal(0, 0.05 * float(np.ptp(sample)), sample.shape).astype(np.float32)
        )
        yield f"{home / 'sample.npy'}\t{task.labels[int(source.labels[index])]}\n"


def disk_bytes(*folders: Path) -> int:
    """Return the bytes of all files in folders; a file may be removed meanwhile."""
    total = 0
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for name in names:
                path = Path(parent) / name
                total += path.stat().st_size if path.exists() else 0
    return total


def soak(home: Path, count: int, rounds: int, seed: int) -> list[Row]:
    """Feed samples to `tuner watch`; return what each look at the process saw."""
    command = ["watch", "bundle", "--samples", "-", "--any-time", "--enough", str(count // rounds), "--keep", KEEP]
    looks, verdicts, last = list[Row](), 0, 0
    with subprocess.Popen(
        [sys.executable, "-m", "tuner", *command, "--json"],
        cwd=home,
        env={**os.environ, "TUNER_CACHE": str(home / "cache")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("there are no pipes")
        watched = psutil.Process(process.pid)
        lines = samples(home, seed)
        for number in range(1, count + 1):
            process.stdin.write(next(lines))
            process.stdin.flush()
            while True:
                event = json.loads(process.stdout.readline())
                verdicts += "round" in event
                if "label" in event or "refused" in event:
                    break
            if number - last >= count // rounds:
                if verdicts < number // (count // rounds):
                    time.sleep(0.02)  # a round trains next to the predictions: let it end before the next is due
                else:
                    last = number
            if number % LOOK == 0:
                memory = watched.memory_full_info()
                looks.append(
                    {
                        "samples": number,
                        "rounds": verdicts,
                        "resident MB": memory.rss / 1e6,
                        "private MB": memory.uss / 1e6,
                        "descriptors": watched.num_fds(),
                        "threads": watched.num_threads(),
                        "disk kB": disk_bytes(home / "bundle" / "device", home / "cache" / "rings") / 1e3,
                    }
                )
        process.stdin.close()
        process.stdout.read()
    return looks


def judge(looks: list[Row], rounds: int) -> list[Claim]:
    """Compare what was seen with what is promised; the first third warms up."""
    later = looks[len(looks) // 3 :]
    numbers, resident = (np.array([float(str(look[name])) for look in later]) for name in ("samples", "resident MB"))
    slope = float(np.polyfit(numbers, resident, 1)[0]) * 1e3
    most = [max(int(str(look["descriptors"])) for look in part) for part in (looks[: len(looks) // 3], later)]
    disk = [max(float(str(look["disk kB"])) for look in part) for part in (looks[: 2 * len(looks) // 3], later)]
    ran = int(str(looks[-1]["rounds"]))
    return [
        Claim(
            "resident memory grows by less than 1 MB per 1,000 samples",
            "1 MB",
            f"{slope:.3f} MB; {resident[0]:.1f} -> {resident[-1]:.1f} MB over {numbers[-1] - numbers[0]:,.0f} samples",
            "exact",
            slope < SLOPE_BYTES / 1e6,
        ),
        Claim("no descriptor is leaked", str(most[0]), f"{most[1]} later", "exact", most[1] <= most[0] + 1),
        Claim(
            "the disk is bounded", f"{disk[0]:,.0f} kB", f"{disk[1]:,.0f} kB later", "exact", disk[1] <= 1.1 * disk[0]
        ),
        Claim("the rounds ran", str(rounds), str(ran), "exact", ran >= rounds - 1),
    ]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="1,000 samples, 4 rounds")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    count, rounds = (1000, 4) if options.quick else (options.samples, options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "space.toml").write_text(SPACE)
        tuner(home, "run", "digits", "--space", "space.toml", "--trials", "2", "--out", "run")
        tuner(home, "export", "run", "bundle", "--trainable")
        looks = soak(home, count, rounds, options.seed)
    shown = looks[:: max(1, len(looks) // 20)]
    finish("soak", shown, judge(looks, rounds), options.json)


if __name__ == "__main__":
    main()
