"""What this runtime computes from a bundle: the same function writes a conformance set and checks one.

A value that is compared is an array, by name, or a decision of the gate.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tuner.arrays import Array, Floats
from tuner.bundle.format import WEIGHTS, Bundle
from tuner.bundle.info import TrainInfo, TrainKind
from tuner.bundle.replay import Replay
from tuner.bundle.tensors import read_tensors
from tuner.distribution import offered
from tuner.ort.tail import Tail
from tuner.ort.training_step import StepSession
from tuner.plan.trial import TrialPlan
from tuner.runtime.infer.calibration import Costs
from tuner.runtime.infer.chain import Chain
from tuner.runtime.infer.personaliser import Personaliser
from tuner.runtime.infer.prediction import Prediction
from tuner.runtime.train.adapters import Adapters
from tuner.runtime.train.calibration import calibrate_exits
from tuner.runtime.train.exit_targets import exit_targets
from tuner.runtime.train.exits import exit_weights
from tuner.runtime.train.files import (
    ADAPTERS,
    CHECK,
    LOGITS_OF,
    MERGE,
    REPLAY,
    STEP,
    STEP_OF,
    plan_of,
    replay_of,
)
from tuner.runtime.train.solved import SolvingTrainer
from tuner.task import decode_image, normalise
from tuner.training.schedule import scheduled_rate
from tuner_conformance.inputs import RuledNoise

STEPS = 20
#: Group of the entry points of what trains a bundle's step by another library than ONNX Runtime, by the library's name.
TRAINERS = "tuner.trainers"
LOSSES = "losses"
MOST_CALIBRATED = 64


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a conformance set gives.

    Attributes:
        samples: Samples of the bundle's input shape [n, ...], not normalised.
        files: Content of image files by name; none unless the bundle takes images.
        batches: Rows of the replay that each training step takes; none unless the bundle trains by steps.
        features: What the frozen blocks give of samples, float32 [n, ...]; None unless the bundle stores any.
        content: What a file decodes to, where a bundle has a model that cuts it (``input.onnx``): a sound.
    """

    samples: Array
    files: Mapping[str, bytes] = field(default_factory=dict)
    batches: tuple[tuple[int, ...], ...] = ()
    features: Floats | None = None
    content: Array | None = None


