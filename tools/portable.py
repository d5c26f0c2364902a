"""What a device does with a bundle, compared with another device: `python -m tools.portable FOLDER`, base package only.

``--make`` writes into FOLDER, on the device that is compared with, bundles of digits, samples, and all answers. The
bundles have a trained tail, exits, and a whole network, which is tuned without PyTorch. Any other device, of another
system or processor, does the same with FOLDER and must answer the same.
"""

import argparse
import contextlib
import io
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner.arrays import Array
from tuner.bundle.format import CONFORMANCE, MODEL, Bundle
from tuner.cli.app import call
from tuner.results.records.config import Budget
from tuner.runtime import ExitsTrainer, Trainer
from tuner.search.listener import Listener
from tuner_conformance.files import compared, write_set
from tuner_instant.runs import Asked
from tuner_instant.runs import run as solve

TAIL, EXITS, NETWORK = "tail", "exits", "network"
SAMPLES, EXPECTED = "samples.npz", "expected.json"
#: Largest difference of a probability, a loss or an accuracy; all else must be equal. As of conformance sets' logits.
TOLERANCE = 1e-3
#: The same after training on features of this device. Inputs that differ by 1e-6 change these answers by up to 0.02 on
#: one processor too, since a feature falls on the next of its 256 codes. Training on equal codes is held to TOLERANCE
#: by the conformance set.
TRAINED = 0.05
EPOCHS = 2
#: What a round may take: an emulated processor takes half an hour where its host takes three seconds.
LONG = "5h"
#: A name that is no ASCII, with a blank.
NAME = "Übung {} 数.npy"


@dataclass(frozen=True, slots=True)
class Step:
    """What was done.

    Attributes:
        name: Its name.
        seconds: Wall time.
        answer: What came of it, as JSON holds it.
    """

    name: str
    seconds: float
    answer: Any


