"""What every selector obeys, and every change of batches."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

from tuner.arrays import Floats
from tuner.backends.batches import BatchError, BatchFunction
from tuner.backends.selecting import Candidates, Selector, SelectorError, choose
from tuner.plan.parts import DataEdit
from tuner.targets import SINGLE_LABEL, MultiLabel, Regression, Targets
from tuner_testing.models.settings import Reading, require_read

if TYPE_CHECKING:
    import torch

#: Candidates by class, and how many of them are chosen: some, all, and one of one.
CLASSES = {0: (40, 10), 3: (7, 7), 4: (1, 1), 9: (25, 1)}
#: Outputs of a changed batch.
OUTPUTS = 4
#: Largest error of a sum of probabilities.
ROUNDING = 1e-4
#: Shapes of what a tail reads: vectors, sequences, maps.
SHAPES = ((6,), (5, 6), (3, 8, 8))


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


class BatchContract:
    """What every change of batches obeys.

    Attributes:
        function: The one under test, as the plugin's ``tuner_batches`` returns it for the backend ``torch``.
        settings: Settings of the edit that names it.
    """

    function: ClassVar[BatchFunction]
    settings: ClassVar[Mapping[str, Any]] = {}

    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("targets", [SINGLE_LABEL, MultiLabel(), Regression()])
    def test_it_returns_finite_inputs_and_labels_of_the_same_shapes(
        self, targets: Targets, shape: tuple[int, ...]
    ) -> None:
        """Of any input and kind of label; one sample is a batch."""
        for count in (8, 1):
            inputs, labels = self._changed(targets, shape, count)
            if not bool(inputs.isfinite().all() and labels.isfinite().all()):
                pytest.fail("a change of batches must give finite inputs and labels, but some are not")

    @pytest.mark.parametrize("shape", SHAPES)
    def test_probabilities_still_add_up_to_one(self, shape: tuple[int, ...]) -> None:
        """Of one class a sample; one sample is a batch."""
        for count in (8, 1):
            sums = self._changed(SINGLE_LABEL, shape, count)[1].sum(1)
            worst = float(sums[(sums - 1).abs().argmax()])
            if not abs(worst - 1) <= ROUNDING:
                pytest.fail(
                    f"labels of one class a sample must stay probabilities that add up to 1, but some to {worst:.3g}: "
                    "mix labels with weights that add up to 1"
                )

    def test_the_same_generator_gives_the_same_batch(self) -> None:
        """A training that continues draws what it would have drawn."""
        import torch

        first, second = (self._changed(SINGLE_LABEL, SHAPES[-1], 8) for _ in range(2))
        if not all(map(torch.equal, first, second)):
            pytest.fail("a change of batches must draw from batch.generator alone, but two calls with one state differ")

    def test_the_given_batch_stays_as_it_is(self) -> None:
        """Inputs may be shared with what is stored."""
        import torch

        given = _batch(SINGLE_LABEL, SHAPES[-1], 8)
        before = [value.clone() for value in given]
        self._changed(SINGLE_LABEL, SHAPES[-1], 8, given)
        if not torch.equal(given[0], before[0]):
            pytest.fail("a change of batches must leave batch.inputs as they are: change a copy")

    def _changed(
        self,
        targets: Targets,
        shape: tuple[int, ...],
        count: int,
        given: "tuple[torch.Tensor, torch.Tensor] | None" = None,
    ) -> "tuple[torch.Tensor, torch.Tensor]":
        import torch

        from tuner.backends.torch.step.batches import changed_batch

        torch.manual_seed(0)
        kind, edit = type(self).function, DataEdit("under test", tuple(self.settings.items()))
        is_local = np.arange(count) % 2 == 0
        try:
            return changed_batch(
                [edit], {edit.kind: kind}, given or _batch(targets, shape, count), is_local, (targets, OUTPUTS)
            )
        except BatchError as error:
            pytest.fail(str(error))


def _batch(targets: Targets, shape: tuple[int, ...], count: int) -> "tuple[torch.Tensor, torch.Tensor]":
    import torch

    labels = torch.from_numpy(targets.random(np.random.default_rng(1), count, OUTPUTS))
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(1)), labels
