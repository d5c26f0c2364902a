"""Write the JSON Schemas of what ``--json`` prints: ``python -m tools.schemas``; a test compares the files with this.

What is printed of a dataclass follows the class; the rest is written out here. Keys may be added to a schema as it is.
A key that goes or changes its type makes a new one, with the next number in its name.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tuner.commands.plugins import PluginList
from tuner.commands.runs.why import Participation
from tuner.commands.tune.dry_run import DryRun
from tuner.plan.info import BlockInfo
from tuner.results.folder import ExportInfo
from tuner.results.prior.file import Prior
from tuner.results.records.baseline import Baseline
from tuner.results.records.config import Budget
from tuner.results.records.trial import STATES, TrialRecord
from tuner.results.scores.cuts import Cut
from tuner.results.scores.strategies import Tried
from tuner.results.views.estimates import EstimateErrors
from tuner_check.findings import Findings
from tuner_choose.commands import Listed
from tuner_describe.description import PlanDescription, TaskDescription
from tuner_fleet.process import Worker
from tuner_gallery.index import Entry, Measured
from tuner_init.prepare import Prepared
from tuner_instant.runs import Instant, Preview
from tuner_labels.draft import LabelChange
from tuner_labels.suggestions import Contradiction, Suggestion
from tuner_report.diff import RunDiff
from tuner_store.store import ForgottenSamples, StoreFile
from tuner_testing.check import PluginReport
from tuner_watch.watch import ServiceStatus

ROOT = Path(__file__).parent.parent
DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
WHOLE: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
ANY: Schema = {}


def maybe(schema: Schema) -> Schema:
    """Return the schema of a value that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


