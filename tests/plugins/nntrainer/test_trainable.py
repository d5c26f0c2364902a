"""Model files that train: their recipe, their data, and what can be planned only."""

from pathlib import Path

import pytest

from tuner.errors import ModelError
from tuner.plan.parts import RecipePlan
from tuner_nntrainer.file.data import data_files
from tuner_nntrainer.file.ini import read_ini
from tuner_nntrainer.file.recipe import read_recipe
from tuner_nntrainer.network.checks import check_trainable, frozen_parameters, row_numbers
from tuner_nntrainer.network.network import Node

ADAM = "[Optimizer]\ntype = adam\n"
LAYERS = "[in]\ntype = input\ninput_shape = 1:2:6\n[fc]\ntype = fully_connected\nunit = 2\n"
SCHEDULE = "[LearningRateScheduler]\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "model.ini"
    path.write_text(text)
    return path


def recipe_of(folder: Path, text: str) -> RecipePlan | None:
    path = written(folder, text + LAYERS)
    return read_recipe(path, read_ini(path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[Model]\nepochs = 7\n", None),  # without an optimiser
        (ADAM, RecipePlan(1, 1, "adam", 1e-3, schedule="constant", momentum=0.0, epsilon=1e-7)),
        (
            "[Model]\nepochs = 7\nbatch_size = 9\n[Optimizer]\ntype = sgd\n",
            RecipePlan(7, 9, "sgd", 1e-4, schedule="constant", momentum=0.0, epsilon=1e-7),
        ),
        (
            "[Model]\noptimizer = adam\nlearning_rate = 0.02\nbeta1 = 0.8\nbeta2 = 0.9\nepsilon = 1e-6\n",
            RecipePlan(1, 1, "adam", 0.02, schedule="constant", momentum=0.0, beta1=0.8, beta2=0.9, epsilon=1e-6),
        ),
        (
            f"{ADAM}{SCHEDULE}type = exponential\nlearning_rate = 0.1\ndecay_rate = 0.9\ndecay_steps = 20\n",
            RecipePlan(
                1, 1, "adam", 0.1, schedule="exponential", momentum=0.0, epsilon=1e-7, decay_rate=0.9, decay_steps=20
            ),
        ),
        (
            f"{ADAM}{SCHEDULE}type = step\nlearning_rate = 0.1, 0.01, 0.001\niteration = 10, 20\n",
            RecipePlan(
                1, 1, "adam", 0.1, schedule="steps", momentum=0.0, epsilon=1e-7, milestones=((11, 0.01), (21, 0.001))
            ),
        ),
    ],
)
def test_a_file_trains_by_the_settings_that_it_gives_and_nntrainers_defaults(
    text: str, expected: RecipePlan | None, tmp_path: Path
) -> None:
    assert recipe_of(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{ADAM}learning_rate = 0\n", "[Optimizer]: learning_rate must be a number above 0, got '0'"),
        (f"{ADAM}beta1 = 1\n", "[Optimizer]: beta1 must be a number from 0 below 1, got '1'"),
        (f"[Model]\noptimizer = sgd\n{ADAM}", "[Model]: optimizer is also given by [Optimizer]: keep one"),
        (f"{SCHEDULE}type = constant\n", "[LearningRateScheduler]: a schedule needs an optimiser"),
        (f"{ADAM}{SCHEDULE}type = cosine\n", "type must be one of constant, exponential, step, got 'cosine'"),
        (f"{ADAM}{SCHEDULE}type = exponential\n", "decay_rate is missing: add decay_rate = ..., a number above 0"),
        (f"{ADAM}{SCHEDULE}type = step\nlearning_rate = 1\niteration = 5\n", "must have one value more than iteration"),
        (f"{ADAM}{SCHEDULE}type = step\nlearning_rate = a\niteration = 5\n", "learning_rate must be numbers separated"),
    ],
)
def test_a_setting_that_cannot_be_followed_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        recipe_of(tmp_path, text)
    assert message in str(caught.value)


