"""Layers of NNTrainer's model files: shapes, weights, and what they keep for the backward pass."""

import pytest

from tuner_nntrainer.network.layers import (
    Activation,
    BatchNormalization,
    Concat,
    Conv1d,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    FullyConnected,
    Gru,
    Lstm,
    Operation,
    Padding,
    Pooling2d,
    Shape,
    Split,
)
from tuner_nntrainer.network.rules import Traits, traits


def of(layer: Operation, *shapes: Shape) -> Traits:
    return traits(layer, shapes)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "expected"),
    [
        ((3, 3), (1, 1), "valid", (5, 30, 22)),
        ((3, 3), (1, 1), "same", (5, 32, 24)),
        ((3, 3), (2, 2), "same", (5, 16, 12)),
        ((3, 5), (2, 1), (1, 1, 2, 2), (5, 16, 24)),
        ((4, 4), (3, 3), (0, 1, 0, 1), (5, 10, 8)),
        ((32, 24), (7, 7), "valid", (5, 1, 1)),
    ],
)
def test_a_convolution_has_as_many_rows_as_windows_fit(
    kernel: tuple[int, int], stride: tuple[int, int], padding: Padding, expected: Shape
) -> None:
    convolution = of(Conv2d(5, kernel, stride, padding), (3, 32, 24))
    assert convolution.shape == expected
    window = 3 * kernel[0] * kernel[1]
    assert convolution.weights == {"weight": 5 * window, "bias": 5}
    assert convolution.macs == expected[0] * expected[1] * expected[2] * window


def test_a_fully_connected_layer_works_along_the_width() -> None:
    linear = of(FullyConnected(7), (2, 3, 11))
    assert (linear.shape, linear.macs, linear.weights) == ((2, 3, 7), 2 * 3 * 11 * 7, {"weight": 77, "bias": 7})
    assert of(FullyConnected(7, bias=False), (1, 1, 11)).weights == {"weight": 77}


@pytest.mark.parametrize(("layer", "gates", "cells"), [(Lstm, 4, {"cells": 4 * 6 * 10}), (Gru, 3, {})])
def test_an_lstm_owns_four_gates_and_a_gru_three_and_no_cell_and_they_are_kept_at_every_time_step(
    layer: type[Lstm | Gru], gates: int, cells: dict[str, int]
) -> None:
    recurrent, sequences = (of(layer(10, sequences=kept), (1, 6, 12)) for kept in (False, True))
    assert sum(recurrent.weights.values()) == gates * 10 * (12 + 10 + 2)
    assert (recurrent.shape, sequences.shape) == ((1, 1, 10), (1, 6, 10))
    saved = {tensor.name: tensor.sample_bytes for tensor in recurrent.inner if tensor.kind == "saved"}
    assert saved == {"gates": 4 * gates * 6 * 10, "hidden": 4 * 6 * 10, **cells}
    assert recurrent.macs == 6 * gates * 10 * (12 + 10)
    assert sum(of(Lstm(10, one_bias=True), (1, 6, 12)).weights.values()) == 4 * 10 * (12 + 10 + 1)


def test_layers_of_vectors_and_tables_have_the_sizes_of_nntrainers() -> None:
    conv1d, flat = (
        of(Conv1d(5, 3, 2, (0, 0, 1, 2)), (3, 1, 24)),
        of(Conv2d(5, (1, 3), (1, 2), (0, 0, 1, 2)), (3, 1, 24)),
    )
    assert conv1d == flat
    assert conv1d.shape == (5, 1, 13)
    table = of(Embedding(40, 6), (1, 1, 3))
    assert (table.shape, table.weights, table.macs) == ((1, 3, 6), {"weight": 240}, 0)
    (mask,) = of(Dropout(0.5), (2, 3, 4)).inner
    assert (mask.name, mask.sample_bytes) == ("mask", 4 * 24)
    assert of(Split(3, outputs=4), (2, 3, 4)).shape == (2, 3, 1)
    assert of(Split(2, number=3, outputs=3), (2, 6, 4)).shape == (2, 2, 4)


def test_max_pooling_keeps_an_index_and_average_pooling_nothing() -> None:
    (index,) = of(Pooling2d("max", (2, 2), (2, 2)), (3, 8, 8)).inner
    assert (index.name, index.sample_bytes) == ("index", 4 * 3 * 4 * 4)
    assert of(Pooling2d("average", (2, 2), (2, 2)), (3, 8, 8)).inner == ()
    assert of(Pooling2d("global_average"), (3, 8, 8)).shape == (3, 1, 1)


def test_batch_norm_has_a_pair_of_weights_a_channel_or_a_value_of_a_vector() -> None:
    assert of(BatchNormalization(), (5, 8, 8)).weights == {"gamma": 5, "beta": 5}
    assert of(BatchNormalization(), (1, 1, 12)).weights == {"gamma": 12, "beta": 12}
    assert of(BatchNormalization(), (5, 8, 8)).inner
    assert traits(BatchNormalization(), [(5, 8, 8)], trainable=False).inner == ()


def test_layers_that_share_memory_are_marked() -> None:
    assert [of(layer, (2, 4, 4)).sharing for layer in (Activation("relu"), BatchNormalization(), Flatten())] == [
        "in-place", "in-place", "view",
    ]  # fmt: skip
    assert of(Conv2d(2, (1, 1)), (2, 4, 4)).sharing == "none"


@pytest.mark.parametrize(("axis", "expected"), [(1, (6, 4, 5)), (2, (3, 8, 5)), (3, (3, 4, 10))])
def test_concat_adds_up_along_its_axis(axis: int, expected: Shape) -> None:
    assert of(Concat(axis), (3, 4, 5), (3, 4, 5)).shape == expected
