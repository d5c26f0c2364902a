"""A prior: plans that did well on earlier tasks, with what they are expected to bring, as a file that people read."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from tuner.errors import RunError, SpaceError
from tuner.files import write_private
from tuner.plan.info import FORBID
from tuner.plan.parts import Scalar
from tuner.plan.trial import TrialPlan
from tuner.reading import read_toml
from tuner.results.scores.likeness import TaskKind

if TYPE_CHECKING:
    from pydantic import TypeAdapter

FORMAT = 1
#: Plans and tasks that a file may have.
MOST = 1000
WAY_OUT = "`tuner prior build RUN` writes a prior"
_READ: dict[str, Any] = {**FORBID, "allow_inf_nan": False}
Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class Source:
    """A task that a prior was built from.

    Attributes:
        kind: The task in numbers.
        trials: Number of trials of its run that its figures are of.
        untouched: Local and global accuracy of its given model.
        area: Hypervolume of (local, global) accuracy of its front.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _READ
    kind: TaskKind
    trials: Annotated[int, Field(ge=1)]
    untouched: dict[str, Annotated[float, Field(ge=-1, le=1)]]
    area: Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True, slots=True)
class Expected:
    """What a plan is expected to bring on one of the tasks: the mean of the trials near it, weighted by how near.

    Attributes:
        task: Number of the task in the file, from 1.
        near: Number of trials that the figures are of, each counted by how near it is to the plan.
        on_front: Share of these that were on their run's front.
        local_accuracy: Of these.
        global_accuracy: Of these; 1 where the task has no global data.
        relative_seconds: Their training time relative to that of the run's median trial.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _READ
    task: int
    near: Annotated[float, Field(ge=0)]
    on_front: Share
    local_accuracy: Share
    global_accuracy: Share = 1.0
    relative_seconds: Annotated[float, Field(ge=0)] = 1.0


@dataclass(frozen=True, slots=True)
class Trains:
    """How much of the model a plan trains, for models with other blocks.

    Attributes:
        depth: Share of the blocks before the last that train.
        flops: Share of the model's FLOPs in all that train.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _READ
    depth: Share
    flops: Share


@dataclass(frozen=True, slots=True)
class PriorPlan:
    """A plan of a prior.

    Attributes:
        knobs: Its values of knobs.
        text: The plan as a sentence, as it was on the task that it comes from.
        trains: How much of the model it trains; None to take the knobs as they are.
        expected: What it is expected to bring, by task.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _READ
    knobs: dict[str, Scalar]
    text: str = ""
    trains: Trains | None = None
    expected: tuple[Expected, ...] = ()


@dataclass(frozen=True, slots=True)
class Prior:
    """Plans that did well, and the tasks that they come from; where somebody wrote them, no tasks, the best first."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _READ
    task: tuple[Source, ...] = ()
    plan: tuple[PriorPlan, ...] = ()


def trains(plan: TrialPlan) -> Trains:
    """Return how much of the model a plan trains."""
    flops = [block.flops for block in plan.model.blocks]
    before = max(1, plan.model.num_blocks - 1)
    return Trains(max(0, plan.trainable - 1) / before, sum(flops[plan.split :]) / max(1, sum(flops)))


def write_prior(path: Path, prior: Prior) -> None:
    """Write a prior as TOML, whole or not at all."""
    import tomli_w

    counts = f"{len(prior.plan)} plans that did well on {len(prior.task)} task{'' if len(prior.task) == 1 else 's'}"
    comment = (
        f"# {counts}: `tuner run TASK --prior FILE` tries those first that suit its task,\n"
        "# `tuner prior show FILE` shows them. Figures are of validation samples; 1 is 100 %.\n"
    )
    content = comment + tomli_w.dumps(_without_none({"format": FORMAT, **asdict(prior)}))
    try:
        write_private(path, content)
    except (OSError, ValueError) as error:  # a path such as / names no file
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"the prior cannot be written to {path} ({reason}): give another --out") from None


def read_prior(path: Path) -> Prior:
    """Read a prior.

    Raises:
        SpaceError: The file is no prior that can be read.
    """
    from pydantic import ValidationError

    content = read_toml(path, SpaceError, WAY_OUT)
    version = content.pop("format", FORMAT)
    if version != FORMAT:
        raise SpaceError(
            f"{path}: format must be {FORMAT}, got {version!r:.40}: use the version of tuner that wrote it"
        )
    try:
        # as JSON, where strict types leave lists to be tuples
        prior = _adapter().validate_json(json.dumps(content, default=str), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise SpaceError(f"{path}: {place}: {first['msg']}, got {first['input']!r:.60}: {WAY_OUT}") from None
    for holds, rule, value in _rules(prior):
        if not holds:
            raise SpaceError(f"{path}: {rule}, got {value!r:.60}: {WAY_OUT}")
    return prior


def _rules(prior: Prior) -> Iterator[tuple[bool, str, object]]:
    """Yield whether each rule holds that is about several values, the rule, and the value it is about."""
    plans, tasks = len(prior.plan), len(prior.task)
    yield 1 <= plans <= MOST, f"there must be 1 to {MOST} [[plan]] tables", plans
    yield tasks <= MOST, f"there may be at most {MOST} [[task]] tables", tasks
    for place, source in enumerate(prior.task):
        least = min(value for value in asdict(source.kind).values() if isinstance(value, int))
        yield least >= 0, f"task.{place}.kind must have no negative number", least
    for place, plan in enumerate(prior.plan):
        for number, one in enumerate(plan.expected):
            where = f"plan.{place}.expected.{number}.task"
            yield 1 <= one.task <= tasks, f"{where} must be in [1, {tasks}]", one.task
        for name, value in plan.knobs.items():
            finite = not isinstance(value, float) or math.isfinite(value)
            yield finite, f"plan.{place}.knobs.{name} must be finite", value


@cache
def _adapter() -> "TypeAdapter[Prior]":
    from pydantic import TypeAdapter

    return TypeAdapter(Prior)


def _without_none(value: Any) -> Any:
    """Return nested content without what TOML has no word for."""
    if isinstance(value, Mapping):
        return {key: _without_none(one) for key, one in value.items() if one is not None}
    return [_without_none(one) for one in value] if isinstance(value, list | tuple) else value
