"""What differs by the kind of a label: each question that several rooms ask, answered for every kind."""

import numpy as np
import pytest

from tuner.errors import TunerError
from tuner.metrics import wilson
from tuner.targets import KINDS, MultiLabel, Regression, SingleLabel, Targets

ROWS = 4
EVERY = pytest.mark.parametrize("targets", [kind() for kind in KINDS.values()], ids=KINDS)


def drawn(targets: Targets, count: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and labels."""
    generator = np.random.default_rng(0)
    return generator.normal(size=(count, ROWS)).astype(np.float32), targets.random(generator, count, ROWS)


@EVERY
def test_a_score_that_is_a_share_of_samples_has_hits_an_interval_and_a_variance(targets: Targets) -> None:
    outputs, labels = drawn(targets)
    hits, bounds = targets.hits(outputs, labels), targets.interval(0.9, 20)
    is_share = hits is not None
    assert is_share == isinstance(targets, SingleLabel)
    assert (bounds, targets.most_variance(20)) == ((wilson(0.9, 20), 0.25 / 20) if is_share else (None, 0.0))
    assert bool(targets.intervals) == is_share
    assert targets.interval(0.9, 0) is None
    assert hits is None or hits.mean() == pytest.approx(targets.score(outputs, labels))


@EVERY
def test_a_head_with_the_first_rows_alone_answers_none_of_the_others(targets: Targets) -> None:
    outputs, labels = drawn(targets)
    few, truth = targets.limited(outputs, 2), targets.first(labels, 2)
    assert np.isfinite(targets.score(few, truth))
    assert (few[:, :2] == outputs[:, :2]).all()
    assert (few[:, 2:] == -np.inf).all()  # where any are left


@pytest.mark.parametrize(
    ("targets", "refused"),
    [(SingleLabel(), set()), (MultiLabel(), {"need_one_class"}), (Regression(), {"need_classes", "need_one_class"})],
    ids=KINDS,
)
def test_what_a_command_needs_of_labels_is_refused_in_its_own_words(targets: Targets, refused: set[str]) -> None:
    for name in ("need_classes", "need_one_class"):
        if name in refused:
            with pytest.raises(TunerError, match="give classes"):
                getattr(targets, name)(TunerError("give classes"))
        else:
            getattr(targets, name)(TunerError("give classes"))


def test_the_most_frequent_class_is_one_of_several() -> None:
    assert SingleLabel().most_frequent(np.array([0, 2, 2, 2])) == 0.75
    assert SingleLabel().most_frequent(np.array([2, 2])) == 0.0
    assert MultiLabel().most_frequent(np.ones((3, 2), np.float32)) == 0.0