def each(schema: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": schema}


def by_name(schema: Schema) -> Schema:
    """Return the schema of an object whose keys are names of anything."""
    return {"type": "object", "additionalProperties": schema}


def keys(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """Return the schema of an object with keys of its own; others may be added to it."""
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}


def of(kind: Any) -> Schema:
    """Return the schema of what `dataclasses.asdict` makes of a dataclass: every field is there."""
    whole = TypeAdapter(kind).json_schema(mode="serialization")
    schema: Schema = _plain(whole, whole.get("$defs", {}))
    return schema


def _plain(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema of pydantic's without references, titles and defaults, and with every key required."""
    if isinstance(schema, list):
        return [_plain(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _plain(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    left_out = {"$defs", "title", "default", "description", "additionalProperties", "format"}
    found = {
        name: _plain(value, definitions) for name, value in schema.items() if name not in left_out | {"properties"}
    }
    if "properties" in schema:
        found["properties"] = {name: _plain(value, definitions) for name, value in schema["properties"].items()}
        found["required"] = list(found["properties"])
    elif isinstance(schema.get("additionalProperties"), dict):
        found["additionalProperties"] = _plain(schema["additionalProperties"], definitions)
    return found


def some_of(kind: Any, *names: str) -> dict[str, Schema]:
    """Return the schemas of some fields of a dataclass."""
    properties = of(kind)["properties"]
    return {name: properties[name] for name in names}


SCORES = keys({"trial": by_name(NUMBER), "untouched": by_name(NUMBER), "from_pixels": by_name(NUMBER)})
DECISIONS: Schema = {"type": "object"}  # parts of a plan, by stage: what is in them is the plugins' own
SHOWN = ("trial", "state", "values", "estimate", "reason", "spent_seconds", "epochs", "same_as", "rung", "promoted")
TRIAL = {
    **some_of(TrialRecord, *SHOWN, "uncalibrated", "prior"),
    "plan": maybe(DECISIONS),
    "sentence": TEXT,
    "measured": by_name(NUMBER),
}
WHOLE_TRIAL = {**TRIAL, **some_of(TrialRecord, "notes", "knobs", "constraint")}
MEMBER = keys(
    {
        "trial": WHOLE,
        "values": by_name(NUMBER),
        "plan": DECISIONS,
        "sentence": TEXT,
        "best": FLAG,
        "knee": FLAG,
        "not_better_than": each(TEXT),
    }
)
RUN = keys(
    {
        "task": TEXT,
        "space": TEXT,
        "seed": WHOLE,
        "limits": of(Budget),
        "untouched": by_name(NUMBER),
        "baselines": each(keys(some_of(Baseline, "name", "values", "share", "note", "seconds"))),
        "spent": keys(
            {
                "storage_bytes": WHOLE,
                "seconds": NUMBER,
                "prefix_samples": WHOLE,
                "peak_bytes": NUMBER,
                "phases": by_name(NUMBER),
            }
        ),
        "ended": TEXT,
        "notes": each(TEXT),
        "kind": TEXT,
        "kinds": by_name(TEXT),
        "answer": TEXT,
        "objectives": each(keys({"name": TEXT, "direction": {"enum": ["maximise", "minimise"]}})),
        "counts": keys(dict.fromkeys(STATES, WHOLE)),
        "scored_samples": by_name(WHOLE),
        "left_out_samples": WHOLE,
        "estimate_errors": by_name(of(EstimateErrors)),
        "exports": each(of(ExportInfo)),
        "shortlist": each(WHOLE),
        "picks": by_name(WHOLE),
        "candidates": maybe({"type": "object"}),
        "cuts": each(of(Cut)),
        "strategies": each(of(Tried)),
        "front": each(MEMBER),
        "trials": each(keys(TRIAL)),
    }
)
BUNDLE = keys(
    {
        "bundle": TEXT,
        "round": maybe(TEXT),
        "trainable": FLAG,
        "intervals": by_name(each(NUMBER)),
        "bytes": by_name(WHOLE),
        "folds": WHOLE,
        "local_samples": WHOLE,
        "name": TEXT,
        "made": TEXT,
        "tuner": TEXT,
        "labels": each(TEXT),
        "input": {"type": "object"},
        "input_shape": each(WHOLE),
        "loss": TEXT,
        "sentence": TEXT,
        "parent": maybe(TEXT),
        "scores": SCORES,
    },
    {
        "run": keys({"trial": WHOLE, "seed": WHOLE}),
        "plugins": by_name(TEXT),
        "train": {"type": "object"},
        "exits": {"type": "object"},
        "unknown": {"type": "object"},
        "int8": {"type": "object"},
        "label_thresholds": each(NUMBER),
        "label_map": by_name(each(TEXT)),
    },
)
EXPORT = keys(
    {"bundle": TEXT, "sentence": TEXT, "scores": SCORES},
    {"not_better_than": each(TEXT), "train": {"type": "object"}, "int8": {"type": "object"}},
)
#: A prediction has a label, or of a regression values.
ANSWER = {
    "exit": WHOLE,
    "label": TEXT,
    "probability": NUMBER,
    "nearest": TEXT,
    "unknown": NUMBER,
    "labels": by_name(NUMBER),
    "values": by_name(NUMBER),
    "windows": each({"type": "object"}),
    "timeline": each(keys({"begin": NUMBER, "labels": by_name(NUMBER)})),
    "note": TEXT,
}
PREDICTIONS = keys(
    {
        "predictions": each(keys({"file": TEXT, "seconds": NUMBER}, ANSWER)),
        "refused": each(keys({"file": TEXT, "reason": TEXT})),
        "left_out": each(keys({"folder": TEXT, "kinds": TEXT})),
    }
)
#: An event of `tuner watch`: a prediction, a refused file, a round, a problem, those left out, or what was done.
EVENT = keys(
    {},
    {
        **ANSWER,
        "file": TEXT,
        "begin": NUMBER,
        "seconds": NUMBER,
        "refused": TEXT,
        "round": {"enum": ["accepted", "refused"]},
        "reason": TEXT,
        "problem": TEXT,
        "predicted": WHOLE,
        "not_predicted": WHOLE,
        "kept": WHOLE,
        "outlook": TEXT,
        "label_next": each(TEXT),
        "left_out": WHOLE,
        "kinds": TEXT,
    },
)
DESCRIBED = tuple(one.name for one in fields(TaskDescription) if one.name not in {"blocks", "plan"})
DESCRIPTION = keys(
    {
        **some_of(TaskDescription, *DESCRIBED),
        "blocks": each(keys({"index": WHOLE, **some_of(BlockInfo, *(one.name for one in fields(BlockInfo)))})),
    },
    {"plan": of(PlanDescription)},
)
STORE = keys({"files": each(of(StoreFile)), "int8": keys({"files": WHOLE, "bytes": WHOLE})})
CHECK = keys({"name": TEXT, "difference": maybe(NUMBER), "tolerance": NUMBER, "values": WHOLE, "holds": FLAG})
ROW = keys(some_of(Measured, "task", "local_accuracy"), some_of(Measured, "global_accuracy", "points", "seeds"))
OFFERED = {**some_of(Entry, "adds", "summary", "license", "install", "address"), "measured": each(ROW)}
FOUND = {**some_of(Entry, "name"), **OFFERED, "installed": TEXT, "index": TEXT}

#: The schemas by the package that prints or reads them.
SCHEMAS: Mapping[str, Mapping[str, Schema]] = {
    "tuner": {
        "run-1": RUN,
        "trial-1": keys(WHOLE_TRIAL),
        "trials-1": keys({"trials": each(keys(WHOLE_TRIAL))}),
        "dry-run-1": of(DryRun),
        "bundle-1": BUNDLE,
        "export-1": EXPORT,
        "predictions-1": PREDICTIONS,
        "plugins-1": of(PluginList),
        "plugins-why-1": keys({"answers": each(of(Participation))}),
    },
    "plugins/tuner_check": {"check-1": of(Findings)},
    "plugins/tuner_choose": {"models-1": keys({"size": WHOLE, "models": each(of(Listed))})},
    "plugins/tuner_conformance": {
        "bundle-conformance-1": keys({"folder": TEXT, "bytes": WHOLE}),
        "bundle-check-1": keys({"holds": FLAG, "checks": each(CHECK)}),
    },
    "plugins/tuner_describe": {"describe-1": DESCRIPTION, "model-file-1": keys({})},
    "plugins/tuner_fleet": {"fleet-workers-1": keys({"study": TEXT, "workers": each(of(Worker))})},
    "plugins/tuner_gallery": {
        "plugins-index-1": keys({"plugins": each(keys(some_of(Entry, "name"), OFFERED))}),
        "plugins-search-1": keys({"plugins": each(keys(FOUND))}),
    },
    "plugins/tuner_init": {"init-1": of(Prepared)},
    "plugins/tuner_instant": {"instant-2": of(Instant), "instant-dry-run-1": of(Preview)},
    "plugins/tuner_labels": {
        "labels-suggest-1": keys({"suggestions": each(of(Suggestion))}),
        "labels-change-1": of(LabelChange),
        "labels-check-1": keys({"contradictions": each(of(Contradiction))}),
    },
    "plugins/tuner_priors": {
        "prior-1": of(Prior),
        "prior-build-1": keys({"prior": TEXT, "plans": WHOLE, "tasks": WHOLE}),
    },
    "plugins/tuner_report": {"diff-1": of(RunDiff)},
    "plugins/tuner_store": {
        "store-1": STORE,
        "store-clear-1": keys({"freed_bytes": WHOLE}),
        "forget-1": of(ForgottenSamples),
    },
    "plugins/tuner_testing": {
        "plugins-new-1": keys({"folder": TEXT, "files": each(TEXT)}),
        "plugins-check-1": of(PluginReport),
        "plugins-pairs-1": keys({"pairs": each(keys({"pair": each(TEXT), "reason": TEXT}))}),
    },
    "plugins/tuner_watch": {
        "watch-1": EVENT,
        "status-1": of(ServiceStatus),
        "rollback-1": keys({"left": TEXT, "round": TEXT}),
    },
}


def files() -> dict[Path, str]:
    """Return the content of every schema's file, by its path."""
    written = {}
    for package, schemas in SCHEMAS.items():
        for name, schema in schemas.items():
            named = {"schema": {"const": name}, **schema.get("properties", {})}
            whole = {"$schema": DIALECT, "title": name, **schema, "properties": named}
            whole["required"] = ["schema", *schema.get("required", [])]
            written[ROOT / package / "schemas" / f"{name}.json"] = json.dumps(whole, indent=1) + "\n"
    return written


if __name__ == "__main__":
    for path, content in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
