"""What every selector obeys."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from tuner.arrays import Floats
from tuner.backends.selecting import Candidates, Selector, SelectorError, choose
from tuner_testing.models.settings import Reading, require_read

#: Candidates by class, and how many of them are chosen: some, all, and one of one.
CLASSES = {0: (40, 10), 3: (7, 7), 4: (1, 1), 9: (25, 1)}


class DataContract:
    """What every selector obeys.

    Attributes:
        selector: The one under test.
        settings: Settings of the data edit.
    """

    selector: ClassVar[Selector]
    settings: ClassVar[Mapping[str, Any]] = {}

    @pytest.mark.parametrize("channels", [1, 64])
    def test_it_chooses_as_many_of_each_class_as_asked_for(self, channels: int) -> None:
        """Row numbers of candidates, each once, exactly `counts` of every class."""
        self._chosen(_candidates(_drawn(channels)))

    def test_samples_that_are_all_alike_are_chosen_once_each(self) -> None:
        """Equal features, or none but zeros, are no reason to choose a sample twice or to divide by zero."""
        for value in (0.0, 1.0):
            with np.errstate(all="raise"):
                self._chosen(_candidates(np.full_like(_drawn(8), value)))

    def test_the_same_candidates_give_the_same_choice(self) -> None:
        """A trial that continues, and an export, use the samples that the trial began with."""
        first, second = (self._chosen(_candidates(_drawn(16))) for _ in range(2))
        if not np.array_equal(first, second):
            pytest.fail("a selector must choose the same of the same candidates: draw at random by candidates.seed")

    def test_the_candidates_stay_as_they_are(self) -> None:
        """Features and labels are read, not changed in place."""
        candidates = _candidates(_drawn(16))
        before = [value.copy() for value in (candidates.features, candidates.labels, candidates.local_features)]
        self._chosen(candidates)
        after = (candidates.features, candidates.labels, candidates.local_features)
        if not all(np.array_equal(one, other) for one, other in zip(before, after, strict=True)):
            pytest.fail("a selector must leave the candidates' features and labels as they are: change a copy")

    def test_every_setting_is_read(self) -> None:
        """Settings tell two plans apart: what they say must happen."""
        read = set[str]()
        self._chosen(_candidates(_drawn(8)), Reading(self.settings, read))
        require_read("a selector", set(self.settings), read)

    def _chosen(
        self, candidates: Candidates, settings: Mapping[str, Any] | None = None
    ) -> np.ndarray[Any, np.dtype[np.int64]]:
        try:
            return choose("under test", type(self).selector, candidates, settings or dict(self.settings))
        except SelectorError as error:
            pytest.fail(str(error))


def _drawn(channels: int) -> Floats:
    total = sum(of for of, _ in CLASSES.values())
    return np.random.default_rng(0).normal(size=(total, channels)).astype(np.float32)


def _candidates(features: Floats) -> Candidates:
    labels = np.repeat(np.array(list(CLASSES), np.int64), [of for of, _ in CLASSES.values()])
    order = np.random.default_rng(1).permutation(len(labels))
    return Candidates(
        labels=labels[order],
        counts={label: count for label, (_, count) in CLASSES.items()},
        local_labels=np.array([0, 0, 9, 5], np.int64),
        seed=0,
        read=features.copy,
        read_local=features[:4].copy,
    )
