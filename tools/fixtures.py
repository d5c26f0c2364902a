"""Make the runs and bundles in ``tests/fixtures`` that tests read, as the code writes them now.

`python -m tools.fixtures` takes some minutes: to be called where a format changes. The task of signals is made up, so
that its samples are nobody's.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import tuner
from tests.fixtures.tones import task

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"


class Made(NamedTuple):
    """A run, and the trial whose bundle is exported."""

    task: "str | tuner.Task"
    space: str
    trials: int
    seed: int
    pick: str
    trainable: bool


RUNS = {
    "digits": Made("digits", "digits", 4, 0, "3", trainable=True),
    "exits": Made("digits", "exits", 3, 1, "1", trainable=True),
    "signals": Made(task(), "growth", 4, 0, "2", trainable=False),
}


def main() -> None:
    """Make all of them anew."""
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["TUNER_CACHE"] = f"{temporary}/cache"
        os.chdir(temporary)  # so that the paths in what is written are relative
        shutil.copytree(FIXTURES / "spaces", "spaces")
        for name, made in RUNS.items():
            out, space, given = Path("made", name), f"spaces/{made.space}.toml", made.task
            run = tuner.run(given, space=space, trials=made.trials, seed=made.seed, deterministic=True, out=out / "run")
            opened = run if isinstance(given, str) else tuner.Run.open(out / "run", given)
            tuner.export(opened, out / "bundle", made.pick, trainable=made.trainable)
            for file in (out / "run" / "lock", *out.glob("run/trials/*/checkpoint.pt")):
                file.unlink(missing_ok=True)
        shutil.copytree("cache/pretrained", "made/pretrained")
        for folder in Path("made").iterdir():
            shutil.rmtree(FIXTURES / folder.name, ignore_errors=True)
            shutil.copytree(folder, FIXTURES / folder.name)


if __name__ == "__main__":
    main()
