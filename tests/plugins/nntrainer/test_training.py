"""A step's tensors: the paper's worked examples, and random networks run on abstract memory."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import ModelError
from tuner.planner.memory.placement import by_size, max_live
from tuner_nntrainer.network.layers import (
    Activation,
    Addition,
    BatchNormalization,
    Conv2d,
    Flatten,
    FullyConnected,
    Input,
    Lstm,
    MultiOut,
    Operation,
    Pooling2d,
)
from tuner_nntrainer.network.lifetimes import Mode, Request, merged, together
from tuner_nntrainer.network.network import Layer, LayerInput, Network, network
from tuner_nntrainer.network.training import TrainingStep, requests, training_step

RELU = Activation("relu")


def chain(*operations: Operation, frozen: Sequence[int] = ()) -> list[Layer]:
    """Layers ``l0``, ``l1``, ... one after another."""
    return [
        Layer(f"l{at}", each, (LayerInput(f"l{at - 1}"),) if at else (), at not in frozen)
        for at, each in enumerate(operations)
    ]


def joined(layers: Sequence[Layer], batch: int = 2, optimiser: str = "sgd", loss: str = "mse") -> Network:
    return network(layers, loss=loss, optimiser=optimiser, batch_size=batch)  # type: ignore[arg-type]  # names of tests


def spans(step: TrainingStep) -> dict[str, tuple[int, int]]:
    return {each.name: (each.first, each.last) for each in step.tensors}


def test_figure_5_a_linear_activation_linear_chain_merges_activation_and_derivative() -> None:
    lifetimes = spans(
        training_step(
            joined(chain(Input((1, 1, 6)), FullyConnected(4, bias=False), RELU, FullyConnected(3, bias=False)))
        )
    )
    # orders: forward 0 1 2, loss 3, then gradient and derivative of l3 (4, 5), l2 (6, 7), l1 (8, 9)
    assert lifetimes == {
        "l0.out": (0, 8),
        "l1.out": (0, 7),
        "l1.weight": (0, 9),
        "d l1.weight": (8, 9),
        "d l2.out": (5, 8),
        "l3.out": (2, 3),
        "l3.weight": (0, 9),
        "d l3.weight": (4, 5),
        "d l3.out": (3, 5),
        "label": (3, 3),
    }


def test_figure_6_a_linear_activation_flatten_chain_keeps_one_output_and_one_derivative() -> None:
    lifetimes = spans(training_step(joined(chain(Input((1, 1, 6)), FullyConnected(4, bias=False), RELU, Flatten()))))
    assert lifetimes == {
        "l0.out": (0, 8),
        "l1.out": (0, 7),
        "l1.weight": (0, 9),
        "d l1.weight": (8, 9),
        "d l3.out": (3, 8),
        "label": (3, 3),
    }


def test_what_lies_below_the_first_weight_that_trains_has_no_derivative_and_keeps_nothing() -> None:
    layers = chain(
        Input((3, 8, 8)), Conv2d(4, (3, 3)), RELU, Conv2d(5, (3, 3)), Flatten(), FullyConnected(2), frozen=[1, 3]
    )
    step = training_step(joined(layers))
    names = set(spans(step))
    assert "d l5.weight" in names
    assert not {"d l1.out", "d l3.out", "d l4.out", "d l1.weight", "d l3.weight"} & names
    assert spans(step)["l0.out"] == (0, 0)
    assert spans(step)["l1.out"] == (0, 2)


def test_a_frozen_layer_above_one_that_trains_passes_the_derivative_on() -> None:
    layers = chain(Input((1, 4, 5)), FullyConnected(4), Lstm(3), FullyConnected(2), frozen=[2])
    step = training_step(joined(layers))
    lifetimes = spans(step)
    assert "d l2.weight_ih" not in lifetimes
    assert lifetimes["d l1.out"] == (7, 8)
    assert lifetimes["l2.gates"] == (1, 7)
    assert lifetimes["d l2.out"] == (5, 7)


def test_a_mask_frees_the_activations_output_for_the_derivative() -> None:
    halving = Conv2d(3, (3, 3), (2, 2))
    plain = chain(Input((3, 16, 16)), Conv2d(3, (3, 3)), RELU, halving)
    masked = chain(Input((3, 16, 16)), Conv2d(3, (3, 3)), Activation("relu", mask=True), halving)
    with_output, with_mask = training_step(joined(plain)), training_step(joined(masked))
    assert max_live(with_mask.tensors) < max_live(with_output.tensors)
    mask = next(each for each in with_mask.tensors if each.name == "l2.mask")
    assert mask.nbytes == 2 * -(-3 * 14 * 14 // 8)
    assert mask.kind == "saved"


def test_adam_keeps_two_values_a_weight_and_batch_norm_its_statistics() -> None:
    layers = chain(Input((3, 4, 4)), Conv2d(5, (1, 1), bias=False), BatchNormalization(), frozen=[2])
    by_kind: dict[str, int] = {}
    for each in training_step(joined(layers, optimiser="adam")).tensors:
        by_kind[each.kind] = by_kind.get(each.kind, 0) + each.nbytes
    assert by_kind["weight"] == 4 * (15 + 10)
    assert by_kind["state"] == 4 * (2 * 15 + 10)
    assert by_kind["gradient"] == 4 * 15


def test_flops_count_the_gradient_and_the_derivative_where_there_is_one() -> None:
    step = training_step(joined(chain(Input((1, 1, 6)), FullyConnected(4), RELU, FullyConnected(3)), batch=5))
    assert step.flops == 2 * 5 * (6 * 4 * 2 + 4 * 3 * 3)
    assert step.steps[:4] == ("forward of l1", "forward of l2", "forward of l3", "loss")
    assert step.steps[4:6] == ("gradient of l3", "derivative of l3")
    assert len(step.steps) == 10


def test_micro_batches_keep_a_part_of_the_activations_and_a_sum_of_the_gradients() -> None:
    model = joined(chain(Input((1, 1, 6)), FullyConnected(4), RELU, FullyConnected(3)), batch=8)
    whole, parts = training_step(model), training_step(model, 4)
    sizes = {each.name: each.nbytes for each in whole.tensors}
    for each in parts.tensors:
        if each.name.endswith(".sum"):
            assert (each.first, each.last, each.kind) == (0, 9, "gradient")
            assert each.nbytes == sizes[each.name.removesuffix(".sum")]
        elif each.kind in {"weight", "gradient"}:
            assert each.nbytes == sizes[each.name]
        else:
            assert 4 * each.nbytes == sizes[each.name]
    assert parts.flops == whole.flops
    assert {f"d l1.{name}.sum" for name in ("weight", "bias")} <= {each.name for each in parts.tensors}


def test_micro_batches_that_would_change_the_result_are_refused() -> None:
    layers = chain(Input((3, 4, 4)), Conv2d(5, (1, 1)), BatchNormalization())
    with pytest.raises(ModelError, match="a multiple of the number of micro-batches, 3, got 8"):
        training_step(joined(layers, batch=8), 3)
    with pytest.raises(ModelError, match="'l2' normalises over the whole batch"):
        training_step(joined(layers, batch=8), 2)
    frozen = chain(Input((3, 4, 4)), Conv2d(5, (1, 1)), BatchNormalization(), frozen=[2])
    assert training_step(joined(frozen, batch=8), 2).tensors


def test_the_cross_entropy_takes_the_softmax_in_and_a_model_of_which_nothing_trains_is_refused() -> None:
    layers = chain(Input((1, 1, 6)), FullyConnected(4), Activation("softmax"))
    assert [node.name for node in joined(layers, loss="cross").nodes] == ["l0", "l1"]
    assert [node.name for node in joined(layers, loss="mse").nodes] == ["l0", "l1", "l2"]
    with pytest.raises(ModelError, match=r"no weight of this model trains.*trainable = true"):
        training_step(joined(chain(Input((1, 1, 6)), FullyConnected(4), frozen=[1])))


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """A random network: each layer reads any earlier ones; what nothing reads is summed before the last layer."""
    layers = [Layer("input", Input((2, 4, 4)))]
    kinds: list[Operation] = [
        RELU, Activation("tanh"), BatchNormalization(), Conv2d(2, (3, 3), padding="same"), Addition(),
        Pooling2d("max", (3, 3), padding="same"), Pooling2d("average", (3, 3), padding="same"),
        FullyConnected(4), MultiOut(1), Activation("relu", mask=True),
    ]  # fmt: skip
    for number in range(draw(st.integers(1, 9))):
        operation = draw(st.sampled_from(kinds))
        count = draw(st.integers(1, 3)) if isinstance(operation, Addition) else 1
        read = tuple(LayerInput(draw(st.sampled_from(layers)).name) for _ in range(count))
        layers.append(Layer(f"l{number}", operation, read, draw(st.booleans())))
    unread = {layer.name for layer in layers} - {each.layer for layer in layers for each in layer.inputs}
    layers.append(Layer("sum", Addition(), tuple(LayerInput(layer.name) for layer in layers if layer.name in unread)))
    layers.append(Layer("flat", Flatten(), (LayerInput("sum"),)))
    layers.append(Layer("head", FullyConnected(3), (LayerInput("flat"),)))
    return joined(layers)


def stale(requested: Sequence[Request]) -> list[tuple[str, int]]:
    """Reads that would find another value than the one written: merged memory is run step by step."""
    _, owner = merged(requested)
    by_name = {request.name: request for request in requested}

    def value(request: Request) -> str:
        """What a request holds: a reading view holds the value of its tensor."""
        while request.mode is Mode.READ_VIEW:
            request = by_name[request.of]
        return request.name

    reads = []
    for request in requested:
        for order in request.orders:
            writers = [
                (min(other.orders), other.name)
                for other in requested
                if owner[other.name] == owner[request.name] and other.mode is not Mode.READ_VIEW
                and min(other.orders) < order
            ]  # fmt: skip
            written_now = order == min(by_name[value(request)].orders)
            if not written_now and max(writers)[1] != value(request):
                reads.append((request.name, order))
    return reads


@settings(max_examples=100)
@given(networks())
def test_no_merged_tensor_is_overwritten_while_something_still_reads_it(drawn: Network) -> None:
    assert stale(together(requests(drawn))) == []


@settings(max_examples=40)
@given(networks())
def test_every_request_lives_inside_the_tensor_it_was_merged_into(drawn: Network) -> None:
    requested = together(requests(drawn))
    tensors, owner = merged(requested)
    by_name = {tensor.name: tensor for tensor in tensors}
    for request in requested:
        tensor = by_name[owner[request.name]]
        assert tensor.first <= min(request.orders)
        assert max(request.orders) <= tensor.last
        assert request.nbytes == tensor.nbytes
    step = training_step(drawn)
    assert max_live(step.tensors) <= by_size(step.tensors).pool_bytes
    assert max(tensor.last for tensor in tensors) == len(step.steps) - 1


def test_the_check_for_stale_reads_finds_one() -> None:
    bad = [
        Request("x", 4, frozenset({0, 1}), "activation"),
        Request("view", 4, frozenset({1, 3}), "activation", Mode.READ_VIEW, "x"),
        Request("y", 4, frozenset({2, 4}), "activation"),
    ]
    assert stale(bad) == []
    overwriting = [*bad[:2], Request("y", 4, frozenset({0, 2}), "activation", Mode.EXTEND, "x")]
    assert stale(overwriting) != []
