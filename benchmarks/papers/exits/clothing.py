"""Early exits in a bundle of the clothing task: where photos leave, what an answer takes, and how often it is right.

Exits in closed form on MobileNetV2 at 160 pixels, in three arms. Without labels: the exits learn the given model's
answers among the 200 ImageNet classes, and a local answer is right if it is the given model's. With labels: the given
head knows none of the user's classes, and the exits' thresholds are set against their own best. With gates: the final
head is solved for as well, and exits leave what the model knew to it. All are compared with
the head that is solved for on the last features, which costs no more than an exit: a claim is of equal accuracy on the
user's photos and on those of the classes that the model knows. Shares and accuracies are those of the exported bundle,
from pixels: 347 local validation photos, and every fifth global one. Latency is a chain's, photo by photo in turn with
the same model in one session.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch import nn

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, table
from benchmarks.lib.setup import clothing, fewer_known, open_session, plan_for, solved_head
from tuner.arrays import Floats
from tuner.backends.base import Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.bundle.exit_policy import ExitPolicy
from tuner.bundle.format import MODEL
from tuner.ort.session import LOGITS
from tuner.plan.heads import HeadsPlan
from tuner.plan.parts import RecipePlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.runtime.infer.chain import Chain
from tuner.store.store import Store
from tuner.task import Task, normalise
from tuner_closed_form import ClosedForm, Knobs
from tuner_exits import placed
from tuner_exits.torch.segments import Segment, restored
from tuner_exits.torch.weights import ExitWeights

LABELS = HeadsPlan("exits-only", supervised=1.0, distilled=0.0, ridge=100.0)
ARMS = {
    "without labels": replace(LABELS, supervised=0.0, distilled=1.0),
    "with labels": replace(LABELS, against="best"),
    "with gates": replace(LABELS, mode="with-tail", gated=True),
}
EXITS, BEGIN, ALPHA = 4, 0.25, 0.05
DOMAINS = ("local", "global")
#: By how much leaving early is to be faster, and the accuracy that it may lose.
FASTER, POINT = 1.3, 0.01
CONFIDENCES = 0.95, 0.5
#: Of the validation photos every third is timed, three times.
EVERY, ROUNDS = 3, 3


def main() -> None:
    """Train, export, time, print."""
    asked = benchmark_parser(__doc__).parse_args()
    counts = (300, 60) if asked.quick else (None, None)
    scored = slice(None), slice(None, None, 5)  # of the global photos
    tasks = {arm: fewer_known(clothing(160, *counts, labelled=arm != "without labels"), *scored) for arm in ARMS}
    with tempfile.TemporaryDirectory(prefix="tuner-benchmark-") as folder:
        values = solved_head(tasks["with labels"], Store(Path(folder) / "store"), ALPHA)
        rows, solved = list[Row](), {f"solved head, {name}": values[f"{name}_accuracy"] for name in DOMAINS}
        for confidence in CONFIDENCES:
            for arm, heads in ARMS.items():
                row = measured(tasks[arm], arm, replace(heads, confidence=confidence), Path(folder))
                rows.append(row if arm == "without labels" else {**row, **solved})
                print(table(rows[-1:]), flush=True)
    finish("exits_clothing", rows, [equal_claim(row) for row in rows if solved.keys() <= row.keys()], asked.json)


def equal_claim(row: Row) -> Claim:
    """Return whether leaving early is faster at an accuracy that is equal to the solved head's on both domains."""
    lost = [float(str(row[f"solved head, {name}"])) - float(str(row[name])) for name in DOMAINS]
    times = float(str(row["times faster"]))
    said = f"{times:.2f}×, " + ", ".join(f"{100 * own:.1f} {name}" for own, name in zip(lost, DOMAINS, strict=True))
    text = f"confidence {row['confidence']}: leaving early is ≥ {FASTER}× faster than the solved head"
    return Claim(f"{text}, at most a point of local and of global accuracy lost", "PersEPhonEE: 3.2×, local",
                 f"{said} points lost, one seed", times >= FASTER and max(lost) <= POINT)  # fmt: skip