def step_batches(bundle: Bundle) -> tuple[tuple[int, ...], ...]:
    """Return the rows of the replay that 20 training steps take, the last of every five a smaller batch."""
    train = bundle.info.train
    if train is None or not {STEP, STEP_OF.format(0)} & set(bundle.info.files):  # what it trains is solved for
        return ()
    count, batch = train.replay_samples, plan_of(bundle).recipe.batch_size
    sizes = (batch if number % 5 != 4 else max(2, batch // 2) for number in range(STEPS))  # noqa: PLR2004 - the last
    return (
        tuple(tuple((number * batch + place) * 7 % count for place in range(size)) for number, size in enumerate(sizes))
        if count
        else ()
    )


def measured(bundle: Bundle, inputs: Inputs, threads: int | None = None) -> dict[str, Array]:
    """Compute from a bundle what is compared.

    Args:
        bundle: The bundle.
        inputs: What to compute it from.
        threads: Threads within an operator; all that the process may use where it is not given.

    Returns:
        Arrays by name: ``normalised``, ``logits`` [exits, n, labels], ``left_at``, ``probabilities``, ``image.NAME``,
        ``unknown``, ``pieces``, ``rates``, ``losses`` (and
        ``losses.LIBRARY``), ``codes``, ``replay``, ``solved``, ``targets``, ``calibrated``.

    Raises:
        TunerError: The bundle cannot be used.
    """
    normalised, chain = normalise(inputs.samples, bundle.input), Chain.of(bundle, threads)
    predictions = Personaliser(bundle, threads).predict_batch(inputs.samples)
    values: dict[str, Array] = {
        "normalised": normalised,
        "logits": chain.every(normalised),
        "left_at": np.array([one.exit for one in predictions]),
        "probabilities": _answers(bundle, predictions),
        **{f"image.{name}": decode_image(content, bundle.input) for name, content in inputs.files.items()},
    }
    if bundle.info.unknown is not None:
        told = Personaliser(bundle, threads, unknown=True).predict_batch(inputs.samples)
        values["unknown"] = np.array([one.unknown for one in told])
    if inputs.content is not None:
        values["pieces"] = bundle.kind.pieces(inputs.content, bundle.input, "the sound")[1]
    train = bundle.info.train
    return values if train is None else values | _trained(bundle, train, inputs, threads)


def _answers(bundle: Bundle, predictions: Sequence[Prediction]) -> Array:
    """Return the probability of each answer; or the values, in standard deviations."""
    scale = bundle.targets.scale
    if scale is None:
        return np.array([one.probability for one in predictions], np.float32)
    values = np.array([[value for _, value in one.values or ()] for one in predictions])
    answers: Array = (values / np.array(scale.std)).astype(np.float32)
    return answers


def _trained(bundle: Bundle, train: TrainInfo, inputs: Inputs, threads: int | None) -> dict[str, Array]:
    """Return what training computes."""
    replay, plan = replay_of(bundle, REPLAY), plan_of(bundle)
    values: dict[str, Array] = {"replay": replay.read(np.arange(min(2, len(replay))))}
    if inputs.features is not None:
        values["codes"] = replay.codec.encode(inputs.features)
    if train.is_solved:
        trainer = SolvingTrainer(bundle, threads)
        trainer.train()
        return {**values, "solved": trainer.logits(values["replay"])}
    values |= _steps(bundle, plan, replay, inputs.batches, threads or 1)
    return values | _calibrated(bundle, plan, threads or 1) if train.kind == TrainKind.EXITS else values


def _calibrated(bundle: Bundle, plan: TrialPlan, threads: int) -> dict[str, Array]:
    """Return what exits learn of check samples; and the temperatures and thresholds that these samples give."""
    check, policy = replay_of(bundle, CHECK), bundle.exits
    rows = np.arange(min(MOST_CALIBRATED, len(check)))
    if policy is None or not len(rows) or STEP_OF.format(0) not in bundle.info.files:
        return {}
    chain, features, truth, logits = Chain.of(bundle, threads), check.read(rows), check.labels[rows], list[Floats]()
    for at, own in enumerate(exit_weights(bundle)):
        logits.append(Tail(bundle.file(LOGITS_OF.format(at)), threads).logits(features, own))
        features, final = chain.step(at + 1, features)
    heads, costs = replace(plan.heads, tolerance=policy.tolerance), Costs(policy.shares, (0.0,) * len(logits))
    found = calibrate_exits(np.stack([*logits, final]), truth, heads, costs, kind=bundle.targets, prune=False)
    targets = exit_targets(plan.heads, final, truth, kind=bundle.targets)
    return {"targets": targets, "calibrated": np.array([*found.temperatures, *found.thresholds])}


def _steps(
    bundle: Bundle, plan: TrialPlan, replay: Replay, batches: tuple[tuple[int, ...], ...], threads: int
) -> dict[str, Array]:
    """Return the learning rate and the loss of each step; of a bundle with exits, those of its first exit.

    Another library that trains the bundle here has its own losses, named after it.
    """
    train, weight = bundle.info.train, np.float32(plan.data.weight)
    if train is None or not batches:
        return {"rates": np.zeros(0), LOSSES: np.zeros(0)}
    path, weights = _begin(bundle, train)
    session = StepSession(path, weights, threads)
    ports = sum(port.kind == "noise" for port in session.layout.inputs)
    every: dict[str, Any] = {LOSSES: StepSession(path, weights, threads, noise=RuledNoise(ports))}
    others = {f"{LOSSES}.{name}": point.load() for name, point in offered(TRAINERS).items()}
    every |= {name: own for name, of in others.items() if (own := of(bundle, RuledNoise(ports))) is not None}
    rates: list[float] = []
    losses: dict[str, list[float]] = {name: [] for name in every}
    for number, batch in enumerate(batches):
        rows = np.array(batch, np.int64)
        # what a bundle answers right has gradients of rounding alone, which Adam makes large
        labels = bundle.targets.wrong(replay.labels[rows], len(bundle.labels))
        if train.kind == TrainKind.EXITS:  # a hard answer and the same as the softened one
            hard = bundle.targets.one_hot(labels, len(bundle.labels))
            labels = np.concatenate([hard, hard], axis=1)
        counts = np.where(np.arange(len(rows)) % 2, weight, np.float32(1))  # as if every other one were mixed in
        rates.append(scheduled_rate(plan.recipe, number, len(batches)))
        features = replay.read(rows)
        for name, own in every.items():
            losses[name].append(own.step(features, labels, rates[-1], weights=counts.astype(np.float32)))
    return {"rates": np.array(rates), **{name: np.array(own) for name, own in losses.items()}}


def _begin(bundle: Bundle, train: TrainInfo) -> tuple[Any, Mapping[str, Array]]:
    """Return the file of the step, and the weights that it begins with."""
    if train.kind == TrainKind.EXITS:
        return bundle.file(STEP_OF.format(0)), exit_weights(bundle)[0]
    weights: Mapping[str, Array] = read_tensors(bundle.file(WEIGHTS), train.weights)
    if train.kind == TrainKind.ADAPTERS:
        weights = Adapters(bundle.file(ADAPTERS), bundle.file(MERGE)).begin(weights)
    return bundle.file(STEP), weights


def made_features(bundle: Bundle) -> Floats | None:
    """Return features to encode: as the replay's codec has them, and some beyond its scales."""
    if bundle.info.train is None:
        return None
    codec = replay_of(bundle, REPLAY).codec
    generator = np.random.default_rng(1)
    spread = generator.uniform(-0.2, 1.2, (2, math.prod(codec.shape[1:]), codec.shape[0])).astype(np.float32)
    low = np.zeros(codec.shape[0], np.float32) if codec.low is None else codec.low
    high = np.ones(codec.shape[0], np.float32) if codec.high is None else codec.high
    return np.ascontiguousarray((low + spread * (high - low)).swapaxes(1, 2).reshape(2, *codec.shape))
