"""Bundles from elsewhere that train: no buffer smaller than what is written to it, no size that is not there."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tuner.bundle.format import Bundle, file_hash
from tuner.commands.bundles.card import card_of
from tuner.errors import TunerError
from tuner.ort.layout import StepFileError
from tuner.ort.training_step import StepSession
from tuner.runtime import ExitsTrainer, Trainer

FIXTURES = Path(__file__).parents[2] / "fixtures"
Edit = Callable[[Path], object]


def sealed(bundle: Path) -> Path:
    """Give the files of a bundle the hashes of what they are now."""
    content = json.loads((bundle / "bundle.json").read_text())
    content["files"] = {name: file_hash(bundle / name) for name in content["files"]}
    (bundle / "bundle.json").write_text(json.dumps(content))
    return bundle


def copied(folder: Path, of: str = "digits") -> Path:
    bundle = folder / "bundle"
    shutil.copytree(FIXTURES / of / "bundle", bundle)
    return bundle


def refuse(bundle: Path) -> None:
    """Check that training is refused in one line, though every hash is right."""
    with pytest.raises(TunerError) as refused:
        train(sealed(bundle))
    assert len(str(refused.value).splitlines()) == 1


def train(bundle: Path) -> None:
    """Train as a round does: on a few samples with labels."""
    opened = Bundle.open(bundle)
    trainer = (ExitsTrainer if opened.exits else Trainer)(opened, 1)
    draw = np.random.default_rng(0)
    samples = [draw.random((1, 8, 8), np.float32) for _ in range(24)]
    trainer.add(samples, [opened.labels[at % len(opened.labels)] for at in range(24)])
    trainer.train(1)


def step(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a step file says of its inputs."""
    model = onnx.load(path)
    entry = next(entry for entry in model.metadata_props if entry.key == "tuner.step")
    about = json.loads(entry.value)
    change(about)
    entry.value = json.dumps(about)
    onnx.save(model, path)


def port(about: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(port for port in about["inputs"] if port["kind"] == kind)
    return found


def tensors(path: Path, change: Callable[[dict[str, Any], dict[str, str]], object]) -> None:
    """Change the tensors and the metadata of a safetensors file."""
    content = dict(load_file(path))
    with safe_open(path, framework="numpy") as file:
        metadata = dict(file.metadata() or {})
    change(content, metadata)
    save_file({name: np.ascontiguousarray(value) for name, value in content.items()}, path, metadata)


def text(path: Path, old: str, new: str) -> None:
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, new, 1))


def summed(path: Path) -> None:
    """Let a graph answer with one number for all samples."""
    model = onnx.load(path)
    (logits,) = model.graph.output
    model.graph.node.append(onnx.helper.make_node("ReduceSum", [logits.name], ["sum"], keepdims=0))
    logits.CopyFrom(onnx.helper.make_tensor_value_info("sum", onnx.TensorProto.FLOAT, []))
    onnx.save(model, path)


STEPS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a parameter smaller than the file's": lambda a: port(a, "parameter").update(shape=[1]),
    "an input smaller than the file's": lambda a: port(a, "input").update(shape=[1, 1, 1, 1]),
    "an input of 10^15": lambda a: port(a, "input").update(shape=[10**5] * 3),
    "a negative input": lambda a: port(a, "input").update(shape=[-1, 1]),
    "an input of another type": lambda a: port(a, "input").update(dtype="float64"),
    "an input of Python's own type": lambda a: port(a, "input").update(dtype="object"),
    "labels of another type": lambda a: port(a, "label").update(dtype="float32"),
    "no input": lambda a: a["inputs"].remove(port(a, "input")),
    "inputs twice": lambda a: a["inputs"].append(port(a, "input")),
    "updates of what is not there": lambda a: a["updates"].update(dict.fromkeys(a["updates"], "none")),
    "updates that cross": lambda a: a["updates"].update(
        zip(a["updates"], [*list(a["updates"].values())[1:], next(iter(a["updates"].values()))], strict=True)
    ),
    "no updates": lambda a: a.update(updates={}),
    "updates as a list": lambda a: a.update(updates=[]),
    "inputs as text": lambda a: a.update(inputs="all"),
    "an input without a shape": lambda a: port(a, "input").pop("shape"),
    "another format": lambda a: a.update(format=[2] * 1000),
}


def test_no_buffer_is_bound_to_a_larger_output(tmp_path: Path) -> None:
    path = tmp_path / "step.onnx"
    shutil.copy(FIXTURES / "digits/bundle/train/step.onnx", path)
    step(path, STEPS["no updates"])
    weights = load_file(FIXTURES / "digits/bundle/weights.safetensors")
    with pytest.raises(StepFileError, match=r"has a value of shape \[.*\] for float32 \[\]: export it again"):
        StepSession(path, weights)


