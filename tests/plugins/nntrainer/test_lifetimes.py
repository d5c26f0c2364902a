"""Lifetimes of tensors: orders, requests that unite, and views that share memory."""

import pytest

from tuner.planner.memory.placement import Tensor
from tuner_nntrainer.network.lifetimes import Lifespan, Mode, Orders, Request, merged, together


def request(name: str, orders: set[int], mode: Mode = Mode.CREATE, of: str = "") -> Request:
    return Request(name, 4, frozenset(orders), "activation", mode, of)


def test_orders_of_three_layers_are_the_papers_with_a_step_for_the_loss() -> None:
    orders = Orders(3)
    paper = [(0, 7, 8), (1, 5, 6), (2, 3, 4)]  # section 4.1, figure 4: forward, gradient, derivative; no loss step
    ours = [(orders.forward(at), orders.gradient(at) - 1, orders.derivative(at) - 1) for at in range(3)]
    assert ours == paper
    assert (orders.loss, orders.last) == (3, 9)


@pytest.mark.parametrize(
    ("lifespan", "expected"),
    [
        (Lifespan.FORWARD, {1}),
        (Lifespan.FORWARD | Lifespan.GRADIENT, {1, 6}),
        (Lifespan.BACKWARD, {6, 7}),
        (Lifespan.ITERATION, {1, 6, 7}),
        (Lifespan.ALWAYS, {0, 9}),
        (Lifespan(0), set()),
    ],
)
def test_a_lifespan_gives_the_orders_of_its_parts(lifespan: Lifespan, expected: set[int]) -> None:
    assert Orders(3).of(1, lifespan) == expected


def test_requests_of_one_tensor_unite() -> None:
    joined = together([request("x", {0}), request("y", {1}, Mode.READ_VIEW, "x"), request("x", {4, 7})])
    assert joined == [request("x", {0, 4, 7}), request("y", {1}, Mode.READ_VIEW, "x")]


def test_the_first_request_that_shares_decides_how() -> None:
    joined = together([request("x", {5}), request("x", {3}, Mode.MODIFY_VIEW, "y"), request("y", {2, 3})])
    assert joined[0] == request("x", {3, 5}, Mode.MODIFY_VIEW, "y")


def test_a_modifying_view_shares_what_nothing_needs_later_and_else_gets_memory_of_its_own() -> None:
    tensors, owner = merged([request("x", {0, 1}), request("y", {1, 5}, Mode.MODIFY_VIEW, "x")])
    assert tensors == [Tensor("x", 4, 0, 5, "activation")]
    assert owner == {"x": "x", "y": "x"}
    tensors, owner = merged([request("x", {0, 1, 6}), request("y", {1, 5}, Mode.MODIFY_VIEW, "x")])
    assert tensors == [Tensor("x", 4, 0, 6, "activation"), Tensor("y", 4, 1, 5, "activation")]
    assert owner == {"x": "x", "y": "y"}


def test_a_modifying_view_waits_for_every_reader_of_the_memory_not_only_of_its_tensor() -> None:
    requests = [
        request("x", {0, 1}),
        request("left", {1, 2}, Mode.READ_VIEW, "x"),
        request("right", {1, 3}, Mode.READ_VIEW, "x"),
        request("after left", {2, 4}, Mode.MODIFY_VIEW, "left"),
        request("after right", {3, 5}, Mode.MODIFY_VIEW, "right"),
    ]
    _, owner = merged(requests)
    assert owner == {"x": "x", "left": "x", "right": "x", "after left": "after left", "after right": "x"}


def test_nothing_overwrites_a_placeholder() -> None:
    requests = [request("input", {0, 1}, Mode.PLACEHOLDER), request("y", {1, 2}, Mode.MODIFY_VIEW, "input")]
    assert [tensor.name for tensor in merged(requests)[0]] == ["input", "y"]
    through_a_view = [
        request("input", {0}, Mode.PLACEHOLDER),
        request("view", {0, 1}, Mode.READ_VIEW, "input"),
        request("y", {1, 2}, Mode.MODIFY_VIEW, "view"),
    ]
    assert [tensor.name for tensor in merged(through_a_view)[0]] == ["input", "y"]


def test_reading_views_and_extensions_always_share() -> None:
    requests = [
        request("weight", {0, 9}),
        request("weight at time 1", {2, 3}, Mode.EXTEND, "weight"),
        request("x", {1, 8}),
        request("flat", {2, 11}, Mode.READ_VIEW, "x"),
    ]
    tensors, _ = merged(requests)
    assert [(tensor.name, tensor.first, tensor.last) for tensor in tensors] == [("weight", 0, 9), ("x", 1, 11)]
