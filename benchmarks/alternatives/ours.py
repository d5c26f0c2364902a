"""Our arm of `benchmarks.alternatives`: `tuner.run` in an empty store, exported, and asked through ONNX Runtime.

The export refits the trial on all of the user's samples, as plain arms train on all of them.
"""

import json
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

import tuner
from benchmarks.alternatives.claims import BEST_LOCAL, DEFAULT, Result, ours, refitted
from benchmarks.alternatives.problem import Problem
from tuner.arrays import Array, Doubles
from tuner.bundle.format import FILE
from tuner.runtime import Bundle, Personaliser
from tuner.task import Samples
from tuner.task.data.samples import mean_of_wholes, wholes

#: What picks the trial with the best local accuracy.
BEST = "max(local_accuracy)"
#: Samples that are answered together.
BATCH = 64


def searched(problem: Problem, seed: int, allowed: int) -> list[Result]:
    """Return what the default pick and the best local pick of a run reach, and the default pick fitted on all samples.

    The export is not within the seconds, and is counted where it fits the plan again. Where some classes were left
    out, the results say how well the bundles tell their samples from the user's.
    """
    with tempfile.TemporaryDirectory() as folder:
        place, began = Path(folder), time.monotonic()
        run = tuner.run(
            problem.task, time=f"{allowed}s", seed=seed, out=place / "run", store=place / "store", earlier="none",
            progress=False, started=began, forget_at_most=None if problem.adds_classes else may_forget(problem),
        )  # fmt: skip
        searching = time.monotonic() - began
        asked = (
            (ours(allowed, DEFAULT), "best", False),
            (refitted(allowed), "best", True),
            (ours(allowed, BEST_LOCAL), BEST, False),
        )
        results = list[Result]()
        for number, (arm, pick, refit) in enumerate(asked):
            began = time.monotonic()
            bundle = tuner.export(run, place / str(number), pick, refit=refit)
            seconds = time.monotonic() - began
            info = json.loads((bundle / FILE).read_text(encoding="utf-8"))
            note = f"trial {info['run']['trial']} of {len(run.records)} ({run.counts['done']} done)"
            note = f"{note}, export {seconds:.0f} s: {info['sentence']}"
            known = None if problem.global_test is None else answers(bundle, problem, problem.global_test)
            local, unknown = answers(bundle, problem, problem.test), separation(bundle, problem)
            results.append(Result(arm, searching + refit * seconds, local, known, note, unknown))
    return results


def may_forget(problem: Problem) -> str | None:
    """Return the limit of who wants one person's accuracy alone: that of the others may go."""
    return None if problem.global_test is None else "100%"


def separation(bundle: Path, problem: Problem) -> float | None:
    """Return the area under the ROC curve of strangers against the user's test samples; None without strangers."""
    if problem.strangers is None:
        return None
    parts = [strangeness(bundle, samples) for samples in (problem.test, problem.strangers)]
    return float(roc_auc_score(np.repeat([0, 1], [len(part) for part in parts]), np.concatenate(parts)))


def strangeness(bundle: Path, samples: Samples) -> Doubles:
    """Return how much each sample looks like none of the user's classes to a bundle, by the product's own score.

    Where the bundle has none, it is how improbable the best label is.
    """
    personaliser = Personaliser(bundle, unknown=Bundle.open(bundle).info.unknown is not None)
    said = [answer for batch in batches_of(samples) for answer in personaliser.predict_batch(batch)]
    return np.array([1 - one.probability if one.unknown is None else one.unknown for one in said])


def batches_of(samples: Samples) -> list[Array]:
    """Return the samples, decoded, in batches."""
    parts = np.array_split(np.arange(len(samples)), -(-len(samples) // BATCH))
    return [np.stack([samples.load(int(index)) for index in part]) for part in parts]


def answers(bundle: Path, problem: Problem, samples: Samples) -> tuple[int, ...]:
    """Return whether a bundle's answers to samples, or to the sounds that they are patches of, are right: 0 or 1."""
    personaliser, labels = Personaliser(bundle), samples.labels
    rows = {label: row for row, label in enumerate(problem.task.labels)}
    batches = batches_of(samples)
    if not problem.whole:
        said = [answer.label for batch in batches for answer in personaliser.predict_batch(batch)]
        return tuple(int(rows[str(label)] == truth) for label, truth in zip(said, labels, strict=True))
    _, places = wholes(samples)
    probabilities: Array = np.concatenate([personaliser.every_exit(batch)[-1] for batch in batches])
    order = [rows[label] for label in personaliser.bundle.labels]
    best = np.array(order)[mean_of_wholes(probabilities, places).argmax(1)]
    truths = labels[np.unique(places, return_index=True)[1]]
    return tuple(int(answer == truth) for answer, truth in zip(best, truths, strict=True))
