"""One cell of the table: a method on a task with a seed, through the product's own path."""

import gc
import math
import multiprocessing
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.alternatives.problem import Problem
from benchmarks.lib.setup import known_of
from benchmarks.methods.methods import RATES, Method
from tuner.backends.base import Session, Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.bundle.format import WEIGHTS
from tuner.errors import TrainingError
from tuner.plan.info import ModelInfo, TaskInfo
from tuner.plan.parts import SHARED_STAGES, Scalar
from tuner.plan.trial import TrialPlan, normal_form
from tuner.plugin.compose import compose
from tuner.plugin.core import build_host
from tuner.plugin.host import Host
from tuner.plugin.load.finding import select
from tuner.plugin.sources import preferred_values
from tuner.results.records.trial import Outcome
from tuner.store.store import Store
from tuner.task import Domain, Task
from tuner.task.info import task_info

#: Strategies of every method, unless its own decide the same part of the plan.
BASE = ("recipe", "runtime", "gdm", "freeze", "cache")
#: Values of knobs that all methods have alike.
SHARED: Mapping[str, Scalar] = {
    "gdm.alpha": 0.1, "cache.bits": 8, "cache.augment": 0.0, "recipe.batch_size": 32, "recipe.optimiser": "adamw",
    "recipe.weight_decay": 0.0, "recipe.schedule": "cosine", "recipe.patience": 0, "recipe.label_smoothing": 0.0,
    "recipe.solve_again": False, "recipe.clip": 0.0, "recipe.micro_batches": 1, "recipe.freeze_bn": True,
    "runtime.backend": "torch", "runtime.threads": 1, "runtime.precision": "fp32",
}  # fmt: skip
#: Largest share of the FLOPs in a tail, if the model has a cut with so little.
TAIL_SHARE = 0.35
MOST_EPOCHS = 20


def hosted(methods: Iterable[Method]) -> Host:
    """Return a host with the plugins of methods.

    Raises:
        ValueError: One is refused.
    """
    host = build_host(local=[method.file for method in methods if method.file is not None])
    if host.refused:
        raise ValueError(f"{host.refused[0].name}: {host.refused[0].refused}")
    return host


def plan_of(method: Method, host: Host, model: ModelInfo, task: TaskInfo, values: Mapping[str, Scalar]) -> TrialPlan:
    """Return the plan of a method: that of fine-tuning, with its own strategies, at the start values of their knobs.

    Where they decide the same part as one of fine-tuning's, that one takes no part; an optimiser of the plugin is used.

    Args:
        method: The method.
        host: Of `hosted`.
        model: The model.
        task: The task in numbers.
        values: Further values of knobs.
    """
    alone, core = (build_host(local=files, installed=False) for files in ([method.file] if method.file else [], []))
    own = select("strategy", (*method.strategies, *(alone.strategies.keys() - core.strategies.keys())), host.strategies)
    taken = {one.stage for one in own} - SHARED_STAGES
    barred = {name for one in own for name in one.excludes}
    base = [one for one in select("strategy", BASE, host.strategies) if one.stage not in taken]
    strategies = [*(one for one in base if one.name not in barred), *own]
    depths = [blocks for blocks in model.depths if model.share(blocks) <= TAIL_SHARE] or model.depths[:1]
    wanted = {**SHARED, **{f"{one.name}.trainable_blocks": depths[-1] for one in strategies}}
    new = alone.extensions("torch").optimisers.keys() - core.extensions("torch").optimisers.keys()
    wanted |= {} if not new else {"recipe.optimiser": min(new)}
    wanted |= {} if method.replays else {"gdm.alpha": 0.0}
    return compose(strategies, preferred_values({**wanted, **method.knobs, **values}), model, task).plan


