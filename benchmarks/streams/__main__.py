"""Streams that drift on purpose: does a bundle lose what it knew while `tuner watch` lets it learn?

A bundle is trained on a part of the user's samples. The others come in an order: one class at a time; one recording at
a time, or at random where the data does not say which it is; in the order of their names, which is that in which they
were taken; from the darkest or softest sample to the brightest or loudest. Every so many of them are a round, with
`run_round` and its default rules; the next one starts from an accepted model. Samples are kept until a model has
learned them, as on a device with little room. Held-out samples, which nobody trains on, say what came of it.

Two bundles live through each of the twenty streams: a tail that trains by steps with the user's earlier samples
(`tuner export --replay`), and a head in closed form; with `--without`, the tail without earlier samples too. Next to
them is the same plan trained on all samples at once. `--results FILE` keeps what is done, so that a run that was cut
goes on.
"""

import json
import math
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.alternatives.problem import drawn
from benchmarks.alternatives.tasks import ORDINARY
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.lib.setup import exported_bundle, open_session
from tuner.arrays import Flags, Floats, Labels, RowNumbers
from tuner.backends.base import Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.bundle.format import FILE, WEIGHTS, Bundle, seal
from tuner.plan.parts import CachePlan, DataPlan, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.runtime import Personaliser
from tuner.runtime.infer.mcnemar import least_drop
from tuner.runtime.train.files import OWN
from tuner.runtime.train.gate import Rules
from tuner.store.store import Store
from tuner.task import Domain, Samples, Subset, Task, stratified_holdout
from tuner.task.data.samples import content_id
from tuner.task.info import task_info
from tuner_closed_form import ClosedForm, Knobs
from tuner_watch.ring import RingSample
from tuner_watch.round import local_training, run_round, trainer_of

TASKS, STREAMS = ("digits", "emg", "spoken", "objects", "sign"), ("class", "recording", "time", "light")
#: Most samples of the user's; share of them that comes as a stream, and samples in a round; of short streams, a third.
MOST_OWN, STREAMED, ROUND, LEAST_ROUNDS = 400, 0.5, 120, 3
#: Most samples that say what came of a stream, and the name of the bundle without the user's earlier samples.
HELD_OUT, WITHOUT = 500, "tail without"
#: Blocks of the tail, and share of the global samples that is mixed in, where there are some.
TAIL, ALPHA = 3, 0.1
RECIPE = RecipePlan(epochs=5, batch_size=32, optimiser="adamw", learning_rate=3e-4)
#: Bounds: loss of a stream, certain loss of an accepted round, share of the gain.
LOST, ROUND_LOST, GAINED = 0.005, 0.01, 0.9


@dataclass(frozen=True, slots=True)
class Lived:
    """What a stream did: accuracies on held-out samples, rounds, and the largest certain loss of an accepted one."""

    task: str
    stream: str
    bundle: str
    before: float
    after: float
    everything: float
    accepted: int
    refused: int
    certain_loss: float


def main() -> None:
    """Make the bundles of each task, let them live through the streams, judge."""
    options = benchmark_parser(__doc__)
    options.add_argument("--task", action="append", choices=TASKS, help="only these tasks; may be repeated")
    options.add_argument("--stream", action="append", choices=STREAMS, help="only these streams; may be repeated")
    options.add_argument("--without", action="store_true", help="also a tail without the user's earlier samples")
    options.add_argument("--results", type=Path, help="file that keeps what is done, to go on from")
    asked = options.parse_args()
    tasks = asked.task or (TASKS[:1] if asked.quick else TASKS)
    streams = asked.stream or (STREAMS[:2] if asked.quick else STREAMS)
    results: Path | None = asked.results
    lines = results.read_text(encoding="utf-8").splitlines() if results is not None and results.exists() else []
    figures = [Lived(**json.loads(line)) for line in lines]
    for name in tasks:
        left = [stream for stream in streams if (name, stream) not in {(one.task, one.stream) for one in figures}]
        if not left:
            continue
        with tempfile.TemporaryDirectory() as folder:
            made = lived_through(name, left, Path(folder), without=asked.without)
        figures += made
        if results is not None:
            with results.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(one), default=float) + "\n" for one in made)
    rows: list[Row] = [shown(one) for one in figures]
    finish("streams", rows, judged(figures), asked.json)


