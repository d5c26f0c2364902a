"""Frigate's recipe for a custom classification model, by hand, next to ``tuner frigate train``: the same photos.

The recipe is that of ``frigate/util/classification.py`` (version 0.17): a frozen MobileNetV2, the mean over positions,
a dense layer of 128, dropout of 0.3, a dense layer; Adam at 0.001, batches of 16, 50 epochs in which the backbone runs
again each time; a fifth of the photos is put aside and never looked at. Simplified, each time in its favour: the
backbone has its whole width in place of 0.35 (both arms have torchvision's weights), its inputs are normalised as the
weights were trained, and what it trains is scored in float32, without the conversion to int8. Ours is scored by LiteRT
on the written ``model.tflite``, with photos as Frigate feeds them.

A division draws 20 photos of each class to train on (of hands 40), and tests on all others. Accuracies are of all
divisions, in pairs; the recipe's come from features that are computed once, which are the same ones in each epoch.
Seconds and bytes are of the first division, each arm a process of its own: from its start to its end, and the memory
of its largest process as the kernel counts it (ru_maxrss); neither arm has a second one that computes. With fewer
``--epochs``, the others count as the first ones do.

``--quick``: one task, one division, five epochs of the recipe.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interval
from tuner_frigate.layout import CACHE, DATASET, square
from tuner_frigate.network import MEAN, STD

DATA = Path(os.environ.get("TUNER_DATA", "../shared/data"))
WEIGHTS = DATA / "models" / "mobilenet_v2_imagenet.pth"
#: Folder of a task's photos, and its classes; the first is called none.
TASKS = {
    "animals": ("more/objects", ("Faces", "dalmatian", "flamingo", "Leopards")),
    "street": ("more/objects", ("chair", "car_side", "airplanes")),
    "insects": ("more/objects", ("hawksbill", "butterfly", "dragonfly")),
    "house": ("more/objects", ("electric_guitar", "chair", "chandelier", "Faces")),
    "hands": ("more/sign", tuple("0123456789")),
}
EPOCHS, QUICK_EPOCHS, BATCH, RATE, HIDDEN, DROPOUT, HELD = 50, 5, 16, 0.001, 128, 0.3, 0.2
DIVISIONS, LOSS, FASTER, LEANER = 30, 0.5, 10, 3
Pixels = npt.NDArray[np.uint8]


def divide(name: str, division: int, folder: Path) -> None:
    """Lay out photos as Frigate keeps them, of each class as many as ``train`` of the data has; the rest is tested."""
    place, classes = TASKS[name]
    for row, own in enumerate(classes):
        parts = [sorted((DATA / place / part / own).iterdir()) for part in ("train", "test")]
        paths = [*parts[0], *parts[1]]
        for rank, number in enumerate(np.random.default_rng([division, row]).permutation(len(paths))):
            part = f"clips/{name}/{DATASET}" if rank < len(parts[0]) else "test"
            target = folder / part / ("none" if row == 0 else own)
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(paths[number], target / f"{own}-{paths[number].name.lower()}")
    (folder / CACHE).mkdir()


def squares(photos: Path) -> tuple[list[str], Pixels, npt.NDArray[np.int64]]:
    """Return names of photos, the photos as Frigate feeds them, uint8 [n, height, width, 3], and rows of classes."""
    classes = sorted(path.name for path in photos.iterdir())
    found = [(row, path) for row, name in enumerate(classes) for path in sorted((photos / name).iterdir())]
    pixels = np.stack([np.asarray(square(path)) for _, path in found])
    return [path.name for _, path in found], pixels, np.array([row for row, _ in found])


def theirs(folders: Sequence[Path], name: str, epochs: int, *, stored: bool) -> dict[str, list[float]]:
    """Train by the recipe on divisions; return the accuracies on the test photos, and seconds of the epochs.

    With `stored`, each photo goes through the backbone once.
    """
    import torch
    from torch import nn

    from tuner.backends.torch.model.vision import torchvision

    backbone = torchvision().models.mobilenet_v2()
    backbone.load_state_dict(torch.load(WEIGHTS, weights_only=True))
    body, known = backbone.features.eval(), dict[str, torch.Tensor]()

    def features(names: Sequence[str], pixels: Pixels, rows: npt.NDArray[np.int64]) -> torch.Tensor:
        if stored:
            for row in rows:
                if names[row] not in known:
                    known[names[row]] = computed(pixels[row : row + 1])[0]
            return torch.stack([known[names[row]] for row in rows])
        return computed(pixels[rows])

    @torch.no_grad()
    def computed(pixels: Pixels) -> torch.Tensor:
        inputs = (torch.from_numpy(pixels) / 255 - torch.tensor(MEAN)) / torch.tensor(STD)
        found: torch.Tensor = body(inputs.permute(0, 3, 1, 2)).mean((2, 3))
        return found

    accuracies, seconds, spent = list[float](), list[float](), list[float]()
    for folder in folders:
        names, photos, labels = squares(folder / "clips" / name / DATASET)
        order = np.random.default_rng(0).permutation(len(photos))[: round((1 - HELD) * len(photos))]
        torch.manual_seed(0)
        head = nn.Sequential(
            nn.Linear(1280, HIDDEN), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(HIDDEN, int(labels.max()) + 1)
        )
        optimiser = torch.optim.Adam(head.parameters(), RATE)
        for _ in range(epochs):
            begun = time.perf_counter(), time.process_time()
            for rows in np.array_split(np.random.default_rng().permutation(order), -(-len(order) // BATCH)):
                loss = nn.functional.cross_entropy(head(features(names, photos, rows)), torch.from_numpy(labels[rows]))
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]  # untyped in PyTorch
                optimiser.step()
            seconds.append(time.perf_counter() - begun[0])
            spent.append(time.process_time() - begun[1])
        if not stored:  # a user's training ends here
            continue
        names, photos, labels = squares(folder / "test")
        head.eval()
        with torch.no_grad():
            answers = head(features(names, photos, np.arange(len(photos)))).argmax(1)
        accuracies.append(float(np.mean(answers.numpy() == labels)))
    return {"accuracies": accuracies, "seconds": seconds, "processor": spent}


def tested(folder: Path, name: str) -> float:
    """Return the accuracy of the file that was written for Frigate."""
    from tuner_tflite.interpreter import Interpreter

    _, test, truth = squares(folder / "test")
    labels = (folder / CACHE / name / "labelmap.txt").read_text(encoding="utf-8").split()
    rows = [sorted(labels).index(label) for label in labels]
    answers = Interpreter((folder / CACHE / name / "model.tflite").read_bytes()).answers(test.astype(np.float32))
    return float(np.mean(np.array(rows)[answers.argmax(1)] == truth))


def timed(command: Sequence[str]) -> dict[str, float]:
    """Run a command; return its seconds, those of the processor, and the most bytes of one of its processes."""
    begun = time.perf_counter()
    code = (
        "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode; "
        "of = resource.getrusage(resource.RUSAGE_CHILDREN); print(of.ru_utime + of.ru_stime, of.ru_maxrss); "
        "sys.exit(done)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], check=True, stdout=subprocess.PIPE, text=True)
    processor, kilobytes = map(float, done.stdout.split()[-2:])
    return {"seconds": time.perf_counter() - begun, "processor": processor, "bytes": 1024 * kilobytes}


class Arms:
    """Both arms of a task; what the recipe's took is kept in a file, as it does not depend on our code.

    Args:
        name: The task.
        divisions: Number of divisions.
        epochs: Epochs of the recipe that are carried out.
        keep: The file; None for none.
        options: Further options of ours.
    """

    def __init__(self, name: str, divisions: int, epochs: int, keep: Path | None, options: Sequence[str]) -> None:
        self.name, self.divisions, self.epochs, self._keep, self._options = name, divisions, epochs, keep, options

    def compared(self, *, recipe_only: bool = False) -> Row | None:
        """Return what both arms took and reached; without ours if `recipe_only`."""
        with tempfile.TemporaryDirectory() as place:
            folders = [Path(place) / str(division) for division in range(self.divisions)]
            for division, folder in enumerate(folders):
                divide(self.name, division, folder)
            cost = self._kept(["cost", self.epochs], lambda: self._cost(folders[0]))
            accuracies = self._kept(["accuracies", self.divisions], lambda: self._accuracies(folders))
            if recipe_only:
                return None
            own = [timed(self._command(folder)) for folder in folders]
            reached = [tested(folder, self.name) for folder in folders]
        mean, half = interval(np.array(reached) - np.array(accuracies))
        return {
            "task": self.name, "theirs": float(np.mean(accuracies)), "ours": float(np.mean(reached)), "better": mean,
            "at least": mean - half, **{f"their {name}": value for name, value in cost.items()},
            **{f"our {name}": value for name, value in own[0].items()},
        }  # fmt: skip

    def _command(self, folder: Path) -> list[str]:
        """Return a user's command."""
        command = [sys.executable, "-m", "tuner", "frigate", "train", str(folder / "clips" / self.name)]
        command += ["--model-cache", str(folder / CACHE), "--weights", str(WEIGHTS.resolve()), *self._options]
        return [*command, "--work", str(folder / "work")] if self._options else command

    def _arm(self, folders: Sequence[Path], epochs: int, *, stored: bool) -> tuple[dict[str, float], Any]:
        """Run the recipe in a process; return what it took, and its results."""
        out = folders[0] / "theirs.json"
        command = [sys.executable, "-m", "benchmarks.models.frigate", "--arm", str(out), self.name, str(epochs)]
        took = timed([*command, "stored" if stored else "again", *map(str, folders)])
        return took, json.loads(out.read_text())

    def _cost(self, folder: Path) -> dict[str, float]:
        took, found = self._arm([folder], self.epochs, stored=False)
        left = EPOCHS - self.epochs
        return {**took, **{name: took[name] + left * float(np.mean(found[name])) for name in ("seconds", "processor")}}

    def _accuracies(self, folders: Sequence[Path]) -> list[float]:
        accuracies: list[float] = self._arm(folders, EPOCHS, stored=True)[1]["accuracies"]
        return accuracies

    def _kept(self, key: list[object], run: Callable[[], Any]) -> Any:
        """Return what the file has of a key, or what is measured, which the file then has too."""
        kept = json.loads(self._keep.read_text()) if self._keep and self._keep.exists() else {}
        name = " ".join(map(str, [self.name, *key]))
        if name not in kept:
            found = run()
            if self._keep is None:
                return found
            kept = json.loads(self._keep.read_text()) if self._keep.exists() else {}
            self._keep.write_text(json.dumps(kept | {name: found}, indent=1))
            return found
        return kept[name]


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return what is claimed of both arms."""

    def holds(claim: str, bound: Callable[[Mapping[str, Any]], bool]) -> Claim:
        right = [row for row in rows if bound(row)]
        return Claim(claim, "the recipe", f"{len(right)} of {len(rows)} tasks", len(right) == len(rows))

    return [
        holds(f"accuracy at least theirs less {LOSS} points", lambda row: row["at least"] >= -LOSS / 100),
        holds(f"a {FASTER}th of the time", lambda row: row["our seconds"] * FASTER <= row["their seconds"]),
        holds(
            f"a {FASTER}th of the processor's time",
            lambda row: row["our processor"] * FASTER <= row["their processor"],
        ),
        holds(f"a {LEANER}rd of the memory", lambda row: row["our bytes"] * LEANER <= row["their bytes"]),
    ]


def main() -> None:
    """Run the benchmark, or one arm of it."""
    if sys.argv[1:2] == ["--arm"]:
        out, task, count, features, *folders = sys.argv[2:]
        found = theirs([Path(one) for one in folders], task, int(count), stored=features == "stored")
        Path(out).write_text(json.dumps(found))
        return
    parser = benchmark_parser(__doc__, "one task, one division, five epochs of the recipe")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="epochs of the recipe that are timed")
    parser.add_argument("--divisions", type=int, default=DIVISIONS)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--keep", type=Path, help="file for what the recipe took, which is then not run again")
    parser.add_argument("--recipe-only", action="store_true", help="fill that file, and end")
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[], help="further options of ours")
    asked = parser.parse_args()
    rows: list[Row] = []
    for name in asked.tasks[: 1 if asked.quick else None]:
        divisions, epochs = (1, QUICK_EPOCHS) if asked.quick else (asked.divisions, asked.epochs)
        row = Arms(name, divisions, epochs, asked.keep, asked.options).compared(recipe_only=asked.recipe_only)
        if row is not None:
            rows.append(row)
            print(row, flush=True)
    if rows:
        finish("frigate", rows, claims(rows), asked.json)


if __name__ == "__main__":
    main()
