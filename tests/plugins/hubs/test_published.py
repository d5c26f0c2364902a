"""Models of timm and Hugging Face, by name or by folder; without the network, and with random weights."""

import json
import os
import pickle
import shutil
import socket
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tuner.backends.torch.model import published
from tuner.backends.torch.model.checkpoint import read_checkpoint
from tuner.backends.torch.model.open.factory import build
from tuner.backends.torch.model.open.load import OpenModel, load
from tuner.backends.torch.model.vision import declare_operators
from tuner.distribution import FETCH, SWITCH, fetching, may_fetch
from tuner.errors import PluginError, TaskError
from tuner.task import ArraySamples, Domain, InputDefaults, InputSpec, ModelSpec, Task

pytestmark = pytest.mark.slow

VIT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 32}
PROCESSOR = {"size": {"height": 32, "width": 32}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.25, 0.25]}


def require(library: str) -> None:
    """Skip where an extra is not installed; its import is the loader's business, as torchvision's may fail alone."""
    if find_spec(library) is None:
        pytest.skip(f"needs {library}")


def opened(spec: ModelSpec, side: int) -> OpenModel:
    """Return a model opened on noise of three classes that it knows and a new one."""
    noise = np.random.default_rng(0).normal(size=(8, 3, side, side)).astype(np.float32)
    samples = ArraySamples(noise, np.arange(8) % 4, InputSpec("arrays"))
    domain = Domain(samples, samples)
    labels, rows = tuple("abcd"), (0, 1, 2, 3)
    return load(Task("t", spec, InputSpec("arrays"), "single-label", domain, None, labels, rows[:3], rows))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as save_pretrained writes it, of a small vision transformer."""
    require("transformers")
    declare_operators()
    import transformers

    path = tmp_path_factory.mktemp("models") / "small-vit"
    config = transformers.ViTConfig(**VIT, patch_size=8, num_labels=3)
    transformers.ViTForImageClassification(config).save_pretrained(path)
    (path / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return path


@pytest.mark.parametrize(
    ("name", "arguments", "traced_by", "heads"),
    [
        ("mobilevit_xxs", {}, "torch.fx, with MobileVitBlock as leaves", ["head.fc"]),
        ("tf_efficientnet_lite0", {}, "torch.fx, with Conv2dSame as leaves", ["classifier"]),
        ("deit_tiny_patch16_224", {"img_size": 32, "depth": 2}, "torch.fx", ["head"]),
        ("efficientformerv2_s0", {"img_size": 64}, "torch.fx", ["head", "head_dist"]),
        ("levit_128s", {"img_size": 64}, "torch.fx", ["head.linear", "head_dist.linear"]),
    ],
)
def test_timms_models_are_cut_and_widened(
    name: str, arguments: dict[str, Any], traced_by: str, heads: list[str]
) -> None:
    require("timm")
    side = arguments.get("img_size", 64)
    model = opened(ModelSpec(f"timm:{name}", tuple(sorted({"num_classes": 3, **arguments}.items()))), side)
    assert (model.info.traced_by, model.info.note, model.info.name) == (traced_by, "", name)
    assert model.info.num_blocks >= 4
    assert [len(model.model.get_parameter(f"{head}.weight")) for head in heads] == [4] * len(heads)
    with torch.no_grad():
        sample = torch.rand(2, 3, side, side)
        cut = model.info.num_blocks // 2
        assert torch.allclose(model.tail(cut)(model.prefix(cut)(sample)), model.model(sample), atol=1e-4)


def test_a_folder_brings_its_weights_and_its_input(folder: Path) -> None:
    spec = ModelSpec(f"hf:{folder}")
    model = opened(spec, 32)
    assert (model.info.traced_by, model.info.note, model.info.name) == ("torch.export", "", "small-vit")
    assert [block.in_shape for block in model.info.blocks if block.channels_last]  # tokens
    again = build(spec)
    kept = model.model.get_parameter("vit.embeddings.cls_token")
    assert torch.equal(again.get_parameter("vit.embeddings.cls_token"), kept)
    assert len(model.model.get_parameter("classifier.weight")) == 4
    found = published.input_defaults(spec)
    assert found is not None
    assert replace(found, caution="") == InputDefaults(32, 32, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    assert found.caution.startswith("note: small-vit was trained on photos that its processor squeezes into a square;")


def test_a_folder_without_a_processor_has_the_size_of_its_configuration(folder: Path, tmp_path: Path) -> None:
    bare = Path(shutil.copytree(folder, tmp_path / "bare"))
    for file in bare.glob("*processor*"):
        file.unlink()
    found = published.input_defaults(ModelSpec(f"hf:{bare}"))
    assert found is not None
    assert (found.size, found.resize, found.mean, found.std) == (32, 32, (0.0,), (1.0,))
    assert found.caution.startswith("note: bare: its folder has no image processor")


def test_weights_of_the_task_take_the_place_of_the_folders(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    weights = {name: value + 1 for name, value in build(ModelSpec(f"hf:{folder}")).state_dict().items()}
    save_file(weights, tmp_path / "other.safetensors")
    model = build(ModelSpec(f"hf:{folder}", weights=str(tmp_path / "other.safetensors")))
    assert torch.equal(model.get_parameter("classifier.weight"), weights["classifier.weight"])


def test_timm_and_torchvision_say_how_inputs_are_prepared() -> None:
    require("timm")
    imagenet = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert published.input_defaults(ModelSpec("timm:mobilevit_xs")) == InputDefaults(256, 284, (0.0,) * 3, (1.0,) * 3)
    named = ModelSpec("torchvision.models:mobilenet_v2", weights="IMAGENET1K_V2")
    assert published.input_defaults(named) == InputDefaults(224, 232, *imagenet)
    assert published.input_defaults(ModelSpec("torchvision.models:mobilenet_v2")) is None


def test_a_name_that_timm_does_not_have_is_one_line() -> None:
    require("timm")
    with pytest.raises(TaskError, match=r"timm has no model 'resnet81' \(did you mean 'resnet\w+'\?\)$"):
        build(ModelSpec("timm:resnet81"))
    with pytest.raises(TaskError, match=r"timm:resnet18 raised TypeError: .*: correct its name or model\.arguments$"):
        build(ModelSpec("timm:resnet18", (("colour", 1),)))


def test_nothing_is_fetched_unasked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    require("timm")
    require("transformers")
    asked: list[object] = []

    def refuse(*given: object, **_: object) -> None:
        asked.append(given)
        raise OSError("no network here")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr("time.sleep", lambda _: None)  # the hub's library waits before it asks again
    monkeypatch.delenv(FETCH, raising=False)
    for name in ("hf:nobody/no-such-model", "timm:resnet18.a1_in1k"):
        with pytest.raises(TaskError, match=rf"{name} is not on this device, .*add --fetch to tuner run once"):
            build(ModelSpec(name))
    with pytest.raises(TaskError, match="add --fetch to tuner run once"):
        published.input_defaults(ModelSpec("hf:nobody/no-such-model"))
    assert not asked
    monkeypatch.setenv(FETCH, "0")
    with pytest.raises(TaskError, match="add --fetch to tuner run once, or set TUNER_FETCH=1 for any command"):
        build(ModelSpec("hf:nobody/no-such-model"))
    assert not asked
    with fetching(asked=True), pytest.raises(TaskError):
        build(ModelSpec("hf:nobody/no-such-model"))
    assert asked, "with --fetch, the hub is asked"
    assert os.environ[FETCH] == "0", "a call that fetches leaves the environment as it was"
    monkeypatch.delenv(FETCH)
    with fetching(asked=True):
        assert may_fetch()
    assert FETCH not in os.environ


def test_weights_in_a_file_say_how_many_classes_timms_model_has(tmp_path: Path) -> None:
    require("timm")
    import timm

    torch.save(timm.create_model("test_resnet", num_classes=5).state_dict(), tmp_path / "five.pth")
    model = build(ModelSpec("timm:test_resnet", weights=str(tmp_path / "five.pth")))
    assert model(torch.zeros(1, 3, 160, 160)).shape == (1, 5)


def test_weights_that_efficientnet_pytorch_has_named_fit_timms_network(tmp_path: Path) -> None:
    require("timm")
    import timm

    own = timm.create_model("tf_efficientnet_lite0", num_classes=5).state_dict()
    first, *middle, weight, bias = own.values()
    kinds = [name.rpartition(".")[2] for name in own][1:-2]
    flat = {f"_blocks.{at}._bn.{kind}": value for at, (kind, value) in enumerate(zip(kinds, middle, strict=True))}
    ported = {"_conv_stem.weight": first, **flat, "_fc.weight": weight, "_fc.bias": bias}
    torch.save(ported, tmp_path / "efficientnet-lite0-1234.pth")
    spec = ModelSpec("timm:tf_efficientnet_lite0", weights=str(tmp_path / "efficientnet-lite0-1234.pth"))
    found = build(spec).state_dict()
    assert all(torch.equal(found[name], value) for name, value in own.items())
    del ported[next(iter(flat))]
    torch.save(ported, tmp_path / "efficientnet-lite0-1234.pth")
    with pytest.raises(TaskError, match=r"has '_conv_stem\.weight', which the model does not have"):
        build(spec)


@pytest.mark.parametrize("name", ["trees.pkl", "trees.joblib"])
def test_models_of_scikit_learn_are_refused_in_words(tmp_path: Path, name: str) -> None:
    from sklearn.tree import DecisionTreeClassifier

    path = tmp_path / name
    path.write_bytes(pickle.dumps(DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1])))
    with pytest.raises(TaskError, match="is a pickle or joblib file, as scikit-learn writes its models: no PyTorch"):
        read_checkpoint(path, ())


def test_without_the_plugin_no_name_of_a_library_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "-hubs")
    for use in (build, published.input_defaults):
        with pytest.raises(PluginError, match="no plugin that builds models of timm is switched on"):
            use(ModelSpec("timm:resnet18"))
