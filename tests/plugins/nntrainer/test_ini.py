"""Model files: what is read, and what is refused in one line."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tuner.cli.app import call
from tuner.errors import ModelError
from tuner_nntrainer.file.ini import read_ini
from tuner_nntrainer.file.keys import LAYERS
from tuner_nntrainer.file.operations import OPERATIONS
from tuner_nntrainer.network.layers import (
    Activation,
    Concat,
    Conv2d,
    FullyConnected,
    Input,
    Lstm,
    MultiOut,
    Pooling2d,
)

MODELS = Path(__file__).parents[3] / "examples" / "nntrainer"
HEAD = "[Model]\nloss = mse\nbatch_size = 4\n[in]\ntype = input\ninput_shape = 3:8:8\n"


def written(folder: Path, text: str, name: str = "model.ini") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ModelError) as caught:
        read_ini(written(folder, text))
    output = str(caught.value)
    assert "\n" not in output
    assert ".ini" in output
    return output


def test_a_file_of_the_paper_is_read_as_its_writers_write_it(tmp_path: Path) -> None:
    text = """
[Model]
Type = NeuralNetwork \t# a comment
Epochs = 100
Loss = cross             ; another
Save_Path = "model.bin"
batch_size = 64

[Optimizer]
Type = ADAM
beta1 = 0.9
[LearningRateScheduler]
type=constant
Learning_rate = 1e-4
[train_set]
type = file
path = train.dat

[inputlayer]
Type = input
Input_Shape = 1:1:150528
Normalization = true

[LSTMLayer]
Type = lstm
input_layers = InputLayer
Unit = 10
[out]
type = fully_connected
unit = 5
Activation = softmax
"""
    model = read_ini(written(tmp_path, text))
    assert (model.loss, model.optimiser, model.batch_size) == ("cross", "adam", 64)
    assert [node.operation for node in model.nodes] == [Input((1, 1, 150528)), Lstm(10), FullyConnected(5)]


def test_every_type_of_layer_can_be_made(tmp_path: Path) -> None:
    assert set(LAYERS) == set(OPERATIONS)
    text = (
        HEAD
        + """
