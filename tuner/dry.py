"""Looking without training: what a run would search, what a model is made of, what a plan would cost."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tuner.compose import compose
from tuner.errors import TaskError
from tuner.folders import cache_folder, open_store
from tuner.host import Host
from tuner.knobs import Draw, Scalar, Source, Wanted, preferring
from tuner.plan import ModelInfo, TrialPlan
from tuner.planner import cost
from tuner.planner.describe import draw, memory, said_memory
from tuner.planner.placement import smallest
from tuner.planner.step import StepPlan
from tuner.search import config
from tuner.search.peaks import expected_bytes
from tuner.search.rates import kept, known
from tuner.search.study import ANCHORS, CLOSING_SECONDS, PREFERRED, cores
from tuner.search.supervisor import Supervisor
from tuner.space import check_knobs, load_space
from tuner.task import load_task
from tuner.tune import session_parts, task_info, wanted_knobs
from tuner.units import said_bytes, said_seconds


def dry_run(
    task: str,
    *,
    space: str,
    limits: Mapping[str, Any],
    backend: str | None,
    deterministic: bool = False,
    store: Path | None = None,
    started: float | None = None,
) -> dict[str, Any]:
    """Say what a run would search, which depths fit, and how long filling takes; train nothing.

    Each depth that the space allows is estimated as the study would, with the recipe that it tries first, as far as
    the space allows that.

    Args:
        task: As this and the others are for `tuner.run`.
        space: Name or file.
        limits: By name; None for the space's.
        backend: Pins the backend.
        deterministic: Whether costs come from FLOPs.
        store: The store's folder; read only, and not made.
        started: Clock (`time.monotonic`) from which the time counts.

    Raises:
        TunerError: As `tuner.run` would.
    """
    wanted = load_space(space)
    asked = {name.replace("_", "-"): value for name, value in limits.items()}
    bounds = config.limits(asked, wanted.limits, deterministic=deterministic)
    started = time.monotonic() if started is None else started
    host = Host()
    loaded = load_task(task, host.tasks)
    strategies, objectives, backends = session_parts(host, wanted, loaded, backend)
    info = task_info(loaded)
    with Supervisor(host.backend(backends[0]).preload, task) as supervisor:
        model, rates = _measured(supervisor, backends[0], measure=not deterministic)
        knobs = check_knobs(wanted, strategies, model, info)
        pinned = wanted_knobs(wanted, backend, deterministic=deterministic)
        plans = depths(lambda source: compose(strategies, source, model, info, pinned).plan, model.num_blocks)
        cached = [plan for plan in plans if plan.cached]
        lacking = _lacking(supervisor, cached, store or cache_folder() / "store")
    spent = time.monotonic() - started  # a run, too, loads libraries, task and model before its first trial
    left = None if bounds.time_seconds is None else max(0.0, bounds.time_seconds - spent - CLOSING_SECONDS)
    return {
        "task": info.name,
        "space": wanted.name,
        "limits": config.as_dict(bounds),
        "strategies": [one.name for one in strategies],
        "objectives": [one.name for one in objectives],
        "knobs": {name: _narrowed(knobs[name], wanted.knobs) for name in knobs},
        "fill_seconds": lacking * max((cost.fill_seconds(plan, rates) for plan in cached), default=0.0),
        "fill_samples": lacking,
        "depths": [_depth(plan, rates, lacking, bounds, left) for plan in plans],
    }


def depths(composed: Callable[[Source], TrialPlan], num_blocks: int) -> list[TrialPlan]:
    """Return a plan for every number of trained blocks that can come out, as the study's first would be."""
    found: dict[int, TrialPlan] = {}
    for trainable in range(1, num_blocks + 1):
        plan = composed(preferring({**PREFERRED, **ANCHORS[0], "freeze.trainable_blocks": trainable}))
        found.setdefault(plan.trainable, plan)
    return [found[trainable] for trainable in sorted(found)]


