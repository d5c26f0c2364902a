"""What the planner must know of recurrent layers: their gates, and what they keep of every time step.

Gates, biases and what is kept are those of NNTrainer's own layers (nntrainer/layers/lstm.cpp and gru.cpp).
"""

from collections.abc import Sequence

from tuner.errors import ModelError
from tuner.planner.memory.lifetimes import Lifespan
from tuner_nntrainer.network.layers import Gru, Lstm, Shape, format_shape
from tuner_nntrainer.network.traits import NEVER, VALUE_BYTES, LayerTensor, Traits


def lstm(layer: Lstm, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    """Return the traits of an LSTM: four gates, and a cell of every step."""
    step_bytes = layer.unit * VALUE_BYTES
    cells = (
        LayerTensor("cells", shapes[0][1] * step_bytes, 0, Lifespan.FORWARD | Lifespan.GRADIENT, "saved"),
        LayerTensor("d cell", step_bytes, 0, Lifespan.GRADIENT, "scratch"),
    )
    return _recurrent("lstm", layer, 4, shapes[0], cells)


def gru(layer: Gru, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    """Return the traits of a GRU: three gates."""
    return _recurrent("gru", layer, 3, shapes[0], ())


def _recurrent(kind: str, layer: Lstm | Gru, count: int, shape: Shape, more: tuple[LayerTensor, ...]) -> Traits:
    """Return the traits of a layer with some gates over the time steps, and `more` tensors than those and the state."""
    channels, steps, features = shape
    if channels != 1:
        raise ModelError(f"{kind}: the input must be 1:time:features, got {format_shape(shape)}")
    unit, gates = layer.unit, count * layer.unit
    biases = () if not layer.bias else ("bias",) if layer.one_bias else ("bias_ih", "bias_hh")
    weights = {"weight_ih": features * gates, "weight_hh": unit * gates, **dict.fromkeys(biases, gates)}
    step_bytes = unit * VALUE_BYTES
    saved = Lifespan.FORWARD | Lifespan.GRADIENT
    inner = (
        LayerTensor("gates", count * steps * step_bytes, 0, saved, "saved"),
        *(() if layer.sequences else (LayerTensor("hidden", steps * step_bytes, 0, saved, "saved"),)),
        LayerTensor("d gates", count * steps * step_bytes, 0, Lifespan.BACKWARD, "scratch"),
        LayerTensor("d hidden", step_bytes, 0, Lifespan.GRADIENT, "scratch"),
        *more,
    )
    return Traits(
        shape=(1, steps if layer.sequences else 1, unit),
        weights=weights,
        macs=steps * gates * (features + unit),
        reads_input=Lifespan.GRADIENT,
        reads_output=Lifespan.GRADIENT if layer.sequences else NEVER,
        inner=inner,
    )
