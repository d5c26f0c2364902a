"""Our arm of `benchmarks.alternatives`: `tuner.run` in an empty store, exported, and asked through ONNX Runtime.

The export refits the trial on all of the user's samples, as plain arms train on all of them.
"""

import json
import tempfile
import time
from pathlib import Path

import numpy as np

import tuner
from benchmarks.alternatives.claims import BEST_LOCAL, DEFAULT, Result, ours
from benchmarks.alternatives.problem import Problem
from tuner.arrays import Array
from tuner.bundle.format import FILE
from tuner.results.views.pick import pick_trial
from tuner.runtime import Personaliser
from tuner.task import Samples
from tuner.task.data.samples import mean_of_wholes, wholes

#: What picks the trial with the best local accuracy.
BEST = "max(local_accuracy)"
#: Samples that are answered together.
BATCH = 64


def searched(problem: Problem, seed: int, allowed: int) -> list[Result]:
    """Return what the default pick and the best local pick of a run reach; the export is not within the seconds."""
    with tempfile.TemporaryDirectory() as folder:
        place, began = Path(folder), time.monotonic()
        run = tuner.run(
            problem.task, time=f"{allowed}s", seed=seed, out=place / "run", store=place / "store", earlier="none",
            progress=False, started=began, forget_at_most=None if problem.adds_classes else may_forget(problem),
        )  # fmt: skip
        seconds = time.monotonic() - began
        trained = run.counts["done"]
        best = pick_trial(run, BEST).trial
        began = time.monotonic()
        bundle = tuner.export(run, place / "default")
        exporting = time.monotonic() - began
        trial = int(json.loads((bundle / FILE).read_text(encoding="utf-8"))["run"]["trial"])
        results = list[Result]()
        for pick, number in ((DEFAULT, trial), (BEST_LOCAL, best)):
            if results and number == trial:
                chosen = bundle
            else:
                chosen = bundle if pick == DEFAULT else tuner.export(run, place / "best", BEST)
            note = f"trial {number} of {len(run.records)} ({trained} done), export {exporting:.0f} s"
            known = None if problem.global_test is None else answers(chosen, problem, problem.global_test)
            local = answers(chosen, problem, problem.test)
            results.append(Result(ours(allowed, pick), seconds, local, known, f"{note}: {sentence(chosen)}"))
    return results


def may_forget(problem: Problem) -> str | None:
    """Return the limit of who wants one person's accuracy alone: that of the others may go."""
    return None if problem.global_test is None else "100%"


def sentence(bundle: Path) -> str:
    """Return the plan of a bundle in words."""
    return str(json.loads((bundle / FILE).read_text(encoding="utf-8"))["sentence"])


def answers(bundle: Path, problem: Problem, samples: Samples) -> tuple[int, ...]:
    """Return whether a bundle's answers to samples, or to the sounds that they are patches of, are right: 0 or 1."""
    personaliser, labels = Personaliser(bundle), samples.labels
    rows = {label: row for row, label in enumerate(problem.task.labels)}
    parts = np.array_split(np.arange(len(samples)), -(-len(samples) // BATCH))
    batches = [np.stack([samples.load(int(index)) for index in part]) for part in parts]
    if not problem.whole:
        said = [answer.label for batch in batches for answer in personaliser.predict_batch(batch)]
        return tuple(int(rows[str(label)] == truth) for label, truth in zip(said, labels, strict=True))
    _, places = wholes(samples)
    probabilities: Array = np.concatenate([personaliser.every_exit(batch)[-1] for batch in batches])
    order = [rows[label] for label in personaliser.bundle.labels]
    best = np.array(order)[mean_of_wholes(probabilities, places).argmax(1)]
    truths = labels[np.unique(places, return_index=True)[1]]
    return tuple(int(answer == truth) for answer, truth in zip(best, truths, strict=True))
