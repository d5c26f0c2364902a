import subprocess
import sys
import tomllib
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import PlanError
from tuner.plan.heads import Exit, HeadsMode, HeadsPlan
from tuner.plan.info import BlockInfo, ModelInfo, TaskInfo
from tuner.plan.parts import (
    CachePlan,
    DataPlan,
    Optimiser,
    RecipePlan,
    RuntimePlan,
    Schedule,
    Stage,
    TailEdit,
    per_class_counts,
)
from tuner.plan.text import describe
from tuner.plan.toml import from_toml, to_toml
from tuner.plan.trial import TrialPlan, check, normal_form
from tuner.testing import example_model, example_task

PLAN = TrialPlan(example_model(20), example_task(), split=17)


def mixed(alpha: float) -> TrialPlan:
    return replace(PLAN, data=DataPlan(alpha))


def test_a_plan_is_described_in_one_english_line() -> None:
    task = replace(example_task(), local_train=1192, global_per_class=(40,) * 200)
    plan = TrialPlan(
        example_model(20),
        task,
        data=DataPlan(0.01),
        split=17,
        cache=CachePlan("cache", 4),
        recipe=RecipePlan(epochs=12, optimiser="adamw", learning_rate=1e-3),
    )
    assert describe(plan) == (
        "train last 3 of 20 blocks on 1,192 local + 200 global images (α 1 %, realised 2.5 %) from a 4-bit cache, "
        "12 epochs AdamW 1e-3"
    )


@pytest.mark.parametrize(
    ("shape", "augment", "text"),
    [
        ((8, 1, 1), ("flip",), "from an 8-bit cache (1 × 1 maps: not augmented), "),
        ((8,), ("flip",), "from an 8-bit cache (vectors: not augmented), "),
        ((8, 2, 2), ("flip",), "from an 8-bit cache augmented by 0.5, "),
        ((8, 1, 1), (), "from an 8-bit cache, "),
    ],
)
def test_features_that_cannot_be_augmented_are_mentioned(
    shape: tuple[int, ...], augment: tuple[str, ...], text: str
) -> None:
    blocks = tuple(replace(block, in_shape=shape) for block in example_model(2).blocks)
    model, task = replace(example_model(2), blocks=blocks), replace(example_task(), augment=augment)
    assert text in describe(normal_form(TrialPlan(model, task, split=1, cache=CachePlan("cache", 8, 0.5))))


def test_parts_that_a_plan_does_without_are_not_mentioned() -> None:
    plan = TrialPlan(example_model(20), example_task(), recipe=RecipePlan(epochs=1, optimiser="sgd"))
    assert describe(plan) == "train the whole model on 40 local images, 1 epoch SGD 1e-3"


@pytest.mark.parametrize(
    ("rate", "text"), [(1.0, "1"), (0.1, "0.1"), (0.01, "1e-2"), (3.2e-4, "3.2e-4"), (9.99e-4, "1e-3"), (1e-6, "1e-6")]
)
def test_a_learning_rate_is_written_in_the_usual_notation(rate: float, text: str) -> None:
    assert describe(replace(PLAN, recipe=RecipePlan(learning_rate=rate))).endswith(f"AdamW {text}")


def test_micro_batches_are_mentioned_where_there_are_any() -> None:
    plan = replace(PLAN, recipe=RecipePlan(micro_batches=4))
    assert describe(plan).endswith("AdamW 1e-3 in 4 micro-batches")
    assert plan.recipe.part_size == 8


def test_a_batch_is_cut_into_no_more_parts_than_it_has_samples() -> None:
    plan = replace(PLAN, recipe=RecipePlan(batch_size=2, micro_batches=8))
    assert normal_form(plan).recipe.micro_batches == 2


@pytest.mark.parametrize(
    "whole",
    [
        {"recipe": RecipePlan(micro_batches=4, freeze_bn=False)},
        {"recipe": RecipePlan(micro_batches=4), "shape": (TailEdit("width"),)},
        {"recipe": RecipePlan(micro_batches=4), "heads": HeadsPlan("exits-only", (Exit(3, 8),))},
    ],
)
def test_a_batch_whose_norms_train_is_not_cut(whole: dict[str, Any]) -> None:
    assert normal_form(replace(PLAN, **whole)).recipe.micro_batches == 1


def test_edits_and_exits_are_mentioned() -> None:
    plan = replace(PLAN, shape=(TailEdit("dropout"),), heads=HeadsPlan("with-tail", (Exit(3, 8), Exit(6, 8))))
    assert describe(plan).endswith("AdamW 1e-3, dropout, 2 exits (with-tail; taught by distillation)")