def lived_through(name: str, streams: Sequence[str], folder: Path, *, without: bool = False) -> list[Lived]:
    """Let the bundles of a task live through streams."""
    problem, store = ORDINARY[name](0), Store(folder / "store")
    own, test = drawn(problem.own, MOST_OWN, 0), drawn(problem.test, HELD_OUT, 0)
    first, coming = (Subset(own, rows) for rows in stratified_holdout(own.labels, STREAMED))
    orders = {stream: ordered(coming, stream) for stream in streams}
    figures = list[Lived]()
    for kind in ("tail", "solved"):
        whole, given = (replace(problem.task, local=Domain(samples, test)) for samples in (own, first))
        most, _, _ = trained(whole, kind, folder / f"{kind}-everything", store)
        _, plan, weights = trained(given, kind, folder / kind, store)
        made = {kind: exported_bundle(given, plan, weights, folder / kind / "bundle")}
        if kind == "tail" and without:
            made[WITHOUT] = without_own(made[kind], folder / kind / "without")
        features = trainer_of(Bundle.read(made[kind]), 1).features([test.load(at) for at in range(len(test))])
        for bundle, start in made.items():
            for stream, order in orders.items():
                names, place = (name, stream, bundle), folder / f"{bundle}-{stream}"
                samples = Subset(coming, order)
                figures.append(lived(names, start, samples, given.labels, (features, test.labels), most, place))
    return figures


def ordered(samples: Samples, stream: str) -> RowNumbers:
    """Return the order in which samples come."""
    rows = range(len(samples))
    if stream == "class":
        return np.argsort(samples.labels, kind="stable")
    if stream == "light":
        return np.argsort([np.abs(samples.load(at).astype(float)).mean() for at in rows], kind="stable")
    names = [samples.origin(at) if stream == "recording" else samples.name(at) for at in rows]
    if stream == "recording" and not 1 < len(set(names)) <= len(names) / 2:
        return np.random.default_rng(0).permutation(len(samples))
    return np.array(sorted(rows, key=lambda at: names[at]), np.int64)


def trained(task: Task, kind: str, folder: Path, store: Store) -> tuple[float, TrialPlan, Path]:
    """Train a tail, or solve for the head; return its accuracy on `local.val`, the plan and the weights."""
    session = open_session(TorchBackend(), task)
    data, blocks = DataPlan(ALPHA if task.global_ is not None else 0.0), session.model.num_blocks
    plan = TrialPlan(
        session.model, task_info(task), data, max(1, blocks - TAIL) if kind == "tail" else blocks - 1,
        cache=CachePlan("cache", 8), recipe=RECIPE, runtime=RuntimePlan("torch", 1),
    )  # fmt: skip
    plan = normal_form(plan if kind == "tail" else ClosedForm().apply(plan, Knobs()))
    folder.mkdir()
    session.fill([plan], store)
    outcome = session.train(Trial(plan, 0, store, folder / WEIGHTS))
    return outcome.values["local_accuracy"], plan, folder / WEIGHTS


def without_own(bundle: Path, out: Path) -> Path:
    """Return the same bundle as ``--replay 0`` writes it."""
    shutil.copytree(bundle, out)
    (out / OWN).unlink()
    info = Bundle.read(bundle).info
    (out / FILE).unlink()
    seal(out, replace(info, train=info.train and replace(info.train, own_samples=0, own_bytes=0)).to_dict())
    return out


