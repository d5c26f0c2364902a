"""Folders that benchmarks read from."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
FIXTURES = ROOT / "tests" / "fixtures"
DATA = Path(os.environ.get("TUNER_DATA") or ROOT.parent / "shared" / "data")
