"""What every loss term obeys."""

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from tuner.backends.losses import LossFunction, LossInputs
from tuner.errors import first_line, place_of
from tuner.plan.parts import LossTerm
from tuner.targets import SINGLE_LABEL, MultiLabel
from tuner_testing.models.libraries import loaded_by
from tuner_testing.models.settings import Reading, require_read

SAMPLES, OUTPUTS = 6, 5
#: How far logits may be from 0.
LARGE = 100.0


class LossContract:
    """What every loss term obeys.

    Attributes:
        term: The one under test, as a strategy writes it.
        losses: What the plugin's ``tuner_losses`` returns for the backend ``torch``.
        traceable: Whether it must be traceable, for the planned executor and ONNX Runtime.
    """

    term: ClassVar[LossTerm]
    losses: ClassVar[Mapping[str, LossFunction]]
    traceable: ClassVar[bool] = True

    def test_every_sample_has_one_finite_loss(self) -> None:
        """float32 [n], whatever the kind of labels, and however many outputs the given model knew."""
        import torch

        for batch in self._batches():
            try:
                losses = self._function(batch, dict(self.term.settings))
            except Exception as error:  # noqa: BLE001 - a plugin's code may raise anything
                labels = f"{batch.labels.dtype} {list(batch.labels.shape)}"
                reason = f"{first_line(error)}{place_of(error)}"
                pytest.fail(
                    f"{self._who} must take one label a sample, and several, but with {labels} it raised {reason}"
                )
            if not isinstance(losses, torch.Tensor) or list(losses.shape) != [SAMPLES]:
                got = list(losses.shape) if isinstance(losses, torch.Tensor) else type(losses).__name__
                pytest.fail(f"{self._who} must return one loss per sample, [{SAMPLES}], got {got}: leave out .mean()")
            if losses.dtype != torch.float32 or not bool(losses.isfinite().all()):
                pytest.fail(f"{self._who} must return finite float32 values, got {losses.dtype} {losses.tolist()}")

    def test_a_gradient_reaches_the_logits(self) -> None:
        """A term without one has no effect; one that is not finite breaks every weight."""
        for batch in self._batches():
            self._computed(batch).sum().backward()
            gradient = batch.logits.grad
            if gradient is None or not bool(gradient.isfinite().all()):
                pytest.fail(f"{self._who} must have a finite gradient by the logits, got {gradient}")
            if batch.known and not bool(gradient.any()):
                pytest.fail(f"{self._who} must have a gradient by the logits, but it is 0: use batch.logits undetached")

    def test_it_is_pure(self) -> None:
        """The same batch gives the same losses, and the batch stays as it was."""
        import torch

        for batch in self._batches():
            parts = (batch.logits, batch.labels, batch.features, batch.teacher)
            copies = [None if part is None else part.detach().clone() for part in parts]
            first, second = self._computed(batch), self._computed(batch)
            if not torch.equal(first, second):
                pytest.fail(f"{self._who} must give the same losses for the same batch: draw no random numbers")
            changed = [
                part for part, copy in zip(parts, copies, strict=True) if part is not None and (part != copy).any()
            ]
            if changed:
                pytest.fail(
                    f"{self._who} must leave the batch alone, but it changed a tensor: use no operator in place"
                )

    def test_a_samples_loss_depends_on_that_sample_alone(self) -> None:
        """Batches are cut into micro-batches, and filled up with samples that do not count."""
        import torch

        for batch in self._batches():
            teacher = None if batch.teacher is None else batch.teacher[:2]
            part = LossInputs(
                batch.logits[:2], batch.labels[:2], batch.features[:2], teacher, batch.known, batch.targets
            )
            if not torch.allclose(self._computed(part), self._computed(batch)[:2], rtol=1e-4, atol=1e-6):
                pytest.fail(f"{self._who} must not depend on the other samples of a batch: reduce no tensor over dim 0")

    def test_every_setting_is_read(self) -> None:
        """Settings tell two plans apart: what they say must happen."""
        read, settings = set[str](), dict(self.term.settings)
        for batch in self._batches():
            self._function(batch, Reading(settings, read))
        require_read(self._who, set(settings), read)

    def test_it_can_be_traced(self) -> None:
        """What is traced is planned, and runs on ONNX Runtime."""
        from tuner.backends.torch.step.traced import StepError, graph_of, port_of

        if not self.traceable:
            pytest.skip("not applicable: it runs in the eager loop only")
        for batch in self._batches():
            names = [name for name in ("logits", "labels", "features", "teacher") if getattr(batch, name) is not None]

            def losses(*parts: Any, names: list[str] = names, batch: LossInputs = batch) -> tuple[Any, ...]:
                return (self._computed(replace(batch, **dict(zip(names, parts, strict=True)))),)

            try:
                graph_of(losses, [port_of(name, "input", getattr(batch, name)) for name in names])
            except StepError as error:
                pytest.fail(f"{self._who} must be traceable, but {error}; else set traceable = False")

    def test_importing_the_plugin_loads_no_tensor_library(self) -> None:
        """Plugins are imported on devices that have none: import it in the function."""
        module = self._function.__module__
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not importable by name")
        loaded = loaded_by(f"import {module}")
        if loaded:
            pytest.fail(
                f"importing {module} must load no tensor library, but it loads {loaded}: import it in the function"
            )

    @property
    def _who(self) -> str:
        return f"loss term {self.term.kind!r}"

    @property
    def _function(self) -> LossFunction:
        if self.term.kind not in self.losses:
            there = ", ".join(sorted(self.losses)) or "none"
            pytest.fail(f"{self._who} must be computed by tuner_losses, which has: {there}")
        return self.losses[self.term.kind]

    def _computed(self, batch: LossInputs) -> Any:
        return self._function(batch, dict(self.term.settings))

    def _batches(self) -> Iterator[LossInputs]:
        """Yield batches of both kinds of labels, logits near 0 and far from it, and outputs known or new."""
        import torch

        draw = torch.Generator().manual_seed(0)
        one = torch.randint(OUTPUTS, (SAMPLES,), generator=draw)
        several = torch.randint(2, (SAMPLES, OUTPUTS), generator=draw).float()
        for labels, targets in ((one, SINGLE_LABEL), (several, MultiLabel())):
            for scale, known in ((1.0, OUTPUTS), (1.0, OUTPUTS - 2), (1.0, 0), (LARGE, OUTPUTS)):
                logits = scale * torch.randn(SAMPLES, OUTPUTS, generator=draw)
                teacher = torch.randn(SAMPLES, OUTPUTS, generator=draw) if self.term.teacher else None
                features = torch.randn(SAMPLES, 3, 4, 4, generator=draw)
                yield LossInputs(logits.requires_grad_(), labels, features, teacher, known, targets)
