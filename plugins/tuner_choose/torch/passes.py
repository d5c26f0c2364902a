"""A candidate for a task's model in a process of its own: what its head reads of samples, and what it costs."""

import importlib
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tuner.arrays import Array
from tuner.backends.torch.model.graph.calling import one_to_one
from tuner.backends.torch.model.graph.layout import channels_last, spatial
from tuner.backends.torch.model.head import Head, heads_of
from tuner.backends.torch.model.open.factory import build
from tuner.backends.torch.model.open.load import given_model
from tuner.backends.torch.model.published import input_defaults
from tuner.backends.torch.model.vision import declare_operators
from tuner.errors import TaskError
from tuner.machine.process_memory import PeakMeter
from tuner.task import Task, normalise
from tuner.task.file.schema import parse
from tuner.task.file.sections import input_spec, model_spec
from tuner.task.mixing import filling_order

#: Samples that the model sees at a time.
BATCH = 32
#: Predictions of which the fastest counts, as others shared the processor; and seconds after which no more are made.
MOST_TIMED, LEAST_TIMED, TIMED_SECONDS = 30, 8, 0.2
LIBRARY = "torchvision.models"

declare_operators()  # before a library is imported that needs torchvision


class Passes:
    """The task of a run, whose samples candidates see; each call is made in a process that is forked for it."""

    def __init__(self, task: Task) -> None:
        self._task = task
        torch.set_num_threads(1)  # a pool of threads would not survive a fork
        if task.model.factory.startswith(LIBRARY):
            importlib.import_module(LIBRARY)  # once here instead of in every child

    def run(
        self,
        values: Mapping[str, Any],
        path: Path,
        begin: int,
        end: int,
        within: float,
        threads: int,
        file: Path,
        *,
        counts_flops: bool,
    ) -> dict[str, Any]:
        """Write what a candidate's head reads of some local training samples, and return what the candidate costs.

        Args:
            values: Content of the task file with the candidate as its model.
            path: The task file.
            begin: First sample, in an order of which every beginning is stratified.
            end: The one after the last.
            within: Seconds after which no further batch begins; the first always does.
            threads: Threads of the model.
            file: File to write: arrays ``features``, float32 [n, features], and ``labels``.
            counts_flops: Whether FLOPs are asked for; else they are 0.

        Returns:
            ``samples``, ``seconds_per_sample``, ``latency_seconds`` of one prediction, ``bytes`` of the weights,
            ``peak_bytes`` above the process before, and ``flops`` of a prediction.

        Raises:
            TaskError: The candidate cannot be opened, or does not end in one linear layer.
        """
        meter, task = PeakMeter(), of_candidate(self._task, values, path)
        torch.set_num_threads(threads)
        rows = filling_order(task.local.train.labels)[begin:end]
        sample = torch.from_numpy(task.batch(task.local.train, rows[:1]))
        model = opened(task, sample)
        head, caught = head_of(model, sample), list[torch.Tensor]()
        head.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
        channels_last(model)
        features, started, first = list[Array](), time.perf_counter(), 0.0
        with torch.inference_mode(), ThreadPoolExecutor(threads) as pool:
            for at in range(0, len(rows), BATCH):
                if features and time.perf_counter() - started > within:
                    break
                loaded = list(pool.map(task.local.train.load, map(int, rows[at : at + BATCH])))
                caught.clear()
                model(spatial(torch.from_numpy(normalise(np.stack(loaded), task.input))))
                features.append(_flat(caught))
                if len(features) == 1:
                    first = time.perf_counter()
            ended = time.perf_counter()
            latency = _latency(model, spatial(sample))
        done = np.concatenate(features)
        rest = len(done) - len(features[0])  # the first batch allocates what the others use
        if not np.isfinite(done).all():
            raise TaskError(f"{task.model.factory}: what its head reads is not finite: give other weights")
        labels = task.local.train.labels[rows[: len(done)]]
        with file.open("wb") as out:
            np.savez(out, features=done, labels=labels)
        return {
            "samples": len(done),
            "seconds_per_sample": (ended - first) / rest if rest else (ended - started) / len(done),
            "latency_seconds": latency,
            "bytes": sum(value.nbytes for value in (*model.parameters(), *model.buffers())),
            "peak_bytes": meter.peak_bytes(),
            "flops": flops_of(model, sample) if counts_flops else 0,
        }


def of_candidate(task: Task, values: Mapping[str, Any], path: Path) -> Task:
    """Return a task with a candidate's model and input; the samples are the same ones."""
    file = parse(dict(values), path)
    model = model_spec(file.model, path)
    if model.pretrain is not None:
        raise TaskError(f"{path}: candidates are trained already: leave model.pretrain out")
    if task.input.kind != "images":
        return replace(task, model=model)
    spec, _ = input_spec(file, path, model, input_defaults)
    is_same = (spec.size, spec.resize) == (task.input.size, task.input.resize)
    train = task.local.train if is_same else task.local.train.at(spec)
    return replace(task, model=model, input=spec, local=replace(task.local, train=train))


def opened(task: Task, sample: torch.Tensor) -> nn.Module:
    """Return the model of a task, in evaluation mode, with the head that it has; it is neither traced nor checked."""
    torch.manual_seed(0)  # as where the run opens it: what has no weights begins with the same ones
    spec = task.model
    if spec.is_file:
        return given_model(task, sample, lambda _: None)[0].eval().requires_grad_()
    model = build(spec, sample, lambda _: None, needs_head=bool(task.head_rows))
    return one_to_one(model, spec, sample).eval().requires_grad_()


def head_of(model: nn.Module, sample: torch.Tensor) -> Head:
    """Return the one linear layer that the model ends in."""
    heads = list(heads_of(model, sample).values())
    if len(heads) != 1:
        raise TaskError(f"the model must end in one linear layer, but it has {len(heads)}: give another one")
    return heads[0]


def flops_of(model: nn.Module, sample: torch.Tensor) -> int:
    """Return the FLOPs of a prediction, a multiplication and an addition counted as two."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(sample)
    return int(counter.get_total_flops())


def _flat(caught: list[torch.Tensor]) -> Array:
    """Return the head's inputs as float32 [n, features]: the mean over places, where there are several."""
    if not caught:
        raise TaskError("the model does not call its last linear layer as a module: give another one")
    found = caught[-1]
    if found.ndim > len("nchw") - 1:
        found = found.flatten(2).mean(2)
    elif found.ndim > len("nc"):
        found = found.mean(1)
    array: Array = found.float().numpy()
    return array


def _latency(model: nn.Module, sample: torch.Tensor) -> float:
    """Return the seconds of one prediction."""
    found = list[float]()
    while len(found) < LEAST_TIMED or (len(found) < MOST_TIMED and sum(found) < TIMED_SECONDS):
        started = time.perf_counter()
        model(sample)
        found.append(time.perf_counter() - started)
    return min(found)