def measured(task: Task, arm: str, heads: HeadsPlan, folder: Path) -> Row:
    """Train, export and time one arm at one confidence; return its row."""
    out = folder / f"{arm} {heads.confidence}"
    out.mkdir()
    plan = planned(task, heads)
    session, store, weights = open_session(TorchBackend(), task), Store(folder / "store"), out / "trial.safetensors"
    session.fill([plan], store)
    trained = session.train(Trial(plan, 0, store, weights)).values
    exported = session.export(plan, weights, out, trainable=False)
    policy, checks = ExitPolicy.from_dict(exported.sections["exits"]), exported.checks
    val = task.local.val
    photos = [normalise(val.load(index)[None], task.input) for index in range(0, len(val), EVERY)]
    if plan.trainable:
        one = solved_model(task, replace(plan, heads=HeadsPlan()), store, out / "whole")
    else:
        one = whole_model(task, plan, weights, out)
    seconds, chain = latencies(one, chain_of(out, policy, plan), policy, photos)
    return {
        "exits": arm, "confidence": heads.confidence,
        "cost (share of FLOPs)": " ".join(f"{share:.2f}" for share in policy.shares),
        "thresholds": " ".join(f"{threshold:.2f}" for threshold in policy.thresholds),
        "leave there (%)": " ".join(f"{100 * checks[f'exit{at}_share']:.0f}" for at in range(len(policy.segments))),
        "local before": trained["final_local_accuracy"], "local": checks["local_accuracy"],
        "global before": trained["final_global_accuracy"], "global": checks["global_accuracy"],
        "one session (ms)": 1e3 * seconds, "chain (ms)": 1e3 * chain, "times faster": seconds / chain,
        "times fewer FLOPs": trained["flops"] / checks["mean_flops"],
    }  # fmt: skip


def planned(task: Task, heads: HeadsPlan) -> TrialPlan:
    """Return the plan of an arm: nothing else trains, or the final head is solved for."""
    loaded = load(task)
    split = loaded.info.num_blocks - (heads.mode == "with-tail")
    plan = plan_for(task, loaded, split, bits=8, recipe=RecipePlan(), alpha=ALPHA)
    if heads.mode == "with-tail":
        plan = ClosedForm().apply(plan, Knobs())
    return normal_form(replace(plan, heads=replace(heads, exits=placed(loaded.info, EXITS, 0, BEGIN))))


def whole_model(task: Task, plan: TrialPlan, weights: Path, folder: Path) -> Chain:
    """Return the trained model without its exits, in one session."""
    segments = restored(load(task), plan, ExitWeights.read(weights), nn.Module())  # no tail has trained
    bodies = [segment.body if isinstance(segment, Segment) else segment for segment in segments]
    path, sample = folder / "whole.onnx", torch.from_numpy(task.batch(task.local.val, [0]))
    write_onnx(nn.Sequential(*bodies).eval(), torch.cat([sample, sample]), path, [LOGITS])
    return Chain([path], plan.model.outputs)


def solved_model(task: Task, plan: TrialPlan, store: Store, folder: Path) -> Chain:
    """Return the model whose head is solved for, in one session."""
    folder.mkdir()
    session, weights = open_session(TorchBackend(), task), folder / "trial.safetensors"
    session.train(Trial(plan, 0, store, weights))
    session.export(plan, weights, folder, trainable=False)
    return Chain([folder / MODEL], plan.model.outputs)


def chain_of(folder: Path, policy: ExitPolicy, plan: TrialPlan) -> Chain:
    """Return the exported segments."""
    return Chain([folder / name for name in policy.segments], plan.model.outputs, policy.temperatures)


def latencies(one: Chain, chain: Chain, policy: ExitPolicy, photos: Sequence[Floats]) -> tuple[float, float]:
    """Return the mean over photos of the median seconds of an answer, in one session and as a chain, in turn."""
    arms = ((one, ()), (chain, policy.thresholds))
    seconds = np.empty((ROUNDS, len(photos), len(arms)))
    for turn in range(ROUNDS):
        for number, photo in enumerate(photos):
            for arm, (model, thresholds) in enumerate(arms):
                started = perf_counter()
                model.leave_alone(photo, thresholds)
                seconds[turn, number, arm] = perf_counter() - started
    means = [float(np.mean([median(own) for own in seconds[:, :, arm].T])) for arm in range(len(arms))]
    return means[0], means[1]


if __name__ == "__main__":
    main()
