"""The schemas of what ``--json`` prints, and a ``json.dumps`` that refuses a document which breaks its own."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

ROOT = Path(__file__).parent.parent
#: Every schema's file, by its name without the suffix.
FILES = {path.stem: path for place in ("tuner", "plugins/*") for path in ROOT.glob(f"{place}/schemas/*.json")}


@cache
def validator(name: str) -> Draft202012Validator:
    """Return what checks a document against a schema, which is checked itself."""
    schema = json.loads(FILES[name].read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def check(document: Mapping[str, Any]) -> None:
    """Check a document that a command has printed."""
    validator(document["schema"]).validate(document)


def checked_dumps(content: Mapping[str, Any], **settings: Any) -> str:
    """Return a document as JSON, once it is checked."""
    text = json.dumps(content, **settings)
    check(json.loads(text))
    return text
