"""An encoder in ONNX: what it makes of a text, on the device as in a run, and which folders are none."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from tests.task.conftest import Load
from tuner.cli.app import app, call
from tuner.errors import TaskError
from tuner.task import InputSpec
from tuner_testing.models.libraries import loaded_by
from tuner_text import VARIABLE
from tuner_text.encoder import Encoder
from tuner_text.kind import TEXT

WORDS = {"[CLS]": 0, "?": 1, "good": 2, "bad": 3, "film": 4}
EMBEDDINGS = np.array([[1, 0, 0], [0, 0, 0], [0, 3, 4], [0, 4, 3], [2, 1, 0]], np.float32)
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def write_encoder(
    folder: Path, takes: Sequence[str] = INPUTS, gives: str = "last_hidden_state", embeddings: object = EMBEDDINGS
) -> Path:
    """Write an encoder of five tokens, as exports are laid out: each token's vector, where the mask is 1."""
    (folder / "onnx").mkdir(parents=True)
    nodes = [
        helper.make_node("Gather", ["vectors", "input_ids"], ["read"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["masks"]),
        helper.make_node("Mul", ["read", "masks"], [gives]),
    ]
    held = {"vectors": np.asarray(embeddings), "last": np.array([-1])}
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "t"]) for name in takes],
        [helper.make_tensor_value_info(gives, TensorProto.FLOAT, ["n", "t", 3])],
        [numpy_helper.from_array(value, name) for name, value in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "onnx" / "model.onnx")
    tokenizer = Tokenizer(WordLevel(WORDS, "?"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 0)])
    tokenizer.enable_padding(length=16)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


def scaled(features: object) -> object:
    value = np.asarray(features)
    return pytest.approx(value / np.sqrt((value**2).mean()))


def test_features_are_the_mean_of_the_tokens_states_scaled(tmp_path: Path) -> None:
    encoder = Encoder(write_encoder(tmp_path))
    assert encoder("good film") == scaled(EMBEDDINGS[[0, 2, 4]].mean(axis=0))
    assert encoder("film " * 2000) == scaled(EMBEDDINGS[[0, *[4] * 511]].mean(axis=0)), "512 tokens of a text are read"
    assert encoder.name.startswith("model.onnx ")
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 3, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
    )
    first = Encoder(tmp_path)
    assert first("good film") == scaled(EMBEDDINGS[0])
    assert first.name != encoder.name, "other features are those of another encoder"


def test_without_token_types_as_well(tmp_path: Path) -> None:
    encoder = Encoder(write_encoder(tmp_path, INPUTS[:2], "token_embeddings"))
    assert encoder("bad") == scaled(EMBEDDINGS[[0, 3]].mean(axis=0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"takes": ("pixel_values", *INPUTS)},
            "model.onnx must take input_ids, maybe .*, but takes pixel_values, input_ids",
        ),
        ({"gives": "logits"}, "model.onnx must give sentence_embedding or last_hidden_state .*, but gives logits"),
        (
            {"embeddings": EMBEDDINGS[:3]},
            "model.onnx cannot read the tokens of tokenizer.json: it fails on 1 of them, with numbers up to 4",
        ),
    ],
)
def test_a_model_that_is_no_such_encoder_is_refused(
    tmp_path: Path, changes: Mapping[str, object], message: str
) -> None:
    write_encoder(tmp_path, **changes)  # type: ignore[arg-type]  # of the parameters
    with pytest.raises(TaskError, match=message):
        Encoder(tmp_path)


def test_a_folder_that_is_no_encoder_says_what_is_missing(tmp_path: Path) -> None:
    def reason(folder: Path) -> str:
        with pytest.raises(TaskError, match="no encoder of texts") as caught:
            Encoder(folder)
        return str(caught.value)

    assert "(there is no such folder): it must hold tokenizer.json, and model.onnx or" in reason(tmp_path / "nowhere")
    folder = write_encoder(tmp_path / "one")
    (folder / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    assert "(there is no tokenizer.json)" in reason(folder)
    (folder / "tokenizer.json").write_text("{}")
    assert "(tokenizer.json holds no tokenizer: " in reason(folder)
    (tmp_path / "tokenizer.json").rename(folder / "tokenizer.json")
    model = folder / "onnx" / "model.onnx"
    model.write_bytes(b"no")
    assert "(ONNX Runtime " in reason(folder)
    (folder / "model.onnx").touch()
    assert "(there are 2, keep one: model.onnx, onnx/model.onnx)" in reason(folder)
    model.unlink()
    (folder / "model.onnx").unlink()
    assert "(there is no model.onnx and no *.safetensors)" in reason(folder)


def test_the_command_refuses_a_wrong_folder_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["predict", str(tmp_path), "a.txt", "--encoder", str(tmp_path)]) != 0
    assert f"{tmp_path}: no encoder of texts (there is no tokenizer.json)" in " ".join(capsys.readouterr().err.split())
    del app["predict"]


def test_a_device_reads_what_the_run_read(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(write_encoder(tmp_path / "encoder")))
    texts = ("good film", "bad film") * 3
    (tmp_path / "t.csv").write_text("text,label\n" + "".join(f"{text},{text[:3]}\n" for text in texts))
    task = load({"local.train": str(tmp_path / "t.csv")}, {"model.factory": "m:f", "local.kind": "text"})
    (tmp_path / "a.txt").write_text(texts[0])
    on_device = TEXT.read(tmp_path / "a.txt", task.input)
    assert np.array_equal(task.local.train.load(0), on_device)
    code = (
        f"import os; os.environ[{VARIABLE!r}] = {os.environ[VARIABLE]!r}; from tuner_text.encoder import encoder; "
        f"assert encoder()({texts[0]!r}).tolist() == {on_device.tolist()}"
    )
    assert loaded_by(code) == "onnxruntime", "and no other tensor library"
    if (child := os.fork()) == 0:  # as trials are
        os._exit(0 if np.array_equal(task.local.train.load(1), Encoder(tmp_path / "encoder")(texts[1])) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_bundle_says_which_encoder_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("good film")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(TaskError, match=r"the encoder model\.onnx 0a0b, but there is none here .*no such folder"):
        TEXT.read(tmp_path / "a.txt", InputSpec("text", columns=("model.onnx 0a0b",)))
