"""What every solver of sums obeys: a device calls it again, with numpy alone."""

import sys
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pytest

from tuner.errors import TunerError, first_line, place_of
from tuner.plan.trial import TrialPlan
from tuner.plugin.ridge import Domain, HeadSolver, LinearHead, SolverSums, coded, step_of
from tuner_testing.models.hosting import hosting, offered_by
from tuner_testing.models.libraries import TENSOR_LIBRARIES, require_light_import
from tuner_testing.models.settings import Reading, require_read

#: Largest difference of weights, relative to the largest, of two solutions of the same samples.
SAME_WEIGHTS = 1e-3
FEATURES, CLASSES, SAMPLES = 12, 5, 60


class SolverContract:
    """What every solver of sums obeys (`tuner_solvers`), shown on 60 made-up samples of five classes.

    Attributes:
        plugin: Plugin's module.
        kind: Kind of the edit.
    """

    plugin: ClassVar[object]
    kind: ClassVar[str]

    def test_it_returns_a_head(self) -> None:
        """Finite weights of the given shape: also where a class has no samples, or none are mixed in."""
        local, known = self._domains
        fewer = local.without(np.flatnonzero(local.labels == 0))
        cases = {"": (local, known), ", of no global samples": (local, known.without(np.arange(len(known))))}
        cases[", where a class has no samples"] = (fewer, known.without(np.flatnonzero(known.labels == 0)))
        for case, domains in cases.items():
            for settings in self._settings:
                self._solved(settings, *domains, case=case)

    def test_every_setting_is_read(self) -> None:
        """Settings tell two plans apart: what they say must happen."""
        read = set[str]()
        names = {name for settings in self._settings for name in settings}
        for settings in self._settings:
            self._solved(Reading(settings, read), *self._domains)
        require_read(f"solver {self.kind!r}", names, read)

    def test_the_order_of_samples_does_not_matter(self) -> None:
        """Nor what was solved before: a head depends on its sums alone, bit for bit."""
        local, known = self._domains
        order = np.random.default_rng(1).permutation(len(local))
        other = Domain(local.codes[order], local.labels[order], local.outputs, local.step)
        for settings in self._settings:
            one = self._solved(settings, local, known)
            self._solved(settings, known, local)
            two = self._solved(settings, other, known)
            if not (np.array_equal(one.weight, two.weight) and np.array_equal(one.bias, two.bias)):
                pytest.fail(
                    f"solver {self.kind!r}: the same samples in another order must give the same head, but weights "
                    "differ: keep nothing in the module, draw nothing at random, and leave the given sums as they are"
                )

    def test_it_needs_numpy_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A device that learns again has no tensor library."""
        for name in TENSOR_LIBRARIES:
            monkeypatch.setitem(sys.modules, name, None)
        for settings in self._settings:
            self._solved(settings, *self._domains, case=", without a tensor library")

    def test_it_gives_what_a_trial_solves_for(self) -> None:
        """A bundle that learns nothing new keeps the head that was scored."""
        from tuner_testing.models.lowered import LoweredTail

        for plan in self._plans:
            try:
                trained, summed = LoweredTail(plan, self._extensions).solved(self.kind)
            except TunerError as error:
                pytest.fail(f"solver {self.kind!r}: a trial must solve for the head, but: {error}")
            difference = np.abs(trained.weight - summed.weight).max() / max(np.abs(trained.weight).max(), 1e-6)
            if not difference <= SAME_WEIGHTS:
                pytest.fail(
                    f"solver {self.kind!r}: `solve` of a trial and solve(sums) must give the same head of the same "
                    f"samples, but weights differ by {difference:.2g}: leave the lowering out, or correct one"
                )

    def test_importing_the_plugin_loads_no_tensor_library(self) -> None:
        """A tensor library is imported inside functions."""
        require_light_import(self.plugin)

    @cached_property
    def _domains(self) -> tuple[Domain, Domain]:
        """Samples of the user's, and others."""
        draw = np.random.default_rng(0)
        labels = np.arange(SAMPLES) % CLASSES
        features = draw.normal(size=(SAMPLES, FEATURES)) + draw.normal(size=(CLASSES, FEATURES))[labels]
        empty, half = Domain.empty(FEATURES, CLASSES, step_of(features)), SAMPLES // 2
        codes = coded(features, empty.step)
        return empty.added(codes[:half], labels[:half]), empty.added(codes[half:], labels[half:])

    @cached_property
    def _extensions(self) -> Any:
        return hosting(self.plugin).extensions("torch")

    @cached_property
    def _plans(self) -> list[TrialPlan]:
        from tuner_testing.models.edited_plans import plans_to_try

        return plans_to_try(self.kind, offered_by(self.plugin, "strategies"), self._extensions)

    @property
    def _settings(self) -> list[Mapping[str, Any]]:
        edits = [edit for plan in self._plans for edit in plan.shape if edit.kind == self.kind]
        return [dict(settings) for settings in dict.fromkeys(edit.settings for edit in edits)]

    def _solved(self, settings: Mapping[str, Any], local: Domain, known: Domain, case: str = "") -> LinearHead:
        solver: HeadSolver = self._extensions.solvers[self.kind]
        given = LinearHead(np.random.default_rng(2).normal(size=(CLASSES, FEATURES)), np.zeros(CLASSES))
        try:
            head: object = solver(SolverSums.of(local, known, given, settings=settings, known_weight=2.0))
        except Exception as error:  # noqa: BLE001 - a plugin's code may raise anything
            reason = str(error) if isinstance(error, TunerError) else f"{first_line(error)}{place_of(error)}"
            pytest.fail(f"solver {self.kind!r}{case}: it must return a head, but: {reason}")
        shapes = [np.asarray(getattr(head, name, None)).shape for name in ("weight", "bias")]
        if not isinstance(head, LinearHead) or shapes != [given.weight.shape, given.bias.shape]:
            pytest.fail(
                f"solver {self.kind!r}{case}: it must return a head of weights [{CLASSES}, {FEATURES}] and biases "
                f"[{CLASSES}], got {type(head).__name__} of {shapes}"
            )
        if not (np.isfinite(head.weight).all() and np.isfinite(head.bias).all()):
            pytest.fail(f"solver {self.kind!r}{case}: it must return a head of finite weights, but some are not")
        return head
