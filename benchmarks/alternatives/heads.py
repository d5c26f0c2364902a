"""Heads on frozen features, as a user with scikit-learn and numpy would fit them: an arm of `benchmarks.alternatives`.

Each takes features, float [n, features], and labels, int64 [n], from 0 to `classes` − 1, and returns what scores other
features, [n, classes]. What can be chosen is chosen on the training samples: C by folds, λ by leave-one-out. With
`balanced` every class counts alike, however many samples it has: for the user's classes beside many old ones.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from sklearn.covariance import ledoit_wolf
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
from sklearn.model_selection import StratifiedKFold
from torch import nn
from torch.nn import functional

from tuner.arrays import Array, Doubles, Floats, Labels

Scores = Callable[[Array], Array]
#: Values of C that folds choose from, on features whose mean deviation is 1.
INVERSE_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
#: Folds that choose C.
FOLDS = 5
#: Most classes with which every fold is fitted; with more, one fold is.
FEW_CLASSES = 50
#: Steps of the logistic regression.
STEPS = 300
#: Values of λ that leave-one-out chooses from, each in mean variances of a feature, as many as there are samples.
PENALTIES = tuple(10.0**power for power in np.arange(2, -4.01, -0.5))
#: Random projections.
PROJECTIONS = 4000
#: Epochs of the dense layer.
EPOCHS = 50
#: Samples of a step of the dense layer.
BATCH = 32
#: Learning rate of the dense layer: Adam's usual.
RATE = 1e-3


class Fit(Protocol):
    """Fits a head."""

    def __call__(self, x: Array, y: Labels, classes: int, *, balanced: bool, seed: int) -> Scores:
        """Return what scores features."""
        ...


def class_weights(y: Labels, classes: int, *, balanced: bool) -> Doubles:
    """Return the weight of each sample, with a mean of 1."""
    counts = np.bincount(y, minlength=classes)
    weights = 1 / counts[y] if balanced else np.ones(len(y))
    result: Doubles = weights * len(y) / weights.sum()
    return result


def standardised(x: Array, *, each: bool = True) -> Callable[[Array], Floats]:
    """Return what gives features a deviation of 1: each by itself, or all by the mean of their deviations."""
    mean, deviation = x.mean(0), x.std(0) + 1e-6
    divisor = deviation if each else deviation.mean()
    return lambda rows: ((rows - mean) / divisor).astype(np.float32)


def logistic(x: Array, y: Labels, classes: int, *, balanced: bool, seed: int) -> Scores:
    """Return scikit-learn's logistic regression; folds choose C, and whether each feature is standardised by itself."""
    scales = [standardised(x, each=each) for each in (False, True)]

    def fitted(rows: Array, scale: Callable[[Array], Floats], penalty: float) -> Any:
        weight = "balanced" if balanced else None
        model = LogisticRegression(C=penalty, class_weight=weight, max_iter=STEPS, tol=1e-3)
        return model.fit(scale(x[rows]), y[rows])

    folds = list(StratifiedKFold(_folds(y), shuffle=True, random_state=seed).split(x, y))
    used = folds if classes <= FEW_CLASSES else folds[:1]
    candidates = [(scale, penalty) for scale in scales for penalty in INVERSE_PENALTIES]
    right = [
        sum(int((fitted(train, *candidate).predict(candidate[0](x[rest])) == y[rest]).sum()) for train, rest in used)
        for candidate in candidates
    ]
    best = candidates[int(np.argmax(right))]
    chosen = fitted(np.arange(len(y)), *best)

    def scores(rows: Array) -> Array:
        answer = np.full((len(rows), classes), -np.inf)
        answer[:, chosen.classes_] = chosen.predict_log_proba(best[0](rows))
        return answer

    return scores


def _folds(y: Labels) -> int:
    counts = np.bincount(y)
    return int(max(2, min(FOLDS, counts[counts > 0].min())))


def ridge(x: Array, y: Labels, classes: int, *, balanced: bool, seed: int = 0) -> Scores:  # noqa: ARG001 - a `Fit`
    """Return scikit-learn's ridge classifier; λ has the best leave-one-out answers, and of several the largest does."""
    rows = x.astype(np.float64)
    alphas = [factor * rows.var(0).mean() * len(y) for factor in PENALTIES]
    weight, scoring = ("balanced", "balanced_accuracy") if balanced else (None, "accuracy")
    model = RidgeClassifierCV(alphas, scoring=scoring, class_weight=weight).fit(rows, y)

    def scores(others: Array) -> Array:
        answer, found = np.full((len(others), classes), -np.inf), model.decision_function(others.astype(np.float64))
        answer[:, model.classes_] = found if found.ndim > 1 else np.stack([-found, found], axis=1)
        return answer

    return scores