class Device:
    """A device, with FOLDER copied to it.

    Args:
        folder: FOLDER.
        scratch: An empty folder.
    """

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.bundles = {name: Path(shutil.copytree(folder / name, scratch / name)) for name in (TAIL, EXITS)}
        self._scratch, self._photos = scratch, scratch / "photos"
        shutil.copy(folder / NETWORK / MODEL, scratch / "network.onnx")
        with np.load(folder / SAMPLES) as file:
            self._samples, self._labels = list(file["x"]), [str(label) for label in file["y"]]
        for number, (sample, label) in enumerate(zip(self._samples, self._labels, strict=True)):
            path = self._photos / label / NAME.format(f"{number:03}")
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, sample)

    def steps(self) -> list[Step]:
        """Do all that a device does with a bundle."""
        every: dict[str, Callable[[], Any]] = {
            "show": lambda: self._json("show", self.bundles[TAIL])["labels"],
            "predict": lambda: self._predicted(self.bundles[TAIL]),
            "predict with exits": lambda: self._predicted(self.bundles[EXITS]),
            "bundle check": lambda: self._broken(self.bundles[TAIL]),
            "bundle check of exits": lambda: self._broken(self.bundles[EXITS]),
            "train again": self._trained,
            "train exits again": self._exits_trained,
            "watch, one round": self._watched,
            "status": lambda: self._json("status", self.bundles[TAIL])["round"],
            "rollback": lambda: self._json("rollback", self.bundles[TAIL])["round"],
            "forget": lambda: self._json("forget", self.bundles[TAIL])["samples"],
            "run without PyTorch": self._tuned,
            "labels add": self._labelled,
        }
        return [_timed(name, do) for name, do in every.items()]

    def _predicted(self, bundle: Path) -> list[list[Any]]:
        """Return the answers to all samples."""
        found = self._json("predict", bundle, self._photos)["predictions"]
        return [[one["label"], one["exit"], one["probability"]] for one in found]

    def _broken(self, bundle: Path) -> list[str]:
        """Return what the conformance set finds broken: logits, exits, 20 steps of training, the gate."""
        return [check.name for check in compared(Bundle.open(bundle), bundle / CONFORMANCE) if not check.holds]

    def _trained(self) -> dict[str, Any]:
        """Train on half of the samples; return losses, accuracies before and after, and answers of the new bundle."""
        trainer = Trainer(self.bundles[TAIL])
        trainer.add(self._samples[::2], self._labels[::2])
        before, losses = trainer.accuracy(self._samples[1::2], self._labels[1::2]), trainer.train(epochs=EPOCHS)
        after, kept = trainer.accuracy(self._samples[1::2], self._labels[1::2]), trainer.global_accuracy()
        answers = self._predicted(trainer.save(self._scratch / "next"))
        return {"losses": losses, "accuracies": [before, after, kept], "answers": answers}

    def _exits_trained(self) -> dict[str, Any]:
        """Train the exits on half of the samples; return losses, thresholds, and answers of the new bundle."""
        trainer = ExitsTrainer(self.bundles[EXITS])
        trainer.add(self._samples[::2], self._labels[::2])
        losses = trainer.train(epochs=EPOCHS)
        answers = self._predicted(trainer.save(self._scratch / "next-exits"))
        return {"losses": losses, "thresholds": trainer.thresholds, "answers": answers}

    def _watched(self) -> dict[str, Any]:
        """Watch all samples; return the answers and the verdict on the round that follows."""
        asked = "--enough", str(len(self._samples) - 1), "--round-time", LONG
        rows = self._printed(
            "watch", self.bundles[TAIL], "--samples", self._photos, "--once", "--any-time", *asked, "--json"
        ).splitlines()
        events = [json.loads(row) for row in rows]
        answers = sorted([Path(one["file"]).name, one["label"]] for one in events if "label" in one)
        return {"answers": answers, "rounds": [one["round"] for one in events if "round" in one]}

    def _tuned(self) -> dict[str, Any]:
        """Tune the network of a bundle on all samples but those of one label; return scores and an export's answers."""
        known = [at for at, label in enumerate(self._labels) if label != max(self._labels)]
        task = self._scratch / "task.toml"
        model, local = '[model]\nweights = "network.onnx"', '[local]\nkind = "arrays"\ntrain = "moved.npz"'
        task.write_text(f"{model}\n{local}\n", encoding="utf-8")
        x, y = np.stack([self._samples[at] for at in known]), np.array([int(self._labels[at]) for at in known])
        np.savez(self._scratch / "moved.npz", x=x, y=y)
        run = solve(Asked(task, out=self._scratch / "run"), Listener(), Budget())
        self._json("export", run.folder, self._scratch / "tuned", "--trainable")
        scores = [[one.values["local_accuracy"], one.values["bundle_bytes"]] for one in run.records]
        return {"trials": scores, "answers": self._predicted(self._scratch / "tuned")}

    def _labelled(self) -> list[list[Any]]:
        """Add the label that was left out, and return the answers."""
        label = max(self._labels)
        self._json(
            "labels", "add", self._scratch / "tuned", label, self._photos / label, "--out", self._scratch / "more"
        )
        return self._predicted(self._scratch / "more")

    def _json(self, *arguments: object) -> Any:
        return json.loads(self._printed(*arguments, "--json"))

    def _printed(self, *arguments: object) -> str:
        """Return what a command prints."""
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            ended = call([str(argument) for argument in arguments])
        if ended:
            raise SystemExit(f"tuner {arguments[0]} ended with exit code {ended}")
        return printed.getvalue()


def made(folder: Path, bundles: Mapping[str, Path], samples: Array, labels: Sequence[object]) -> None:
    """Write FOLDER: bundles by name, samples [n, ...] with their labels, and what this device answers."""
    folder.mkdir(parents=True)
    for name, bundle in bundles.items():
        shutil.copytree(bundle, folder / name)
        write_set(Bundle.open(folder / name), folder / name / CONFORMANCE)
    np.savez(folder / SAMPLES, x=samples, y=np.array([str(label) for label in labels]))
    answers = {step.name: step.answer for step in done(folder)}
    (folder / EXPECTED).write_text(json.dumps(answers), encoding="utf-8")