def lived(
    names: tuple[str, str, str],
    start: Path,
    samples: Samples,
    labels: Sequence[str],
    held_out: tuple[Floats, Labels],
    everything: float,
    folder: Path,
) -> Lived:
    """Let a bundle live through a stream, and measure what became of it on features and labels of held-out samples."""
    training = local_training(start, threads=1)
    if training is None:
        raise ValueError("the bundle can be trained")

    def right(bundle: Path) -> Flags:
        trainer = trainer_of(Bundle.read(bundle), 1)
        return trainer.bundle.targets.are_right(trainer.logits(held_out[0]), held_out[1])

    given = current = right(start)
    use, accepted, refused, worst, kept = start, 0, 0, -math.inf, list[RingSample]()
    size = min(ROUND, -(-len(samples) // LEAST_ROUNDS))
    folder.mkdir()
    for begin in range(0, len(samples), size):
        kept += [ring_sample(samples, at, labels) for at in range(begin, min(begin + size, len(samples)))]
        result = run_round(Personaliser(Bundle.read(use), 1), kept, training, Rules())
        print(*names, f"{100 * current.mean():.1f} %:", result.verdict, file=sys.stderr, flush=True)
        refused += not result.verdict.accepted
        if result.verdict.accepted and result.made is not None:
            accepted += 1
            use = result.made.rename(folder / str(begin))
            now = right(use)
            lost, won = int((current & ~now).sum()), int((now & ~current).sum())
            worst = max(worst, least_drop(lost, won, len(now), Rules().confidence))
            current, kept = now, []
    return Lived(*names, float(given.mean()), float(current.mean()), everything, accepted, refused, worst)


def ring_sample(samples: Samples, at: int, labels: Sequence[str]) -> RingSample:
    """Return a sample as a watched bundle keeps it."""
    array, origin = samples.load(at), samples.origin(at)
    recording = "" if origin == samples.name(at) else origin
    return RingSample(content_id(array.tobytes()), labels[int(samples.labels[at])], array, recording)


def shown(one: Lived) -> Row:
    """Return a row of the table, in points."""
    possible = one.everything - one.before
    return {
        "task": one.task, "stream": one.stream, "bundle": one.bundle,
        "before": round(100 * one.before, 1), "after": round(100 * one.after, 1),
        "everything": round(100 * one.everything, 1),
        "gain kept": f"{100 * (one.after - one.before) / possible:.0f} %" if possible > 0 else "",
        "accepted": one.accepted, "refused": one.refused,
        "certain loss": round(100 * max(0.0, one.certain_loss), 1),
    }  # fmt: skip


def judged(figures: Sequence[Lived]) -> list[Claim]:
    """Judge the bundles as they are exported by default; those without earlier samples say what was before."""
    ours, without = ([one for one in figures if (one.bundle == WITHOUT) is old] for old in (False, True))
    own = "the project's bound"

    def changes(some: Sequence[Lived]) -> str:
        falls = sorted((one.after - one.before, f"{one.task}, {one.stream}, {one.bundle}") for one in some)
        return f"{100 * falls[0][0]:+.1f} points at worst ({falls[0][1]}) of {len(falls)}"

    def kept(some: Sequence[Lived]) -> float:
        gaining = [one for one in some if one.everything > one.before]
        possible = sum(one.everything - one.before for one in gaining)
        return sum(one.after - one.before for one in gaining) / possible if gaining else 1.0

    worst = max(one.certain_loss for one in ours)
    return [
        Claim("held-out accuracy falls by at most 0.5 points in each stream", own,
              f"{changes(ours)}{f'; without earlier samples {changes(without)}' if without else ''}",
              all(one.after - one.before >= -LOST for one in ours)),
        Claim("no accepted round certainly loses more than one point", own,
              f"{100 * max(0.0, worst):.1f} points at worst", worst <= ROUND_LOST),
        Claim("rounds keep at least 90 % of the gain of training on everything", own,
              f"{100 * kept(ours):.0f} %{f'; without earlier samples {100 * kept(without):.0f} %' if without else ''}",
              kept(ours) >= GAINED),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
