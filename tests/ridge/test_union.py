"""The union head: given head, local head and gate in one linear layer, whose probabilities are honest."""

import numpy as np
import pytest

from tuner.arrays import Array, Doubles, Labels
from tuner.errors import TrainingError
from tuner.ridge.calibrate import mixture
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import coded, step_of
from tuner.ridge.union import Domain, UnionSettings, regression_head, union_head
from tuner.targets import MultiLabel, Regression

OLD, NEW, FEATURES = 4, 3, 16
OUTPUTS = OLD + NEW
CENTRES = np.random.default_rng(5).normal(0, 1.2, (OUTPUTS, FEATURES))


def drawn(seed: int, classes: range, each: int, shift: float = 0.0) -> tuple[Array, Labels]:
    """Return samples around the centres of some classes; `shift` moves all of them along one feature."""
    draw, labels = np.random.default_rng(seed), np.repeat(np.array(classes), each)
    features = CENTRES[labels] + draw.normal(0, 1, (len(labels), FEATURES))
    features[:, -1] += shift
    return features.astype(np.float32), labels


def given() -> LinearHead:
    """Return a head that knows the old classes by their centres."""
    weight, bias = np.zeros((OUTPUTS, FEATURES)), np.zeros(OUTPUTS)
    weight[:OLD], bias[:OLD] = CENTRES[:OLD], 60 - 0.5 * (CENTRES[:OLD] ** 2).sum(axis=1)
    return LinearHead(weight, bias)


def domain(samples: tuple[Array, Labels], step: float) -> Domain:
    features, labels = samples
    return Domain.empty(FEATURES, OUTPUTS, step).added(coded(features, step), labels)


def both(shift: float = 0.0) -> tuple[Domain, Domain]:
    local, known = drawn(1, range(OLD, OUTPUTS), 30, shift), drawn(2, range(OLD), 20)
    step = step_of(np.concatenate([local[0], known[0]]))
    return domain(local, step), domain(known, step)


def accuracy(head: LinearHead, samples: tuple[Array, Labels]) -> float:
    return float((head.scores(samples[0]).argmax(axis=1) == samples[1]).mean())


def likelihood(logits: Doubles, labels: Labels) -> float:
    logits = logits - logits.max(axis=1, keepdims=True)
    return float((logits[np.arange(len(labels)), labels] - np.log(np.exp(logits).sum(axis=1))).mean())


SETTINGS = (
    UnionSettings(ridge=10),
    UnionSettings(ridge=10, gate="hard"),
    UnionSettings(scores="means"),
    UnionSettings(ridge=10, scores="discriminant", local_weight=3.0),
    UnionSettings(ridge=10, scores="joint", gate="none"),
)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("shift", [0.0, 6.0], ids=["alike", "apart"])
def test_it_learns_the_local_classes_and_keeps_the_old_ones(settings: UnionSettings, shift: float) -> None:
    head = union_head(given(), *both(shift), settings).head
    old, new = drawn(4, range(OLD), 100), drawn(3, range(OLD, OUTPUTS), 100, shift)
    untouched = accuracy(given(), old)
    assert untouched > 0.9
    assert accuracy(given(), new) == 0
    lost = 0.04 if shift else 0.15  # where the domains look alike, a few samples look like both
    assert accuracy(head, old) > untouched - lost
    assert accuracy(head, new) > 0.85


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_sample_is_left_out_as_if_the_head_were_solved_without_it(settings: UnionSettings) -> None:
    local, known = both()
    left_out = union_head(given(), local, known, settings).left_out
    assert left_out.shape == (len(local), OUTPUTS)
    for row in range(0, len(local), 11):
        head = union_head(given(), local.without(np.array([row])), known, settings).head
        anew = head.scores(local.features[row : row + 1])[0]
        assert left_out[row].argmax() == anew.argmax()
        if (settings.scores, settings.gate) == ("ridge", "soft"):  # of others, one sample changes s or the means more
            np.testing.assert_allclose(left_out[row], anew, rtol=0.1, atol=0.3)
    seen = union_head(given(), local, known, settings).head.scores(local.features)
    assert likelihood(left_out, local.labels) < likelihood(seen, local.labels), (
        "a head is sure of what it was solved on"
    )


@pytest.mark.parametrize("has_known", [False, True])
def test_numbers_are_left_out_too(has_known: bool) -> None:
    (samples, _), (others, _) = drawn(1, range(OLD, OUTPUTS), 30), drawn(2, range(OLD), 20 if has_known else 0)
    targets = samples @ np.ones((FEATURES, 2)) + np.random.default_rng(0).normal(0, 1, (len(samples), 2))
    step, head = step_of(samples), LinearHead(np.zeros((2, FEATURES)), np.zeros(2))
    empty = Domain.empty(FEATURES, 2, step, Regression())
    local = empty.added(coded(samples, step), targets)
    known = empty.added(coded(others, step), np.zeros((len(others), 2)))
    left_out = regression_head(head, local, known, 3.0)[1]
    for row in (0, 40, 89):
        anew = regression_head(head, local.without(np.array([row])), known, 3.0)[0]
        np.testing.assert_allclose(left_out[row], anew.scores(local.features[[row]])[0], rtol=0.02, atol=0.02)


def temperature(logits: Array, labels: Array) -> float:
    (inverse,) = mixture(logits[None], np.zeros(1), labels, np.ones(len(labels)), np.ones(1))
    return float(1 / inverse)


