"""MoIL's chain on sounds, for each of ESC-10's five folds: the whole network, GDM(10 %), + LF(3), + cache.

The example of sounds, in turn with each fold as the user's: YAMNet's first six layers and a head that was trained once
on the other four folds, labelled by AudioSet's names and their parents. Patches do not overlap. "Full" trains the
whole network on the user's clips and all global ones. LF(3) trains the last two separable convolutions and the head,
as the thesis does; LF(1) the head alone. Scores are the macro AUC of patches of held-out recordings; the untouched
network has the user's labels too.

A user's recordings are in five parts; a training leaves one out, which judges it. Full training and the whole chain are
compared over all parts, the others over the first one: a part has 16 clips, too few for a tenth of a point.

An arm's learning rate in a fold is the one, of two or three, that has the best mean of local and global AUC in the
other folds, on the first part. Intervals are of folds, in pairs, and a claim holds at the unfavourable end. Steps are
measured interleaved, those without stored features from the sound files as training reads them: decoding, log-mel
bands, frozen blocks, tail.
"""

import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from benchmarks.lib.places import EXAMPLES
from benchmarks.lib.report import Claim, Row, at_most, benchmark_parser, cheaper, finish, interleave, interval, points
from benchmarks.lib.setup import Held, Joined, known_of, opened, opened_from, plan_for, stepper
from benchmarks.papers.moil_chain import scored
from benchmarks.papers.two_stage import by_flops
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.trial.untouched import untouched
from tuner.plan.parts import DataPlan, RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.task import Domain, Task
from tuner.task.data.samples import Subset
from tuner.task.partition import recording_folds
from tuner_audio.bands import RATE, read_clip, seconds_of

