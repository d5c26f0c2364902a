"""What happens to each class: learnt, forgotten, and taken for another; as bars, and as a matrix."""

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.metrics import wilson
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner_report.charts.drawing import BLUE, GREEN, GRID, INK, MUTED, ORANGE, Picture, drawing, to_svg

#: As many classes are shown one by one, and as many letters of a name.
MOST_CLASSES, LETTERS = 14, 18
#: Classes up to which the confusion matrix is drawn, and the share from which a cell's text is on a dark ground.
MOST_IN_MATRIX, FULL = 12, 0.5


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


def class_pictures(run: Run, record: TrialRecord) -> list[Picture]:
    """Return the accuracy of each class of both domains before and after, and the confusions of few classes."""
    pictures = []
    titles = {"local": "The user's classes, one by one", "global": "The known classes, one by one"}
    for domain, title in titles.items():
        if scores := class_scores(run, record, domain):
            pictures.append(_changes(domain, title, scores))
    if matrix := _matrix(run, record):
        pictures.append(matrix)
    return pictures


def _changes(domain: str, title: str, scores: Sequence[ClassScore]) -> Picture:
    shown = sorted(scores, key=lambda score: (score.change if domain == "global" else score.after, score.name))
    shown = shown[:MOST_CLASSES][::-1]
    with drawing(height=1.0 + 0.24 * len(shown)) as (figure, axes):
        for place, score in enumerate(shown):
            low, high = score.interval
            axes.plot([100 * low, 100 * high], [place, place], color=BLUE, linewidth=1, alpha=0.5)
            if score.before is not None:
                lost = score.change < 0
                ends = [100 * score.before, 100 * score.after]
                axes.plot(ends, [place, place], color=ORANGE if lost else GRID, linewidth=3.2, solid_capstyle="butt")
        axes.scatter(
            [100 * score.after for score in shown],
            range(len(shown)),
            s=26,
            color=BLUE,
            zorder=4,
            label="after (95 % interval)",
        )
        before = [(100 * score.before, place) for place, score in enumerate(shown) if score.before is not None]
        if before:
            x, y = zip(*before, strict=True)
            axes.scatter(x, y, s=30, marker="|", color=GREEN, linewidths=2, zorder=5, label="untouched")
        axes.set_yticks(range(len(shown)), [f"{short(score.name)} ({score.samples})" for score in shown])
        axes.tick_params(axis="y", labelcolor=INK)
        axes.set_xlim(-3, 103)
        axes.set_xlabel("accuracy (%)")
        axes.grid(visible=False, axis="y")
        figure.legend(loc="outside lower center", ncols=2, labelcolor=MUTED)
        name = f"classes-{domain}"
        text = "; ".join(map(_in_words, reversed(shown)))
        return Picture(name, title, text, to_svg(figure, name, title, text), _summary(domain, scores, len(shown)))


def _in_words(score: ClassScore) -> str:
    before = "" if score.before is None else f"{100 * score.before:.0f} to "
    return f"{score.name}: {before}{100 * score.after:.0f} %"


def _summary(domain: str, scores: Sequence[ClassScore], shown: int) -> str:
    """Say which of many classes are shown, and what became of all of them."""
    parts = ["In brackets: validation samples of the class."]
    if shown < len(scores):
        worst = "that lost most" if domain == "global" else "with the lowest accuracy"
        parts.append(f"Shown are the {shown} of {len(scores)} classes {worst}.")
    if domain == "global" and all(score.before is not None for score in scores):
        lost = sum(score.change < 0 for score in scores)
        won = sum(score.change > 0 for score in scores)
        parts.append(
            f"Of {len(scores)} classes {lost} lost accuracy, {won} gained and {len(scores) - lost - won} kept it."
        )
    return " ".join(parts)


def _matrix(run: Run, record: TrialRecord) -> Picture | None:
    """Return the matrix of the local classes, with a last column for all others; None of too many classes, or one."""
    counts = record.classes.get("local")
    if counts is None or not 1 < len(counts.rows) <= MOST_IN_MATRIX:
        return None
    rows = [row for row, _, _ in counts.rows]
    totals = {row: total for row, _, total in counts.rows}
    cells = {(row, row): right for row, right, _ in counts.rows}
    for row, other, number in counts.confused:
        cells[row, other if other in totals else -1] = cells.get((row, other if other in totals else -1), 0) + number
    has_others = any(other == -1 for _, other in cells)
    columns = [*rows, *([-1] if has_others else [])]
    name, title = "confusion", "What is taken for what"
    from matplotlib.patches import Rectangle

    with drawing(height=0.95 + 0.3 * len(rows)) as (figure, axes):
        for y, row in enumerate(rows):
            for x, other in enumerate(columns):
                number = cells.get((row, other), 0)
                share = number / totals[row] if row in totals else 0.0
                colour = BLUE if row == other else ORANGE
                axes.add_patch(
                    Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=colour, alpha=0.08 + 0.72 * share, lw=0)
                )
                if number:
                    axes.text(x, y, str(number), ha="center", va="center", color=INK, fontsize=8)
        names = ["others" if column == -1 else short(class_name(run, column), 9) for column in columns]
        axes.set_xticks(range(len(columns)), names, rotation=40, ha="left", rotation_mode="anchor")
        axes.xaxis.tick_top()
        axes.set_yticks(range(len(rows)), [short(class_name(run, row)) for row in rows])
        axes.tick_params(labelcolor=INK)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        wrong = [
            f"{class_name(run, row)} taken for {class_name(run, other)}: {number} of {totals.get(row, number)}"
            for row, other, number in counts.confused
        ]
        text = f"Rows are classes, columns predictions. {'; '.join(wrong) or 'No sample is taken for another class'}."
        caption = "Rows: the user's class of a validation sample. Columns: what the best trial takes it for."
        return Picture(name, title, text, to_svg(figure, name, title, text), caption)


def short(name: str, letters: int = LETTERS) -> str:
    """Return a name cut to a number of letters; a dollar sign would begin a formula."""
    cut = name if len(name) <= letters else f"{name[: letters - 1]}…"
    return cut.replace("$", r"\$")
