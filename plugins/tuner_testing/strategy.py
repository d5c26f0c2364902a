"""What every strategy obeys."""

import random
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from typing import Any, ClassVar

import pytest

from tuner.plan.example import example_model, example_task
from tuner.plan.info import ModelInfo, Sized
from tuner.plan.parts import CachePlan, RecipePlan, RuntimePlan, Scalar, Stage
from tuner.plan.toml import from_toml, to_toml
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import Composed, StrategyError
from tuner.plugin.core import build_host
from tuner.plugin.knobs import Choice, Draw, Knob, ValueSource, is_legal
from tuner.plugin.load.calls import CALL_SECONDS, limited
from tuner.plugin.sources import corners, fixed_values, preferred_values, random_values
from tuner.plugin.strategy import Strategy
from tuner_testing.models.composing import MOST_CORNERS, Another, Mixed, composed_by, corners_of
from tuner_testing.models.hosting import installed_host, require_hosted
from tuner_testing.models.libraries import TENSOR_LIBRARIES, require_light_import

SIZES = (1, 2, 50)
#: Random values next to which a knob is looked at; it need not act next to all others.
LOOKS = 48
#: Times that the same plan is composed: what is drawn at random shows.
AGAIN = 8
#: How alike two names are of which one is taken for the other, misspelt; strangers' names are no mistakes.
ALIKE = 0.8


