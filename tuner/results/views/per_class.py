"""What a trial does to each class: learnt, forgotten, and taken for another."""

from dataclasses import dataclass

from tuner.metrics import wilson
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run


@dataclass(frozen=True, slots=True)
class ClassScore:
    """Accuracy on one class of one domain.

    Attributes:
        samples: Number of validation samples.
        before: Share of them that the given model has right; None where that is not known.
        after: Share of them that the trial's model has right.
    """

    name: str
    samples: int
    before: float | None
    after: float

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of `after` (Wilson)."""
        return wilson(self.after, self.samples)

    @property
    def change(self) -> float:
        """Share of the samples won; lost below 0."""
        return self.after - (self.before or 0.0)


@dataclass(frozen=True, slots=True)
class Confusion:
    """Samples of one class, `count` of all its `samples`, that were taken for another."""

    name: str
    taken_for: str
    count: int
    samples: int


def class_scores(run: Run, record: TrialRecord, domain: str) -> list[ClassScore]:
    """Return the scores of a domain's classes in the order of the labels; none where they were not counted."""
    counts, given = record.classes.get(domain), run.info.untouched.classes.get(domain)
    if counts is None:
        return []
    known = {row: (right, total) for row, right, total in given.rows} if given else {}
    found = []
    for row, right, total in counts.rows:
        before, of = known.get(row, (0, 0))
        found.append(ClassScore(class_name(run, row), total, before / of if of == total else None, right / total))
    return found


def confusions(run: Run, record: TrialRecord, domain: str) -> list[Confusion]:
    """Return what samples of a domain were taken for, the most frequent first."""
    counts = record.classes.get(domain)
    if counts is None:
        return []
    totals = {row: total for row, _, total in counts.rows}
    return [
        Confusion(class_name(run, row), class_name(run, other), count, totals.get(row, count))
        for row, other, count in counts.confused
    ]


def class_name(run: Run, row: int) -> str:
    """Return the name of a row of the union head."""
    labels = run.info.classes.labels
    return labels[row] if row < len(labels) else f"class {row}"