def done(folder: Path) -> list[Step]:
    """Do all that a device does with FOLDER, in folders of its own."""
    before = os.environ.get("TUNER_CACHE")
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TUNER_CACHE"] = str(Path(scratch) / "cache")
        try:
            return Device(folder, Path(scratch)).steps()
        finally:
            os.environ.pop("TUNER_CACHE")
            os.environ |= {} if before is None else {"TUNER_CACHE": before}


def allowed(step: str) -> float:
    """Return the largest difference that a step's numbers may have."""
    return TRAINED if step == "train again" else TOLERANCE


def difference(value: Any, expected: Any) -> float:
    """Return the largest difference of the numbers in two answers; infinite where anything else differs."""
    if isinstance(expected, float) and isinstance(value, int | float):
        return abs(value - expected) if math.isfinite(value - expected) else math.inf
    if isinstance(expected, dict) and isinstance(value, dict) and value.keys() == expected.keys():
        return max((difference(value[name], one) for name, one in expected.items()), default=0.0)
    if isinstance(expected, list) and isinstance(value, list | tuple) and len(value) == len(expected):
        return max(map(difference, value, expected), default=0.0)
    return 0.0 if value == expected else math.inf


def exported(folder: Path) -> dict[str, Path]:
    """Export the bundles, which needs PyTorch."""
    from tests.runtime.bundles import known_digits, trainable_bundle, trainable_exits
    from tuner.plan.heads import HeadsPlan
    from tuner.task.builtin import digits

    os.environ["TUNER_CACHE"] = str(folder / "cache")
    for name in (TAIL, EXITS, NETWORK):
        (folder / name).mkdir()
    return {
        TAIL: trainable_bundle(digits(), folder / TAIL),
        EXITS: trainable_exits(known_digits(), folder / EXITS, HeadsPlan("exits-only")),
        NETWORK: trainable_bundle(digits(), folder / NETWORK, 0),
    }


def moved_digits() -> tuple[Array, list[str]]:
    """Return digits of a user who writes a pixel further down, and their labels."""
    from tuner.task.builtin import digits

    samples = digits().local.test
    if samples is None:
        raise ValueError("the digits have test data")
    rows = range(0, len(samples), 2)
    return np.stack([np.roll(samples.load(row), 1, axis=1) for row in rows]), [str(samples.labels[row]) for row in rows]


def main(arguments: Sequence[str]) -> int:
    """Print a table, or JSON; return 1 where an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--make", action="store_true", help="write FOLDER anew, and do nothing else")
    parser.add_argument("--json", action="store_true", help="print {step: [seconds, difference]}")
    options = parser.parse_args(arguments)
    if options.make:
        shutil.rmtree(options.folder, ignore_errors=True)
        with tempfile.TemporaryDirectory() as scratch:
            made(options.folder, exported(Path(scratch)), *moved_digits())
        return 0
    expected = json.loads((options.folder / EXPECTED).read_text(encoding="utf-8"))
    rows = {step.name: (step.seconds, difference(step.answer, expected[step.name])) for step in done(options.folder)}
    if options.json:
        print(json.dumps(rows))
    else:
        print(f"{'':24}seconds  answers differ by  allowed")
        for name, (seconds, differs) in rows.items():
            print(f"{name:24}{seconds:7.2f}  {differs:17.2g}  {allowed(name):g}")
    return int(not all(differs <= allowed(name) for name, (_, differs) in rows.items()))


def _timed(name: str, do: Callable[[], Any]) -> Step:
    started = time.perf_counter()
    answer = do()
    return Step(name, time.perf_counter() - started, answer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
