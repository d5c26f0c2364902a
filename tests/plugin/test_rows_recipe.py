"""The kind of samples in `docs/cookbook.md`: it reads rows of a CSV file, and a bundle names what it comes from."""

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from tests.plugin.installed import install
from tests.test_cookbook import KIND
from tuner.bundle.format import read_info, seal
from tuner.bundle.info import BundleInfo
from tuner.cli.app import call
from tuner.task import inputs, open_task
from tuner.task.inputs import input_kind
from tuner_init.prepare import init


def test_a_kind_reads_rows_and_its_bundle_names_its_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, source, project = KIND
    named = tomllib.loads(project)["project"]
    site, bundle = tmp_path / "site", tmp_path / "bundle"
    install(site, "tuner_rows", source, named["version"])
    (about,) = site.glob("*.dist-info")
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {named['name']}\nVersion: {named['version']}\n")
    ((group, points),) = named["entry-points"].items()
    (about / "entry_points.txt").write_text("\n".join((f"[{group}]", *(f"{key} = {points[key]}" for key in points))))
    monkeypatch.syspath_prepend(str(site))
    for part in ("train", "val"):
        rows = (f"{'wool' if row % 2 else 'silk'},{row / 10},{'warm' if row % 2 else 'cool'}" for row in range(8))
        (tmp_path / f"{part}.csv").write_text("\n".join(("cloth,weight,label", *rows)), encoding="utf-8")
    prepared = init(tmp_path / "train.csv", kind="rows", out=tmp_path / "task.toml")
    assert (prepared.noun, prepared.val) == ("rows", tmp_path / "val.csv")
    task = open_task(str(tmp_path / "task.toml"))
    assert task.labels == ("cool", "warm")
    assert np.array_equal(task.local.train.load(2), task.local.val.load(2))
    assert len({task.local.train.load(row).argmax() for row in range(1, 4)}) == 2, "a word is a feature of its own"
    kind = input_kind("rows")
    begins, pieces = kind.pieces(kind.read(tmp_path / "val.csv", task.input), task.input, "val.csv")
    assert (len(begins), pieces.shape) == (8, (8, *task.input_shape))
    bundle.mkdir()
    (bundle / "model.onnx").touch()
    seal(bundle, BundleInfo("t", task.labels, task.input, task.input_shape, "single-label").to_dict())
    assert read_info(bundle).needs == "tuner-rows 0.1"
    monkeypatch.setattr("sys.path", [entry for entry in sys.path if entry != str(site)])
    inputs._offered_kind.cache_clear()
    for command in (["predict", str(bundle), "new.csv"], ["apply", str(bundle), "task.toml", "out"]):
        assert call(command) == 1
        assert "got 'rows': install tuner-rows 0.1, or take that out of TUNER_PLUGINS" in capsys.readouterr().err
