"""A tail's inference as a traced step: its weights are inputs, as they are of its training step."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.func import functional_call

from tuner.backends.lowering import Completing, trained_part
from tuner.backends.torch.step.prepare import sharing_weights
from tuner.backends.torch.step.substitutes import Feed, substituted
from tuner.backends.torch.step.traced import Step, graph_of, port_of
from tuner.ort.layout import Port


def trace_inference(tail: nn.Module, *, input_shape: Sequence[int], outputs: int, batch_size: int) -> Step:
    """Trace a tail in evaluation mode, its weights as inputs; arguments as for `tuner.backends.torch.step.trace.trace`.

    The step's one output, `logits` [n, outputs], updates nothing. Where only a part of the tail trains, its weights are
    the inputs, by its names; the others are constants.

    Raises:
        StepError: The tail depends on the values of tensors.
    """
    model = sharing_weights(tail).eval()
    if isinstance(model, Completing):
        model.is_traced = True
    part = trained_part(model)
    place = next(f"{name}." if name else "" for name, module in model.named_modules() if module is part)
    inputs = (
        Port("input", "input", (batch_size, *input_shape), "float32"),
        *(port_of(name, "parameter", value) for name, value in part.named_parameters()),
        *(port_of(name, "buffer", value) for name, value in part.named_buffers()),
    )

    def infer(sample: torch.Tensor, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        by_name = {f"{place}{port.name}": value for port, value in zip(inputs[1:], values, strict=True)}
        with torch.no_grad(), substituted(Feed()):
            return (functional_call(model, by_name, (sample,)),)

    logits = Port("logits", "logits", (batch_size, outputs), "float32")
    return Step(graph_of(infer, inputs), inputs, (logits,), {})