RECORDS: dict[str, Callable[[dict[str, Any], dict[str, str]], object]] = {
    "fewer codes than labels": lambda t, _: t.update(codes=t["codes"][:3]),
    "codes of another size": lambda t, _: t.update(codes=t["codes"][:, :5]),
    "codes of another type": lambda t, _: t.update(codes=t["codes"].astype(np.float32)),
    "no codes": lambda t, _: t.pop("codes"),
    "no labels": lambda t, _: t.pop("labels"),
    "labels above the bundle's": lambda t, _: t.update(labels=t["labels"] + 1000),
    "negative labels": lambda t, _: t.update(labels=t["labels"] - 1000),
    "labels of another type": lambda t, _: t.update(labels=t["labels"].astype(np.float32)),
    "labels of two dimensions": lambda t, _: t.update(labels=t["labels"][:, None]),
    "scales that are not numbers": lambda t, _: t.update(low=np.full_like(t["low"], np.nan)),
    "infinite scales": lambda t, _: t.update(high=np.full_like(t["high"], np.inf)),
    "no scales": lambda t, _: t.pop("low"),
    "scales of other channels": lambda t, _: t.update(low=t["low"][:1], high=t["high"][:1]),
    "no metadata": lambda _, m: m.clear(),
    "another format": lambda _, m: m.update(format="2"),
    "three bits": lambda _, m: m.update(bits="3"),
    "bits as text": lambda _, m: m.update(bits="many"),
    "no shape": lambda _, m: m.pop("shape"),
    "a shape of 10^30": lambda _, m: m.update(shape="10000000000 10000000000 10000000000"),
    "a negative shape": lambda _, m: m.update(shape="-16 4 4"),
    "a shape of 5,001 digits": lambda _, m: m.update(shape="9" * 5001),
}


OTHERS: dict[str, tuple[str, Edit]] = {
    "a header of 2^60 bytes": ("digits", lambda b: (b / "weights.safetensors").write_bytes(b"\xff" * 7 + b"\x0f{}")),
    "a header of 5 MB": (
        "digits",
        lambda b: (b / "weights.safetensors").write_bytes((5 * 10**6).to_bytes(8, "little") + b" " * 5 * 10**6),
    ),
    "weights that end too early": (
        "digits",
        lambda b: (b / "weights.safetensors").write_bytes((b / "weights.safetensors").read_bytes()[:5000]),
    ),
    "weights that are not there": ("digits", lambda b: tensors(b / "weights.safetensors", lambda t, _: t.clear())),
    "weights that are not numbers": (
        "digits",
        lambda b: tensors(
            b / "weights.safetensors", lambda t, _: t.update({n: v + np.float32(np.nan) for n, v in t.items()})
        ),
    ),
    "weights of another shape": (
        "digits",
        lambda b: tensors(b / "weights.safetensors", lambda t, _: t.update({n: v.ravel()[:1] for n, v in t.items()})),
    ),
    "exits' weights of another shape": (
        "exits",
        lambda b: tensors(b / "exits.safetensors", lambda t, _: t.update({n: v.ravel()[:1] for n, v in t.items()})),
    ),
    "no weights of exits": ("exits", lambda b: tensors(b / "exits.safetensors", lambda t, _: t.clear())),
    "a tail of another model": ("digits", lambda b: shutil.copy(b / "model.onnx", b / "train/tail.onnx")),
    "a tail that answers with one number": ("digits", lambda b: summed(b / "train/tail.onnx")),
    "a step in the tail's place": ("digits", lambda b: shutil.copy(b / "train/step.onnx", b / "train/tail.onnx")),
    "a plan of a billion epochs": ("digits", lambda b: text(b / "plan.toml", "epochs = ", "epochs = 1000000")),
    "a plan nested too deeply": ("digits", lambda b: (b / "plan.toml").write_text("a = " + "[" * 9999)),
    "a plan that is binary": ("digits", lambda b: (b / "plan.toml").write_bytes(bytes(range(256)))),
    "an empty plan": ("digits", lambda b: (b / "plan.toml").write_text("")),
}


def edited(change: Callable[..., object], how: Callable[..., object], file: str) -> tuple[str, Edit]:
    return "digits", lambda bundle: how(bundle / file, change)


HOSTILE = {
    **{f"a step: {name}": edited(change, step, "train/step.onnx") for name, change in STEPS.items()},
    **{f"replay: {name}": edited(change, tensors, "train/replay.safetensors") for name, change in RECORDS.items()},
    **OTHERS,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_steps_replay_weights_and_plans_that_do_not_fit_are_refused(name: str, tmp_path: Path) -> None:
    of, edit = HOSTILE[name]
    bundle = copied(tmp_path, of)
    edit(bundle)
    refuse(bundle)


@pytest.mark.parametrize("of", ["digits", "exits"])
def test_a_bundle_that_means_no_harm_trains(of: str) -> None:
    train(FIXTURES / of / "bundle")


@pytest.mark.parametrize("name", ["train/step.onnx", "train/replay.safetensors", "plan.toml", "weights.safetensors"])
def test_a_file_without_a_hash_is_not_used(name: str, tmp_path: Path) -> None:
    bundle = copied(tmp_path)
    content = json.loads((bundle / "bundle.json").read_text())
    del content["files"][name]
    (bundle / "bundle.json").write_text(json.dumps(content))
    with pytest.raises(TunerError, match=f"has no hash of {name}: export again"):
        train(bundle)


def scored(folder: Path, **scores: dict[str, float]) -> Path:
    """Return a copy of a bundle with other scores."""
    bundle = copied(folder)
    content = json.loads((bundle / "bundle.json").read_text())
    content["scores"] |= scores
    (bundle / "bundle.json").write_text(json.dumps(content))
    return bundle


def test_an_accuracy_is_a_share_and_a_value_of_a_plugin_is_none_whatever_its_name(tmp_path: Path) -> None:
    for number, value in enumerate((1.5, -0.1)):
        bundle = scored(tmp_path / str(number), from_pixels={"local_accuracy": value})
        with pytest.raises(TunerError, match=r"local_accuracy is .*, not between 0 and 1: export again"):
            card_of(bundle)
    bundle = scored(tmp_path / "plugin", trial={"gain_in_accuracy": -0.02})
    assert card_of(bundle).info.scores.trial == {"gain_in_accuracy": -0.02}
