"""The part of a plan that says which global samples are mixed in."""

from dataclasses import replace
from typing import Any

import pytest

from tests.plan.plans import PLAN, mixed
from tuner.errors import PlanError
from tuner.plan.parts import DataEdit, DataPlan
from tuner.plan.text import describe
from tuner.plan.toml import from_toml, to_toml
from tuner.plan.trial import TrialPlan, check, normal_form

EDIT = DataEdit("nearest", (("metric", "cosine"), ("depth", 2)), candidates=3)


def with_edit(alpha: float = 0.05, edit: DataEdit | None = EDIT, share: float = 1.0) -> TrialPlan:
    return replace(PLAN, data=DataPlan(alpha, share, edit))


def test_without_an_edit_nothing_of_it_is_written() -> None:
    settings = mixed(0.05).settings()
    assert settings["data"] == {"alpha": 0.05}
    assert with_edit(edit=None).key() == mixed(0.05).key()
    assert "edit" not in to_toml(mixed(0.05))


@pytest.mark.parametrize(
    "other", [None, DataEdit("other", EDIT.settings, 3), DataEdit("nearest", (), 3), replace(EDIT, candidates=4)]
)
def test_another_choice_is_another_trial(other: DataEdit | None) -> None:
    assert with_edit(edit=other).key() != with_edit().key()


def test_settings_are_sorted_and_read_back_equal() -> None:
    plan = with_edit(share=0.5)
    assert EDIT.settings == (("depth", 2), ("metric", "cosine"))
    assert from_toml(to_toml(plan)) == plan
    assert hash(from_toml(to_toml(plan))) == hash(plan)


def test_a_sentence_says_how_samples_are_chosen() -> None:
    assert "+ 35 global images (α 5 %, realised 5 %, by nearest (depth 2, metric cosine) of 3 each)" in describe(
        with_edit()
    )


def test_candidates_are_a_larger_fraction() -> None:
    plan = with_edit()
    assert plan.pool_samples == plan.local_samples + 3 * plan.global_samples
    assert with_edit(0.5).data.pool == DataPlan(1.0)
    assert with_edit(0.5, share=0.5).pool_samples < with_edit(0.5).pool_samples
    assert mixed(0.05).pool_samples == mixed(0.05).train_samples


@pytest.mark.parametrize("alpha", [0.0, 1.0, 1e-6])
def test_where_nothing_is_to_choose_there_is_no_choice(alpha: float) -> None:
    assert normal_form(with_edit(alpha)) == normal_form(with_edit(alpha, None))
    assert normal_form(with_edit(edit=replace(EDIT, candidates=1))) == normal_form(mixed(0.05))
    assert normal_form(with_edit()).data.edit == EDIT


def test_without_global_data_there_is_no_choice() -> None:
    task = replace(PLAN.task, global_per_class=(), global_val=0)
    assert normal_form(replace(with_edit(), task=task)).data == DataPlan()


def test_no_candidate_at_all_breaks_a_rule() -> None:
    with pytest.raises(PlanError, match=r"plan: data\.edit\.candidates must be at least 1, got 0"):
        check(with_edit(edit=replace(EDIT, candidates=0)))


def test_a_setting_that_is_no_scalar_is_refused() -> None:
    strange: Any = (("layers", [1, 2]),)
    with pytest.raises(PlanError, match="data edit 'nearest': settings must be pairs"):
        DataEdit("nearest", strange)


def test_a_misspelt_key_is_named_with_the_nearest() -> None:
    with pytest.raises(PlanError, match=r"unknown key 'data\.edit\.candidate' \(did you mean 'candidates'\?\)"):
        from_toml(to_toml(with_edit()).replace("candidates = 3", "candidate = 3"))


def test_all_candidates_are_carried_to_another_task() -> None:
    carried = with_edit(share=0.5).carried_to(PLAN.model, PLAN.task)
    assert carried.data == DataPlan(0.05, 1.0, EDIT)


def test_settings_of_one_name_are_ordered_whatever_their_kinds() -> None:
    assert DataEdit("nearest", (("b", 1), ("a", "x"), ("a", 2))).settings == (("a", "x"), ("a", 2), ("b", 1))
