"""Plans to test with: one of twenty blocks, and legal ones of any kind."""

from dataclasses import replace
from typing import get_args

from hypothesis import strategies as st

from tuner.plan.example import example_model, example_task
from tuner.plan.heads import Exit, HeadsMode, HeadsPlan
from tuner.plan.info import BlockInfo, ModelInfo, TaskInfo
from tuner.plan.parts import (
    CachePlan,
    DataEdit,
    DataPlan,
    LossTerm,
    Optimiser,
    RecipePlan,
    RuntimePlan,
    Schedule,
    TailEdit,
)
from tuner.plan.trial import TrialPlan

PLAN = TrialPlan(example_model(20), example_task(), split=17)


def mixed(alpha: float) -> TrialPlan:
    """Return the plan with a fraction of the global data."""
    return replace(PLAN, data=DataPlan(alpha))


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
    settings = st.lists(st.tuples(words, scalars), max_size=2).map(tuple)
    positive = st.floats(0, exclude_min=True, allow_infinity=False)
    edits = st.builds(TailEdit, words, settings)
    terms = st.builds(LossTerm, words, positive, settings, st.booleans())
    rules = st.builds(DataEdit, words, settings, st.integers(1, 2**40))
    exits = st.lists(st.builds(Exit, st.integers(0, model.num_blocks - 1), st.integers(1, 64)), max_size=2)
    return TrialPlan(
        model,
        draw(tasks),
        DataPlan(draw(st.floats(0, 1)), edit=draw(st.none() | rules)),
        draw(st.integers(0, model.num_blocks - 1)),
        tuple(draw(st.lists(edits, max_size=2))),
        HeadsPlan(draw(st.sampled_from(get_args(HeadsMode))), tuple(draw(exits))),
        tuple(draw(st.lists(terms, max_size=2))),
        CachePlan(draw(words), draw(st.sampled_from((32, 16, 8, 4, 2, 1))), draw(st.floats(0, 1))),
        RecipePlan(
            draw(st.integers(1, 200)),
            draw(st.integers(1, 512)),
            draw(st.sampled_from(get_args(Optimiser))),
            draw(positive),
            draw(st.floats(0, allow_infinity=False)),
            draw(st.sampled_from(get_args(Schedule))),
            draw(st.integers(0, 50)),
            draw(st.booleans()),
        ),
        RuntimePlan(draw(words), draw(st.integers(1, 64))),
    )
