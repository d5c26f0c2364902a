"""Search spaces: those that are shipped, those of users, and mistakes with their place."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.search.settings import setting
from tuner.errors import KnobError, SpaceError
from tuner.plan.example import example_model, example_task
from tuner.plan.info import ModelInfo
from tuner.plugin.compose import compose
from tuner.plugin.core import build_host
from tuner.plugin.knobs import Choice, Numeric, ValueSource
from tuner.plugin.load.finding import select
from tuner.plugin.sources import corners, preferred_values
from tuner.plugin.strategy import Strategy
from tuner.results.records.config import RunRequest
from tuner.results.scores.objectives import OBJECTIVES
from tuner.search.budget import LIMITS, budget
from tuner.search.setting import CORE_STRATEGIES, participants, wanted_knobs
from tuner.search.space import Space, check_knobs, load_space, shipped

HOST = build_host()
ALL = list(HOST.strategies.values())


def written(folder: Path, text: str) -> Space:
    path = folder / "mine.toml"
    path.write_text(text)
    return load_space(str(path))


def taking_part(space: Space) -> list[Strategy[object]]:
    if space.strategies is None:
        return ALL
    return select("strategy", [*space.strategies, *CORE_STRATEGIES], HOST.strategies)


def test_there_are_seven_shipped_spaces() -> None:
    names = {"board-10min", "early-exits", "every-strategy", "int8", "phone-overnight", "smoke", "wearable"}
    assert shipped().keys() == names


@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_shipped_space_says_for_whom_it_is_ends_and_composes_without_global_data(name: str) -> None:
    space = load_space(name)
    assert space.audience
    assert shipped()[name].read_text().startswith("# For ")
    assert budget(RunRequest(), space.limits).time_seconds
    wanted = wanted_knobs(space, None, deterministic=False)
    assert wanted["runtime.precision"] == (("int8", "fp32") if name == "int8" else "fp32")
    task = replace(example_task(), global_per_class=(), global_val=0)
    plan = compose(taking_part(space), preferred_values({}), example_model(4), task, space.knobs).plan
    assert plan.data.alpha == 0


def test_what_a_strategy_is_good_for_is_an_objective_where_none_is_named() -> None:
    usual = [one.name for one in OBJECTIVES]
    named = {name: [one.name for one in participants(HOST, load_space(name))[1]] for name in shipped()}
    assert named["phone-overnight"] == usual
    assert named["every-strategy"] == [*usual, "parameters", "mean_flops"]
    assert named["early-exits"] == ["local_accuracy", "global_accuracy", "train_seconds", "mean_flops"]
    foreseen = {}
    for name in named:
        strategies, objectives = participants(HOST, load_space(name))
        foreseen[name] = replace(setting(), strategies=strategies, objectives=objectives[:1] + objectives[2:]).foreseen
    assert {name for name, value in foreseen.items() if not value} == {"early-exits", "int8", "wearable"}


@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_shipped_space_composes_on_models_of_any_depth(name: str) -> None:
    space = load_space(name)
    strategies = taking_part(space)
    exits = "exits" in (space.strategies or ())  # which PyTorch alone trains
    backends = ("torch",) if exits else ("torch", "onnxruntime")
    sizes, plans = 0, 0
    for blocks in range(1, 51):
        model = example_model(blocks)

        def run(source: ValueSource, model: ModelInfo = model) -> None:
            composed = compose(strategies, source, model, example_task(), space.knobs)
            assert composed.knobs["runtime.backend"] == Choice("runtime.backend", backends)

        sizes, plans = sizes + 1, plans + sum(1 for _ in corners(run, most=24))
    assert sizes == 50
    assert plans == 50 * 24
    assert check_knobs(space, strategies, example_model(1), example_task()).keys() >= space.knobs.keys()


def test_a_space_of_ones_own_is_read(tmp_path: Path) -> None:
    space = written(
        tmp_path,
        """
        for = "me"
        strategies = ["freeze"]
        objectives = ["local_accuracy"]
        sampler = "random"
        limits = { time = "5m", trials = 3 }
        [knobs]
        freeze.trainable_blocks = { low = 1, high = 4 }
        [knobs.recipe]
        epochs = 3
        batch_size = [16, 32]
        learning_rate = { low = 1e-4, log = true }
        """,
    )
    assert space == Space(
        "mine",
        "me",
        ("freeze",),
        ("local_accuracy",),
        "random",
        {"time": "5m", "trials": "3"},
        {
            "freeze.trainable_blocks": Numeric("freeze.trainable_blocks", 1, 4, whole=False),
            "recipe.epochs": 3,
            "recipe.batch_size": (16, 32),
            "recipe.learning_rate": Numeric("recipe.learning_rate", 1e-4, 1e300, whole=False, log=True),
        },
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("strategy = []", r"strategy: unknown key \(did you mean 'strategies'\?\); known: for, strategies"),
        ("strategies = 'freeze'", "strategies: a list of names, but it is 'freeze'"),
        ("objectives = [3]", r"objectives: a list of names, but it is \[3\]"),
        ("plugins = 'mine.py'", "plugins: a list of names, but it is 'mine.py'"),
        (
            "sampler = 'tpes'",
            r"sampler: one of tpe, gp, nsga2, random, cmaes or hub:NAME, but it is 'tpes' \(did you mean 'tpe'\?\)",
        ),
        ("limits.tim = '5m'", r"limits.tim: unknown limit \(did you mean 'time'\?\); known: time, train-time"),
        ("limits.train_time = '5m'", r"limits.train_time: unknown limit \(did you mean 'train-time'\?\)"),
        ("limits = '5m'", "limits: a table of limits, but it is '5m'"),
        ("knobs = 3", "knobs: a table of knobs, but it is 3"),
        (
            "knobs.gdm.alpha = []",
            r"knobs.gdm.alpha: a value, a list of values of one type, or low, high and log, .* but it is \[\]",
        ),
        ("knobs.gdm.alpha = { low = 1, high = 0 }", "knobs.gdm.alpha: a value"),
        ("knobs.gdm.alpha = { low = 'a' }", "knobs.gdm.alpha: a value"),
        ("knobs.gdm.alpha = { low = 0, hihg = 1 }", "knobs.gdm.alpha: a value"),
        ("knobs.gdm.alpha = [[1]]", "knobs.gdm.alpha: a value"),
        ("knobs.gdm.alpha = 2020-01-01", "knobs.gdm.alpha: a value"),
        ("knobs = ", "mine.toml: not valid TOML"),
        ("knobs.gdm.alpha = inf", "knobs.gdm.alpha: a value, .* where numbers are finite, but it is inf"),
        ("knobs.gdm.alpha = [0.1, nan]", "where numbers are finite, but it is"),
        ("knobs.gdm.alpha = { low = 0, high = inf }", "where numbers are finite, but it is"),
        ("knobs.gdm.alpha = { low = 0.1, high = 1, log = 'yes' }", "or low, high and log"),
        ("knobs.gdm.alpha = [0.1, 'some']", "a list of values of one type"),
        ("knobs.gdm.alpha = [1, true]", "a list of values of one type"),
        ("objectives = []", "objectives: at least one name, but the list is empty"),
        ("for = 3", "for: a sentence, but it is 3"),
        ("seed = " + "9" * 5001, "not valid TOML .an integer must fit into 64 bits"),
        ("knobs.gdm.alpha = " + "[" * 5000, "arrays and tables may be nested 32 deep"),
        ("knobs" + ".a" * 5000 + " = 1", "a key may have 32 parts"),
    ],
)
def test_a_mistake_in_a_space_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        written(tmp_path, text)


def test_every_limit_may_be_set_in_a_space_and_an_empty_one_restricts_nothing(tmp_path: Path) -> None:
    assert written(tmp_path, "") == Space("mine")
    text = "".join(f"limits.{name} = '7'\n" for name in LIMITS)
    assert written(tmp_path, text).limits == dict.fromkeys(LIMITS, "7")


@pytest.mark.parametrize("trials", ["²", "9" * 5001, "1e3", "inf", "0"])
def test_trials_are_a_number_that_can_be_counted_to(trials: str) -> None:
    with pytest.raises(SpaceError, match="the search space's trials must be a whole number from 1 to 999999999, got"):
        budget(RunRequest(), {"trials": trials})


def test_a_space_that_is_not_there_or_cannot_be_read_is_reported(tmp_path: Path) -> None:
    with pytest.raises(
        SpaceError, match=r"no search space 'smok' \(did you mean 'smoke'\?\): give a file, or one of board-10min"
    ):
        load_space("smok")
    with pytest.raises(SpaceError, match="there is no search space"):
        load_space(str(tmp_path))
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SpaceError, match=r"bad\.toml: cannot be read \(it is not UTF-8"):
        load_space(str(tmp_path / "bad.toml"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "freeze.trainable_block",
            r"there is no knob 'freeze.trainable_block' \(did you mean 'freeze.trainable_blocks'\?\)",
        ),
        ("recipe.learning_rates", r"did you mean 'recipe.learning_rate'\?"),
        ("zzz.qqq", "there is no knob 'zzz.qqq': no strategy 'zzz' takes part"),
    ],
)
def test_a_knob_that_nothing_draws_is_named_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        check_knobs(Space("mine", knobs={name: 1}), ALL, example_model(4), example_task())


def test_knobs_of_every_branch_are_known() -> None:
    found = check_knobs(Space("mine"), ALL, example_model(4), example_task())
    names = "cache.by cache.bits none.augment gdm.alpha freeze.trainable_blocks recipe.epochs"
    assert found.keys() >= set(names.split())


def test_what_no_model_allows_is_reported_with_both_sides() -> None:
    with pytest.raises(
        KnobError, match=r"gdm\.alpha: the search space asks for 0\.8, but this model allows \[0, 0\.571429\]"
    ):
        compose(ALL, preferred_values({}), example_model(4), example_task(), {"gdm.alpha": 0.8})