class StrategyContract:
    """What every strategy obeys.

    Attributes:
        strategy: The one under test.
        siblings: Names of the strategies of its plugin.
    """

    strategy: ClassVar[Strategy[Any]]
    siblings: ClassVar[Collection[str]] = ()

    def test_the_host_accepts_it(self) -> None:
        """Its name is an identifier that is not taken, and its stage is one."""
        core = build_host(installed=False).strategies.get(getattr(self.strategy, "name", ""))
        if type(core) is not type(self.strategy):
            require_hosted("tuner_strategies", self.strategy, type(self.strategy).__module__)

    @pytest.mark.parametrize("blocks", SIZES)
    def test_plans_are_legal_at_both_ends_of_every_knob(self, blocks: int) -> None:
        """Every corner of the knobs' ranges is a plan that obeys the rules, and so are the start values."""
        drawn = {tuple(self._compose(preferred_values({}), blocks).knobs) for _ in range(AGAIN)}
        if len(drawn) > 1:
            pytest.fail(
                f"{self._who}: sample must draw the same knobs for the same values, but it drew "
                f"{' and then '.join(map(', '.join, sorted(drawn)[:2]))}: draw no random numbers of your own"
            )
        seen = sum(1 for _ in self._composed(blocks))
        if not seen:
            pytest.fail(f"{self._who} must allow at least one plan for {blocks} blocks, but there is none")

    @pytest.mark.parametrize("blocks", SIZES)
    def test_only_its_own_stage_is_written(self, blocks: int) -> None:
        """All other parts of the plan come back as they were given."""
        for before, knobs in self._sampled(blocks):
            with limited(CALL_SECONDS):
                after = self.strategy.apply(before, knobs)
            if not isinstance(after, TrialPlan):
                pytest.fail(f"{self._who}: apply must return a TrialPlan, but it returned {after!r}: end it with one")
            for part in ("model", "task", *Stage):
                allowed = {self.strategy.stage, *self.strategy.writes}
                if part not in allowed and getattr(before, part) != getattr(after, part):
                    pytest.fail(f"{self._who} may write {self.strategy.stage.value!r} only, but it wrote {str(part)!r}")

    @pytest.mark.parametrize("blocks", SIZES)
    def test_the_same_knobs_give_the_same_plan(self, blocks: int) -> None:
        """A recorded trial is replayed from its values, in this process or another."""
        for composed in self._composed(blocks):
            again = self._compose(fixed_values(composed.values), blocks)
            if again.plan != composed.plan or again.plan.key() != composed.plan.key():
                pytest.fail(
                    f"{self._who} must give one plan for the values {composed.values}, but it gave two: "
                    f"{_difference(composed.plan, again.plan)}: use nothing but the plan and the knobs"
                )

    @pytest.mark.parametrize("blocks", SIZES)
    def test_what_others_wrote_stays(self, blocks: int) -> None:
        """Tail edits and loss terms that other strategies added are still there."""
        shared = {Stage.SHAPE, Stage.LOSS} & {self.strategy.stage, *self.strategy.writes}
        others = [Another(frozenset(shared))] if shared else []
        for _ in corners_of(self.strategy, example_model(blocks), example_task(), others=others):
            pass

    @pytest.mark.parametrize("blocks", SIZES)
    def test_no_range_depends_on_another_knob(self, blocks: int) -> None:
        """Whether a knob is drawn may depend on another; its range may not: draw a fraction and scale in `apply`."""
        seen: dict[str, Knob] = {}
        for composed in self._composed(blocks):
            for name, knob in composed.knobs.items():
                if seen.setdefault(name, knob) != knob:
                    pytest.fail(
                        f"{self._who} must draw {name} from one range, whatever other knobs are, but it used two: "
                        f"{seen[name]}, and {knob} for {composed.values}: draw a fraction and scale it in `apply`"
                    )

    @pytest.mark.parametrize("blocks", SIZES)
    def test_plans_hash_and_read_back_equal(self, blocks: int) -> None:
        """A plan is a key of dictionaries, and TOML on disk."""
        for composed in self._composed(blocks):
            plan = composed.plan
            try:
                number, text = hash(plan), to_toml(plan)
            except TypeError as error:
                pytest.fail(f"{self._who} must write frozen, plain values, but {error}: {plan.settings()}")
            back = from_toml(text)
            if back != plan or hash(back) != number or back.key() != plan.key():
                pytest.fail(
                    f"{self._who} must give plans that are the same after being saved and read, but they differ: "
                    f"{_difference(plan, back)}"
                )

    def test_every_knob_has_an_effect(self) -> None:
        """A knob that changes no plan costs a search trials that tell nothing."""
        others = [] if self.strategy.stage is Stage.DATA else [Mixed()]
        task = replace(example_task(), augment=("flip", "shift"))

        def composed_of(source: ValueSource) -> Composed:
            return composed_by(self.strategy, source, example_model(SIZES[-1]), task, others=others)

        knobs, acting = dict[str, Knob](), set[str]()
        for seed in range(LOOKS):
            base = composed_of(random_values(random.Random(seed)))
            own = {name: knob for name, knob in base.knobs.items() if name.startswith(f"{self.strategy.name}.")}
            knobs |= {name: knob for name, knob in own.items() if not knob.fixed}
            for name in own.keys() - acting:
                changed = (composed_of(preferred_values({**base.values, name: end})) for end in _ends(own[name]))
                acting |= {name} if any(one.plan.key() != base.plan.key() for one in changed) else set()
        idle = knobs.keys() - acting
        if idle:
            pytest.fail(
                f"{self._who}: every knob must change the plan, but {min(idle)} changes none: write it into the plan "
                "in `apply`, or draw it only where it acts"
            )

    def test_its_start_does_nothing(self) -> None:
        """A study starts with the start values of all strategies at once: each adds nothing until it is drawn."""
        own = {Stage.SHAPE, Stage.HEADS, Stage.LOSS} & {self.strategy.stage}
        if not own:
            pytest.skip(f"not applicable: a plan always has a {self.strategy.stage.value}")
        plan = self._compose(preferred_values({}), SIZES[-1]).plan
        for stage in own:
            if getattr(plan, stage) != getattr(TrialPlan(plan.model, plan.task, split=0), stage):
                pytest.fail(
                    f"{self._who}: start values must leave the {stage.value} of a plan as it is, but they give "
                    f"{getattr(plan, stage)}: give a knob the start that does nothing, and list plans to try first in "
                    "`anchors`"
                )

    def test_its_anchors_are_values_of_knobs(self) -> None:
        """One that names no knob, or a value that it cannot have, would not be tried, or as another plan."""
        if type(self.strategy).anchors is Strategy.anchors:
            pytest.skip("not applicable: it has none")
        for blocks in SIZES:
            with limited(CALL_SECONDS):
                anchors = list(self.strategy.anchors(self._model(blocks)))
            knobs = self._knobs(blocks) if anchors else {}
            for anchor in anchors:
                self._check_anchor(anchor, knobs)
                self._compose(preferred_values(anchor), blocks)

    def test_it_names_strategies_that_there_are(self) -> None:
        """What is misspelt in `excludes` or `after` is neither excluded nor waited for."""
        known = {*installed_host().strategies, *self.siblings}
        for attribute in ("excludes", "after"):
            for name in sorted({*getattr(self.strategy, attribute)} - known):
                if alike := _alike(name, known):
                    pytest.fail(
                        f"{self._who}: {attribute} must name strategies, but there is no {name!r}: did you mean "
                        f"{alike!r}?"
                    )

    def test_sampling_and_applying_need_no_tensor_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Composing plans is arithmetic; a lowering is the place to import a tensor library."""
        for name in TENSOR_LIBRARIES:
            monkeypatch.setitem(sys.modules, name, None)
        try:
            for _ in self._composed(SIZES[-1]):
                pass
        except StrategyError as error:
            cause = error.__cause__
            if not isinstance(cause, ImportError):
                raise
            pytest.fail(
                f"{self._who} must compose plans without a tensor library, but {cause}: import it in the lowering"
            )

    def test_importing_the_plugin_loads_no_tensor_library(self) -> None:
        """``tuner plugins`` and ``tuner show`` import every plugin, on devices that have no tensor library."""
        require_light_import(self.strategy)

    @property
    def _who(self) -> str:
        return f"strategy {self.strategy.name!r}"

    def _compose(self, source: ValueSource, blocks: int) -> Composed:
        return composed_by(self.strategy, source, self._model(blocks), example_task())

    def _model(self, blocks: int) -> ModelInfo:
        """Return a model; for a strategy of the input's size, one that takes another size too."""
        model = example_model(blocks)
        smaller = tuple(replace(block, in_shape=(8, 2, 2), flops=block.flops // 4) for block in model.blocks)
        return replace(model, sizes=(Sized(2, smaller),)) if self.strategy.stage is Stage.SIZE else model

    def _composed(self, blocks: int) -> Iterator[Composed]:
        """Yield the plans at the corners of the knobs, for a model of which the first half is frozen."""
        return corners_of(self.strategy, self._model(blocks), example_task())

    def _knobs(self, blocks: int) -> dict[str, list[Knob]]:
        """Return the knobs of its own and of all other strategies, by name; one may have several ranges."""
        knobs = {name: [*ranges] for name, ranges in _installed_knobs(blocks).items()}
        for composed in self._composed(blocks):
            for name, knob in composed.knobs.items():
                knobs.setdefault(name, []).append(knob)
        return knobs

    def _check_anchor(self, anchor: object, knobs: Mapping[str, list[Knob]]) -> None:
        if not isinstance(anchor, Mapping):
            pytest.fail(f"{self._who}: anchors must be values of knobs by name, but one is {anchor!r}: give mappings")
        scopes = {name.partition(".")[0] for name in knobs}
        for name, value in anchor.items():
            scope, _, knob = str(name).partition(".")
            alike = _alike(str(name), {*knobs, *(f"{stage}.by" for stage in Stage)})
            if name not in knobs and not knob.startswith("by") and (scope in scopes or alike):
                meant = f": did you mean {alike!r}?" if alike else ": correct the name"
                pytest.fail(f"{self._who}: anchors must name knobs, but there is no {name!r}{meant}")
            if knob.startswith("by") and value not in {*installed_host().strategies, *self.siblings}:
                pytest.fail(f"{self._who}: anchors must name strategies, but {name} is {value!r}: correct the name")
            known = knobs.get(name, ())
            ranges = [own.legal or own if isinstance(own, Choice) else own for own in known]
            # Another strategy's range may depend on the task: there, a number beyond it gives its end.
            is_end = scope != self.strategy.name and any(_may_be_beyond(own, value) for own in known)
            if ranges and not is_end and not any(is_legal(own, value) for own in ranges):
                pytest.fail(f"{self._who}: anchors must give values that knobs have, got {value!r}, but {ranges[0]}")

    def _sampled(self, blocks: int) -> Iterator[tuple[TrialPlan, Any]]:
        """Yield the knobs at the corners, and a plan to apply them to in which every other part is set."""
        model = example_model(blocks)
        plan = TrialPlan(
            model,
            example_task(),
            split=blocks // 2,
            cache=CachePlan("other", 8),
            recipe=RecipePlan(epochs=3, batch_size=7),
            runtime=RuntimePlan("other", 3),
        )
        if self.strategy.stage is Stage.CACHE:
            plan = replace(plan, cache=CachePlan())
        drawn: list[Any] = []

        def sample(source: ValueSource) -> None:
            with limited(CALL_SECONDS):
                drawn.append(self.strategy.sample(Draw(source, self.strategy.name), model))

        for _ in corners(sample, most=MOST_CORNERS):
            yield plan, drawn[-1]


@cache
def _installed_knobs(blocks: int) -> Mapping[str, Sequence[Knob]]:
    """Return the knobs of all strategies that are installed, by name."""
    model, task, knobs = example_model(blocks), example_task(), dict[str, list[Knob]]()
    for strategy in installed_host().strategies.values():

        def sample(source: ValueSource, strategy: Strategy[Any] = strategy) -> None:
            strategy.sample(Draw(source, strategy.name, task=task), model)

        for drawn in corners(sample, most=MOST_CORNERS):
            for name, knob in drawn.items():
                knobs.setdefault(name, []).append(knob)
    return knobs


def _alike(name: str, known: Collection[str]) -> str:
    """Return a known name for which another one is misspelt: its letters in another order, or nearly the same."""
    ordered = [one for one in known if sorted(one) == sorted(name)]
    return next(iter([*ordered, *get_close_matches(name, known, n=1, cutoff=ALIKE)]), "")


def _may_be_beyond(knob: Knob, value: Scalar) -> bool:
    """Return whether a number may be beyond a range on another task: no range of a positive one has negative values."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and not isinstance(knob, Choice) and (float(value) >= 0 or knob.low < 0)


def _ends(knob: Knob) -> tuple[Scalar, ...]:
    """Return values of a knob that are far from each other."""
    return knob.options if isinstance(knob, Choice) else (knob.low, knob.middle(), knob.high)


def _difference(one: Any, other: Any, where: str = "plan") -> str:
    """Return the first value in which two plans differ, as ``plan.shape[0].settings: ... and then ...``."""
    if is_dataclass(one) and type(one) is type(other):
        parts = [(f"{where}.{part.name}", getattr(one, part.name), getattr(other, part.name)) for part in fields(one)]
    elif isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        parts = [(f"{where}[{place}]", *pair) for place, pair in enumerate(zip(one, other, strict=True))]
    else:
        return f"{where} is {one!r}, then {other!r}"
    inner = (_difference(*(first, second, name)) for name, first, second in parts if not first == second)  # noqa: SIM201 - NaN
    return next(inner, f"{where} is {one!r}, then {other!r}")