def lda(x: Array, y: Labels, classes: int, *, balanced: bool, seed: int) -> Scores:  # noqa: ARG001 - a `Fit`
    """Return linear discriminant analysis: one covariance, shrunk after Ledoit and Wolf, and equal priors."""
    rows, occurring = x.astype(np.float64), np.unique(y)
    means = np.zeros((classes, rows.shape[1]))
    means[occurring] = [rows[y == label].mean(0) for label in occurring]
    covariance = ledoit_wolf(rows - means[y], assume_centered=True)[0]
    weight = np.linalg.solve(covariance + 1e-9 * np.eye(len(covariance)), means.T)
    offset = np.full(classes, -np.inf)
    offset[occurring] = -0.5 * (means.T * weight).sum(0)[occurring]
    return lambda others: others.astype(np.float64) @ weight + offset


def ranpac(x: Array, y: Labels, classes: int, *, balanced: bool, seed: int) -> Scores:
    """Return ridge regression on random projections after a ReLU.

    Source: RanPAC (McDonnell et al., 2023).
    """
    projection = np.random.default_rng(seed).standard_normal((x.shape[1], PROJECTIONS)).astype(np.float32)

    def projected(rows: Array) -> Floats:
        result: Floats = np.maximum(rows.astype(np.float32) @ projection, 0)
        return result

    head = ridge(projected(x), y, classes, balanced=balanced)
    return lambda rows: head(projected(rows))


def class_means(x: Array, y: Labels, classes: int, *, balanced: bool, seed: int) -> Scores:  # noqa: ARG001 - a `Fit`
    """Return the nearest class mean, of features that are centred and of length 1.

    Source: SimpleShot (Wang et al., 2019).
    """
    centre = x.mean(0)

    def unit(rows: Array) -> Doubles:
        shifted = rows.astype(np.float64) - centre
        result: Doubles = shifted / (np.linalg.norm(shifted, axis=1, keepdims=True) + 1e-12)
        return result

    rows, means = unit(x), np.full((classes, x.shape[1]), np.inf)
    for label in np.unique(y):
        means[label] = rows[y == label].mean(0)
    return lambda others: -np.stack([((unit(others) - mean) ** 2).sum(1) for mean in means], axis=1)


def dense_layer(x: Array, y: Labels, classes: int, *, balanced: bool, seed: int) -> tuple[Floats, Floats]:
    """Return weight [classes, features] and bias [classes] of a linear layer after fifty epochs of Adam."""
    torch.manual_seed(seed)
    mean, deviation = x.mean(0), x.std(0) + 1e-6
    layer = nn.Linear(x.shape[1], classes)
    inputs, labels = torch.from_numpy(((x - mean) / deviation).astype(np.float32)), torch.from_numpy(y)
    weights = torch.from_numpy(class_weights(y, classes, balanced=balanced)).float()
    optimiser = torch.optim.Adam(layer.parameters(), RATE)
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(labels)), BATCH):
            loss = functional.cross_entropy(layer(inputs[rows]), labels[rows], reduction="none") @ weights[rows]
            optimiser.zero_grad()
            (loss / len(rows)).backward()  # type: ignore[no-untyped-call]  # torch has no types here
            optimiser.step()
    weight = layer.weight.detach().numpy() / deviation
    return weight.astype(np.float32), (layer.bias.detach().numpy() - weight @ mean).astype(np.float32)


def dense(x: Array, y: Labels, classes: int, *, balanced: bool, seed: int) -> Scores:
    """Return the scores of `dense_layer`."""
    weight, bias = dense_layer(x, y, classes, balanced=balanced, seed=seed)
    return lambda rows: rows @ weight.T + bias


HEADS: Mapping[str, Fit] = {
    "logistic": logistic,
    "ridge": ridge,
    "lda": lda,
    "ranpac": ranpac,
    "class means": class_means,
    "dense layer, 50 epochs": dense,
}
