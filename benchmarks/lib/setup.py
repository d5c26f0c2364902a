"""What the benchmarks on real images share: the clothing task, its model, and plans for it."""

import copy
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from safetensors.torch import save_file

from benchmarks.lib.places import DATA, EXAMPLES
from tuner.arrays import Array, Labels, RowNumbers
from tuner.backends.base import Backend, Session, Trial, silent
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.selection import training_selections
from tuner.backends.torch.model.open.load import OpenModel, load
from tuner.backends.torch.trial.inputs import TailInputs, training_inputs
from tuner.backends.torch.trial.opened import TailTraining
from tuner.bundle.format import WEIGHTS, new_folder
from tuner.commands.bundles.export import write_bundle
from tuner.machine.control_group import usable_processors
from tuner.plan.parts import CachePlan, DataPlan, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.plugin.core import build_host
from tuner.search.processes.remote import open_remote
from tuner.store.kept import choose_engine
from tuner.store.store import Store
from tuner.task import Domain, Samples, Subset, Task, open_task
from tuner.task.info import task_info
from tuner_closed_form import ClosedForm, Knobs

CLOTHING = EXAMPLES / "clothing" / "task.toml"
#: The papers' last 1, 4 and 7 blocks of MobileNetV2, as splits of our 20 blocks, with the cut's name.
PAPER_CUTS = {"last 1 (after f16)": 17, "last 4 (after f13)": 14, "last 7 (after f10)": 11}


Method = TypeVar("Method", bound=Callable[..., Any])


class Held(Subset):
    """Samples that were decoded once and stay in memory, so that an arm pays for no decoding."""

    def __init__(self, samples: Samples) -> None:
        super().__init__(samples, range(len(samples)))
        self._content = [samples.load(index) for index in range(len(samples))]

    def load(self, index: int) -> Array:
        """Return the decoded sample."""
        return self._content[index]


def _of_part(method: Method) -> Method:
    """Return a method of `Joined` that asks the partition which a sample is of."""

    def call(self: "Joined", index: int) -> object:
        part, own = self.places[index]
        return getattr(part, method.__name__)(own)

    return cast("Method", call)


class Joined(Samples):
    """The samples of some partitions."""

    def __init__(self, *parts: Samples) -> None:
        self.labels = np.concatenate([part.labels for part in parts])
        self.places = [(part, index) for part in parts for index in range(len(part))]

    def __len__(self) -> int:
        return len(self.places)

    load, sample_id, name = _of_part(Samples.load), _of_part(Samples.sample_id), _of_part(Samples.name)
    origin, whole, stamp = _of_part(Samples.origin), _of_part(Samples.whole), _of_part(Samples.stamp)


def known_of(task: Task) -> Domain:
    """Return the global data of a task that must have some."""
    if task.global_ is None:
        raise ValueError(f"{task.name} must have global data")
    return task.global_


def fewer_known(task: Task, train: slice, val: slice) -> Task:
    """Return the task with some of the global samples, where few figures or none are of them."""
    known = known_of(task)
    parts = ((known.train, train), (known.val, val))
    return replace(task, global_=Domain(*(Subset(own, np.arange(len(own))[which]) for own, which in parts)))


def first_of_each(labels: Labels, count: int) -> RowNumbers:
    """Return the places of the first so many samples of each class, class by class."""
    each = [np.flatnonzero(labels == one)[:count] for one in np.unique(labels)]
    return np.concatenate(each) if each else np.zeros(0, np.int64)


def opened_from(text: str) -> Task:
    """Open a task file that is only text."""
    os.environ.setdefault("TUNER_DATA", str(DATA))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.toml"
        path.write_text(text, encoding="utf-8")
        return open_task(str(path), {})


