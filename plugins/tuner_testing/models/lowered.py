"""Lower a plan's edits on the made-up task, and train the result: the code that trials run."""

import copy
import math
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

from tuner.arrays import Floats
from tuner.backends.extensions import Extensions
from tuner.backends.lowering import Completing, Evolving, Solver, SolverInputs
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.model.open.load import OpenModel, load
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.backends.torch.step.trace import trace
from tuner.backends.torch.step.traced import StepError
from tuner.backends.torch.task_loss import torch_loss
from tuner.backends.torch.trial.edits.completed import complete, training_samples
from tuner.backends.torch.trial.edits.edited import EditedTail, edited, fuse, probe_of
from tuner.backends.torch.trial.edits.evolving import evolving
from tuner.backends.torch.trial.edits.solved import SolvedSteps
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.backends.torch.trial.opened import TailTraining
from tuner.ort.session import LOGITS, Session
from tuner.plan.info import ModelInfo
from tuner.plan.trial import TrialPlan
from tuner.plugin.ridge import Domain, LinearHead, SolverSums, coded, step_of
from tuner.training.epoch import EpochLoop
from tuner_testing.models.made_up import TRAIN, made_up_task

#: Fewer epochs end before a tail that grows has grown.
EPOCHS, BATCH = 4, 8
HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


@cache
def made_up_model() -> ModelInfo:
    """Return the made-up task's model as a chain of blocks."""
    return _untouched().info


