"""Plans that share a training: they differ in what an edit does when training ends."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.search.settings import ACCURACIES, setting
from tuner.backends.base import CHECKPOINT
from tuner.errors import PlanError
from tuner.plan.example import example_model, example_task
from tuner.plan.parts import EditTraits, RecipePlan, Stage, TailEdit
from tuner.plan.trial import TrialPlan
from tuner.plugin import Draw, ModelInfo, Strategy
from tuner.plugin.compose import Composed, compose
from tuner.plugin.knobs import ValueSource
from tuner.plugin.sources import preferred_values
from tuner.results.records.trial import TrialRecord
from tuner.search.propose.candidates import Candidates
from tuner.search.propose.checkpoints import Checkpoints, epochs_left
from tuner.search.propose.lines import are_siblings, line_of
from tuner.search.trials.journal import RUNG
from tuner.search.trials.queue import Queue

LATE = EditTraits(traceable=False, after_training=("share",))


class Wise(Strategy[tuple[float, int]]):
    """Two settings: one that acts when training ends, and one before."""

    name, stage = "wise", Stage.SHAPE

    def sample(self, draw: Draw, model: ModelInfo) -> tuple[float, int]:  # noqa: ARG002 - the same for every model
        return draw.choice("share", (0.25, 0.5, 1.0), start=0.5), draw.choice("depth", (1, 2))

    def apply(self, plan: TrialPlan, knobs: tuple[float, int]) -> TrialPlan:
        edit = TailEdit.of("between", LATE, share=knobs[0], depth=knobs[1])
        return replace(plan, shape=(*plan.shape, edit), recipe=RecipePlan(schedule="cosine", epochs=4))

    writes = frozenset({Stage.RECIPE})


def composed(source: ValueSource) -> Composed:
    return compose([Wise()], source, example_model(4), example_task())


def plan(share: float = 0.5, depth: int = 1, epochs: int = 4) -> TrialPlan:
    own = composed(preferred_values({"wise.share": share, "wise.depth": depth})).plan
    return replace(own, recipe=replace(own.recipe, epochs=epochs))


def test_plans_share_a_training_that_differ_in_what_acts_after_it() -> None:
    assert plan(0.25).key() != plan(0.5).key()
    assert plan(0.25).line() == plan(0.5).line() != plan(0.5, depth=2).line()
    assert are_siblings(plan(0.25), plan(0.5))
    assert not are_siblings(plan(0.25), plan(0.5, epochs=2))
    assert not are_siblings(plan(), plan())
    assert line_of(plan(0.25)) != line_of(plan(0.5)) == line_of(plan(0.5, epochs=2))
    assert epochs_left(plan(0.25), plan(0.5)) == 0


@pytest.fixture
def kept(tmp_path: Path) -> Callable[[TrialRecord], Checkpoints]:
    """Make the checkpoints of a run, of which a trial has left one."""

    def make(record: TrialRecord) -> Checkpoints:
        made = Checkpoints(lambda number: tmp_path / str(number) / "weights.safetensors")
        (tmp_path / str(record.trial)).mkdir()
        (tmp_path / str(record.trial) / CHECKPOINT).touch()
        made.ended(record)
        return made

    return make


def trial(number: int, own: TrialPlan, state: Any = "done") -> TrialRecord:
    return TrialRecord(trial=number, state=state, plan=own, values={"local_accuracy": 0.5})


def test_a_sibling_trains_for_no_epoch_and_the_checkpoint_stays_until_another_training(
    kept: Callable[[TrialRecord], Checkpoints],
) -> None:
    first, better = trial(3, plan()), trial(5, plan(depth=2))
    checkpoints = kept(first)
    assert checkpoints.has_siblings(first)
    due = checkpoints.due(plan(1.0))
    assert due is not None
    assert due.recipe.epochs == 0
    assert checkpoints.earlier(plan(1.0)) == checkpoints.earlier(plan(0.25)) is not None
    assert checkpoints.due(plan(0.5)) is checkpoints.due(plan(1.0, epochs=8)) is None  # a cosine cannot be continued
    assert not checkpoints.has_room(plan(1.0), None)  # the first one's is enough
    assert checkpoints.has_room(plan(1.0, depth=2), None)
    second = trial(4, plan(1.0))
    checkpoints.ended(second)
    assert not checkpoints.has_siblings(second)
    best = replace(better, values={"local_accuracy": 0.9})
    checkpoints.prune([best, first, second], ())
    assert checkpoints.earlier(plan(0.25)) is not None
    checkpoints.prune([first, second, best], ())
    assert checkpoints.earlier(plan(0.25)) is None


def test_a_training_that_was_stopped_has_no_siblings(kept: Callable[[TrialRecord], Checkpoints]) -> None:
    stopped = trial(0, plan(), "stopped")
    checkpoints = kept(stopped)
    assert checkpoints.due(plan(1.0)) is None
    assert not checkpoints.has_siblings(stopped)


def test_siblings_wait_in_the_queue_once_the_first_one_has_trained() -> None:
    study = optuna.create_study(directions=[one.optuna_direction for one in ACCURACIES])
    candidates = Candidates(Queue(study, setting(), ()), setting(), composed, None)  # type: ignore[arg-type]  # unused
    candidates.enqueue_siblings(composed(preferred_values({"wise.share": 0.5, "wise.depth": 2})), 1)
    waiting: Iterable[Any] = study.get_trials()
    asked = [one.system_attrs["fixed_params"] for one in waiting]
    assert asked == [{"wise.share": 0.25, "wise.depth": 2}, {"wise.share": 1.0, "wise.depth": 2}]
    assert {one.user_attrs[RUNG] for one in waiting} == {1}


def test_what_acts_after_training_must_be_a_setting() -> None:
    with pytest.raises(PlanError, match="after_training of tail edit 'between' must name settings of it, got 'share'"):
        TailEdit.of("between", LATE, portion=0.5)