def clothing(
    size: int,
    local_train: int | None = None,
    local_val: int | None = None,
    *,
    held: bool = False,
    labelled: bool = True,
) -> Task:
    """Return the clothing task at an image size, with samples of a seeded order, decoded once if `held`."""
    text = CLOTHING.read_text(encoding="utf-8").replace("= 160", f"= {size}")
    if not labelled:
        text = text.replace(
            'train = "${TUNER_DATA}/images/local', 'labels = "none"\ntrain = "${TUNER_DATA}/images/local'
        )
    task = opened_from(text)

    def part(samples: Samples, count: int | None, seed: int) -> Samples:
        if count is not None and count < len(samples):
            samples = Subset(samples, np.sort(np.random.default_rng(seed).permutation(len(samples))[:count]))
        return Held(samples) if held else samples

    return replace(task, local=Domain(part(task.local.train, local_train, 0), part(task.local.val, local_val, 1)))


def plan_for(
    task: Task,
    loaded: OpenModel,
    split: int,
    *,
    bits: int | None,
    recipe: RecipePlan,
    alpha: float = 0.0,
    augment: float = 0.0,
) -> TrialPlan:
    """Return a plan; `bits` None trains in a single stage."""
    cache = CachePlan(augment=augment) if bits is None else CachePlan("cache", bits, augment)
    return TrialPlan(
        model=loaded.info, task=task_info(task), data=DataPlan(alpha), split=split, cache=cache, recipe=recipe,
        runtime=RuntimePlan(threads=usable_processors()),
    )  # fmt: skip


def solved_head(task: Task, store: Store, alpha: float = 0.0) -> Mapping[str, float]:
    """Return what the head scores that is solved for on the features of the last block."""
    loaded, session = load(task), open_session(TorchBackend(), task)
    plan = plan_for(task, loaded, loaded.info.num_blocks - 1, bits=8, recipe=RecipePlan(), alpha=alpha)
    plan = normal_form(ClosedForm().apply(plan, Knobs()))
    session.fill([plan], store)
    with tempfile.TemporaryDirectory() as folder:
        return session.train(Trial(plan, 0, store, Path(folder) / WEIGHTS)).values


def untrained_bundle(task: Task, plan: TrialPlan, folder: Path) -> Path:
    """Write a bundle that can be trained, of the plan's tail as it is before any training; return its folder."""
    loaded, weights = load(task), folder / WEIGHTS
    save_file({name: value.contiguous() for name, value in loaded.tail(plan.split).state_dict().items()}, weights)
    return exported_bundle(task, plan, weights, folder / "bundle", replay=0)  # it was not trained on local.train


def exported_bundle(task: Task, plan: TrialPlan, weights: Path, out: Path, **asked: Any) -> Path:
    """Write a trained plan as a bundle that can be trained again; return its folder."""
    backend = plan.runtime.backend
    with new_folder(out) as part, open_remote(build_host(), task, [backend]) as sessions:
        write_bundle(sessions[backend], plan, weights, part, {"parent": None}, trainable=True, **asked)
    return out


def opened(task: Task, kind: str | None = None, loaded: OpenModel | None = None, folder: Path | None = None) -> Access:
    """Return an empty store for a task in a temporary folder, its prefix run by `kind`."""
    import torch

    torch.set_num_threads(usable_processors())
    loaded = loaded or load(task)
    store = Store(folder or Path(tempfile.mkdtemp(prefix="tuner-benchmark-")) / "store")
    if kind is not None:
        choose_engine(store, loaded.info.fingerprint, usable_processors(), kind)
    return Access(task, loaded, store, usable_processors(), silent)


def open_session(backend: Backend, task: Task) -> Session:
    """Open a task in this process, with all that installed plugins add; a session trains one plan at most."""
    return backend.open(task, build_host().extensions(backend.name))


def stepper(here: Access, plan: TrialPlan, rows: TailInputs | None = None) -> Callable[[], float]:
    """Return what runs one eager step of a plan on samples drawn at random, stored as the plan stores them."""
    rows = rows or training_inputs(here, plan, training_selections(here.task, plan))
    steps = EagerSteps(TailTraining(here.task, plan, copy.deepcopy(here.loaded.tail(plan.split)), rows, 0))
    steps.begin_epoch()
    generator, recipe, count = np.random.default_rng(0), plan.recipe, len(rows.labels)
    return lambda: steps.step(generator.permutation(count)[: recipe.batch_size], recipe.learning_rate)
