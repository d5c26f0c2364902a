"""`tuner run` where PyTorch is not: heads at several cuts of an ONNX classifier, as a run."""

import json
import queue
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.plugins.instant.test_instant import OLD, OWN, photos
from tests.schemas import check
from tuner.bundle.format import Bundle
from tuner.bundle.onnx_check import check_model
from tuner.cli import fence
from tuner.commands.bundles.export import export
from tuner.commands.interruption import Interrupted
from tuner.commands.limits import CommandLimits
from tuner.errors import BudgetError, RunError, TaskError, TunerError, UsageError
from tuner.machine.awake import CLOCK
from tuner.ort.session import FEATURES, Session
from tuner.results.records.config import Budget
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.views.pick import pick_trial
from tuner.runtime import Personaliser, SolvingTrainer
from tuner.search.listener import Listener
from tuner.search.setting import RUN_RESERVE
from tuner_instant.classifier import Classifier, feature_name
from tuner_instant.commands import _guarded
from tuner_instant.features import Codes, Gathered
from tuner_instant.runs import Asked, run
from tuner_store.store import forget

SIDE, WIDTHS = 16, (24, 32, 48)


def network(path: Path) -> Path:
    """Write three convolutions with ReLU, which are pooled, and a head of as many outputs as there are old classes."""
    draw, before, value = np.random.default_rng(0).standard_normal, 3, "input"
    nodes, held = [], []
    for number, width in enumerate(WIDTHS):
        weight = draw((width, before, 3, 3)) / np.sqrt(4.5 * before)
        held.append(numpy_helper.from_array(weight.astype(np.float32), f"w{number}"))
        strides = [1, 1] if number == 0 else [2, 2]
        conv = helper.make_node("Conv", [value, f"w{number}"], [f"c{number}"], pads=[1, 1, 1, 1], strides=strides)
        nodes += [conv, helper.make_node("Relu", [f"c{number}"], [f"r{number}"])]
        before, value = width, f"r{number}"
    nodes += [
        helper.make_node("GlobalAveragePool", [value], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "head", "bias"], ["scores"], transB=1),
    ]
    held += [
        numpy_helper.from_array(draw((len(OLD), before)).astype(np.float32), "head"),
        numpy_helper.from_array(np.zeros(len(OLD), np.float32), "bias"),
    ]
    inputs = [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "three", inputs, outputs, held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a cache, and a folder with a model, photos of the user's and known ones, and a run of them."""
    folder = tmp_path_factory.mktemp("run")
    network(folder / "model.onnx")
    photos(folder / "mine", OWN, 12, 1)
    photos(folder / "known" / "train", OLD, 6, 2)
    photos(folder / "known" / "val", OLD, 6, 3)
    (folder / "known" / "classes.tsv").write_text("class\tindex\n" + "".join(f"{name}\t{name[3:]}\n" for name in OLD))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNER_CACHE", str(folder / "cache"))
        run(Asked(folder / "mine", folder / "model.onnx", folder / "known", out=folder / "run"), Listener(), Budget())
        yield folder


def test_cuts_are_pooled_as_numpy_pools_them_and_rise_in_cost(place: Path, tmp_path: Path) -> None:
    found = Classifier.open(place / "model.onnx")
    cuts = found.cuts((3, SIDE, SIDE))
    assert [cut.features for cut in cuts] == [32, 48]
    first, last = 2 * 27 * 24 * SIDE**2 + 24 * SIDE**2, 2 * 9 * 24 * 32 * (SIDE // 2) ** 2
    assert cuts[0].flops == first + last + 32 * (SIDE // 2) ** 2
    assert cuts[0].parameters == 9 * (3 * 24 + 24 * 32)
    assert cuts[0].peak_bytes > 4 * cuts[0].parameters
    session = Session(found.write(tmp_path / "both.onnx", cuts), 1)
    model = onnx.load(place / "model.onnx")
    model.graph.output.extend([helper.make_tensor_value_info(cut.value, TensorProto.FLOAT, None) for cut in cuts])
    onnx.save(model, tmp_path / "whole.onnx")
    samples = np.random.default_rng(1).standard_normal((3, 3, SIDE, SIDE)).astype(np.float32)
    maps = Session(tmp_path / "whole.onnx", 1).run(samples, *(cut.value for cut in cuts))
    pooled = session.run(samples, *(feature_name(at) for at in range(len(cuts))))
    for own, whole in zip(pooled, maps, strict=True):
        np.testing.assert_allclose(own, whole.reshape(*whole.shape[:2], -1).mean(axis=2), atol=1e-5)


def test_weights_in_int8_take_a_quarter_and_compute_nearly_the_same(place: Path, tmp_path: Path) -> None:
    found = Classifier.open(place / "model.onnx")
    cuts = found.cuts((3, SIDE, SIDE))[-1:]
    paths = [found.write(tmp_path / f"{bits}.onnx", cuts, bits=bits) for bits in (32, 8)]
    for path in paths:
        check_model(path)
    assert paths[1].stat().st_size < 0.4 * paths[0].stat().st_size
    samples = np.random.default_rng(1).standard_normal((3, 3, SIDE, SIDE)).astype(np.float32)
    whole, small = (Session(path, 1).run(samples, FEATURES)[0] for path in paths)
    assert 0 < np.abs(whole - small).max() < 0.02 * np.abs(whole).max()


def test_codes_are_those_of_the_largest_sample_whenever_it_comes() -> None:
    rows = np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32) * np.geomspace(1, 100, 40)[:, None]
    rows[0] = 0
    codes = Codes(len(rows), 5)
    for at, row in enumerate(rows.astype(np.float32)):
        codes.put(at, row)
    np.testing.assert_allclose(codes.codes * codes.step, rows, atol=codes.step)


def test_the_run_is_one_that_show_and_export_read(place: Path, tmp_path: Path) -> None:
    found = Run.open(place / "run")
    assert len(found.records) == 2 * 2 * 2  # cuts, widths, with known samples and without
    assert found.info.ended == "all heads were solved for"
    sizes = {
        bits: [one.values["bundle_bytes"] for one in found.records if one.knobs["instant.bits"] == bits]
        for bits in (8, 32)
    }
    assert max(sizes[8]) < min(sizes[32])
    best = pick_trial(found, "best")
    assert best.values["local_accuracy"] > 0.9
    assert pick_trial(found, "smallest").values["bundle_bytes"] <= best.values["bundle_bytes"]
    assert pick_trial(found, "fastest").values["mean_latency_seconds"] <= best.values["mean_latency_seconds"]
    folder = export(found, tmp_path / "bundle", trainable=True)
    bundle = Bundle.open(folder)
    assert bundle.info.run is not None
    assert (bundle.info.run.trial, bundle.labels) == (best.trial, (*OLD, *sorted(OWN)))
    files = sorted((place / "mine").rglob("*.png"))
    answers = [answer.label for answer in map(Personaliser(bundle, threads=1).predict_file, files)]
    assert np.mean([answer == file.parent.name for answer, file in zip(answers, files, strict=True)]) > 0.9
    trainer = SolvingTrainer(bundle, threads=1)
    assert trainer.samples == len(files)
    assert trainer.forget(files[:5]) == 5  # whatever the width of the weights


def test_int8_is_refused_where_it_loses_more_than_it_may(place: Path, tmp_path: Path) -> None:
    found = Run.open(place / "run")
    wide = next(one for one in found.records if one.knobs["instant.bits"] == 32)
    other = next(one for one in found.records if one.knobs == {**wide.knobs, "instant.bits": 8})
    small = Bundle.open(export(found, tmp_path / "small", str(wide.trial), int8=True)).info.run
    assert small is not None
    assert small.trial == other.trial
    other.values["local_accuracy"] = wide.values["local_accuracy"] - 0.03
    with pytest.raises(TunerError, match=r"would cost 3\.0 points of local_accuracy"):
        export(found, tmp_path / "none", str(wide.trial), int8=True)


def test_what_was_solved_for_until_an_interruption_can_be_exported(place: Path, tmp_path: Path) -> None:
    class Stops(Listener):
        def trial(self, record: TrialRecord) -> None:
            if record.trial == 1:
                raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=f"are kept in {tmp_path}/run\nto export it: tuner export {tmp_path}/run OUT"):
        run(Asked(place / "mine", place / "model.onnx", out=tmp_path / "run"), Stops(), Budget())
    found = Run.open(tmp_path / "run")
    assert (len(found.records), found.info.ended.partition(";")[0]) == (2, "interrupted")
    assert Bundle.open(export(found, tmp_path / "bundle")).labels == tuple(sorted(OWN))


def test_where_the_time_is_up_no_further_head_is_begun(place: Path, tmp_path: Path) -> None:
    asked = Asked(place / "mine", place / "model.onnx", out=tmp_path / "run")
    found = run(asked, Listener(), Budget(), end=CLOCK.now())
    assert (len(found.records), found.info.ended) == (1, "the time is up")
    export(found, tmp_path / "bundle")


def test_a_command_that_is_ended_leaves_no_copy_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    said, memory = queue.Queue[str](), SimpleNamespace(rss=0)
    monkeypatch.setattr(fence, "_leave", said.put)
    monkeypatch.setattr(psutil, "Process", lambda: SimpleNamespace(memory_info=lambda: memory))
    with _guarded("tuner run", CommandLimits(memory_bytes=1), lambda: "; this is kept"):
        copy = Path(tempfile.mkdtemp())
        memory.rss = 2
        assert said.get(timeout=10).endswith("give more; this is kept")
        assert not copy.exists()


def test_storage_counts_the_whole_folder(place: Path, tmp_path: Path) -> None:
    asked = Asked(place / "mine", place / "model.onnx", out=tmp_path / "run", storage_bytes=RUN_RESERVE)
    with pytest.raises(TaskError, match="and the other files of the run"):
        run(asked, Listener(), Budget())


def test_an_export_refuses_what_is_for_plans_that_train_and_takes_no_longer_than_it_may(
    place: Path, tmp_path: Path
) -> None:
    found = Run.open(place / "run")
    with pytest.raises(UsageError, match="--task and --plugin and --memory cannot"):
        export(found, tmp_path / "bundle", task="task.toml", plugins=["own.py"], memory="1GB")
    with pytest.raises(BudgetError, match="give more time"):
        export(found, tmp_path / "bundle", time="0.001s")
    assert not (tmp_path / "bundle").exists()


def test_an_ordinary_run_of_a_space_file_of_the_same_name_is_exported_as_one(place: Path, tmp_path: Path) -> None:
    found = Run.open(place / "run")
    info = replace(found.info, identity=replace(found.info.identity, space="Space(name='instant')"))
    with pytest.raises(RunError, match="has no weights"):
        export(replace(found, info=info), tmp_path / "bundle")


def test_forgetting_the_photos_removes_their_features_from_every_run_of_them(place: Path, tmp_path: Path) -> None:
    photos(tmp_path / "mine", OWN, 8, 1)
    folders = [tmp_path / name for name in ("first", "second", "copy")]
    for out in folders[:2]:
        found = run(Asked(tmp_path / "mine", place / "model.onnx", out=out), Listener(), Budget())
    shutil.copytree(folders[1], folders[2])
    count = found.info.spent.prefix_samples
    assert count == 8 * len(OWN)
    assert forget(str(tmp_path / "mine")).samples == 2 * count
    kept = [folder.name for folder in folders if (folder / "samples.safetensors").exists()]
    assert kept == ["copy"]
    assert forget(str(folders[2])).samples == count
    assert (place / "run" / "samples.safetensors").exists()  # of other photos
    with pytest.raises(RunError, match="such as after tuner forget"):
        export(Run.open(folders[2]), tmp_path / "bundle")


def test_a_run_whose_model_has_changed_is_not_exported(place: Path, tmp_path: Path) -> None:
    model = network(tmp_path / "model.onnx")
    found = run(Asked(place / "mine", model, out=tmp_path / "run"), Listener(), Budget())
    with model.open("ab") as file:
        file.write(b"\x08\x09")
    with pytest.raises(RunError, match="is not there, or changed"):
        export(found, tmp_path / "bundle")
    content = bytearray((tmp_path / "run" / "samples.safetensors").read_bytes())
    (tmp_path / "run" / "samples.safetensors").write_bytes(content[:-1000])
    with pytest.raises(RunError, match="cannot be read"):
        Gathered.load(tmp_path / "run")


def test_the_commands_need_the_base_package_alone(place: Path, tmp_path: Path) -> None:
    """Importing anything of an extra raises; options that need PyTorch are refused in one line."""
    extras = ("torch", "torchvision", "optuna", "scipy", "onnx", "onnxscript", "sklearn")
    own = ["run", place / "mine", "--model", place / "model.onnx", "--out", tmp_path / "run"]
    bundle = tmp_path / "bundle"
    commands = [
        [*own, "--dry-run", "--json"],
        own,
        [*own[:-1], tmp_path / "short", "--time", "10m"],
        ["show", tmp_path / "run", "--details"],
        ["export", tmp_path / "run", bundle, "--trainable"],
        ["predict", bundle, place / "mine" / "red" / "0.png"],
        [*own[:2], "--trials", "3"],
        own[:2],
    ]
    code = f"""import sys; sys.modules.update(dict.fromkeys({extras}))
from tuner_instant import runs
runs.CLOSING_SECONDS = 1e9
from tuner.cli.app import call
print([call(words) for words in {[[*map(str, words)] for words in commands]}])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    lines = done.stdout.splitlines()
    assert lines[-1] == "[0, 0, 0, 0, 0, 0, 1, 1]", done.stderr
    check(json.loads(lines[0]))
    assert "plans that train were not tried: pip install" in done.stdout
    assert "head in closed form after 1 block" in done.stdout
    assert "ended: the time is up" in " ".join(done.stdout.split())
    assert "--trials is for plans that train" in done.stderr
    assert "needs the ONNX file of a classifier: give --model" in done.stderr
