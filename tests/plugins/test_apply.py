"""What a bundle requires of the task that it is applied to."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tuner.bundle.info import BundleInfo
from tuner.errors import TaskError
from tuner.runtime import Bundle
from tuner.task import Domain, InputSpec, ModelSpec, Recording, Task, WindowSamples
from tuner_apply.adapt import match_inputs

SPEC = InputSpec("signals", mean=(1.0, 2.0), std=(3.0, 4.0), window=10, hop=5)
BUNDLE = Bundle(Path(), BundleInfo("arm", ("a", "b"), SPEC, (2, 10), "single-label"))


def task(spec: InputSpec) -> Task:
    recordings = [Recording(str(label), "", np.zeros((2, 10))) for label in (0, 1)]
    samples = WindowSamples(recordings, np.array([0, 1]), spec)
    return Task(
        "new", ModelSpec("m:build"), spec, "single-label", Domain(samples, samples), None, ("a", "b"), (), (0, 1)
    )


def test_new_recordings_are_standardised_as_those_the_bundle_was_trained_on() -> None:
    other = task(replace(SPEC, mean=(9.0, 9.0), std=(9.0, 9.0)))
    assert match_inputs(other, BUNDLE).input == SPEC


def test_columns_that_one_side_names_fit_and_others_are_refused() -> None:
    named = replace(BUNDLE, info=replace(BUNDLE.info, input=replace(SPEC, columns=("x", "y"))))
    assert match_inputs(task(SPEC), named).input == named.input
    assert match_inputs(task(named.input), BUNDLE).input == SPEC
    with pytest.raises(TaskError, match=r"columns \['y', 'x'\].* the bundle takes .*columns \['x', 'y'\]"):
        match_inputs(task(replace(SPEC, columns=("y", "x"))), named)


def test_another_window_is_refused() -> None:
    with pytest.raises(TaskError, match=r"new gives .*window 8.* but the bundle takes .*window 10"):
        match_inputs(task(replace(SPEC, window=8)), BUNDLE)
