"""Sections, layers and keys of NNTrainer's model files that are known; anything else is refused.

A key that is silently ignored would make the planned bytes wrong.
"""

from collections.abc import Mapping

from tuner.errors import ModelError, nearest
from tuner_nntrainer.file.sections import Section, choice

_DATA = ("type", "path", "buffer_size")
_OPTIMISER = ("learning_rate", "beta1", "beta2", "epsilon", "decay_rate", "decay_steps")
#: Keys of every section that is no layer.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "model": ("type", "epochs", "loss", "save_path", "batch_size", "optimizer", *_OPTIMISER),
    "optimizer": ("type", *_OPTIMISER),
    "learningratescheduler": ("type", "learning_rate", "decay_rate", "decay_steps", "iteration"),
    "train_set": _DATA,
    "valid_set": _DATA,
    "test_set": _DATA,
    "dataset": ("traindata", "validdata", "testdata", "labeldata", "buffersize"),
}
#: Keys of every layer.
_COMMON = ("type", "name", "input_layers", "input_shape", "activation", "flatten", "trainable")
_WEIGHTS = (
    "weight_initializer",
    "bias_initializer",
    "weight_regularizer",
    "weight_regularizer_constant",
    "disable_bias",
)
_NORM = (
    "epsilon",
    "momentum",
    "gamma_initializer",
    "beta_initializer",
    "moving_mean_initializer",
    "moving_variance_initializer",
)
#: Keys of each type of layer, in addition to the common ones.
LAYERS: Mapping[str, tuple[str, ...]] = {
    "input": ("normalization", "standardization"),
    "fully_connected": ("unit", *_WEIGHTS),
    "conv2d": ("filters", "kernel_size", "stride", "padding", *_WEIGHTS),
    "conv1d": ("filters", "kernel_size", "stride", "padding", *_WEIGHTS),
    "pooling2d": ("pooling", "pool_size", "stride", "padding"),
    "batch_normalization": _NORM,
    "activation": (),
    "flatten": (),
    "addition": (),
    "concat": ("axis",),
    "multiout": (),
    "split": ("axis", "split_dimension", "split_number"),
    "dropout": ("dropout_rate",),
    "embedding": ("in_dim", "out_dim", *(key for key in _WEIGHTS if "bias" not in key)),
    "lstm": ("unit", "return_sequences", "integrate_bias", *_WEIGHTS),
    "gru": ("unit", "return_sequences", "integrate_bias", "reset_after", *_WEIGHTS),
}
BACKBONE = "backbone"
_BACKBONE = (BACKBONE, "name", "trainable", "preload", "input_layers")


def check_keys(section: Section) -> None:
    """Refuse a section of no known type, and keys its type does not have.

    Raises:
        ModelError: The section or the first such key, with the nearest known one.
    """
    name = section.name.lower()
    if name in SECTIONS:
        allowed, what = SECTIONS[name], f"[{section.name}]"
    elif BACKBONE in section.keys:
        allowed, what = _BACKBONE, "a backbone"
    elif "type" not in section.keys:
        raise ModelError(
            f"{section.place}: a section without a type must be one of {', '.join(SECTIONS)}{nearest(name, SECTIONS)}; "
            "a layer needs a type"
        )
    else:
        kind = choice(section, "type", tuple(LAYERS))
        allowed, what = (*_COMMON, *LAYERS[kind]), f"a layer of type {kind}"
    for key in section.keys:
        if key not in allowed:
            raise ModelError(
                f"{section.place}: unknown key {key!r}{nearest(key, allowed)}; keys of {what}: {', '.join(allowed)}"
            )
