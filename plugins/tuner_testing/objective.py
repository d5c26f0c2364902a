"""What every objective obeys, and every measure of one."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, get_args

import numpy as np
import pytest

from tuner.backends.measuring import Answers, Measure, MeasuredTrial
from tuner.plan.example import example_model, example_task
from tuner.plan.trial import TrialPlan
from tuner.results.records.baseline import packed
from tuner.results.records.counts import ClassCounts
from tuner.results.records.trial import Outcome
from tuner.results.scores.objectives import Direction, Objective
from tuner_testing.models.hosting import require_hosted

#: Letters of a unit.
LONGEST_UNIT = 8
#: Units with a prefix: values are in the unit without it.
PREFIXED = {"ms": "s", "us": "s", "kB": "B", "MB": "B", "GB": "B", "mJ": "J", "kJ": "J", "MFLOP": "FLOP"}


class ObjectiveContract:
    """What every objective obeys.

    Attributes:
        objective: The one under test.
    """

    objective: ClassVar[Objective]

    def test_its_name_is_free(self) -> None:
        """The name is an identifier, as it is a key of a trial's values, and none of the core's."""
        name = self.objective.name
        if not name.isidentifier():
            pytest.fail(f"an objective's name must be an identifier, got {name!r}: use letters, digits and _")
        require_hosted("tuner_objectives", self.objective, f"the one of objective {name}")

    def test_its_direction_is_known(self) -> None:
        """The study knows which way is better."""
        if self.objective.direction not in get_args(Direction):
            pytest.fail(
                f"{self._who}: direction must be 'maximise' or 'minimise', got {self.objective.direction!r}: name one"
            )

    def test_its_unit_is_a_base_unit(self) -> None:
        """Values are in base units (bytes, seconds, joules), and a fraction's unit is ``%``."""
        unit = self.objective.unit
        if not isinstance(unit, str) or len(unit) > LONGEST_UNIT or unit.split() not in ([], [unit]):
            pytest.fail(f"{self._who}: unit must be a word of at most {LONGEST_UNIT} letters, got {unit!r}: shorten it")
        if unit in PREFIXED:
            pytest.fail(f"{self._who}: values must be in base units, got {unit!r}: give them in {PREFIXED[unit]!r}")

    @property
    def _who(self) -> str:
        return f"objective {self.objective.name!r}"


class MeasureContract:
    """What every measure obeys, shown on a made-up trial.

    Attributes:
        measure: The one under test, as the plugin's ``tuner_measures`` returns it for the backend ``torch``.
    """

    measure: ClassVar[Measure]

    def test_its_value_is_a_finite_number(self) -> None:
        """One that a device cannot take is not offered there."""
        taken = self._taken()
        for value in taken.values() if isinstance(taken, Mapping) else (taken,):
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                pytest.fail(
                    f"a measure must return a finite number, got {value!r}: offer it only where it can be taken"
                )

    def test_it_leaves_the_trial_as_it_is(self) -> None:
        """What was trained is written, exported and measured by others after it."""
        import torch

        for tail in (torch.nn.Linear(8, 10), torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 10))):
            before = {name: value.clone() for name, value in tail.state_dict().items()}
            trained = [value.requires_grad for value in tail.parameters()]
            self._taken(tail)
            after = tail.state_dict()
            changed = [name for name in before if name not in after or not torch.equal(before[name], after[name])]
            if changed or trained != [value.requires_grad for value in tail.parameters()]:
                pytest.fail(f"a measure must leave trial.tail as it is, but {(*changed, 'requires_grad')[0]!r} changed")

    def test_it_can_be_taken_again(self) -> None:
        """Every trial begins one of its own: nothing of the last is left."""
        for _ in range(2):
            self._taken()

    def _taken(self, tail: Any = None) -> float | Mapping[str, float]:
        import torch

        end = type(self).measure()
        if not callable(end):
            pytest.fail(f"a measure must return a function that ends it, but it returned {end!r}")
        plan = TrialPlan(example_model(4), example_task(), split=3)
        labels = np.arange(60) % 10
        logits = np.random.default_rng(0).normal(0, 1, (len(labels), 10)) + 2 * np.eye(10)[labels]
        names = tuple(map(str, range(10)))
        answer = Answers(logits.astype(np.float32), labels, plan.task.targets, names)
        right = logits.argmax(1) == labels
        counts = ClassCounts.of(logits.argmax(1), labels)
        values = {name: float(right.mean()) for name in ("local_accuracy", "global_accuracy")}
        values |= {"train_seconds": 1.0, "peak_bytes": 1e6, "mean_flops": 1e6, "bundle_bytes": 1e5}
        epoch, domains = {"loss": 1.0, "seconds": 1.0}, ("local", "global")
        outcome = Outcome(values, (epoch,), classes=dict.fromkeys(domains, counts), right=(packed(right),))
        tail = torch.nn.Linear(8, 10) if tail is None else tail
        return end(MeasuredTrial(plan, tail, outcome, answers=dict.fromkeys(domains, answer)))
