"""Bundles whose frozen blocks are in int8, and of values with exits, compute what their conformance set holds."""

from pathlib import Path

import pytest

from tests.runtime.bundles import known_digits, trainable_bundle, trainable_exits
from tests.slants import write_task
from tools.web_bundles import in_8_bits
from tuner.cli.app import call
from tuner.plan.heads import HeadsPlan
from tuner.plugin.core import load_task

pytestmark = pytest.mark.slow
STEPS = HeadsPlan("exits-only", distilled=1.0)
CLOSED_FORM = HeadsPlan("exits-only", ridge=1.0)


def in_int8(folder: Path) -> Path:
    digits = known_digits()
    trained = trainable_bundle(digits, folder)
    (folder / "int8").mkdir()
    return in_8_bits(digits, trained, folder / "int8")


def of_values(folder: Path, heads: HeadsPlan) -> Path:
    return trainable_exits(load_task(str(write_task(folder))), folder, heads)


def holds(bundle: Path) -> bool:
    return call(["bundle", "conformance", str(bundle)]) == 0 == call(["bundle", "check", str(bundle)])


def test_in_int8(own_cache: Path, tmp_path: Path) -> None:
    assert holds(in_int8(tmp_path))


@pytest.mark.parametrize("heads", [STEPS, CLOSED_FORM], ids=["steps", "closed form"])
def test_of_values_with_exits(heads: HeadsPlan, own_cache: Path, tmp_path: Path) -> None:
    assert holds(of_values(tmp_path, heads))