[conv]
type = conv2d
filters = 4
kernel_size = 3,5
stride = 2,1
padding = 1,2
flatten = false
[norm]
type = batch_normalization
momentum = 0.9
activation = relu
[split]
type = multiout
[max]
type = pooling2d
pooling = max
pool_size = 2,2
padding = same
input_layers = split(1)
[mean]
type = pooling2d
pooling = average
pool_size = 2,2
padding = 0,1,1,0
input_layers = split(0)
[both]
type = concat
axis = 1
input_layers = max, mean
[sum]
type = addition
input_layers = both, both
[act]
type = activation
activation = tanh
[flat]
type = flatten
[seq]
type = lstm
unit = 3
return_sequences = true
disable_bias = true
[head]
type = fully_connected
unit = 2
trainable = false
"""
    )
    nodes = {node.name: node for node in read_ini(written(tmp_path, text)).nodes}
    assert nodes["conv"].operation == Conv2d(4, (3, 5), (2, 1), (1, 1, 2, 2))
    assert nodes["norm/activation"].operation == Activation("relu")
    assert nodes["split"].operation == MultiOut(2)
    assert nodes["both/multiout"].operation == MultiOut(2)
    assert nodes["mean"].operation == Pooling2d("average", (2, 2), (1, 1), (0, 1, 1, 0))
    assert nodes["both"].operation == Concat(1)
    assert nodes["seq"].operation == Lstm(3, sequences=True, bias=False)
    assert {name: node.traits.shape for name, node in nodes.items() if name in {"conv", "max", "mean", "both"}} == {
        "conv": (4, 4, 8), "max": (4, 4, 8), "mean": (4, 4, 8), "both": (8, 4, 8),
    }  # fmt: skip
    assert nodes["split"].inputs == ((list(nodes).index("norm/activation"), 0),)
    assert [nodes[name].inputs[0][1] for name in ("max", "mean")] == [1, 0]
    assert not nodes["head"].trainable


def test_a_backbone_is_another_file_that_is_frozen_unless_it_asks_to_train(tmp_path: Path) -> None:
    block = "[in]\ntype = input\ninput_shape = 3:8:8\n[c]\ntype = conv2d\nfilters = 3\nkernel_size = 3,3\n"
    block += "padding = same\n[s]\ntype = addition\ninput_layers = c, in\nactivation = relu\n"
    written(tmp_path, block, "block.ini")
    text = HEAD + "[a]\nbackbone = block.ini\n[b]\nbackbone = block.ini\ntrainable = true\n"
    model = read_ini(written(tmp_path, text + "[head]\ntype = fully_connected\nunit = 2\n"))
    trainable = {node.name: node.trainable for node in model.nodes if node.parameters}
    assert trainable == {"a/c": False, "b/c": True, "head": True}
    names = [node.name for node in model.nodes]
    assert names[:2] == ["in", "in/multiout"]
    first = next(node for node in model.nodes if node.name == "a/s")
    assert [names[at] for at, _ in first.inputs] == ["a/c", "in/multiout"]
    assert model.nodes[names.index("head")].inputs[0][0] == names.index("b/s/activation")
    alone = read_ini(written(tmp_path, "[a]\nbackbone = block.ini\ntrainable = true\n"))
    assert next(node.name for node in alone.nodes) == "a/in"


CONV = "[c]\ntype = conv2d\nfilters = 2\nkernel_size = 3,3\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[Model]\nbatchsize = 3\n", "[Model]: unknown key 'batchsize' (did you mean 'batch_size'?)"),
        ("[Modle]\nloss = mse\n", "(did you mean 'model'?)"),
        (
            HEAD + CONV + "filtres = 2\n",
            "unknown key 'filtres' (did you mean 'filters'?); keys of a layer of type conv2d: type",
        ),
        (HEAD + "[c]\ntype = conv3d\n", "got 'conv3d' (did you mean 'conv2d'?)"),
        (HEAD + "[d]\ntype = permute\n", "type must be one of input, fully_connected"),
        (HEAD + "[c]\ntype = conv2d\nfilters = 2\n", "[c]: kernel_size is missing: add kernel_size = ..., two whole"),
        (
            HEAD + "[c]\ntype = conv2d\nfilters = 0\nkernel_size = 3,3\n",
            "filters must be a whole number above zero, got '0'",
        ),
        (HEAD + "[c]\ntype = conv2d\nfilters = 2\nkernel_size = 3\n", "such as 3,3, got '3'"),
        (HEAD + CONV + "padding = same-ish\n", "padding must be valid, same, or one, two or four whole numbers"),
        (HEAD + CONV + "trainable = maybe\n", "trainable must be one of true, false, got 'maybe'"),
        (
            HEAD + CONV + "input_layers = inn\n",
            "input_layers must name layers before it, got 'inn' (did you mean 'in'?)",
        ),
        (HEAD + CONV + "input_layers = in(\n", "input_layers must name layers as a, b(1), got 'in('"),
        (HEAD + CONV + "input_layers = in(1)\n", "reads output 1 of 'in', which has one output"),
        (HEAD + CONV + "[d]\n" + CONV[4:] + "input_layers = in\n", "no layer reads those of 'c' and 'd'"),
        (HEAD + CONV + "input_shape = 3:8:8\n", "input_shape is for the first layer"),
        (HEAD.replace("3:8:8", "3:8"), "channels:height:width, such as 3:224:224, got '3:8'"),
        (HEAD + CONV + "[C]\n", "line 11: every section must have a name of its own, got [C]"),
        (HEAD + CONV + "filters = 3\n", "line 11: filters is given twice"),
        ("filters = 3\n", "line 1: a line must be [section] or key = value inside a section"),
        (HEAD + "[c]\nfilters\n", "line 8: a line must be [section] or key = value"),
        (HEAD + CONV.replace("3,3", "9,9"), "layer 'c': a window of 9,9 does not fit into an input of 8,8"),
        (HEAD + "[l]\ntype = lstm\nunit = 2\n", "layer 'l': lstm: the input must be 1:time:features, got 3:8:8"),
        (HEAD.replace("mse", "cross") + CONV, "requires softmax or sigmoid as the last activation"),
        (HEAD.replace("mse", "hinge") + CONV, "loss must be one of mse, cross, got 'hinge'"),
        ("[Model]\nloss = mse\n", "the model has no layer"),
        (HEAD, "the model has only an input"),
        ("[f]\ntype = flatten\n", "layer 'f' reads nothing: name its input_layers, or put an input before it"),
        (HEAD + "[b]\nbackbone = net.tflite\n", "a backbone must be another .ini file, got 'net.tflite'"),
        (HEAD + "[b]\nbackbone = model.ini\n", "contains itself"),
        (HEAD + "[b]\nbackbone = none.ini\n", "cannot be read ("),
        (HEAD + "[b]\nbackbone = a\0b.ini\n", "cannot be read (no file can have this name)"),
        (HEAD + "[f]\ntype = fully_connected\nunit = " + "9" * 5001, "a number of unit may have 9 digits, got '999"),
        (
            HEAD + "[f]\ntype = fully_connected\nunit = 3\ninput_layers = in" + " " * 100_000 + "b(\n",
            "input_layers must name layers as a, b(1), got 'in  ",
        ),
        (
            HEAD + CONV + "[s]\ntype = addition\ninput_layers = in, c\n",
            "addition: inputs must have one shape, got 3:8:8, 2:6:6",
        ),
        (
            HEAD + CONV + "[s]\ntype = concat\ninput_layers = in, c\n",
            "inputs must differ in that axis only, got 3:8:8, 2:6:6",
        ),
        (HEAD + CONV + "[s]\ntype = flatten\ninput_layers = in, c\n", "reads one tensor, but 2 are given"),
        (
            HEAD + "[m]\ntype = multiout\n[s]\ntype = addition\ninput_layers = m(0), m(2)\n",
            "each output of 'm', 0 to 1, must be read once, but these are read: 0, 2",
        ),
    ],
)
def test_a_mistake_is_reported_in_a_line_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    assert message in refused(tmp_path, text)


def test_a_chain_of_backbones_has_an_end(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.ini").write_text(f"[b]\nbackbone = {number + 1}.ini\n")
    with pytest.raises(ModelError, match="backbones may be 32 deep: write the layers into one file"):
        read_ini(tmp_path / "0.ini")


def test_describe_reports_the_plan_of_a_model_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["describe", str(MODELS / "lenet5.ini"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["parameters"] == 61_706
    assert report["flops"] == 2 * (6 * 784 * 25 + 16 * 100 * 150 + 400 * 120 + 120 * 84 + 84 * 10)
    assert (report["batch_size"], report["optimiser"], report["loss"]) == (32, "adam", "cross")
    memory = report["memory"]
    assert memory["peak_bytes"] == min(memory["planners"].values()) == memory["planners"][memory["planner"]]
    assert memory["max_live_bytes"] == max(entry["live_bytes"] for entry in memory["steps"])
    assert memory["steps"][memory["peak_step"]["index"]]["name"] == memory["peak_step"]["name"]
    assert len(memory["largest"]) == 10
    peaks = [memory["peak_bytes"], *(entry["peak_bytes"] for entry in report["micro_batches"])]
    assert len(peaks) == 4
    assert sorted(peaks, reverse=True) == peaks
    assert call(["describe", str(MODELS / "lenet5.ini")]) == 0
    output = capsys.readouterr().out
    assert "61,706 parameters" in output
    assert f"at {memory['peak_step']['name']!r}" in output
    assert "planned peak with 8 micro-batches, same gradients: " in output
    assert call(["describe", str(MODELS / "resnet.ini"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["micro_batches"] == []


def test_describe_draws_every_tensor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawing = tmp_path / "memory.svg"
    assert call(["describe", str(MODELS / "resnet.ini"), "--picture", str(drawing), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    svg = ET.parse(drawing).getroot()  # noqa: S314 - we wrote it
    names = [title.text or "" for title in svg.iter("{http://www.w3.org/2000/svg}title")]
    assert {entry["name"] for entry in report["memory"]["largest"]} <= {name.split(" (")[0] for name in names}
    (line,) = svg.iter("{http://www.w3.org/2000/svg}polyline")
    assert len(line.attrib["points"].split()) == 2 * len(report["memory"]["steps"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([str(MODELS / "lstm.ini"), "--plan", "plan.toml"], 2, "--plan is for a task"),
        (
            ["digits", "--picture", "memory.svg"],
            2,
            "--picture of the task 'digits' shows a plan's step, but there is no --plan: give one",
        ),
        ([str(MODELS / "lstm.ini"), "--picture", "no/such/folder.svg"], 1, "cannot be written"),
    ],
)
def test_options_that_do_not_apply_are_refused(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["describe", *arguments]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
