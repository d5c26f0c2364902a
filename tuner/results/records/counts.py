"""How many samples of each class were predicted right, and what the others were taken for: counts, and no sample."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: As many kinds of confusion as are kept, the most frequent ones: all of them up to ten classes.
MOST_CONFUSED = 100


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """Predictions on one domain's validation samples, counted.

    Attributes:
        rows: Of each class that occurs: its row of the union head, samples that were right, samples in all; by row.
        confused: Row of the class, row that was predicted instead, number of samples; the most frequent ones first.
    """

    rows: tuple[tuple[int, int, int], ...] = ()
    confused: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def of(cls, predicted: npt.NDArray[np.integer], labels: npt.NDArray[np.integer]) -> "ClassCounts":
        """Count predictions: rows that were predicted, [n], and rows of the classes, [n]."""
        right = predicted == labels
        rows, totals = np.unique(labels, return_counts=True)
        hits = [int(right[labels == row].sum()) for row in rows]
        wrong = np.stack([labels[~right], predicted[~right]])  # [2, wrong]
        pairs, numbers = np.unique(wrong, axis=1, return_counts=True)
        order = np.argsort(-numbers, kind="stable")[:MOST_CONFUSED]
        return cls(
            tuple(zip(rows.tolist(), hits, totals.tolist(), strict=True)),
            tuple((int(pairs[0, at]), int(pairs[1, at]), int(numbers[at])) for at in order),
        )

    @classmethod
    def joined(cls, counts: "Sequence[ClassCounts]") -> "ClassCounts":
        """Add up the counts of different samples."""
        rows, confused = dict[int, tuple[int, int]](), Counter[tuple[int, int]]()
        for one in counts:
            for row, right, total in one.rows:
                before = rows.get(row, (0, 0))
                rows[row] = before[0] + right, before[1] + total
            confused.update({(truth, predicted): number for truth, predicted, number in one.confused})
        most = sorted(confused.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_CONFUSED]
        return cls(tuple((row, *rows[row]) for row in sorted(rows)), tuple((*pair, number) for pair, number in most))