def test_data_is_named_by_its_sections_or_by_the_older_one(tmp_path: Path) -> None:
    newer = data_files(written(tmp_path, "[train_set]\ntype = file\npath = a.dat\n[test_set]\npath = b.npz\n"))
    assert newer.paths == {"train": ("train_set", "a.dat"), "test": ("test_set", "b.npz")}
    older = data_files(written(tmp_path, "[Model]\nsave_path = w.bin\n[DataSet]\nTrainData=a.dat\nValidData=b.dat\n"))
    assert older.paths == {"train": ("DataSet", "a.dat"), "val": ("DataSet", "b.dat")}
    assert older.weights == "w.bin"
    with pytest.raises(ModelError, match="traindata is also given by"):
        data_files(written(tmp_path, "[train_set]\npath = a.dat\n[DataSet]\ntraindata = a.dat\n"))
    with pytest.raises(ModelError, match="path is missing: add path"):
        data_files(written(tmp_path, "[train_set]\ntype = file\n"))


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("[r]\ntype = gru\nunit = 2\nreset_after = false\n", "layer 'r': reset_after = false is planned only"),
        ("[r]\ntype = lstm\nunit = 2\nintegrate_bias = true\n", "layer 'r': integrate_bias = true is planned only"),
        (
            "[p]\ntype = pooling2d\npooling = max\npool_size = 2,2\npadding = 1\n",
            "layer 'p': pooling with padding is planned only",
        ),
        (
            "[a]\ntype = fully_connected\nunit = 2\nweight_regularizer = l2norm\n",
            "model.ini, [a]: weight_regularizer = l2norm is not carried out in training: remove it",
        ),
        (
            "[b]\ntype = fully_connected\nunit = 2\n[c]\ntype = fully_connected\nunit = 2\ntrainable = false\n",
            "layer 'c' has",
        ),
        ("[c]\ntype = fully_connected\nunit = 2\ntrainable = false\n", "no layer trains"),
    ],
)
def test_what_is_planned_only_is_refused_for_training(layers: str, message: str, tmp_path: Path) -> None:
    network = read_ini(written(tmp_path, "[in]\ntype = input\ninput_shape = 1:4:6\n" + layers))
    with pytest.raises(ModelError) as caught:
        check_trainable(network)
    assert message in str(caught.value)


def test_frozen_layers_come_first(tmp_path: Path) -> None:
    layers = "[c]\ntype = fully_connected\nunit = 5\ntrainable = false\n[d]\ntype = fully_connected\nunit = 2\n"
    network = read_ini(written(tmp_path, f"[in]\ntype = input\ninput_shape = 1:1:3\n{layers}"))
    check_trainable(network)
    assert frozen_parameters(network) == 20


PAIR = "[in]\ntype = input\ninput_shape = 1:1:2\n[s]\ntype = split\naxis = 3\n"
TABLES = (
    "[u]\ntype = embedding\nin_dim = 4\nout_dim = 3\ninput_layers = s(1)\n"
    "[i]\ntype = embedding\nin_dim = 9\nout_dim = 3\ninput_layers = s(0)\n"
)


def test_an_embedding_knows_which_values_it_reads(tmp_path: Path) -> None:
    network = read_ini(written(tmp_path, f"{PAIR}{TABLES}[c]\ntype = concat\ninput_layers = u, i\n"))
    found: dict[str, list[int]] = {}
    node: Node
    for node, places in row_numbers(network):
        found[node.name] = places.tolist()
    assert found == {"u": [1], "i": [0]}
    assert network.nodes[-1].traits.shape == (2, 1, 3)
    computed = (
        "[in]\ntype = input\ninput_shape = 1:1:2\nactivation = relu\n[e]\ntype = embedding\nin_dim = 3\nout_dim = 3\n"
    )
    with pytest.raises(ModelError, match="layer 'e': an embedding must read the input, or a part of it"):
        read_ini(written(tmp_path, computed))
    with pytest.raises(ModelError, match="each part must be read once, got 2 parts of which 1 are read"):
        read_ini(written(tmp_path, f"{PAIR}[u]\ntype = flatten\ninput_layers = s(0)\n"))