class Bench:
    """A problem whose model is opened once, with validation samples and with the tests, for all methods.

    Args:
        problem: Task and tests.
        host: With the plugins of the methods.
        store: Folder of stored features.
        both: Whether local and global accuracy count alike; else local accuracy counts.
    """

    def __init__(self, problem: Problem, host: Host, store: Path, *, both: bool) -> None:
        task = problem.task
        known = None if problem.global_test is None else Domain(known_of(task).train, problem.global_test)
        final = replace(task, local=Domain(problem.own, problem.test), global_=known or task.global_)
        self._host, self._store, self._both = host, store, both
        self._choosing, self._testing = (
            (one, TorchBackend().open(one, host.extensions("torch"))) for one in (task, final)
        )

    def measured(self, method: Method, seed: int, seconds: float) -> Outcome:
        """Return what a method reaches on the tests: the best of its settings, trained on all of the user's samples.

        Settings are tried in their order on validation samples, as many as there is time for; one whose training fails
        loses, in the last training too, where lower rates come after all of them. Epochs are as many as let all of them
        take the seconds together, so that a method with steps of twice the time has half as many. Seconds are the
        processor's, so that other programs do not count; features are stored before.

        Args:
            method: The method.
            seed: Of what is drawn at random.
            seconds: For the choice; the last training takes the share of one setting again.
        """
        knob, options = method.tried
        first, plan = self._trained(self._choosing, method, seed, {"recipe.epochs": 1, knob: options[0]})
        spent, epochs, tried = first.values["train_seconds"], 1, dict[Scalar, float]()
        if plan.traits.solves:
            options = options[:1] if knob.startswith("recipe.") else options  # a head that is solved for has no recipe
            tried[options[0]] = self._score(first)
        else:
            epochs = max(1, min(MOST_EPOCHS, int(seconds / len(options) / max(1e-3, spent))))
        for option in options:
            if option not in tried and (spent < seconds or not tried):
                try:
                    outcome, _ = self._trained(self._choosing, method, seed, {"recipe.epochs": epochs, knob: option})
                except TrainingError:  # at a rate that is too high: others may do
                    tried[option] = -math.inf
                    continue
                tried[option], spent = self._score(outcome), spent + outcome.values["train_seconds"]
        slower = [float(f"{float(min(tried)) / 3**times:.3g}") for times in (1, 2)] if knob == RATES[0] else []
        settings = [*sorted(tried, key=lambda option: -tried[option]), *slower]
        for option in settings:
            try:
                outcome, plan = self._trained(self._testing, method, seed, {"recipe.epochs": epochs, knob: option})
                break
            except TrainingError:  # with more samples it may diverge, where it did not before
                if option == settings[-1]:
                    raise
        values = {**outcome.values, "choice_seconds": spent, "epochs": float(plan.recipe.epochs)}
        return Outcome(values, notes=(f"{knob} = {option}, of {len(tried)}",))

    def _score(self, outcome: Outcome) -> float:
        names = ["local_accuracy", *(["global_accuracy"] if self._both else [])]
        return sum(outcome.values[name] for name in names)

    def _trained(
        self, opened: tuple[Task, Session], method: Method, seed: int, values: Mapping[str, Scalar]
    ) -> tuple[Outcome, TrialPlan]:
        """Train in a child, as the product does: a process trains one plan at most."""
        task, session = opened
        plan = plan_of(method, self._host, session.model, task_info(task), values)
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_train, args=(session, plan, seed, self._store, theirs))
        child.start()
        theirs.close()
        try:
            answer = ours.recv()
        except EOFError:
            answer = f"the process ended without an answer, with {child.exitcode}"
        child.join()
        if isinstance(answer, str):
            raise TrainingError(answer)
        return answer, plan


def _train(session: Session, plan: TrialPlan, seed: int, folder: Path, answer: Connection) -> None:
    """Fill the store, train, and send what was measured, or why it failed."""
    # A collection here would end sessions of the parent, which then wait for threads that a child does not have.
    gc.freeze()
    try:
        store = Store(folder)  # a lock of a process is of no use in its child
        head = normal_form(replace(plan, split=plan.model.num_blocks - 1, shape=(), loss=()))
        session.fill([plan, head], store)  # in one pass, as other methods train the head alone
        began, clock = time.process_time(), time.perf_counter()
        with TemporaryDirectory() as written:
            outcome = session.train(Trial(plan, seed, store, Path(written) / WEIGHTS))
        busy = min(1.0, (time.process_time() - began) / (time.perf_counter() - clock))
        values = {**outcome.values, "train_seconds": busy * outcome.values["train_seconds"]}
        answer.send(Outcome(values))
    except Exception as error:  # noqa: BLE001 - a stranger's plugin may raise anything
        answer.send(f"{type(error).__name__}: {error}")
