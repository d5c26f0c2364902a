"""Texts: what is read of files and tables, by which encoder, and what a bundle of them needs."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tests.plugins.text.subjects import texts, write_table
from tests.task.conftest import Load
from tuner.bundle.format import Bundle, read_info, seal
from tuner.bundle.info import BundleInfo
from tuner.cli.app import app, call
from tuner.errors import BundleError, StoreError, TaskError
from tuner.task import InputSpec
from tuner.task.inputs import input_kind
from tuner_init.prepare import init
from tuner_testing.models.libraries import loaded_by
from tuner_text import VARIABLE
from tuner_text.encoder import Encoder, encoder
from tuner_text.kind import TEXT
from tuner_text.torch import classifier

BASE = {"model.factory": "m:f", "local.kind": "text"}
VECTORS = np.array([[0, 0], [3, 4], [4, 3], [0, 1]], np.float16)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return the folder of an encoder of four words."""
    folder = tmp_path / "small"
    folder.mkdir()
    tokenizer = Tokenizer(WordLevel({"?": 0, "good": 1, "bad": 2, "film": 3}, "?"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    save_file({"embeddings": VECTORS}, folder / "small.safetensors")
    return folder


@pytest.fixture(autouse=True)
def _command_as_it_was() -> Iterator[None]:
    """Take away commands with options that plugins added, which all tests share."""
    yield
    for name in {"init", "predict"} & {*app}:
        del app[name]


def test_a_text_is_the_mean_of_its_tokens_vectors_scaled(small: Path) -> None:
    mean = VECTORS[[1, 3]].astype(np.float32).mean(axis=0)
    features = Encoder(small)("good film")
    assert features == pytest.approx(mean / np.sqrt((mean**2).mean()))
    assert Encoder(small)("").tolist() == [0, 0]
    (small / "small.safetensors").write_bytes(b"no")
    with pytest.raises(TaskError, match=r"no encoder of texts \(small\.safetensors must hold one array"):
        Encoder(small)


def test_wordllama_reads_texts_and_its_own_code_is_not_run() -> None:
    read, own = encoder(), "the football team won the match"
    near, far = (read(own) @ read(other) for other in ("the players scored a late goal", "quarterly revenue fell"))
    assert near > 3 * far > 0
    code = "from tuner_text.encoder import encoder; encoder()('a'); import sys; assert 'wordllama' not in sys.modules"
    assert loaded_by(f"{code}; assert 'requests' not in sys.modules") == ""


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_rows_of_a_table_are_texts(ending: str, load: Load, tmp_path: Path) -> None:
    rows = [("what a day", "good"), ("oh, no", "bad")] * 3
    mark = "\t" if ending == "tsv" else ";"
    lines = [f'"{text}"{mark}{label}' for text, label in rows]
    if ending == "jsonl":
        lines = [json.dumps({"Message": text, "class": label}) for text, label in rows]
    else:
        lines = [f"Message{mark}class", *lines]
    file = tmp_path / f"t.{ending}"
    file.write_text("\n".join(lines), encoding="utf-8")
    task = load({"local.train": str(file)}, BASE)
    assert task.labels == ("bad", "good")
    assert task.input.columns == (encoder().name,)
    assert np.array_equal(task.local.train.load(0), encoder()("what a day"))
    assert task.local.train.name(0) == f"{file}:1"
    assert TEXT.claims(file)
    with pytest.raises(TaskError, match=r"no column of labels, only Message, class: give t\.\w+#COLUMN"):
        load({"local.train": f"{file}#label"}, BASE)


def test_labels_may_be_numbers_and_texts_long(load: Load, tmp_path: Path) -> None:
    rows = [{"text": f"a {number}", "label": number % 2} for number in range(6)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert load({"local.train": str(tmp_path / "t.jsonl")}, BASE).labels == ("0", "1")
    (tmp_path / "t.csv").write_text("text,label\n" + f"{'word ' * 40_000},x\nshort,y\n" * 3)
    assert load({"local.train": str(tmp_path / "t.csv")}, BASE).labels == ("x", "y")


def test_what_is_wrong_with_texts_is_named(load: Load, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,label\na b,x\n ,y\n")
    with pytest.raises(TaskError, match=r"t\.csv: row 2 has no text"):
        load({"local.train": str(tmp_path / "t.csv")}, BASE)
    (tmp_path / "t.csv").write_text("text,label\na b,x\noh, no,y\n")
    with pytest.raises(TaskError, match=r"t\.csv: row 2 has more cells than the header: put texts with ',' in quotes"):
        load({"local.train": str(tmp_path / "t.csv")}, BASE)
    (tmp_path / "n.csv").write_text("a,label\n1,x\n")
    assert not TEXT.claims(tmp_path / "n.csv")
    with pytest.raises(TaskError, match=r"n\.csv: no column of texts, only a, label: name it text"):
        load({"local.train": str(tmp_path / "n.csv")}, BASE)
    (tmp_path / "e.jsonl").write_text('{}\n{"text": "a b", "label": "x"}\n')
    with pytest.raises(TaskError, match=r"e\.jsonl: row 1 is empty"):
        load({"local.train": str(tmp_path / "e.jsonl")}, BASE)
    for name, content in (("a", "one"), ("b", "")):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "1.txt").write_text(content)
    with pytest.raises(TaskError, match=r"b/1\.txt: holds no words"):
        load({"local.train": str(tmp_path / "in")}, BASE)
    with pytest.raises(StoreError, match="texts are not changed at random, got flip: leave it out"):
        TEXT.check_operations(frozenset({"flip"}))


def test_init_finds_texts_in_a_table_and_partitions_beside_it(tmp_path: Path) -> None:
    for part, most in (("train", 8), ("val", 4)):
        write_table(tmp_path / f"{part}.csv", ("files", "words"), most)
    prepared = init(tmp_path / "train.csv", out=tmp_path / "task.toml")
    assert (prepared.kind, prepared.noun, prepared.model) == ("text", "texts", "tuner_text.torch:classifier")
    assert prepared.val == tmp_path / "val.csv"
    assert [count.train for count in prepared.survey.classes] == [8, 8]
    assert "# Texts are read by a frozen encoder" in (tmp_path / "task.toml").read_text(encoding="utf-8")


def bundle_of_texts(folder: Path) -> Path:
    """Write what says that it is a bundle of texts, which is all that is read before a model is."""
    folder.mkdir()
    (folder / "model.onnx").touch()
    spec = InputSpec("text", columns=(encoder().name,))
    seal(folder, BundleInfo("t", ("a", "b"), spec, (256,), "single-label").to_dict())
    return folder


def test_a_bundle_names_the_plugin_that_reads_its_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = bundle_of_texts(tmp_path / "bundle")
    assert read_info(folder).needs == "device-tuner 0.1.0"
    assert "needs" not in json.loads((folder / "bundle.json").read_text(encoding="utf-8"))["input"]
    monkeypatch.setenv("TUNER_PLUGINS", "-text")
    with pytest.raises(BundleError, match=r"got 'text': install device-tuner 0\.1\.0, or take that out of TUNER_PLUG"):
        read_info(folder)


def test_texts_that_another_encoder_reads_are_refused(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, file = bundle_of_texts(tmp_path / "bundle"), tmp_path / "a.txt"
    bundle = Bundle(folder, read_info(folder))
    file.write_text("good film")
    assert bundle.kind.read(file, bundle.spec).shape == (256,)
    monkeypatch.setenv(VARIABLE, str(small))
    with pytest.raises(TaskError, match=r"l2_supercat_256 \w+, but the one here is small \w+: give the folder of th"):
        bundle.kind.read(file, bundle.spec)


def test_the_option_of_a_plugin_is_one_of_the_command(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "")  # as it was, after the test
    write_table(tmp_path / "train.csv", ("files", "words"), 8)
    task = tmp_path / "task.toml"
    asked = ["init", str(tmp_path / "train.csv"), "--out", str(task)]
    assert call([*asked, "--encodr", str(small)]) == 2
    assert "did you mean --encoder" in capsys.readouterr().err.lower()
    assert call([*asked, "--encoder", str(small)]) == 0, capsys.readouterr().err
    assert os.environ[VARIABLE] == str(small)
    assert "inputs = 2," in task.read_text(encoding="utf-8")
    assert call([*asked, "--force"]) == 0, "the option may be left out"
    capsys.readouterr()
    assert call(["predict", "--help"]) == 0
    assert "--encoder" in capsys.readouterr().out


def test_the_network_is_its_head_alone_until_it_is_trained() -> None:
    model, features = classifier(4, 3), torch.randn(5, 4)
    assert isinstance(model, torch.nn.Sequential)
    assert torch.equal(model(features), model[-1](features))
    assert input_kind("text").network((4,), 3).arguments == {"inputs": 4, "outputs": 3}


def test_the_texts_are_many_and_no_subject_has_anothers() -> None:
    found = {subject: texts(subject, 60) for subject in ("network", "files", "numbers", "words")}
    assert all(len(own) == 60 for own in found.values())
    assert len({text for own in found.values() for text in own}) >= 235
