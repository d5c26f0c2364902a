"""The head in C answers as the bundle does, and after any additions and removals as the sums of what is left."""

from pathlib import Path

import numpy as np
import pytest

from tuner.arrays import Array, Doubles
from tuner.ridge.discriminant import Discriminant
from tuner.ridge.solve import LinearHead, class_means, solve, spread
from tuner.ridge.sums import Sums, coded, step_of
from tuner.ridge.union import Domain, UnionSettings, domain_scales, gate_sums, union_head
from tuner.targets.strata import one_hot
from tuner_c.export import SAMPLES, Head
from tuner_c.program import Action, compiler, program

FEATURES, LABELS = 24, 5


class Reference:
    """The same head by sums: each sample keeps what it counted when it came; penalties and scales stay."""

    def __init__(self, given: LinearHead, local: Domain, known: Domain, settings: UnionSettings) -> None:
        self._given, self._step, self._scores = given, local.step, settings.scores
        self._numbers = union_head(given, local, known, settings).numbers
        self._scale, theirs = domain_scales(local, known, settings.local_weight)
        self.samples = list(zip(local.codes, local.labels.tolist(), local.weights, strict=True))
        self._known, self._is_known = known.sums().weighted(theirs), known.sums().cross[-1] > 0
        self._gated = settings.gate != "none" and settings.scores != "joint"
        gate = gate_sums(local, known, settings.local_weight)
        self._others = gate + self._gate().weighted(-1)
        self._gate_penalty = settings.gate_ridge * spread(gate)
        self._penalty = settings.ridge * spread(self._own()[0])

    def _sums(self, targets: Array) -> Sums:
        codes, _, counts = (np.array(part) for part in zip(*self.samples, strict=True))
        return Sums.empty(FEATURES, targets.shape[1], self._step).added(codes, targets, counts)

    def _gate(self) -> Sums:
        return self._sums(np.ones((len(self.samples), 1))).weighted(self._scale)

    def _own(self) -> tuple[Sums, Array, Array]:
        codes, labels, counts = (np.array(part) for part in zip(*self.samples, strict=True))
        sums = self._sums(one_hot(labels, LABELS))
        joint = self._scores == "joint"
        return sums.weighted(self._scale) + self._known if joint else sums, codes * self._step, counts

    def _head(self) -> LinearHead:
        sums, features, counts = self._own()
        if self._scores == "means":
            return class_means(sums).head
        head = solve(sums, self._penalty).head
        labels = np.array([one[1] for one in self.samples])
        change = Discriminant.of(head.scores(features), labels, counts) if self._scores == "discriminant" else None
        return head if change is None else change.head(head)

    def add(self, codes: Doubles, label: int) -> None:
        numbers = np.bincount([*(one[1] for one in self.samples), label])
        mean = numbers.sum() / np.count_nonzero(numbers)
        self.samples.append((codes, label, max(np.rint(64 * mean / numbers[label]), 1) / 64))

    def logits(self, features: Array) -> Doubles:
        t, s, k, c = self._numbers
        labels = np.array([one[1] for one in self.samples])
        own, is_local = self._head().scores(features), np.bincount(labels, minlength=LABELS) > 0
        gate = solve(self._others + self._gate(), self._gate_penalty).head.scores(features) * self._gated
        is_scored = is_local | self._is_known if self._scores == "joint" else is_local
        result: Doubles = t * self._given.scores(features) + is_scored * s * own + is_local * (k * gate + c)
        return result


@pytest.mark.skipif(compiler() is None, reason="compiles C")
@pytest.mark.parametrize(
    ("scores", "gate"),
    [("ridge", "soft"), ("ridge", "none"), ("discriminant", "soft"), ("means", "none"), ("joint", "none")],
)
def test_it_learns_and_forgets_as_the_sums_do(scores: str, gate: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, LABELS, 150)  # the model knows 0 and 1; the user has 2 and 3, and 4 comes later
    middles = generator.uniform(0, 3, (LABELS, FEATURES))[labels]
    features = np.maximum(middles + generator.normal(0, 0.7, middles.shape), 0).astype(np.float32)
    codes, step = coded(features, step_of(features)), step_of(features)
    given = LinearHead(generator.normal(0, 0.1, (LABELS, FEATURES)), np.zeros(LABELS))
    twos, threes, later = (np.flatnonzero(labels == label) for label in (2, 3, 4))
    parts = np.concatenate([twos[5:], threes]), np.flatnonzero(labels < 2)
    local, known = (Domain(codes[rows], labels[rows], LABELS, step) for rows in parts)
    settings = UnionSettings(ridge=3.0, gate_ridge=10.0, scores=scores, gate=gate)
    reference, head = Reference(given, local, known, settings), Head(given, local, known, settings)
    head.write(tmp_path, ["no*/te", 'a "b"', "\u00fc", "??/", "e"], SAMPLES, "in *// a /* comment, ??/\n@tables@")
    first = (tmp_path / "head.h").read_text(encoding="utf-8").partition("\n")[0]
    assert first.startswith("/* in ___ a __ comment, _____tables_: a linear head")

    answers = [Action.answer(row) for row in features]
    actions, expected = [Action.init(), *answers], [reference.logits(features)]
    for row in (*later[:9], *twos[:5]):
        actions.append(Action.add(int(labels[row]), features[row]))
        reference.add(codes[row], int(labels[row]))
    expected.append(reference.logits(features))
    moved, gone = parts[0][0], later[0]
    actions += [*answers, Action.forget(3), Action.forget_sample(features[gone]), Action.add(4, features[moved])]
    actions += [*answers, Action.forget_sample(features[gone])]
    left = [(one[0] == codes[[gone, moved]]).all(axis=1).any() or one[1] == 3 for one in reference.samples]
    reference.samples = [one for one, is_left in zip(reference.samples, left, strict=True) if not is_left]
    reference.add(codes[moved], 4)
    expected.append(reference.logits(features))
    others = [
        Action.add(5, features[0]),
        Action.add(0, np.full_like(features[0], np.inf)),
        *map(Action.forget, (2, 4)),
        *answers,
    ]
    with program(tmp_path, FEATURES, LABELS) as run:
        done = run([*actions, *others])
    logits = np.stack([one.logits for one, action in zip(done, actions, strict=False) if action.is_answer])
    wanted = np.concatenate(expected)
    assert np.abs(logits - wanted).max() < 1e-4 * np.abs(wanted).max()
    assert done[0].result == head.memory_bytes(SAMPLES)
    results = [one.result for one, action in zip(done, [*actions, *others], strict=True) if not action.is_answer]
    twos_left = len(twos) - 1
    assert results[1:] == [
        *range(1, 10),
        *range(len(twos) - 4, len(twos) + 1),
        len(threes),
        1,
        9,
        0,
        -2,
        -3,
        twos_left,
        -4,
    ]
