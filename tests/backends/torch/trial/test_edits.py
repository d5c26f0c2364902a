"""Edits of a tail, as plugins realise them."""

from dataclasses import replace

import pytest

from tests.backends.torch.plans import plan_of
from tuner.backends.extensions import Extensions
from tuner.backends.torch.model.load import OpenModel
from tuner.backends.torch.trial.edits import edited
from tuner.errors import TrainingError
from tuner.plan.parts import TailEdit
from tuner.task import Task

pytestmark = pytest.mark.slow


def test_an_edit_that_no_plugin_realises_is_refused(task: Task, loaded: OpenModel) -> None:
    plan = replace(plan_of(task, loaded), shape=(TailEdit("dropout"),))
    with pytest.raises(TrainingError, match="no installed plugin realises tail edit 'dropout'"):
        edited(loaded, plan, Extensions())
