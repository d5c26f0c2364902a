"""A stream whose classes change at a known point: detection delay, false alarms, accuracy regained after the round.

`python -m benchmarks.drift [--quick] [--json FILE]`

Handwritten digits. The bundle, a softmax regression, knows 0 to 7; from the change on, half of the stream is 8 and 9.
The whole service runs: answers, ring, drift, round, gate, swap. Once with labels, once without; without labels nothing
can be learnt of a new class, so that only delay and alarms count. The trainer is a stand-in of this file: regression
anew on the samples kept and, as a bundle's replay would give, on the original ones. Seeds draw split and stream.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

from benchmarks.report import Claim, Row, finish
from benchmarks.setup import arguments
from tuner.runtime import Orchestrator, Personaliser, Policy, Ring, Training, World
from tuner.runtime.bundle import FILE, FORMAT, MODEL, file_hash
from tuner.runtime.conditions import ANY_TIME
from tuner.runtime.watching import Watch

Floats = npt.NDArray[np.float32]
KNOWN, PIXELS = 8, 64
TRAIN, BEFORE, AFTER, TEST = 600, 500, 300, 100
EVERY = 100_000  # a round by number of samples never comes: drift alone asks for it
STEPS, RATE = 400, 1.0


def fitted(samples: Floats, rows: npt.NDArray[np.int64], classes: int) -> Floats:
    """Return weights [pixels + 1, classes] of a softmax regression, by full-batch gradient descent."""
    inputs = np.hstack([samples, np.ones((len(samples), 1), np.float32)])
    weights = np.zeros((inputs.shape[1], classes), np.float32)
    for _ in range(STEPS):
        powers = np.exp(inputs @ weights)
        powers /= powers.sum(axis=1, keepdims=True)
        powers[np.arange(len(rows)), rows] -= 1
        weights -= RATE * inputs.T @ powers / len(rows)
    return weights


def written(folder: Path, weights: Floats, labels: Sequence[str]) -> Path:
    """Write a bundle of one linear layer."""
    folder.mkdir(parents=True)
    given = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", PIXELS])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(labels)])
    constants = [numpy_helper.from_array(weights[:-1], "w"), numpy_helper.from_array(weights[-1], "b")]
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["input", "w", "b"], ["logits"])], "m", [given], [logits], constants
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / MODEL)
    content = {
        "format": FORMAT,
        "name": "digits",
        "labels": list(labels),
        "input": {"kind": "arrays", "size": None, "resize": None, "mean": [], "std": []},
        "input_shape": [PIXELS],
        "loss": "single-label",
        "files": {MODEL: file_hash(folder / MODEL)},
    }
    (folder / FILE).write_text(json.dumps(content))
    return folder


@dataclass
class Regression:
    """The stand-in trainer: everything anew, on replay and the samples kept."""

    folder: Path
    replay: Floats
    replayed: npt.NDArray[np.int64]
    made: list[Path] = field(default_factory=list)

    def train(self, samples: Sequence[npt.NDArray[np.generic]], labels: Sequence[str] | None) -> Path:
        """Return a bundle that also knows the new labels; without labels, one that knows what it did."""
        own = [] if labels is None else list(labels)
        known = [str(digit) for digit in range(KNOWN)]
        known += sorted(set(own) - set(known))
        inputs = np.vstack([self.replay, *(np.asarray(samples, np.float32),) * bool(own)])
        rows = np.concatenate([self.replayed, np.array([known.index(label) for label in own], np.int64)])
        self.made.append(written(self.folder / f"made-{len(self.made)}", fitted(inputs, rows, len(known)), known))
        return self.made[-1]


def lived(seed: int, folder: Path, *, labelled: bool) -> Row:
    """Live through one stream."""
    generator = np.random.default_rng(seed)
    digits = load_digits()
    order = generator.permutation(len(digits.data))
    inputs, targets = (digits.data[order] / 16).astype(np.float32), digits.target[order].astype(np.int64)
    known, new = np.flatnonzero(targets < KNOWN), np.flatnonzero(targets >= KNOWN)
    train, known = known[:TRAIN], known[TRAIN:]
    half = (AFTER + TEST) // 2
    mixed = generator.permutation(np.concatenate([known[BEFORE : BEFORE + half], new[:half]]))
    stream, test = np.concatenate([known[:BEFORE], mixed[:AFTER]]), mixed[AFTER:]
    labels = [str(digit) for digit in range(KNOWN)]
    bundle = written(folder / "bundle", fitted(inputs[train], targets[train], KNOWN), labels)
    trainer = Regression(folder, inputs[train], targets[train])

    def accuracy() -> float:
        answers = Personaliser(bundle, threads=1).predict_batch(inputs[test])
        return float(np.mean([one.label == str(target) for one, target in zip(answers, targets[test], strict=True)]))

    before = accuracy()
    policy = Policy(watch=Watch(enough=EVERY), conditions=ANY_TIME)
    alarms: list[int] = []
    asked = False
    ticks = count()
    world = World(clock=lambda: float(next(ticks)), threads=1)  # no waiting for seconds to pass
    with Orchestrator(bundle, Ring(folder / "ring"), Training(lambda _: trainer), policy, world) as service:
        for place, index in enumerate(stream):
            service.infer(inputs[index], str(targets[index]) if labelled else None)
            if service.state.asked is not None and not asked:
                alarms.append(place)
            service.tend(wait=True)
            asked = service.state.asked is not None
        rounds = service.state.rounds
    late = [place - BEFORE for place in alarms if place >= BEFORE]
    return {
        "labels": "yes" if labelled else "no",
        "seed": seed,
        "false alarms": sum(place < BEFORE for place in alarms),
        "delay": late[0] if late else AFTER,
        "noticed": bool(late),
        "accuracy before": before,
        "after": accuracy(),
        "accepted": sum(one.accepted for one in rounds),
    }


def main() -> None:
    """Live through the streams of all seeds."""
    asked = arguments("Drift: delay, false alarms, accuracy regained.")
    seeds = range(3 if asked.quick else 20)
    rows = []
    for labelled in (True, False):
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(lived(seed, Path(folder), labelled=labelled))
    claims = []
    for labels in ("yes", "no"):
        own = [row for row in rows if row["labels"] == labels]
        delay = median(int(str(row["delay"])) for row in own)
        alarms = sum(int(str(row["false alarms"])) for row in own)
        noticed = all(row["noticed"] for row in own)
        claims.append(
            Claim(
                f"labels {labels}: the change is noticed in every stream, with at most one false alarm in ten streams",
                "none published: PersEPhonEE gives no figure",
                f"median delay {delay:g} samples; {alarms} false alarms in {len(own)} × {BEFORE} samples",
                "quality",
                noticed and alarms <= len(own) / 10,
            )
        )
    gains = [float(str(row["after"])) - float(str(row["accuracy before"])) for row in rows if row["labels"] == "yes"]
    error = 1.96 * float(np.std(gains, ddof=1)) / len(gains) ** 0.5
    claims.append(
        Claim(
            "with labels, the round regains accuracy on the changed stream",
            "none published",
            f"{100 * np.mean(gains):+.1f} points ± {100 * error:.1f}",
            "quality",
            bool(np.mean(gains) - error > 0),
        )
    )
    finish("drift", rows, claims, asked.json)


if __name__ == "__main__":
    main()