def describe_task(task: str, plan: Path | None, picture: Path | None = None) -> dict[str, Any]:
    """Return a model's blocks in numbers; with a plan, its estimate on this device and its training step as planned.

    Args:
        task: As of `tuner.run`.
        plan: A ``plan.toml``.
        picture: Where to write memory over the plan's training step as SVG.

    Raises:
        TunerError: The task, the model or the plan cannot be used, or no step is planned that could be drawn.
    """
    carried: TrialPlan | None = None
    step: StepPlan | None = None
    host = Host()
    loaded = load_task(task, host.tasks)
    backend = next(iter(host.backends))
    with Supervisor(host.backend(backend).preload, task) as supervisor:
        model, rates = _measured(supervisor, backend, measure=plan is not None)
        if plan is not None:
            carried = _read_plan(plan).carried_to(model, task_info(loaded))
            reason = host.backend(carried.runtime.backend).supports(carried)
            step = None if reason else supervisor.call(carried.runtime.backend, "plan_step", {"plan": carried})
    found: dict[str, Any] = {
        "task": loaded.name,
        "model": model.name,
        "note": model.note,
        "outputs": model.outputs,
        "parameters": sum(block.parameters for block in model.blocks),
        "flops": sum(block.flops for block in model.blocks),
        "blocks": [
            {"index": index, "name": one.name, "cut": one.cut, "in_shape": list(one.in_shape), "flops": one.flops,
             "parameters": one.parameters, "saved_bytes": one.saved_bytes}
            for index, one in enumerate(model.blocks)
        ],
    }  # fmt: skip
    if carried is not None:
        one = cost.estimate(carried, rates)
        found["plan"] = {
            "sentence": carried.say(),
            "supported": reason or "yes",
            "train_seconds": one.train_seconds,
            "peak_bytes": _peak_bytes(carried, one.peak_bytes, rates, step),
            "storage_bytes": one.storage_bytes,
            "flops": cost.training_flops(carried),
            "step": None if step is None else _step(carried, rates, step),
        }
        if picture is not None:
            _draw(picture, carried, step)
    return found


def _peak_bytes(plan: TrialPlan, rough: int, rates: cost.Rates, step: StepPlan | None) -> int:
    """Return what a trial is expected to take, by the planner where the planned executor runs it."""
    if step is None or not cost.worth_planning(plan):
        return rough
    return expected_bytes(plan, step.peak_bytes, rates)


def _read_plan(path: Path) -> TrialPlan:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"--plan {path} cannot be read: {error}") from None
    return TrialPlan.from_toml(text)


