"""Products of matrices."""

import numpy as np

from tuner_tflite.graph import Node, refused
from tuner_tflite.layout import Array, Values

_MATRIX = 2


def gemm(values: Values, node: Node) -> None:
    """Write α A B + β C; a dense layer where B, and C, are constant."""
    weights, bias = values.constant(node.inputs[1]), node.inputs[2] if len(node.inputs) > _MATRIX else ""
    alpha, beta = (node.attributes.get(name, 1.0) for name in ("alpha", "beta"))
    turns, turned = (bool(node.attributes.get(name, 0)) for name in ("transA", "transB"))
    constant = values.constant(bias) if bias else np.zeros(1)
    if weights is not None and constant is not None and not turns:
        weights = weights if turned else weights.T
        own = np.broadcast_to(constant.reshape(-1), len(weights)) if constant.size in {1, len(weights)} else None
        if own is not None:
            return _dense(values, node, weights * alpha, own * beta)
    model, shape = values.model, values.shape(node.outputs[0])
    tensors = [values.get(name) for name in node.inputs[:2]]
    product = model.add("BATCH_MATMUL", tensors, shape, node.outputs[0], adjX=turns, adjY=turned)
    if alpha != 1:
        product = model.add("MUL", (product, model.constant(np.array([alpha], np.float32))), shape)
    if bias:
        added = values.get(bias)
        if beta != 1:
            scaled = (added, model.constant(np.array([beta], np.float32)))
            added = model.add("MUL", scaled, model.tensors[added].shape or (1,))
        product = model.add("ADD", (product, added), shape, node.outputs[0])
    return values.put(node.outputs[0], product)


def matmul(values: Values, node: Node) -> None:
    """Write a product of matrices, or of stacks of them."""
    weights = values.constant(node.inputs[1])
    if weights is not None and weights.ndim == _MATRIX:
        return _dense(values, node, weights.T, np.zeros(weights.shape[1]))
    if min(len(values.shape(name)) for name in node.inputs) < _MATRIX:
        raise refused("MatMul with a vector")
    inputs = [values.get(name) for name in node.inputs]
    shape = values.shape(node.outputs[0])
    return values.put(node.outputs[0], values.model.add("BATCH_MATMUL", inputs, shape, node.outputs[0]))


def _dense(values: Values, node: Node, weights: Array, bias: Array) -> None:
    model, tensor = values.model, values.get(node.inputs[0])
    constants = [model.constant(one.astype(np.float32), "dense") for one in (weights, bias)]
    shape = values.shape(node.outputs[0])
    keeps = len(shape) > _MATRIX
    out = model.add("FULLY_CONNECTED", (tensor, *constants), shape, node.outputs[0], keepNumDims=keeps)
    values.put(node.outputs[0], out)
