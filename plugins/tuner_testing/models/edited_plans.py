"""The plans that a lowering is tried on."""

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from tuner.backends.extensions import Extensions
from tuner.backends.lowering import LoweringError
from tuner.errors import TrainingError, TunerError
from tuner.plan.info import ModelInfo, TaskInfo
from tuner.plan.parts import TailEdit
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import Composed, StrategyError
from tuner.plugin.sources import preferred_values, random_values
from tuner.plugin.strategy import Strategy
from tuner.task.info import task_info
from tuner_testing.models.composing import composed_by, composes, corners_of
from tuner_testing.models.lowered import LoweredTail, made_up_model
from tuner_testing.models.made_up import made_up_task

#: Plans that a lowering is tried on, in addition to one that trains the whole model.
MOST_PLANS = 3
#: Runs with random values, in addition to the corners.
RANDOM = 32


def explicit_plans(edits: Sequence[TailEdit]) -> list[TrialPlan]:
    """Return plans with one of some edits each, behind a frozen block and of the whole model."""
    model, task = made_up_model(), task_info(made_up_task())
    return [TrialPlan(model, task, split=cut, shape=(edit,)) for edit in edits for cut in (1, 0)]


def plans_to_try(kind: str, strategies: Sequence[Strategy[Any]], extensions: Extensions) -> list[TrialPlan]:
    """Return some plans with an edit of a kind that strategies may emit; fail where there is none.

    The first has start values; the last trains the whole model, unless the strategies cut it. Plans that the plugin
    refuses to train, with a `TunerError` of its own, are left out: settings may exclude each other.
    """
    plans: list[TrialPlan] = []
    reason = "none does at the corners of its knobs"
    for share, most in ((0.25, MOST_PLANS), (0.0, MOST_PLANS + 1)):
        emitted = [plan for plan in emitted_plans(kind, strategies, share) if plan not in plans]
        for plan in (*emitted[:1], *emitted[:0:-1]):  # the start values, then what is far from them
            if len(plans) < most:
                refusal = _refusal(plan, extensions)
                reason = refusal or reason
                plans += [] if refusal else [plan]
    if not plans and not all(map(composes, strategies)):
        pytest.skip("a strategy of its plugin composes no plan: its own rules say why")
    if not plans:
        pytest.fail(
            f"lowering {kind!r}: a strategy of its plugin must emit this kind, but {reason}: correct the kind, or list "
            "edits in a LoweringContract of your own"
        )
    return plans


def emitted_plans(kind: str, strategies: Sequence[Strategy[Any]], share: float) -> list[TrialPlan]:
    """Return plans with an edit of a kind: of start values first, then of corners, of random values, of anchors."""
    model, task = made_up_model(), task_info(made_up_task())
    task = replace(task, global_per_class=(1,) * model.outputs)  # some edits are for tasks with global data alone
    plans: dict[object, TrialPlan] = {}
    for strategy in strategies:
        with suppress(TunerError, StrategyError):  # the strategy's own contract says what is wrong
            inside = [preferred_values({}), *(random_values(random.Random(seed)) for seed in range(RANDOM))]
            start, *others = (composed_by(strategy, source, model, task, share=share) for source in inside)
            anchored = anchors_of(strategy, model, task, share)
            for composed in (start, *corners_of(strategy, model, task, share=share), *others, *anchored):
                plan = composed.plan
                if any(edit.kind == kind for edit in plan.shape):
                    plans.setdefault((plan.shape, plan.split), plan)
    return list(plans.values())


def anchors_of(strategy: Strategy[Any], model: ModelInfo, task: TaskInfo, share: float) -> Iterator[Composed]:
    """Yield what a search tries first, as far as it can be composed: the strategy's own contract says what is wrong."""
    with suppress(Exception):  # a plugin's code may raise anything
        for values in strategy.anchors(model):
            with suppress(TunerError, StrategyError):
                yield composed_by(strategy, preferred_values(values), model, task, share=share)


def _refusal(plan: TrialPlan, extensions: Extensions) -> str:
    """Return why a plugin refuses a plan in its own words; else an empty string."""
    try:
        LoweredTail(plan, extensions).train()
    except (LoweringError, TrainingError):
        return ""
    except TunerError as error:
        return str(error)
    except Exception:  # noqa: BLE001 - a plugin's code may raise anything: a rule names it
        return ""
    return ""
