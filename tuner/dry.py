"""Looking without training: what a run would search, what a model is made of, what a plan would cost."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.compose import compose
from tuner.errors import TaskError
from tuner.host import Host
from tuner.knobs import Draw, Scalar, Wanted, preferring
from tuner.plan import ModelInfo, TrialPlan
from tuner.planner import cost
from tuner.run import session_parts, task_info
from tuner.search import config
from tuner.search.rates import kept, known
from tuner.search.study import ANCHORS, PREFERRED, cores
from tuner.search.supervisor import Supervisor
from tuner.space import check_knobs, load_space
from tuner.task import load_task
from tuner.units import said_bytes, said_seconds


def dry_run(task: str, *, space: str, limits: Mapping[str, Any], backend: str | None) -> dict[str, Any]:
    """Say what a run would search, which depths fit, and how long filling takes; train nothing.

    Raises:
        TunerError: As `tuner.run` would.
    """
    wanted = load_space(space)
    asked = {name.replace("_", "-"): value for name, value in limits.items()}
    bounds = config.limits(asked, wanted.limits, deterministic=False)
    host = Host()
    loaded = load_task(task, host.tasks)
    strategies, objectives, backends = session_parts(host, wanted, loaded, backend)
    info = task_info(loaded)
    model, rates = _measured(host, task, backends[0])
    knobs = check_knobs(wanted, strategies, model, info)
    narrowed = {name: _narrowed(knobs[name], wanted.knobs) for name in knobs}
    depths = []
    for trainable in range(1, model.num_blocks + 1):
        anchor: dict[str, Scalar] = {**PREFERRED, **ANCHORS[0], "freeze.trainable_blocks": trainable}
        plan = compose(strategies, preferring(anchor), model, info, {"runtime.threads": cores()}).plan
        one = cost.estimate(plan, rates)
        broken = _broken(one.train_seconds, one.peak_bytes, one.storage_bytes, bounds)
        depths.append({"trainable": plan.trainable, "train_seconds": one.train_seconds, "peak_bytes": one.peak_bytes,
                       "storage_bytes": one.storage_bytes, "over": broken})  # fmt: skip
    records = info.local_train + info.local_val + info.global_val
    filling = records * (rates.load_seconds + sum(rates.forward_seconds))
    return {
        "task": info.name,
        "space": wanted.name,
        "limits": config.as_dict(bounds),
        "strategies": [one.name for one in strategies],
        "objectives": [one.name for one in objectives],
        "knobs": narrowed,
        "fill_seconds": filling,
        "fill_samples": records,
        "depths": depths,
    }


def describe_task(task: str, plan: Path | None) -> dict[str, Any]:
    """Return a model's blocks in numbers; with a plan, its estimate on this device.

    Raises:
        TunerError: The task, the model or the plan cannot be used.
    """
    host = Host()
    loaded = load_task(task, host.tasks)
    model, rates = _measured(host, task, next(iter(host.backends)), measure=plan is not None)
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
    if plan is not None:
        try:
            text = plan.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TaskError(f"--plan {plan} cannot be read: {error}") from None
        carried = TrialPlan.from_toml(text).carried_to(model, task_info(loaded))
        reason = host.backend(carried.runtime.backend).supports(carried)
        one = cost.estimate(carried, rates)
        found["plan"] = {
            "sentence": carried.say(),
            "supported": reason or "yes",
            "train_seconds": one.train_seconds,
            "peak_bytes": one.peak_bytes,
            "storage_bytes": one.storage_bytes,
            "flops": cost.training_flops(carried),
        }
    return found


def said(found: Mapping[str, Any]) -> str:
    """Return a dry run for people."""
    lines = [
        f"{found['task']} · space {found['space']} · strategies {', '.join(found['strategies'])}",
        f"objectives: {', '.join(found['objectives'])}",
        "knobs:",
        *(f"  {text}" for text in found["knobs"].values()),
        (
            f"filling the store: {found['fill_samples']:,} samples and the mixed-in global ones, "
            f"about {said_seconds(found['fill_seconds'])}"
        ),
        "last blocks  train time  peak memory  storage  fits",
    ]
    for one in found["depths"]:
        fits = "yes" if not one["over"] else f"no: over {', '.join('--' + name for name in one['over'])}"
        lines.append(
            f"{one['trainable']:>11}  {said_seconds(one['train_seconds']):>10}  {said_bytes(one['peak_bytes']):>11}  "
            f"{said_bytes(one['storage_bytes']):>7}  {fits}"
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
    return "\n".join(lines)


def _measured(host: Host, task: str, backend: str, *, measure: bool = True) -> tuple[ModelInfo, cost.Rates]:
    with Supervisor(host.backend(backend).preload, task) as supervisor:
        model: ModelInfo = supervisor.call(backend, "describe", {})
        rates = known(backend, model, cores())
        if rates is None and measure:
            rates = supervisor.call(backend, "measure", {"threads": cores()})
            kept(backend, model, cores(), rates)
    return model, rates or cost.nominal(model)


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


def _broken(train_seconds: float, peak_bytes: float, storage_bytes: float, bounds: config.Limits) -> list[str]:
    wants = (
        ("time", train_seconds, bounds.time_seconds),
        ("train-time", train_seconds, bounds.train_seconds),
        ("memory", peak_bytes, bounds.memory_bytes),
        ("storage", storage_bytes, bounds.storage_bytes),
    )
    return [name for name, value, limit in wants if limit is not None and value > limit]