@pytest.mark.parametrize(
    ("alpha", "counts"), [(0.0, (0, 0, 0)), (1e-9, (1, 1, 0)), (0.05, (5, 1, 0)), (1.0, (100, 1, 0))]
)
def test_a_fraction_takes_at_least_one_sample_of_every_class_that_has_any(
    alpha: float, counts: tuple[int, ...]
) -> None:
    assert per_class_counts((100, 1, 0), alpha) == counts


@given(st.lists(st.integers(0, 500), max_size=5), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_fraction_never_takes_less(available: list[int], one: float, other: float) -> None:
    low, high = (per_class_counts(tuple(available), alpha) for alpha in sorted((one, other)))
    assert all(a <= b <= most for a, b, most in zip(low, high, available, strict=True))


def test_fractions_that_pick_the_same_samples_are_one_trial() -> None:
    assert mixed(0.010).key() == mixed(0.014).key()
    assert mixed(0.010).key() != mixed(0.020).key()
    assert mixed(0.010) != mixed(0.014)


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAN, split=16),
        replace(PLAN, cache=CachePlan("cache", 8)),
        replace(PLAN, recipe=RecipePlan(epochs=11)),
        replace(PLAN, runtime=RuntimePlan(threads=2)),
        replace(PLAN, shape=(TailEdit("dropout", (("rate", 0.1),)),)),
        replace(PLAN, heads=HeadsPlan("with-tail", (Exit(3, 8),))),
        replace(PLAN, model=replace(PLAN.model, fingerprint="f" * 32)),
        replace(PLAN, task=replace(PLAN.task, fingerprint="f" * 32)),
    ],
)
def test_plans_that_would_train_something_else_have_another_key(other: TrialPlan) -> None:
    assert other.key() != PLAN.key()


def test_the_key_is_the_same_in_every_process() -> None:
    code = "import sys; from tuner.plan.toml import from_toml; print(from_toml(sys.stdin.read()).key())"
    command = [sys.executable, "-c", code]
    other = subprocess.run(command, input=to_toml(PLAN), capture_output=True, text=True, check=True).stdout.strip()
    assert other == PLAN.key()
    assert len(other) == 32


def test_equal_plans_are_one_entry_of_a_set() -> None:
    assert len({PLAN, replace(PLAN), mixed(0.01)}) == 2


def test_exits_alone_leave_the_whole_chain_frozen() -> None:
    heads = HeadsPlan("exits-only", (Exit(3, 8),))
    plans = [normal_form(replace(PLAN, heads=heads, split=split)) for split in (0, 7, 20)]
    assert {plan.split for plan in plans} == {20}
    assert len({plan.key() for plan in plans}) == 1


def test_exits_beside_a_tail_sit_below_it() -> None:
    heads = HeadsPlan("with-tail", (Exit(3, 8), Exit(17, 8), Exit(18, 8)))
    assert [one.block for one in normal_form(replace(PLAN, heads=heads)).heads.exits] == [3, 17]
    assert normal_form(replace(PLAN, heads=heads, split=2)) == replace(PLAN, split=2)


def test_without_labels_exits_learn_from_the_final_head() -> None:
    heads = HeadsPlan("exits-only", (Exit(3, 8),), supervised=0.5, distilled=0.0)
    task = replace(PLAN.task, labelled=False)
    settled = normal_form(replace(PLAN, heads=heads, task=task)).heads
    assert (settled.supervised, settled.distilled, settled.pseudo) == (0.0, 0.5, 0.0)


EXITS_ALONE = replace(PLAN, heads=HeadsPlan("exits-only", (Exit(3, 8),)))
BY_LABELS = HeadsPlan("with-tail", (Exit(3, 8),), supervised=1.0, distilled=0.0)


@pytest.mark.parametrize(
    ("plan", "other"),
    [
        (EXITS_ALONE, replace(EXITS_ALONE, recipe=RecipePlan(freeze_bn=False))),
        (EXITS_ALONE, replace(EXITS_ALONE, recipe=RecipePlan(micro_batches=4))),
        (EXITS_ALONE, replace(EXITS_ALONE, shape=(TailEdit("dropout"),), split=3)),
        (replace(PLAN, heads=BY_LABELS), replace(PLAN, heads=replace(BY_LABELS, temperature=2.0))),
        (PLAN, replace(PLAN, recipe=RecipePlan(patience=10))),
        (PLAN, replace(PLAN, recipe=RecipePlan(patience=9))),
        (replace(PLAN, recipe=RecipePlan(micro_batches=16)), replace(PLAN, recipe=RecipePlan(micro_batches=20))),
        (PLAN, replace(PLAN, heads=HeadsPlan("with-tail", (), supervised=1.0))),
        (PLAN, replace(PLAN, runtime=RuntimePlan(memory_bytes=10**9))),
    ],
)
def test_plans_that_differ_in_an_idle_setting_have_one_key(plan: TrialPlan, other: TrialPlan) -> None:
    assert plan != other
    assert normal_form(plan).key() == normal_form(other).key()