def test_its_probabilities_are_about_as_often_right() -> None:
    local, known = both()
    head = union_head(given(), local, known, UnionSettings(ridge=10)).head
    new, old = drawn(3, range(OLD, OUTPUTS), 100), drawn(4, range(OLD), 75)
    features, labels = np.concatenate([new[0], old[0]]), np.concatenate([new[1], old[1]])
    logits = head.scores(features)
    assert 0.6 < temperature(logits, labels) < 1.7
    assert likelihood(logits, labels) > max(likelihood(logits * 3, labels), likelihood(logits / 3, labels))


def test_of_no_data_that_the_model_knows_there_is_no_gate() -> None:
    local, known = both()
    empty = Domain.empty(FEATURES, OUTPUTS, local.step)
    solved = union_head(given(), local, empty, UnionSettings(ridge=10))
    assert solved.numbers[2] == 0
    assert accuracy(solved.head, drawn(3, range(OLD, OUTPUTS), 100)) > 0.85
    without = union_head(given(), local, known, UnionSettings(ridge=10, gate="none"))
    assert without.numbers[2] == 0 != without.numbers[3]


def test_a_local_class_that_the_model_knows_keeps_the_given_row_and_gains() -> None:
    """The user's samples of the first two classes look otherwise than those that the given head was made for."""
    samples, others = drawn(1, range(2), 30, shift=-9.0), drawn(3, range(2), 100, shift=-9.0)
    local = domain(samples, step_of(samples[0]))
    solved = union_head(given(), local, domain(drawn(2, range(2, OLD), 20), local.step), UnionSettings(ridge=10))
    t = solved.numbers[0]
    np.testing.assert_allclose(solved.head.weight[2:], t * given().weight[2:])
    assert accuracy(solved.head, others) > accuracy(given(), others) + 0.1


def test_settings_are_checked() -> None:
    assert UnionSettings.of({"ridge": 3.0, "gate": "hard"}) == UnionSettings(ridge=3.0, gate="hard")
    for wrong, message in (
        ({"rigde": 3.0}, "no setting 'rigde'"),
        ({"ridge": 0.0}, "above 0"),
        ({"gate": "open"}, "must be one of"),
    ):
        with pytest.raises(TrainingError, match=message):
            UnionSettings.of(wrong)
    local, known = both()
    with pytest.raises(TrainingError, match="needs local samples"):
        union_head(given(), local.without(np.arange(len(local))), known, SETTINGS[0])


def test_a_mixture_finds_the_numbers_that_made_the_labels() -> None:
    draw = np.random.default_rng(0)
    parts = draw.normal(0, 1, (2, 4000, 5)) * np.array([1.0, 100.0])[:, None, None]
    logits = 2.0 * parts[0] + 0.01 * parts[1]
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (chances.cumsum(axis=1) > draw.random((4000, 1))).argmax(axis=1)
    found = mixture(parts, np.zeros(5), labels, np.ones(4000), np.array([1.0, 0.0]))
    np.testing.assert_allclose(found, [2.0, 0.01], rtol=0.1)
    assert temperature(3 * logits, labels) == pytest.approx(3.0, rel=0.1)


def test_of_several_labels_each_is_as_sure_as_it_is_right() -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(900, FEATURES)).astype(np.float32)
    truth = (features[:, :OUTPUTS] + generator.normal(0, 0.5, (900, OUTPUTS)) > 0.8).astype(float)
    local, held = slice(0, 400), slice(700, 900)
    features[local, -1] += 6
    features[held, -1] += 6
    step = step_of(features)
    truth[local, :OLD], truth[400:700, OLD:] = 0, 0  # what either domain does not have
    empty, codes = Domain.empty(FEATURES, OUTPUTS, step, MultiLabel()), coded(features, step)
    own, known = empty.added(codes[local], truth[local]), empty.added(codes[400:700], truth[400:700])
    weight = 3 * np.eye(OUTPUTS, FEATURES)
    weight[OLD:] = 0
    for settings in (UnionSettings(ridge=1), UnionSettings(scores="means")):
        head = union_head(LinearHead(weight, np.zeros(OUTPUTS)), own, known, settings).head
        probabilities = 1 / (1 + np.exp(-head.scores(features[held])))[:, OLD:]
        assert ((probabilities > 0.5) == (truth[held, OLD:] > 0)).mean() > 0.85
        assert abs(probabilities.mean() - truth[held, OLD:].mean()) < 0.05
    fewer = own.without(np.arange(100))
    again = empty.added(codes[100:400], truth[100:400])
    assert fewer.sums().gram.tobytes() == again.sums().gram.tobytes()
    np.testing.assert_array_equal(fewer.labels, again.labels)


def test_features_that_tell_nothing_are_not_praised() -> None:
    codes, labels = np.ones((10, 8), np.int16), np.repeat([0, 1], 5)
    codes[:, 0] += np.arange(10) % 5 == 0
    known = Domain.empty(8, 2, 0.01)
    nothing = LinearHead(np.zeros((2, 8)), np.zeros(2))
    union = union_head(nothing, Domain(codes, labels, 2, 0.01), known, UnionSettings(ridge=1e4, gate="none"))
    assert (union.left_out.argmax(axis=1) == labels).mean() <= 0.5