EXAMPLE = EXAMPLES / "sounds" / "task.toml"
FOLDS, PARTS, EPOCHS, BATCH = (1, 2, 3, 4, 5), (1, 2, 3, 4, 5), 10, 32
#: By the first block that trains.
RATES = {0: (3e-4, 1e-3), 7: (3e-4, 1e-3, 3e-3), 11: (1e-3, 3e-3, 1e-2)}
#: First block that trains: of LF(3), which is two separable convolutions and the head; of LF(1), the head.
LAST_THREE, LAST_ONE = 7, 11
FULL, MIXED, LAST, CACHED, HEAD = "full", "GDM(10 %)", "+ LF(3)", "+ cache", "LF(1), GDM(10 %), cache"
#: The thesis's largest losses of AUC, which are the project's bounds; and its own for stored features.
GLOBAL_LOSS, LOCAL_LOSS, CACHE_LOSS = 0.016, 0.009, 0.01
EPOCH_FASTER, REAL_TIME = 5.0, 200.0
PATCH_BYTES = int(RATE * seconds_of(96)) * 4


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to train.

    Attributes:
        split: First block that trains.
        alpha: Fraction of the global data that is mixed in.
        bits: Of a stored value; None where nothing is stored.
        rate_of: Arm whose learning rate it takes; none chooses its own.
    """

    split: int
    alpha: float
    bits: int | None = None
    rate_of: str = ""


ARMS = {
    FULL: Arm(0, 1.0),
    MIXED: Arm(0, 0.1),
    CACHED: Arm(LAST_THREE, 0.1, 32),
    LAST: Arm(LAST_THREE, 0.1, rate_of=CACHED),
    HEAD: Arm(LAST_ONE, 0.1, 32),
}
#: Arms that are compared over all parts.
WHOLE = (FULL, CACHED)
#: What of a file's name tells a recording from others.
RECORDING = re.compile(r"^\d-\d+")
#: Local and global AUC by arm; float64 [folds, 2].
Scores = Mapping[str, npt.NDArray[np.float64]]


def main() -> None:
    """Measure, print, write."""
    options = benchmark_parser(__doc__)
    options.add_argument(
        "--keep", type=Path, help="keeps the scores of single trainings; a later call continues from it"
    )
    asked = options.parse_args()
    folds, parts, epochs = (FOLDS[:2], PARTS[:1], 1) if asked.quick else (FOLDS, PARTS, EPOCHS)
    kept = json.loads(asked.keep.read_text()) if asked.keep and asked.keep.exists() else {}
    picks: dict[str, list[float]] = {}
    for fold in folds:
        rates = {name: _rates(name, quick=asked.quick) for name, arm in ARMS.items() if not arm.rate_of}
        _train(fold, 1, rates, epochs, kept, asked.keep)
    for name, arm in ARMS.items():
        picks[name] = picks[arm.rate_of] if arm.rate_of else best(kept, name, folds, _rates(name, quick=asked.quick))
    for part in parts:
        for at, fold in enumerate(folds):
            _train(fold, part, {name: [picks[name][at]] for name in (LAST, *WHOLE)}, epochs, kept, asked.keep)

    def score(name: str, parts: Sequence[int]) -> npt.NDArray[np.float64]:
        rates = zip(folds, picks[name], strict=True)
        keys = [[_key(fold, part, name, rate) for part in parts] for fold, rate in rates]
        return np.array([np.mean([kept[key] for key in row], axis=0) for row in keys])

    first = {name: score(name, parts[:1]) for name in ARMS}
    whole = {name: score(name, parts) for name in WHOLE}
    given = np.array([kept[f"{fold}.1 untouched"] for fold in folds])
    seconds, stored, least = costs(2 if asked.quick else 20)
    speed = log_mel_speed(5 if asked.quick else 40)
    all_parts = {f"{name}, all parts": values for name, values in whole.items()}
    rows = [*_score_rows({"untouched": given, **first, **all_parts}), *_cost_rows(seconds, epochs), stored]
    finish("audio_chain", rows, [*quality(first, whole), *ratios(seconds, speed, least)], asked.json)


def _rates(name: str, *, quick: bool) -> list[float]:
    rates = RATES[ARMS[name].split]
    return [*rates[-2:-1]] if quick else [*rates]


def _key(fold: int, part: int, name: str, rate: float) -> str:
    return f"{fold}.{part} {name} {rate:g}"


def _train(
    fold: int,
    part: int,
    wanted: Mapping[str, Sequence[float]],
    epochs: int,
    kept: dict[str, list[float]],
    file: Path | None,
) -> None:
    """Train arms of a fold at some rates, and score the untouched network; what is kept already is not done again."""
    keys = [_key(fold, part, name, rate) for name, rates in wanted.items() for rate in rates]
    missing = [key for key in (f"{fold}.{part} untouched", *keys) if key not in kept]
    here = in_memory(fold, part) if missing else None
    for key in missing:
        name, rate = key.partition(" ")[2].rpartition(" ")[::2]
        if here is not None and name:
            kept[key] = [*scored(here, plan_of(here, ARMS[name], float(rate), epochs), fold)]
        elif here is not None:
            values = untouched(here, DataPlan()).values
            kept[key] = [values["local_accuracy"], values["global_accuracy"]]
        print(f"fold {key}: {kept[key][0]:.3f} local, {kept[key][1]:.3f} global", file=sys.stderr, flush=True)
        if file:
            file.write_text(json.dumps(kept, indent=1))


def task_of(fold: int) -> Task:
    """Return the example with a fold of ESC-10 as the user's."""
    others = "".join(str(other) for other in FOLDS if other != fold)
    text = EXAMPLE.read_text(encoding="utf-8").replace("#[1-4]-*", f"#[{others}]-*").replace("#5-*", f"#{fold}-*")
    text = text.replace('"classes.tsv"', f'"{EXAMPLE.parent}/classes.tsv"').replace("[input]", "[input]\nhop = 96")
    return opened_from(text)


def in_memory(fold: int, part: int) -> Access:
    """Return a fold's task with an empty store, its samples decoded once, and a part of the user's to judge."""
    task = task_of(fold)
    known = known_of(task)
    return opened(replace(task, local=without(part, task.local), global_=Domain(Held(known.train), Held(known.val))))


def without(part: int, local: Domain) -> Domain:
    """Return a user's samples, divided anew: a part of the recordings judges."""
    held = Held(Joined(local.train, local.val))
    recordings = [RECORDING.search(Path(held.name(index)).name) for index in range(len(held))]
    names = [found.group() if found else "" for found in recordings]
    numbers = recording_folds(held.labels, np.unique(names, return_inverse=True)[1], len(PARTS))
    return Domain(Subset(held, np.flatnonzero(numbers != part)), Subset(held, np.flatnonzero(numbers == part)))


def plan_of(here: Access, arm: Arm, rate: float, epochs: int) -> TrialPlan:
    """Return an arm's plan."""
    recipe = RecipePlan(epochs=epochs, batch_size=BATCH, learning_rate=rate, freeze_bn=False)
    return plan_for(here.task, here.loaded, arm.split, bits=arm.bits, recipe=recipe, alpha=arm.alpha)


def best(kept: Mapping[str, Sequence[float]], name: str, folds: Sequence[int], rates: Sequence[float]) -> list[float]:
    """Return for each fold the learning rate with the best mean AUC in the others."""
    means = np.array([[np.mean(kept[_key(fold, 1, name, rate)]) for rate in rates] for fold in folds])
    return [rates[int(at)] for at in (means.sum(axis=0) - means).argmax(axis=1)]