@pytest.mark.parametrize(
    ("plan", "other"),
    [
        (PLAN, replace(PLAN, recipe=RecipePlan(freeze_bn=False))),
        (PLAN, replace(PLAN, recipe=RecipePlan(patience=8))),
        (PLAN, replace(PLAN, recipe=RecipePlan(micro_batches=2))),
        (PLAN, replace(PLAN, recipe=RecipePlan(optimiser="adam"))),
        (EXITS_ALONE, replace(EXITS_ALONE, recipe=RecipePlan(patience=8))),
        (EXITS_ALONE, replace(EXITS_ALONE, heads=replace(EXITS_ALONE.heads, temperature=2.0))),
    ],
)
def test_settings_with_effect_keep_plans_apart(plan: TrialPlan, other: TrialPlan) -> None:
    assert normal_form(plan).key() != normal_form(other).key()


@pytest.mark.parametrize(
    "plan", [replace(PLAN, split=0, cache=CachePlan("cache", 4)), replace(PLAN, cache=CachePlan(bits=4))]
)
def test_a_cache_of_nothing_is_no_cache(plan: TrialPlan) -> None:
    assert normal_form(plan).cache == CachePlan()


def test_without_global_data_no_fraction_is_kept() -> None:
    assert normal_form(replace(mixed(0.1), task=replace(PLAN.task, global_per_class=()))).data == DataPlan()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            replace(PLAN, model=replace(PLAN.model, blocks=()), split=0),
            "model.blocks must have at least one block, got 0",
        ),
        (replace(PLAN, split=21), r"split must be in \[0, 20\], got 21"),
        (replace(PLAN, split=-1), r"split must be in \[0, 20\], got -1"),
        (replace(PLAN, split=20), "a tail block or an exit must train, got neither"),
        (mixed(1.5), r"data.alpha must be in \[0, 1\], got 1.5"),
        (mixed(float("nan")), r"data.alpha must be in \[0, 1\], got nan"),
        (replace(PLAN, cache=CachePlan("cache", 3)), "cache.bits must be one of 32, 16, 8, 4, 2, 1, got 3"),
        (replace(PLAN, recipe=RecipePlan(epochs=0)), "recipe.epochs must be at least 1, got 0"),
        (replace(PLAN, recipe=RecipePlan(batch_size=0)), "recipe.batch_size must be at least 1"),
        (replace(PLAN, recipe=RecipePlan(learning_rate=0)), "recipe.learning_rate must be above 0"),
        (
            replace(PLAN, recipe=RecipePlan(learning_rate=float("inf"))),
            "recipe.learning_rate must be above 0, got inf",
        ),
        (replace(PLAN, recipe=RecipePlan(weight_decay=-1)), "recipe.weight_decay must be at least 0"),
        (replace(PLAN, recipe=RecipePlan(patience=-1)), "recipe.patience must be at least 0"),
        (replace(PLAN, runtime=RuntimePlan(threads=0)), "runtime.threads must be at least 1"),
        (
            replace(PLAN, heads=HeadsPlan("with-tail", (Exit(21, 8),))),
            r"heads.exits must be on blocks 0 to 20, got \[21\]",
        ),
        (replace(PLAN, heads=HeadsPlan(exits=(Exit(2, 0),))), "heads.exits must have at least one channel"),
        (
            replace(PLAN, heads=HeadsPlan(supervised=1.0, pseudo=0.5)),
            r"must not both be above 0, .* got \(1.0, 1.0, 0.5\)",
        ),
        (replace(PLAN, heads=HeadsPlan(distilled=0.0)), "heads.pseudo must be above 0, got"),
        (replace(PLAN, heads=HeadsPlan(temperature=0.0)), "heads.temperature must be above 0, got 0.0"),
        (replace(PLAN, heads=HeadsPlan(tolerance=2.0)), r"heads.tolerance must be in \[0, 1\], got 2.0"),
    ],
)
def test_a_broken_rule_is_named_with_the_value(plan: TrialPlan, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check(plan)


words = st.text(st.characters(codec="utf-8"), max_size=8)
scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | words
blocks = st.builds(
    BlockInfo,
    name=words,
    cut=words,
    in_shape=st.lists(st.integers(1, 512), min_size=1, max_size=3).map(tuple),
    flops=st.integers(0, 2**40),
    parameters=st.integers(0, 2**30),
    saved_bytes=st.integers(0, 2**30),
)
models = st.builds(
    ModelInfo, words, words, st.integers(1, 1000), st.lists(blocks, min_size=1, max_size=3).map(tuple), note=words
)
sizes = st.integers(0, 10**6)
tasks = st.builds(
    TaskInfo,
    words,
    words,
    sizes,
    sizes,
    st.lists(sizes, max_size=3).map(tuple),
    global_val=sizes,
    noun=words,
    augment=st.lists(words, max_size=2).map(tuple),
)


@st.composite
def legal_plans(draw: st.DrawFn) -> TrialPlan:
    model = draw(models)
    edits = st.builds(TailEdit, words, st.lists(st.tuples(words, scalars), max_size=2).map(tuple))
    exits = st.lists(st.builds(Exit, st.integers(0, model.num_blocks), st.integers(1, 64)), max_size=2)
    return TrialPlan(
        model,
        draw(tasks),
        DataPlan(draw(st.floats(0, 1))),
        draw(st.integers(0, model.num_blocks - 1)),
        tuple(draw(st.lists(edits, max_size=2))),
        HeadsPlan(draw(st.sampled_from(get_args(HeadsMode))), tuple(draw(exits))),
        CachePlan(draw(words), draw(st.sampled_from((32, 16, 8, 4, 2, 1))), draw(st.floats(0, 1))),
        RecipePlan(
            draw(st.integers(1, 200)),
            draw(st.integers(1, 512)),
            draw(st.sampled_from(get_args(Optimiser))),
            draw(st.floats(0, exclude_min=True, allow_infinity=False)),
            draw(st.floats(0, allow_infinity=False)),
            draw(st.sampled_from(get_args(Schedule))),
            draw(st.integers(0, 50)),
            draw(st.booleans()),
        ),
        RuntimePlan(draw(words), draw(st.integers(1, 64))),
    )


@pytest.mark.slow
@given(legal_plans())
def test_any_plan_reads_back_equal_from_toml(plan: TrialPlan) -> None:
    back = from_toml(to_toml(plan))
    assert back == plan
    assert back.key() == plan.key()
    assert hash(back) == hash(plan)


@given(legal_plans())
def test_a_normal_form_is_its_own(plan: TrialPlan) -> None:
    normal = normal_form(plan)
    assert normal_form(normal) == normal


def test_the_toml_begins_with_the_sentence_and_the_decisions() -> None:
    lines = to_toml(PLAN).splitlines()
    assert lines[0] == f"# {describe(PLAN)}"
    assert lines[1] == "format = 1"
    assert list(tomllib.loads(to_toml(PLAN)))[-2:] == ["task", "model"]
    assert list(PLAN.settings()) == [stage.value for stage in Stage]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("format = 1", "format = 2", "format must be 1, got 2: use the version of tuner that wrote it"),
        ("format = 1", "", "format must be 1, got None"),
        ("epochs = 10", "epoch = 10", r"unknown key 'recipe.epoch' \(did you mean 'epochs'\?\)"),
        ("outputs = 10", "output = 10", r"unknown key 'model.output' \(did you mean 'outputs'\?\)"),
        ("outputs = 10", "", "model.outputs is missing"),
        ("epochs = 10", 'epochs = "many"', "recipe.epochs: .* got 'many'"),
        ("epochs = 10", "epochs = 0", "recipe.epochs must be at least 1, got 0"),
        ('optimiser = "adamw"', 'optimiser = "lion"', "recipe.optimiser: .* got 'lion'"),
        ("split = 17", "split = ", "plan: not valid TOML"),
    ],
)
def test_a_plan_that_cannot_be_read_is_reported_with_the_place(old: str, new: str, message: str) -> None:
    text = to_toml(PLAN)
    assert old in text
    with pytest.raises(PlanError, match=message):
        from_toml(text.replace(old, new, 1))


def test_a_missing_part_is_an_error() -> None:
    with pytest.raises(PlanError, match="plan: model is missing"):
        from_toml(to_toml(PLAN).partition("[model]")[0])


def test_decisions_are_carried_to_another_task() -> None:
    task = replace(example_task(), name="another", local_train=7)
    carried = PLAN.carried_to(example_model(20), task)
    assert (carried.task.name, carried.split, carried.recipe) == ("another", 17, PLAN.recipe)


def test_decisions_are_not_carried_to_a_model_of_another_depth() -> None:
    with pytest.raises(PlanError, match="a plan for 20 blocks cannot be used for example, which has 4"):
        PLAN.carried_to(example_model(4), example_task())


def test_the_sentence_has_an_edits_settings() -> None:
    plan = replace(PLAN, shape=(TailEdit("dropout", (("rate", 0.1),)),))
    assert ", dropout (rate 0.1)" in describe(plan)
