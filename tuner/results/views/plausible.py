"""Scores that say something else than they seem to: of a model that is read wrongly, or of one answer always."""

from collections.abc import Mapping, Sequence

from tuner.metrics import percent, wilson
from tuner.results.folder import RunInfo
from tuner.results.records.counts import ClassCounts
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.targets import Targets
from tuner.targets.base import ACCURACY, BALANCED
from tuner.task.copies import doubts

#: Samples below which a score at chance says nothing.
FEW = 10
#: Accuracy above that of guessing up to which a score that may be chance counts as chance.
NEAR = 0.1
#: What a model in another order of its rows has right in addition, if that is the cause; samples of a class for this.
SHUFFLED, EACH = 0.3, 3
SUSPECTS = (
    "see whether the rows of the classes (global.classes), [input] mean and std, and the order of the colours (RGB or "
    "BGR) are those that it was trained with"
)


def suspicion(values: Mapping[str, float], counts: ClassCounts | None, labels: Sequence[str], targets: Targets) -> str:
    """Return a warning where the untouched model does not know the data that it was trained for; else nothing.

    Args:
        values: Its scores by name.
        counts: Its predictions on the global validation samples, where they were counted.
        labels: Names of the classes by row.
        targets: What a sample's label is.
    """
    score = values.get(f"global{ACCURACY}")
    if score is None:
        return ""
    finding = ""
    if counts is not None and counts.rows:
        finding = _of_classes(score, counts, labels)
    elif score <= targets.guessed + NEAR / 2:
        finding = f"{targets.score_noun} {targets.text(score)}, no better than guessing"
    return f"warning: on its own global data the untouched model has {finding}: {SUSPECTS}" if finding else ""


def suspicion_of(info: RunInfo) -> str:
    """Return the warning that a run's untouched model deserves; see `suspicion`."""
    given = info.untouched
    return suspicion(given.values, given.classes.get("global"), info.classes.labels, info.targets)


def warnings_of(info: RunInfo) -> list[str]:
    """Return why the scores of a run may say something else than they seem to."""
    return [*filter(None, [suspicion_of(info)]), *doubts(info.notes)]


def _of_classes(score: float, counts: ClassCounts, labels: Sequence[str]) -> str:
    samples = sum(total for _, _, total in counts.rows)
    if samples < FEW or len(counts.rows) < 2:  # noqa: PLR2004 - one class has no other
        return ""
    row, share = _largest(counts)
    chance = 1 / len(counts.rows)
    at_chance = wilson(score, samples)[0] <= chance and score < chance + NEAR
    if score <= share and (at_chance or score < share):
        return f"{percent(score)} right, and always answering {_name(labels, row)!r} gives {percent(share)}"
    if at_chance:
        return f"{percent(score)} right, no better than guessing one of {len(counts.rows)} classes"
    shuffled = _shuffled(counts) / samples
    if shuffled > score + SHUFFLED and min(total for _, _, total in counts.rows) >= EACH:
        return (
            f"{percent(score)} right, and in another order of its rows it would have {percent(shuffled)}: it "
            "takes each class for one other"
        )
    return ""


def _shuffled(counts: ClassCounts) -> int:
    """Return how many samples would be right if each class had the row that it is mostly taken for, each another."""
    answers: dict[int, dict[int, int]] = {row: {row: right} for row, right, _ in counts.rows}
    for truth, predicted, number in counts.confused:
        answers.setdefault(truth, {})[predicted] = number
    pairs = sorted(((n, row, to) for row, to_counts in answers.items() for to, n in to_counts.items()), reverse=True)
    rows, taken, right = set[int](), set[int](), 0
    for number, row, to in pairs:
        if row not in rows and to not in taken:
            rows.add(row)
            taken.add(to)
            right += number
    return right


def one_answer(values: Mapping[str, float], counts: ClassCounts | None, labels: Sequence[str], domain: str) -> str:
    """Say that a score is no better than that of one answer always; nothing where it is, or classes are even."""
    score, balanced = values.get(f"{domain}{ACCURACY}"), values.get(f"{domain}{BALANCED}")
    if score is None or balanced is None or counts is None or not counts.rows:
        return ""
    row, share = _largest(counts)
    if score > share:
        return ""
    even = f"the mean over classes, its balanced accuracy, is {percent(balanced)}"
    if score == share:
        return f"{percent(share)} is what answering {_name(labels, row)!r} always gives; {even}"
    return f"{percent(score)} is less than the {percent(share)} of answering {_name(labels, row)!r} always; {even}"


def one_answers(run: Run, trials: Sequence[int]) -> list[str]:
    """Return a line for each trial that is no better than one answer always."""
    lines = []
    for record in map(run.record, dict.fromkeys(trials)):
        lines += [f"trial {record.trial}, {domain}: {text}" for domain, text in _domains(run, record) if text]
    return lines


def _domains(run: Run, record: TrialRecord) -> list[tuple[str, str]]:
    labels = run.info.classes.labels
    return [(domain, one_answer(record.values, counts, labels, domain)) for domain, counts in record.classes.items()]


def _largest(counts: ClassCounts) -> tuple[int, float]:
    """Return the row of the most frequent class, and its share."""
    row, _, most = max(counts.rows, key=lambda one: one[2])
    return row, most / sum(total for _, _, total in counts.rows)


def _name(labels: Sequence[str], row: int) -> str:
    return labels[row] if row < len(labels) else f"class {row}"