class LoweredTail:
    """A plan's tail with its edits made, on a model of its own; `given` has the blocks of an untouched one.

    Raises:
        LoweringError: A lowering raised, or broke a rule.
    """

    def __init__(self, plan: TrialPlan, extensions: Extensions, seed: int = 1) -> None:
        recipe = replace(plan.recipe, epochs=EPOCHS, batch_size=BATCH, micro_batches=1)
        self.plan, self._seed, self._task = replace(plan, recipe=recipe), seed, made_up_task()
        self._extensions = extensions
        self._model = _opened()
        untouched = _untouched()
        self.given = untouched.tail(plan.split).eval()
        prefix = untouched.prefix(plan.split).eval()
        samples = self._task.local.train
        torch.set_num_threads(plan.runtime.threads)
        with torch.no_grad():
            values = prefix(torch.from_numpy(self._task.batch(samples, range(TRAIN))))
        self._inputs = TailInputs(lambda rows: values[torch.from_numpy(np.asarray(rows))], samples.labels)
        self.example = spatial(values)
        self._prefix_state = copy.deepcopy(prefix.state_dict())
        torch.manual_seed(seed)
        probe = probe_of(self._inputs, torch_loss(self._task.targets), seed)
        self.edits: EditedTail = edited(self._model, self.plan, extensions, probe, seed)
        self.restored = True

    @property
    def tail(self) -> nn.Module:
        """What trains."""
        return self.edits.tail

    def logits(self, module: nn.Module | None = None) -> torch.Tensor:
        """Return float32 [n, outputs] of the training samples in evaluation mode, by the tail or another module."""
        module = (module or self.tail).eval()
        with torch.no_grad():
            outputs: torch.Tensor = module(self.example)
        return outputs

    def alone(self) -> float:
        """Return how far the logits of a sample alone are from those that it has in a batch."""
        batch = self.logits()
        with torch.no_grad():
            return _difference(batch[:1], self.tail(self.example[:1]))

    def state(self) -> dict[str, torch.Tensor]:
        """Return a copy of the tail's state."""
        return copy.deepcopy(self.tail.state_dict())

    def difference(self, wanted: torch.Tensor, module: nn.Module | None = None) -> float:
        """Return how far the logits of the tail or another module are from those wanted, relative to the largest."""
        return _difference(wanted, self.logits(module))

    def changes(self, before: Mapping[str, torch.Tensor]) -> list[str]:
        """Return the names whose tensors are not as in another state, or that only one of the two has."""
        return _different(before, self.tail.state_dict())

    def trainable(self) -> list[tuple[int, ...]]:
        """Return the shapes of what trains."""
        return sorted(tuple(value.shape) for value in self.tail.parameters() if value.requires_grad)

    def train(self, pause: int = 0, saved: "Saved | None" = None) -> "Saved":
        """Train the recipe's epochs, or up to a pause, or from one; return where it stopped.

        `restored` then says whether what evolves had the state of the pause again.
        """
        torch.manual_seed(self._seed)
        if saved is not None:
            self.tail.load_state_dict(saved.tail)
        training = TailTraining(self._task, self.plan, self.tail, self._inputs, self._seed, self._extensions)
        steps = SolvedSteps(training) if self.plan.traits.solves else EagerSteps(training)
        loop = EpochLoop(steps, self.plan.recipe, TRAIN, self._seed)
        if saved is not None:
            loop.restore(copy.deepcopy(saved.loop))
            torch.set_rng_state(saved.noise)
            self.restored = _same(*((state or {}).get("evolving") for state in (saved.loop, loop.state())))
        for number in range(saved.epochs if saved else 0, pause or EPOCHS):
            loop.epoch(number)
            steps.evolve(number + 1, None)
        here = Saved(self.state(), copy.deepcopy(loop.state() or {}), torch.get_rng_state(), pause or EPOCHS)
        if not pause:
            samples = training_samples(self._task.targets, self.tail, self.plan, self._inputs)
            steps.finish(samples)
        return here

    def solved(self, kind: str) -> tuple[LinearHead, LinearHead]:
        """Return the head that a trial solves for, and that of `solve(sums)` for the same samples, half of them local.

        `kind` is that of the edit.
        """
        solver = next(module for module in self.tail.modules() if isinstance(module, Solver))
        solve, given = solver.solve, _head_of(solver)
        plan = replace(self.plan, data=replace(self.plan.data, weight=2.0))
        mixed = replace(self._inputs, local_rows=TRAIN // 2)
        steps = SolvedSteps(TailTraining(self._task, plan, self.tail, mixed, self._seed, self._extensions))
        with patch.object(solver, "solve", side_effect=solve) as called:
            steps.step(np.arange(TRAIN), 0.0)
            steps.end_epoch()
        seen: SolverInputs = called.call_args.args[0]
        settings = next(dict(edit.settings) for edit in plan.shape if edit.kind == kind)
        empty = Domain.empty(seen.features.shape[1], len(given.bias), step_of(seen.features), seen.targets)
        codes = coded(seen.features, empty.step)
        local, known = (empty.added(codes[rows], seen.labels[rows]) for rows in (seen.is_local, ~seen.is_local))
        about = {"settings": settings, "targets": seen.targets, "known_weight": seen.known_weight}
        return _head_of(solver), self._extensions.solvers[kind](SolverSums.of(local, known, given, **about))

    def finish(self) -> nn.Module:
        """Return what is scored and exported."""
        return self.edits.finish(self.example[:1])

    def without_gradient(self) -> list[str]:
        """Return the names of what requires a gradient, and got none in training."""
        return [name for name, own in self.tail.named_parameters() if own.requires_grad and own.grad is None]

    def completes(self) -> bool:
        """Return whether any module of the tail is completed when training ends."""
        return any(isinstance(module, Completing) for module in self.tail.modules())

    def completed(self) -> bool:
        """Complete the trained tail, of which half of the samples are the user's; return whether weights are set."""
        if not self.completes():
            return True
        before = self.state()
        mixed = replace(self._inputs, local_rows=TRAIN // 2)
        complete(training_samples(self._task.targets, self.tail, self.plan, mixed), self.tail, self.plan)
        return bool(self.changes(before))

    def reopened(self, state: Mapping[str, torch.Tensor]) -> nn.Module:
        """Return the tail that a trained state belongs to, as an export makes it."""
        if self.edits.given is not None:
            again: nn.Module = _opened().tail(self.plan.split)
        else:
            again = edited(_opened(), self.plan, self._extensions).tail  # of noise, and of the seed 0
            fuse(again)
        again.load_state_dict(state)
        return again

    def saved(self, module: nn.Module, folder: Path) -> dict[str, torch.Tensor]:
        """Return a module's state as it is read back from the file that a trial writes."""
        save_file({name: value.contiguous() for name, value in module.state_dict().items()}, folder / "tail")
        read: dict[str, torch.Tensor] = load_file(folder / "tail")
        return read

    def saved_twice(self, module: nn.Module) -> tuple[str, str] | None:
        """Return two names of one tensor of a module's state; None where there are none."""
        names: dict[tuple[int, int], str] = {}
        for name, value in module.state_dict().items():
            place = (value.data_ptr(), value.numel())
            if value.numel() and names.setdefault(place, name) != name:
                return names[place], name
        return None

    def strange_names(self, module: nn.Module) -> list[str]:
        """Return the names of weights that only one of a module and the given tail has."""
        return sorted({*module.state_dict()} ^ {*self.given.state_dict()})

    def adapted(self) -> dict[str, bool]:
        """Return whether each weight trains that a parametrisation with weights of its own adapts, by its layer."""
        lists = [(name, one) for name, one in self.tail.named_modules() if isinstance(one, ParametrizationList)]
        own = {name: [value for part in one for value in part.parameters()] for name, one in lists}
        return {
            name: any(value.requires_grad for value in one.parameters(recurse=False))
            for name, one in lists
            if any(value.requires_grad for value in own[name])
        }

    def prefix_changes(self) -> list[str]:
        """Return the names of the frozen blocks' weights and buffers that are not as they were given."""
        return _different(self._prefix_state, self._model.prefix(self.plan.split).state_dict())

    def hooks(self) -> list[str]:
        """Return which layers of the model have hooks that the given ones do not have."""
        given = {name: _hooks_of(module) for name, module in _untouched().model.named_modules()}
        now = {name: _hooks_of(module) for name, module in self._model.model.named_modules()}
        return [name for name, count in now.items() if count > given.get(name, 0)]

    def why_not_traced(self) -> str:
        """Return why a training step cannot be traced; empty where it can."""
        try:
            trace(
                self.tail,
                self.plan.recipe,
                loss=torch_loss(self._task.targets),
                input_shape=self.plan.model.blocks[self.plan.split].in_shape,
                outputs=self.plan.model.outputs,
                batch_size=BATCH,
            )
        except StepError as error:
            return str(error)
        return ""

    def evolves(self) -> tuple[bool, bool]:
        """Return whether any module of the tail changes while it trains, and whether one trains norms anyway."""
        modules = evolving(self.tail)
        return bool(modules), any(module.fresh_norms for module in modules)

    def exported(self, module: nn.Module, folder: Path) -> tuple[float, int, int]:
        """Write a module as ONNX; return how far off ONNX Runtime is, the file's bytes, and those of the given tail."""
        size = _written(module, self.example, folder / "tail.onnx")
        computed = Session(folder / "tail.onnx").logits(self.example.numpy())
        return _difference(self.logits(module), computed), size, _given_bytes(self.plan.split)


class Saved(NamedTuple):
    """A training between two epochs: states of the tail, of the loop and of PyTorch's generator; epochs so far."""

    tail: dict[str, torch.Tensor]
    loop: dict[str, Any]
    noise: torch.Tensor
    epochs: int


@cache
def _given_bytes(cut: int) -> int:
    """Return the bytes of the given tail's ONNX file, from a cut on: written once, for all edits."""
    task, untouched = made_up_task(), _untouched()
    with torch.no_grad():
        example = spatial(untouched.prefix(cut).eval()(torch.from_numpy(task.batch(task.local.train, range(TRAIN)))))
    with tempfile.TemporaryDirectory() as folder:
        return _written(untouched.tail(cut), example, Path(folder) / "tail.onnx")


def _written(module: nn.Module, example: torch.Tensor, path: Path) -> int:
    """Write a module as ONNX; return the file's bytes."""
    write_onnx(module.eval(), example, path, [LOGITS])
    return path.stat().st_size


def _different(before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]) -> list[str]:
    return [
        name
        for name in dict.fromkeys((*before, *after))
        if name not in before or name not in after or not torch.equal(before[name], after[name])
    ]


def _same(one: object, other: object) -> bool:
    """Return whether two states are equal: tensors, numbers, texts, lists and dictionaries of them."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other or (one != one and other != other)  # noqa: PLR0124 - not a number


def _difference(one: torch.Tensor, other: torch.Tensor | Floats) -> float:
    """Return the largest difference of two arrays of logits, relative to the largest; infinite where shapes differ."""
    other = torch.as_tensor(other)
    if one.shape != other.shape:
        return math.inf
    return float((one - other).abs().max() / one.abs().max().clamp(min=1e-6))


def wrapped(tail: Any, _settings: Mapping[str, Any]) -> nn.Module:
    """Put the tail inside another module, as a dropout in front of it does."""
    return nn.Sequential(nn.Dropout(0.1), tail.module)


class Changing(nn.Sequential, Evolving):
    """A tail inside a module that changes while it trains."""


def changing(tail: Any, _settings: Mapping[str, Any]) -> nn.Module:
    """Put the tail inside a module that changes while it trains, and has names of its own."""
    return Changing(tail.module)


def _head_of(solver: Solver) -> LinearHead:
    """Return the weights of a solver's layer as they are now."""
    weight, bias = (value.detach().double().numpy().copy() for value in (solver.layer.weight, solver.layer.bias))
    return LinearHead(weight.reshape(len(bias), -1), bias)


def _opened() -> OpenModel:
    """Return the model on its own weights and layers: a copy of one that nobody is handed, as opening takes longest."""
    (opened, state), memo = _given(), dict[int, object]()
    opened.model.load_state_dict(state)  # code that finds it anyway may have written to it
    torch.manual_seed(0)  # as opening does
    model = copy.deepcopy(opened.model, memo)
    return replace(opened, model=model, chain=copy.deepcopy(opened.chain, memo)).with_info(opened.info)


@cache
def _given() -> tuple[OpenModel, dict[str, torch.Tensor]]:
    opened = load(made_up_task())
    return opened, copy.deepcopy(opened.model.state_dict())


def _untouched() -> OpenModel:
    """Return the model that no lowering is handed, as it was given: one for all."""
    opened, state = _shared()
    opened.model.load_state_dict(state)  # as above
    return opened


@cache
def _shared() -> tuple[OpenModel, dict[str, torch.Tensor]]:
    opened = _opened()
    return opened, copy.deepcopy(opened.model.state_dict())


def _hooks_of(module: nn.Module) -> int:
    own = sum(len(getattr(module, name, None) or ()) for name in HOOKS)
    return own + sum(len(value._backward_hooks or ()) for value in module.parameters(recurse=False))  # noqa: SLF001 - torch has no public name for it
