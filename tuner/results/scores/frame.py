"""A run's trials as a table of pandas."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuner.errors import missing_extra
from tuner.plan.text import describe
from tuner.results.records.trial import TrialRecord

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(records: Sequence[TrialRecord], front: Sequence[int], best: int | None) -> "DataFrame":
    """Return one row for each trial; see `tuner.Run.frame`."""
    try:
        from pandas import DataFrame, Index
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    rows = [{"state": record.state, **_place(record, front, best), **columns(record)} for record in records]
    return DataFrame(rows, index=Index([record.trial for record in records], name="trial"))


def _place(record: TrialRecord, front: Sequence[int], best: int | None) -> dict[str, Any]:
    """Return where a trial stands in the run."""
    place = {"rung": record.rung, "on_front": record.trial in front, "best": record.trial == best}
    return place | ({} if record.prior is None else {"prior": record.prior})


def columns(record: TrialRecord) -> dict[str, Any]:
    """Return all that a record says of its trial in numbers and text, by flat names."""
    estimate = record.estimate
    expected = {} if estimate is None else {"train_seconds": estimate.train_seconds, "peak_bytes": estimate.peak_bytes}
    return {
        **record.values,  # noqa: PD011 - a record's, no frame's
        "spent_seconds": record.spent_seconds,
        "reason": record.reason,
        "sentence": describe(record.plan) if record.plan else "",
        **{f"estimate.{name}": value for name, value in expected.items()},
        **{f"constraint.{name}": value for name, value in record.constraint.items()},
        **{f"knob.{name}": value for name, value in record.knobs.items()},
        **(_flat("plan", record.plan.settings()) if record.plan else {}),
    }


def _flat(name: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings as columns named by their path; lists, as of edits, stay one column."""
    columns = dict[str, Any]()
    for key, value in content.items():
        path = f"{name}.{key}"
        columns |= _flat(path, value) if isinstance(value, Mapping) else {path: value}
    return columns
