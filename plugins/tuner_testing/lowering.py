"""What every lowering obeys."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from tuner.backends.extensions import Extensions
from tuner.errors import TunerError, first_line, place_of
from tuner.plan.parts import EditTraits, TailEdit
from tuner.plan.trial import TrialPlan
from tuner_testing.models.composing import CHANGING, OTHER
from tuner_testing.models.hosting import hosting, offered_by
from tuner_testing.models.libraries import require_light_import
from tuner_testing.models.settings import Reading, require_read

if TYPE_CHECKING:
    from tuner_testing.models.lowered import LoweredTail

#: Largest difference of logits, relative to the largest, of two tails that compute the same.
SAME_LOGITS = 1e-3
#: Bytes of an exported tail that has the given weights, over those of the given one.
LARGEST_EXPORT = 1.2
#: Bytes of an exported file that are not weights.
GRAPH_BYTES = 4096
_ONCE = (
    "a module that is an attribute is saved under it: keep a second reference elsewhere, as by "
    'self.__dict__["layer"] = tail.head'
)


class LoweringContract:
    """What every lowering obeys, shown on a network of four blocks that trains in milliseconds.

    Attributes:
        plugin: Plugin's module.
        kind: Kind of the edit.
        edits: Edits to try; by default those that the plugin's strategies emit, as their anchors and at the corners of
            their knobs.
        starts_as_given: Whether the edited tail computes at first what the given one does. It is checked of edits that
            keep the given model's weights.
    """

    plugin: ClassVar[object]
    kind: ClassVar[str]
    edits: ClassVar[Sequence[TailEdit]] = ()
    starts_as_given: ClassVar[bool] = True

    def test_it_returns_the_edited_tail(self) -> None:
        """A module that gives finite logits of the given shape, and in which something trains."""
        for plan in self._plans:
            with self._naming(plan):
                difference = self._lower(plan).alone()
            if not difference <= SAME_LOGITS:
                self._fail(
                    plan,
                    f"a sample's logits must not depend on the others of a batch, but alone they differ by "
                    f"{difference:.2g}: reduce no tensor over dim 0",
                )

    def test_every_setting_is_read(self) -> None:
        """Settings tell two plans apart: what they say must happen."""
        own, read = dict(self._extensions.lowerings), set[str]()
        lowering = own[self.kind]
        own[self.kind] = lambda tail, settings: lowering(tail, Reading(settings, read))
        for plan, lowered in self._lowered(extensions=replace(self._extensions, lowerings=own)):
            names = {name for edit in plan.shape if edit.kind == self.kind for name, _ in edit.settings}
            if names - read:  # it may read them when it trains
                with self._naming(plan, "it must train"):
                    lowered.train()
        require_read(f"lowering {self.kind!r}", names, read)

    def test_it_starts_as_the_given_model(self) -> None:
        """Training continues from what the given model knows."""
        if not self.starts_as_given:
            pytest.skip("not applicable: it says that it starts elsewhere")
        for plan, lowered in self._lowered():
            if not (plan.traits.keeps_weights or plan.traits.keeps_given):
                pytest.skip("not applicable: it has weights of its own")
            difference = lowered.difference(lowered.logits(lowered.given))
            if not difference <= SAME_LOGITS:
                self._fail(
                    plan,
                    f"before training, its tail must compute what the given one does, but logits differ by "
                    f"{difference:.2g}: start what you add from zero, or set starts_as_given = False",
                )

    def test_names_are_the_same_each_time(self) -> None:
        """A trained state is loaded into a tail that was edited anew."""
        for (plan, one), (_, two) in zip(self._lowered(), self._lowered(), strict=True):
            shapes = [{name: tuple(value.shape) for name, value in each.state().items()} for each in (one, two)]
            strange = [name for name in (*shapes[0], *shapes[1]) if shapes[0].get(name) != shapes[1].get(name)]
            if strange:
                self._fail(
                    plan,
                    f"it must give a tail of the same names and shapes each time, but {strange[0]!r} is not in both: "
                    "derive names from tail.blocks and the settings alone",
                )

    def test_something_trains_and_what_it_froze_stays(self) -> None:
        """What `requires_grad` says is what happens."""
        for plan, lowered in self._lowered():
            before = lowered.state()
            frozen = {name for name, value in lowered.tail.named_parameters() if not value.requires_grad}
            with self._naming(plan, "it must train"):
                lowered.train()
            moved = lowered.changes(before)
            if not moved:
                self._fail(plan, "some weight must train, but none moved in six steps: does the loss depend on them?")
            if not plan.traits.changes_shapes and frozen.intersection(moved):
                name = min(frozen.intersection(moved))
                self._fail(plan, f"what requires_grad froze must stay, but {name!r} moved: write to no weight in place")
            idle = [] if plan.traits.solves or lowered.evolves()[0] else lowered.without_gradient()
            if idle:
                self._fail(plan, f"what requires a gradient must get one, but {idle[0]!r} gets none: freeze it")
            with self._naming(plan, "the trained tail must be completed"):
                sets = lowered.completed()
            if not sets:
                self._fail(plan, "a `Completing` must set weights when training ends, but none moved: see `complete`")

    def test_it_makes_a_difference(self) -> None:
        """Trained with the edit, a tail is another one than without it, or trains other weights."""
        for plan, lowered in self._lowered():
            plain = self._lower(replace(plan, shape=tuple(edit for edit in plan.shape if edit.kind != self.kind)))
            if plan.traits != plain.plan.traits or lowered.trainable() != plain.trainable():
                return
            with self._naming(plan, "it must train"):
                lowered.train()
                plain.train()
            if lowered.difference(plain.logits()) > 0:
                return
        self._fail(plan, "it must change what trains or how, but the tail trains as without it: is it ever used?")

    def test_what_it_adapts_is_frozen(self) -> None:
        """A weight that trains next to its own adapter costs what the adapter is to spare."""
        adapts = False
        for plan, lowered in self._lowered():
            for name, trains in lowered.adapted().items():
                adapts = True
                if trains:
                    self._fail(
                        plan,
                        f"a weight with an adapter must be frozen, but {name!r} trains too: call requires_grad_(False) "
                        "on it before the adapter is registered",
                    )
        if not adapts:
            pytest.skip("not applicable: it adapts no weight")

    def test_what_is_saved_is_what_was_trained(self, tmp_path: Path) -> None:
        """The bundle's weights are the trained model: the given model's own, where the edit keeps them."""
        for plan, lowered in self._lowered():
            with self._naming(plan, "what was trained must be saved"):
                lowered.train()
                trained = lowered.logits()
                finished = lowered.finish()
            if twice := lowered.saved_twice(finished):
                self._fail(
                    plan,
                    f"each weight must be saved once, but {twice[1]!r} is {twice[0]!r}: {_ONCE}",
                )
            strange = lowered.strange_names(finished) if plan.traits.keeps_weights else []
            if strange:
                self._fail(
                    plan,
                    f"what is saved must be the model's own weights, but {strange[0]!r} is not one of both: give the "
                    "edit EditTraits(keeps_weights=False)",
                )
            with self._naming(plan, "what was trained must be saved"):
                again = lowered.reopened(lowered.saved(finished, tmp_path))
            difference = lowered.difference(trained, again)
            if not difference <= SAME_LOGITS:
                self._fail(
                    plan,
                    f"the saved tail must compute what was trained, but logits differ by {difference:.2g}: keep "
                    "everything that trains in parameters and buffers, or change weights by "
                    "torch.nn.utils.parametrize",
                )

    def test_an_interrupted_training_continues_bit_for_bit(self) -> None:
        """Trained on after its state was loaded into a fresh lowering, the tail is the same as without the pause."""
        from tuner_testing.models.lowered import EPOCHS

        for plan, whole in self._lowered():
            with self._naming(plan, "it must train"):
                whole.train()
            for pause in (1, EPOCHS - 1) if whole.evolves()[0] else (1,):  # what evolves may do so late
                first, second = self._lower(plan), self._lower(plan)
                with self._naming(plan, "training must continue from a saved state"):
                    second.train(saved=first.train(pause=pause))
                if not second.restored:
                    self._fail(
                        plan,
                        "`restore` must bring back what `state` returned, but `state` returns something else after "
                        "it: set all of it",
                    )
                wrong = second.changes(whole.state())
                if wrong:
                    self._fail(
                        plan,
                        f"training that continues must end as if it had not stopped, but {wrong[0]!r} differs: keep "
                        "what training changes in parameters, in buffers, or in the state of an `Evolving`",
                    )

    def test_it_nests_with_another_edit(self) -> None:
        """Before and after an edit that puts the tail inside another module, it edits the same layers."""
        from tuner_testing.models.lowered import changing, wrapped

        added = {**self._extensions.lowerings, OTHER: wrapped, CHANGING: changing}
        extensions, other = replace(self._extensions, lowerings=added), TailEdit(OTHER)
        changes = TailEdit(CHANGING, traits=EditTraits(traceable=False, keeps_weights=False))
        for plan, alone in self._lowered():
            orders = [("after", (other, *plan.shape)), ("before", (*plan.shape, other))]
            orders += [("before", (*plan.shape, changes))] if plan is self._plans[0] else []
            for order, shape in orders:
                with self._naming(plan, f"it must work {order} an edit that wraps the tail; layers are in tail.blocks"):
                    nested = self._lower(replace(plan, shape=shape), extensions)
                    same = nested.difference(alone.logits()) <= SAME_LOGITS
                    trainable = nested.trainable()
                    nested.train()
                    twice = nested.saved_twice(nested.finish())
                if twice:
                    self._fail(plan, f"each weight must be saved once, but {twice[1]!r} is {twice[0]!r}: {_ONCE}")
                if trainable != alone.trainable() or not same:
                    self._fail(
                        plan,
                        f"it must edit the same layers {order} an edit that wraps the tail, but {len(trainable)} "
                        f"tensors train instead of {len(alone.trainable())}: find layers in tail.blocks, not by "
                        "their names in tail.module",
                    )

    def test_the_frozen_prefix_stays_as_it_is(self) -> None:
        """Stored features are computed by it, for every trial."""
        for plan, lowered in self._lowered():
            with self._naming(plan, "it must train"):
                lowered.train()
                lowered.finish()
            changed = lowered.prefix_changes()
            if changed:
                self._fail(plan, f"the frozen blocks must stay as they are, but {changed[0]!r} changed: edit the tail")

    def test_no_hooks_are_left(self) -> None:
        """The given layers are scored and exported: a hook on them would still run."""
        for plan, lowered in self._lowered():
            with self._naming(plan, "it must train"):
                lowered.train()
                lowered.finish()
            hooked = lowered.hooks()
            if hooked:
                self._fail(
                    plan,
                    f"after training, the given layers must have no hooks, but {hooked[0]!r} has one: remove it in "
                    "`Evolving.finish`, or use torch.nn.utils.parametrize",
                )

    def test_no_state_is_global(self) -> None:
        """Two tails in one process do not influence each other; the same seed gives the same weights."""
        for plan, alone in self._lowered():
            with self._naming(plan, "two tails must train in one process"):
                alone.train()
                second = self._lower(plan)
                self._lower(plan, seed=2).train()
                second.train()
            wrong = second.changes(alone.state())
            if wrong:
                self._fail(
                    plan,
                    f"two tails of one seed must train the same, but {wrong[0]!r} differs after another one was "
                    "trained: keep nothing in the module, and draw from torch's generator or tail.seed",
                )

    def test_its_traits_are_true(self) -> None:
        """What is said of the edit before it is made, and planned on, is so."""
        for plan, lowered in self._lowered():
            traits = plan.traits
            evolves, trains_norms = lowered.evolves()
            if trains_norms and not traits.trains_norms:
                self._fail(plan, "its norms train whatever the recipe says: give it EditTraits(trains_norms=True)")
            if lowered.completes() and (traits.keeps_weights or not traits.keeps_given):
                self._fail(
                    plan,
                    "what a `Completing` sets would be left out: give it EditTraits(keeps_weights=False, "
                    "keeps_given=True)",
                )
            if evolves and traits.traceable:
                self._fail(plan, "a traced step calls no `Evolving` module: give it EditTraits(traceable=False)")
            reason = lowered.why_not_traced() if traits.traceable else ""
            if reason:
                self._fail(plan, f"its step must be traceable, but {reason}: or give it EditTraits(traceable=False)")
            before = {name: value.shape for name, value in lowered.state().items()}
            with self._naming(plan, "it must train"):
                lowered.train()
            if not traits.changes_shapes and before != {name: one.shape for name, one in lowered.state().items()}:
                self._fail(plan, "shapes change while it trains: give it EditTraits(changes_shapes=True)")
            for other in [one for one in self._plans if one.shape != plan.shape and one.line() == plan.line()]:
                one, two = self._lower(plan), self._lower(other)
                for each in (one, two):  # up to the end, but `finish` is not called
                    each.train(pause=each.plan.recipe.epochs)
                if wrong := two.changes(one.state()):
                    late = ", ".join(traits.after_training)
                    self._fail(plan, f"{late} must act in `finish` alone, but {wrong[0]!r} trains differently with it")

    def test_its_export_computes_the_same(self, tmp_path: Path) -> None:
        """As ONNX, the trained tail gives the same logits, and is about as large as the given one."""
        for plan, lowered in self._lowered(most=1):
            with self._naming(plan, "the trained tail must be exported as ONNX"):
                lowered.train()
                difference, size, plain = lowered.exported(lowered.finish(), tmp_path)
            if not difference <= SAME_LOGITS:
                self._fail(plan, f"ONNX Runtime must compute the same, but logits differ by {difference:.2g}")
            if plan.traits.keeps_weights and size > LARGEST_EXPORT * plain + GRAPH_BYTES:
                self._fail(
                    plan,
                    f"its export must take at most {LARGEST_EXPORT:g} × the given tail's {plain} B, but takes {size} "
                    "B: merge what was trained into the given weights",
                )

    def test_importing_the_plugin_loads_no_tensor_library(self) -> None:
        """A tensor library is imported inside the lowering."""
        require_light_import(self.plugin)

    @cached_property
    def _extensions(self) -> Extensions:
        return hosting(self.plugin).extensions("torch")

    @cached_property
    def _plans(self) -> list[TrialPlan]:
        from tuner_testing.models.edited_plans import explicit_plans, plans_to_try

        if self.edits:
            return explicit_plans(self.edits)
        return plans_to_try(self.kind, offered_by(self.plugin, "strategies"), self._extensions)

    def _lower(self, plan: TrialPlan, extensions: Extensions | None = None, seed: int = 1) -> "LoweredTail":
        from tuner_testing.models.lowered import LoweredTail

        return LoweredTail(plan, extensions or self._extensions, seed)

    def _lowered(
        self, most: int | None = None, extensions: Extensions | None = None
    ) -> Iterator[tuple[TrialPlan, "LoweredTail"]]:
        for plan in self._plans[:most]:
            try:
                lowered = self._lower(plan, extensions)
            except TunerError as error:
                pytest.skip(f"its tail is not made: {error}")
            yield plan, lowered

    @contextmanager
    def _naming(self, plan: TrialPlan, rule: str = "") -> Iterator[None]:
        """Name plan, rule and place of what a plugin's code raises."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a plugin's code may raise anything
            reason = str(error) if isinstance(error, TunerError) else f"{first_line(error)}{place_of(error)}"
            reason = reason.removeprefix(f"lowering {self.kind!r}: ")
            self._fail(plan, f"{rule}, but: {reason}" if rule else reason)

    def _fail(self, plan: TrialPlan, rule: str) -> None:
        own = next((edit for edit in plan.shape if edit.kind == self.kind), plan.shape[0])
        settings = "".join(f", {name} {value}" for name, value in own.settings)
        pytest.fail(f"lowering {self.kind!r} (from block {plan.split}{settings}): {rule}")
