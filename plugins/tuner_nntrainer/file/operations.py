"""The operation of a layer's section, by its type, and what the layer is before it trains."""

from collections.abc import Callable, Mapping

from tuner_nntrainer.file.sections import Section, choice, number, padding, padding1d, pair, positive, shape, truth
from tuner_nntrainer.network import layers
from tuner_nntrainer.network.network import INITIALISERS, Start

#: Keys that change how a layer trains, and the values that are carried out in training, the usual one first.
_CARRIED_OUT = {
    "normalization": ("false",),
    "standardization": ("false",),
    "weight_regularizer": ("none",),
    "bias_initializer": ("zeros", "ones"),
    "gamma_initializer": ("ones",),
    "beta_initializer": ("zeros",),
    "moving_mean_initializer": ("zeros",),
    "moving_variance_initializer": ("ones",),
}


def start(section: Section) -> Start:
    """Return what a section's layer is before it trains.

    Raises:
        ModelError: An initialiser is not known.
    """
    refusal = next(
        (
            f"{section.place}: {key} = {section.keys[key]} is not carried out in training: remove it"
            for key, carried_out in _CARRIED_OUT.items()
            if section.keys.get(key, carried_out[0]).lower() not in carried_out
        ),
        "",
    )
    return Start(
        choice(section, "weight_initializer", INITIALISERS, "xavier_uniform"),
        choice(section, "bias_initializer", INITIALISERS, "zeros"),
        refusal=refusal,
    )


def _bias(section: Section) -> bool:
    return not truth(section, "disable_bias", default=False)


def _conv2d(section: Section) -> layers.Conv2d:
    return layers.Conv2d(
        positive(section, "filters"),
        pair(section, "kernel_size"),
        pair(section, "stride", (1, 1)),
        padding(section),
        _bias(section),
    )


def _conv1d(section: Section) -> layers.Conv1d:
    return layers.Conv1d(
        positive(section, "filters"),
        positive(section, "kernel_size"),
        positive(section, "stride", 1),
        padding1d(section),
        _bias(section),
    )


def _pooling2d(section: Section) -> layers.Pooling2d:
    pooling = choice(section, "pooling", layers.POOLINGS)
    if pooling.startswith("global"):
        return layers.Pooling2d(pooling)
    return layers.Pooling2d(pooling, pair(section, "pool_size"), pair(section, "stride", (1, 1)), padding(section))


def _batch_normalization(section: Section) -> layers.BatchNormalization:
    return layers.BatchNormalization(
        number(section, "epsilon", 1e-3, above=0, most=1), number(section, "momentum", 0.99, above=0, most=1)
    )


def _split(section: Section) -> layers.Split:
    key = "split_dimension" if "split_dimension" in section.keys else "axis"
    parts = positive(section, "split_number") if "split_number" in section.keys else None
    return layers.Split(int(choice(section, key, ("1", "2", "3"))), parts)


def _recurrent(section: Section) -> tuple[int, bool, bool, bool]:
    sequences = truth(section, "return_sequences", default=False)
    return positive(section, "unit"), sequences, _bias(section), truth(section, "integrate_bias", default=False)


#: Makes the operation of a section, by its type.
OPERATIONS: Mapping[str, Callable[[Section], layers.Operation]] = {
    "input": lambda section: layers.Input(shape(section, "input_shape")),
    "fully_connected": lambda section: layers.FullyConnected(positive(section, "unit"), _bias(section)),
    "conv2d": _conv2d,
    "conv1d": _conv1d,
    "pooling2d": _pooling2d,
    "batch_normalization": _batch_normalization,
    "activation": lambda section: layers.Activation(choice(section, "activation", layers.FUNCTIONS)),
    "flatten": lambda _: layers.Flatten(),
    "addition": lambda _: layers.Addition(),
    "concat": lambda section: layers.Concat(int(choice(section, "axis", ("1", "2", "3"), "1"))),
    "multiout": lambda _: layers.MultiOut(1),
    "split": _split,
    "dropout": lambda section: layers.Dropout(number(section, "dropout_rate", 0.0, least=0, below=1)),
    "embedding": lambda section: layers.Embedding(positive(section, "in_dim"), positive(section, "out_dim")),
    "lstm": lambda section: layers.Lstm(*_recurrent(section)),
    "gru": lambda section: layers.Gru(*_recurrent(section), truth(section, "reset_after", default=True)),
}