def _step(plan: TrialPlan, rates: cost.Rates, step: StepPlan) -> dict[str, Any]:
    """Return a planned step: its seconds, its memory beside the weights, and who will run it."""
    planner, placement = smallest(step.tensors)
    steps = -(-plan.train_samples // plan.recipe.batch_size)
    return {
        "batch_size": plan.recipe.batch_size,
        "micro_batches": plan.recipe.micro_batches,
        "executor": "planned" if cost.worth_planning(plan) else "eager",
        "flops": step.flops,
        "seconds": cost.training_seconds(plan, rates) / (plan.recipe.epochs * steps),
        "memory": memory(step.tensors, placement, planner, step.steps),
    }


def _draw(path: Path, plan: TrialPlan, step: StepPlan | None) -> None:
    if step is None:
        raise TaskError("--picture shows a planned step, but this plan's cannot be traced: leave it out")
    planner, placement = smallest(step.tensors)
    title = f"{plan.say()}: {said_bytes(placement.pool_bytes)}, planner {planner}"
    draw(path, step.tensors, placement, step.steps, title)


def said(found: Mapping[str, Any]) -> str:
    """Return a dry run for people."""
    lines = [
        f"{found['task']} · space {found['space']} · strategies {', '.join(found['strategies'])}",
        f"objectives: {', '.join(found['objectives'])}",
        "knobs:",
        *(f"  {text}" for text in found["knobs"].values()),
        (
            f"filling the store: {found['fill_samples']:,} samples that it lacks, "
            f"about {said_seconds(found['fill_seconds'])}"
        ),
        "last blocks  train time  to spend now  peak memory  storage  fits",
    ]
    for one in found["depths"]:
        fits = "yes" if not one["over"] else f"no: over {', '.join('--' + name for name in one['over'])}"
        train, spend = said_seconds(one["train_seconds"]), said_seconds(one["spend_seconds"])
        lines.append(
            f"{one['trainable']:>11}  {train:>10}  {spend:>12}  "
            f"{said_bytes(one['peak_bytes']):>11}  {said_bytes(one['storage_bytes']):>7}  {fits}"
        )
    return "\n".join(lines)


def said_description(found: Mapping[str, Any]) -> str:
    """Return a model's description for people."""
    lines = [f"{found['model']}: {found['parameters']:,} parameters, {found['flops'] / 1e6:,.1f} MFLOPs a sample"]
    if found["note"]:
        lines.append(found["note"])
    width = max(len(one["name"]) for one in found["blocks"])
    lines.append(f"block  {'name':<{width}}  {'input':<16}  MFLOPs  parameters  kept a sample")
    for one in found["blocks"]:
        shape = "×".join(map(str, one["in_shape"]))
        lines.append(
            f"{one['index']:>5}  {one['name']:<{width}}  {shape:<16}  {one['flops'] / 1e6:>6.1f}  "
            f"{one['parameters']:>10,}  {said_bytes(one['saved_bytes'])}"
        )
    if "plan" in found:
        plan = found["plan"]
        lines += [
            plan["sentence"],
            f"  supported: {plan['supported']}",
            (
                f"  about {said_seconds(plan['train_seconds'])} of training, {said_bytes(plan['peak_bytes'])} at its "
                f"peak, {said_bytes(plan['storage_bytes'])} stored, {plan['flops'] / 1e9:,.1f} GFLOPs"
            ),
        ]
        lines += _said_step(plan["step"])
    return "\n".join(lines)


def _said_step(step: Mapping[str, Any] | None) -> list[str]:
    if step is None:
        return ["no step is planned: the eager loop or another engine will run it"]
    parts = f" in {step['micro_batches']} micro-batches" if step["micro_batches"] > 1 else ""
    return [
        (
            f"a training step of {step['batch_size']} samples{parts}: {step['flops'] / 1e9:,.2f} GFLOPs, about "
            f"{said_seconds(step['seconds'])}; trials run it by the {step['executor']} executor"
        ),
        "memory of the step beside the weights, as the planned executor runs it:",
        *said_memory(step["memory"]),
    ]


def _measured(supervisor: Supervisor, backend: str, *, measure: bool) -> tuple[ModelInfo, cost.Rates]:
    model: ModelInfo = supervisor.call(backend, "describe", {})
    rates = known(backend, model, cores()) if measure else None
    if rates is None and measure:
        rates = supervisor.call(backend, "measure", {"threads": cores()})
        kept(backend, model, cores(), rates)
    return model, rates or cost.nominal(model)


def _needed(plan: TrialPlan) -> int:
    return plan.train_samples + plan.task.local_val + plan.task.global_val if plan.cached else 0


def _lacking(supervisor: Supervisor, plans: Sequence[TrialPlan], folder: Path) -> int:
    """Return how many samples the store lacks for any of the plans; a store that is not there is not made."""
    if not plans or not folder.is_dir():
        return max(map(_needed, plans), default=0)
    arguments = {"plans": plans, "store": open_store(folder)}
    return int(supervisor.call(plans[0].runtime.backend, "missing", arguments))


def _depth(
    plan: TrialPlan, rates: cost.Rates, lacking: int, bounds: config.Limits, left: float | None
) -> dict[str, Any]:
    one = cost.estimate(plan, rates, min(lacking, _needed(plan)))
    wants = (
        ("time", one.spend_seconds, left),
        ("train-time", one.train_seconds, bounds.train_seconds),
        ("memory", one.peak_bytes, bounds.memory_bytes),
        ("storage", one.storage_bytes, bounds.storage_bytes),
    )
    over = [name for name, value, limit in wants if limit is not None and value > limit]
    return {"trainable": plan.trainable, "sentence": plan.say(), **asdict(one), "over": over}


def _narrowed(knob: Any, wanted: Mapping[str, Wanted]) -> str:
    seen: list[str] = []

    def source(one: Any) -> Scalar:
        seen.append(str(one))
        return preferring({})(one)

    scope, _, name = knob.name.partition(".")
    draw = Draw(source, scope, wanted)
    if hasattr(knob, "options"):
        draw.choice(name, knob.options)
    elif knob.whole:
        draw.integer(name, int(knob.low), int(knob.high), log=knob.log)
    else:
        draw.number(name, knob.low, knob.high, log=knob.log)
    return seen[0]
