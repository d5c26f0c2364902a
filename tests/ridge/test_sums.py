"""Sums of codes: exact, in any order, and back again."""

import numpy as np
import pytest

from tuner.arrays import Array, Labels
from tuner.errors import TrainingError
from tuner.ridge import choice, sums
from tuner.ridge.choice import Spectrum
from tuner.ridge.discriminant import Discriminant
from tuner.ridge.solve import LinearHead, class_means, left_out, solve, spread
from tuner.ridge.sums import LARGEST_CODE, MOST_FEATURES, Sums, coded, pooled, step_of
from tuner.ridge.union import Domain
from tuner.targets.strata import log_prior, one_hot, row_weights

RIDGE = 7.0


@pytest.fixture(scope="module")
def samples() -> tuple[Array, Labels]:
    """Return float32 [120, 12] and int64 [120] of four classes."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 4, 120)
    features = draw.normal(0.5, 1.0, (120, 12)).astype(np.float32)
    features[:, 0] += labels
    return features, labels


def domain(features: Array, labels: Labels, step: float) -> Domain:
    return Domain.empty(features.shape[1], 4, step).added(coded(features, step), labels)


def fisher(features: Array, labels: Labels, weights: Array, mean: Array) -> LinearHead:
    """Return the discriminant as its definition has it, of features less a mean."""
    spread_within, means = RIDGE * np.eye(features.shape[1]), np.zeros((4, features.shape[1]))
    for label in np.unique(labels):
        rows = labels == label
        means[label] = np.average(features[rows], axis=0, weights=weights[rows]) - mean
        apart = features[rows] - mean - means[label]
        spread_within += (apart.T * weights[rows]) @ apart
    weight = np.linalg.solve(spread_within, means.T).T.astype(np.float64)
    return LinearHead(weight, -(weight * means).sum(axis=1) / 2 - weight @ mean)


def test_a_removed_sample_leaves_no_bit(samples: tuple[Array, Labels]) -> None:
    features, labels = samples
    step, gone = step_of(features), np.array([3, 50, 119])
    never = domain(np.delete(features, gone, 0), np.delete(labels, gone), step)
    after = domain(features, labels, step).without(gone)
    for name in ("gram", "cross"):
        assert getattr(after.sums(), name).tobytes() == getattr(never.sums(), name).tobytes()
    assert after.codes.tobytes() == never.codes.tobytes()
    one, other = solve(after.sums(), RIDGE), solve(never.sums(), RIDGE)
    assert one.head.weight.tobytes() == other.head.weight.tobytes()


def test_no_order_and_no_partition_of_the_samples_matters(samples: tuple[Array, Labels]) -> None:
    features, labels = samples
    step, order = step_of(features), np.random.default_rng(1).permutation(120)
    whole, parts = domain(features, labels, step), Domain.empty(12, 4, step)
    for rows in np.array_split(order, 7):
        parts = parts.added(coded(features[rows], step), labels[rows])
    assert (whole.sums().gram == parts.sums().gram).all()
    assert (whole.sums().cross == parts.sums().cross).all()


def test_the_head_is_that_of_the_normal_equations(samples: tuple[Array, Labels]) -> None:
    features, labels = samples
    summed = domain(features, labels, step_of(features))
    x, t, weights = summed.features, one_hot(labels, 4), summed.weights
    assert np.abs(x - features).max() <= summed.step / 2
    penalty = np.diag([RIDGE] * 12 + [0.0])
    rows = np.column_stack([x, np.ones(120)])
    direct = np.linalg.solve((rows.T * weights) @ rows + penalty, (rows.T * weights) @ t)
    head = solve(summed.sums(), RIDGE).head
    np.testing.assert_allclose(np.column_stack([head.weight, head.bias]), direct.T, atol=1e-10)


def test_the_recursive_update_is_the_batch_solution(samples: tuple[Array, Labels]) -> None:
    """A head that stands for the samples before, with their sums as its weight, gives the head of all samples."""
    features, labels = samples
    step = step_of(features)
    empty, codes, targets = Sums.empty(12, 4, step), coded(features, step), one_hot(labels, 4)
    first, rest = (empty.added(codes[rows], targets[rows]) for rows in (slice(70), slice(70, None)))
    batch = solve(empty.added(codes, targets), RIDGE).head
    updated = solve(first + rest, RIDGE).head
    assert updated.weight.tobytes() == batch.weight.tobytes()
    given = LinearHead(np.full((4, 12), 0.25), np.zeros(4))
    strong = solve(rest, 1e9, given).head
    np.testing.assert_allclose(strong.weight, given.weight, atol=1e-5)


def test_leaving_out_is_what_solving_without_the_sample_gives(samples: tuple[Array, Labels]) -> None:
    features, labels = samples
    labels = np.where(np.arange(120) < 60, labels, labels % 2)  # two classes are rarer
    summed = domain(features, labels, step_of(features))
    x, weights, targets, sums = summed.features, summed.weights, one_hot(labels, 4), summed.sums()
    solved, spectrum = solve(sums, RIDGE), Spectrum.of(x, weights)
    left = solved.left_out(x, targets, weights)
    by_spectrum = left_out(*spectrum.solved(targets, RIDGE / spread(sums)), targets, weights)
    np.testing.assert_allclose(by_spectrum, left, atol=1e-9)
    few = Spectrum.of(x[:8], weights[:8]).solved(targets[:8], 1.0)[0]  # fewer samples than features
    alone = Sums.empty(12, 4, summed.step).added(summed.codes[:8], targets[:8], weights[:8])
    np.testing.assert_allclose(few, solve(alone, spread(alone)).head.scores(x[:8]), atol=1e-9)
    scores, mean = solved.head.scores(x), weights @ x / weights.sum()
    change = Discriminant.of(scores, labels, weights)
    discriminant = change.left_out(scores, solved.leverages(x), labels, weights)
    np.testing.assert_allclose(
        change.head(solved.head).scores(x), fisher(x, labels, weights, mean).scores(x), atol=1e-9
    )
    means = class_means(sums).left_out(x, labels, weights)
    for row in (0, 77):
        kept = np.arange(120) != row
        without = Sums.empty(12, 4, summed.step).added(summed.codes[kept], targets[kept], weights[kept])
        np.testing.assert_allclose(left[row], solve(without, RIDGE).head.scores(x[[row]])[0])
        expected = fisher(x[kept], labels[kept], weights[kept], mean).scores(x[[row]])[0]
        np.testing.assert_allclose(discriminant[row], expected, atol=1e-9)
        own = (x[kept & (labels == labels[row])] - mean).sum(axis=0)
        np.testing.assert_allclose(means[row, labels[row]], own @ (x[row] - mean) / np.linalg.norm(own), atol=1e-9)


def test_weights_count_as_repeated_samples(samples: tuple[Array, Labels]) -> None:
    features, labels = samples
    summed = domain(features, labels, step_of(features)).sums()
    assert (summed.weighted(2.0).gram == (summed + summed).gram).all()
    assert spread(summed.weighted(3.0)) == pytest.approx(spread(summed))


def test_each_class_counts_alike() -> None:
    labels = np.repeat(np.arange(3), [100, 10, 40])
    weights = row_weights(labels)
    np.testing.assert_allclose(np.bincount(labels, weights), 50, rtol=0.02)
    assert (64 * weights % 1 == 0).all()
    assert row_weights(np.eye(2)).tolist() == [1, 1]  # several labels, or numbers


def test_parts_of_the_rows_and_random_sums_of_the_features_change_nothing(
    samples: tuple[Array, Labels], monkeypatch: pytest.MonkeyPatch
) -> None:
    features, labels = samples
    wide = features @ np.random.default_rng(2).normal(size=(12, 50))  # of 12 directions
    summed = domain(wide, labels, step_of(wide))

    def answers() -> list[Array]:
        taken, targets = summed.sums(), one_hot(labels, 4)
        solved, means = solve(taken, RIDGE), class_means(taken)
        return [
            solved.left_out(summed.features, targets, summed.weights),
            solved.leverages(summed.codes.astype(np.int16), summed.step),
            means.left_out(summed.features, labels, summed.weights),
            *Spectrum.of(summed.features, summed.weights).solved(targets, RIDGE),
        ]

    whole = answers()
    monkeypatch.setattr(sums, "ROWS", 50)
    monkeypatch.setattr(choice, "MOST_DIRECTIONS", 20)
    for one, other in zip(answers(), whole, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_class_means_are_nearest_by_cosine(samples: tuple[Array, Labels]) -> None:
    features, labels = samples
    summed = domain(features, labels, step_of(features))
    x = summed.features - np.average(summed.features, axis=0, weights=summed.weights)
    means = np.stack([x[labels == label].mean(axis=0) for label in range(4)])
    cosine = (x / np.linalg.norm(x, axis=1, keepdims=True)) @ (means / np.linalg.norm(means, axis=1, keepdims=True)).T
    scores = class_means(summed.sums()).head.scores(summed.features)
    assert (scores.argmax(axis=1) == cosine.argmax(axis=1)).all()


def test_codes_are_bounded_and_finite() -> None:
    assert coded(np.array([[1e9, -1e9, 0.3]]), 0.25).tolist() == [[LARGEST_CODE, -LARGEST_CODE, 1.0]]
    assert step_of(np.zeros((2, 3))) == 1.0
    with pytest.raises(TrainingError, match="finite features"):
        coded(np.array([[np.nan]]), 1.0)
    with pytest.raises(TrainingError, match=f"at most {MOST_FEATURES} features, got {MOST_FEATURES + 1}"):
        coded(np.zeros((1, MOST_FEATURES + 1)), 1.0)
    with pytest.raises(TrainingError, match="of one step"):
        Sums.empty(2, 2, 0.5) + Sums.empty(2, 2, 0.25)


def test_pooling_is_that_of_cells() -> None:
    maps = np.arange(2 * 3 * 5 * 4, dtype=np.float32).reshape(2, 3, 5, 4)
    np.testing.assert_allclose(pooled(maps), maps.mean(axis=(2, 3)))
    cells = pooled(maps, 2).reshape(2, 3, 2, 2)
    np.testing.assert_allclose(cells[:, :, 0, 1], maps[:, :, :3, 2:].mean(axis=(2, 3)))
    assert pooled(maps, 9).shape == (2, 3 * 5 * 4)
    assert pooled(maps[:, :, 0, 0]).shape == (2, 3)


def test_a_prior_is_of_the_shares() -> None:
    assert np.exp(log_prior(np.ones(8, np.int64), 2)) == pytest.approx([0.1, 0.9])