def costs(rounds: int) -> tuple[dict[str, list[float]], Row, float]:
    """Return seconds of single steps, interleaved, what stored features take, and by how much LF(3)'s save FLOPs."""
    task = task_of(FOLDS[-1])
    here = opened(task)
    plans = {name: plan_of(here, arm, 1e-3, EPOCHS) for name, arm in ARMS.items()}
    plans["LF(1), GDM(10 %)"] = plan_of(here, replace(ARMS[HEAD], bits=None), 1e-3, EPOCHS)
    for name in (CACHED, HEAD):
        fill(here, [plans[name]])
    seconds = interleave({name: stepper(here, plan) for name, plan in plans.items()}, rounds)
    feature = 4 * int(np.prod(here.loaded.info.blocks[LAST_THREE].in_shape))
    partitions = [samples for domain in (task.local, task.global_) if domain for samples in (domain.train, domain.val)]
    whole = {samples.whole(index) for samples in partitions for index in range(len(samples))}
    stored: Row = {
        "a patch": "0.975 s", "samples at 16 kHz, float32": PATCH_BYTES, "features of LF(3), float32": feature,
        "with 4 bits": feature // 8, "thesis, 10 s": "625 kB of samples, 960 kB of features",
        "all sounds": f"{len(whole)} clips, {sum(Path(file).stat().st_size for file in whole) / 1e6:.1f} MB of files",
    }  # fmt: skip
    return seconds, stored, round(by_flops(here, LAST_THREE), 2)


def log_mel_speed(clips: int) -> float:
    """Return how many times faster than real time a clip becomes log-mel bands, with decoding: the median of clips."""
    files = sorted(Path(os.environ["TUNER_DATA"]).glob("audio/esc10/*/*.ogg"))[:clips]
    speeds = []
    for file in files:
        started = time.perf_counter()
        bands = read_clip(file).bands
        speeds.append(seconds_of(bands.shape[1]) / (time.perf_counter() - started))
    return median(speeds)


def _score_rows(scores: Scores) -> list[Row]:
    return [
        {"arm": name, "local AUC": points(values[:, 0]), "global AUC": points(values[:, 1])}
        for name, values in scores.items()
    ]


def _cost_rows(seconds: Mapping[str, Sequence[float]], epochs: int) -> list[Row]:
    task = task_of(FOLDS[-1])
    loaded = load(task)
    rows: list[Row] = []
    for name, own in seconds.items():
        arm = ARMS.get(name, ARMS[HEAD])
        plan = plan_for(
            task, loaded, arm.split, bits=None, recipe=RecipePlan(epochs=epochs, batch_size=BATCH), alpha=arm.alpha
        )
        epoch = plan.train_samples / BATCH * median(own)
        rows.append(
            {"chain": name, "ms an iteration": 1e3 * median(own), "samples an epoch": plan.train_samples,
             "s an epoch": round(epoch, 2), "s in all": round(epochs * epoch, 1)}
        )  # fmt: skip
    return rows


def quality(first: Scores, whole: Scores) -> list[Claim]:
    """Return what scores on the first and on all parts show, in pairs over the folds, at the unfavourable end."""
    apart = first[LAST] - first[CACHED]
    lost = whole[FULL] - whole[CACHED]
    worst = max((sign * part for part in apart.T for sign in (1, -1)), key=lambda part: sum(interval(part)))
    return [
        at_most(CACHE_LOSS, "stored features change the AUC by at most 0.01", "exact but for the order of sums",
                worst),
        at_most(GLOBAL_LOSS, "GDM(10 %), LF(3) and cache lose at most 1.6 points of global AUC against full",
                "thesis: 1.6 points by GDM(0.1 %)", lost[:, 1]),
        at_most(LOCAL_LOSS, "GDM(10 %), LF(3) and cache lose at most 0.9 points of local AUC against full",
                "thesis: 0.9 points by LF(3)", lost[:, 0]),
    ]  # fmt: skip


def ratios(seconds: Mapping[str, Sequence[float]], speed: float, least: float) -> list[Claim]:
    """Return what steps and the log-mel bands show."""
    return [
        cheaper("LF(3): an epoch on stored features is as many times faster as FLOPs say, {}×", seconds, LAST, CACHED,
                least, "thesis: 1.8×"),
        cheaper("LF(1): an epoch on stored features is {}× faster", seconds, "LF(1), GDM(10 %)", HEAD, EPOCH_FASTER,
                "no figure"),
        Claim("log-mel bands take at most a 200th of real time on one core", "project's bound",
              f"{speed:,.0f}×, with decoding", speed >= REAL_TIME),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
