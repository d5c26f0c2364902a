"""NNTrainer's model files: read, checked, and joined to a network.

The format is NNTrainer's (arXiv 2206.04688, section 4.2; its docs/configuration-ini.md), of which the sections, layers
and keys in `SECTIONS` and `LAYERS` are known. Anything else is refused: a key that is silently ignored would make the
planned bytes wrong.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.errors import ModelError, nearest
from tuner.planner.layers import (
    FUNCTIONS,
    POOLINGS,
    Activation,
    Addition,
    BatchNormalization,
    Concat,
    Conv2d,
    Flatten,
    FullyConnected,
    Input,
    Lstm,
    MultiOut,
    Operation,
    Pooling2d,
)
from tuner.planner.network import LOSSES, OPTIMISERS, Layer, Network, Source, network
from tuner.planner.sections import Section, choice, padding, pair, positive, shape, sources, truth

OPTIMISER_KEYS = ("learning_rate", "beta1", "beta2", "epsilon", "decay_rate", "decay_steps")
#: Keys of every section that is no layer.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "model": ("type", "epochs", "loss", "save_path", "batch_size", "optimizer", *OPTIMISER_KEYS),
    "optimizer": ("type", *OPTIMISER_KEYS),
    "learningratescheduler": ("type", "learning_rate", "decay_rate", "decay_steps", "iteration"),
    "train_set": ("type", "path"),
    "valid_set": ("type", "path"),
    "test_set": ("type", "path"),
}
COMMON = ("type", "name", "input_layers", "input_shape", "activation", "flatten", "trainable")
WEIGHTS = (
    "weight_initializer", "bias_initializer", "weight_regularizer", "weight_regularizer_constant", "disable_bias",
)  # fmt: skip
NORM = (
    "epsilon", "momentum", "gamma_initializer", "beta_initializer", "moving_mean_initializer",
    "moving_variance_initializer",
)  # fmt: skip
#: Keys of every type of layer, beside the common ones.
LAYERS: Mapping[str, tuple[str, ...]] = {
    "input": ("normalization", "standardization"),
    "fully_connected": ("unit", *WEIGHTS),
    "conv2d": ("filters", "kernel_size", "stride", "padding", *WEIGHTS),
    "pooling2d": ("pooling", "pool_size", "stride", "padding"),
    "batch_normalization": NORM,
    "activation": (),
    "flatten": (),
    "addition": (),
    "concat": ("axis",),
    "multiout": (),
    "lstm": ("unit", "return_sequences", *WEIGHTS),
}
BACKBONE = ("backbone", "name", "trainable", "input_layers")


@dataclass(frozen=True, slots=True)
class _Part:
    """Layers of one file or section, and the one whose output the next section reads."""

    layers: tuple[Layer, ...]
    end: str


def read_ini(path: Path) -> Network:
    """Read a model file.

    Raises:
        ModelError: The first mistake: file, line or section, rule and value.
    """
    sections = _sections(path)
    known = {one.name.lower(): one for one in sections}
    model = known.get("model", Section("Model", path, {}))
    choice(model, "type", ("neuralnetwork", "regression"), "neuralnetwork")
    own = known.get("optimizer")
    optimiser = choice(own or model, "type" if own else "optimizer", OPTIMISERS, "sgd")
    loss = choice(model, "loss", LOSSES, "mse")
    batch_size = positive(model, "batch_size", 1)
    layers = _layers(sections, (path,)).layers
    try:
        return network(layers, loss=loss, optimiser=optimiser, batch_size=batch_size)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


def _sections(path: Path) -> list[Section]:
    """Return the sections of a file in their order, their keys checked."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} cannot be read as a model file: {error}") from None
    found: dict[str, Section] = {}
    now: dict[str, str] | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.split("[#;]", raw, maxsplit=1)[0].strip()
        at = f"{path}, line {number}"
        if line.startswith("[") and line.endswith("]"):
            name = line[1:-1].strip()
            if not name or name.lower() in found:
                raise ModelError(f"{at}: every section has a name of its own, but this one is [{name}]")
            now = {}
            found[name.lower()] = Section(name, path, now)
        elif line:
            key, equals, value = (part.strip() for part in line.partition("="))
            key = key.lower()
            if now is None or not equals or not key:
                raise ModelError(f"{at}: a line is [section] or key = value inside a section, but this is {line!r}")
            if key in now:
                raise ModelError(f"{at}: {key} is given twice in one section: keep one")
            now[key] = value.strip("\"'")
    for section in found.values():
        _check_keys(section)
    return list(found.values())


def _check_keys(section: Section) -> None:
    name = section.name.lower()
    if name in SECTIONS:
        allowed, what = SECTIONS[name], f"[{section.name}]"
    elif "backbone" in section.keys:
        allowed, what = BACKBONE, "a backbone"
    elif "type" not in section.keys:
        raise ModelError(
            f"{section.place}: a section that is no layer is called {', '.join(SECTIONS)}{nearest(name, SECTIONS)}; "
            "a layer has a type"
        )
    else:
        kind = choice(section, "type", tuple(LAYERS))
        allowed, what = (*COMMON, *LAYERS[kind]), f"a layer of type {kind}"
    for key in section.keys:
        if key not in allowed:
            raise ModelError(
                f"{section.place}: there is no key {key!r}{nearest(key, allowed)}; {what} knows {', '.join(allowed)}"
            )


def _layers(sections: list[Section], files: tuple[Path, ...], *, inside: str | None = None) -> _Part:
    """Return the layers of a file.

    Args:
        sections: Of the file.
        files: This file, and those whose backbone it is.
        inside: For a backbone that follows a layer: the name of what its input layer is replaced by.
    """
    found: list[Layer] = []
    ends: dict[str, str] = {}  # what a section's name stands for, once it has become several layers
    last = inside
    for section in sections:
        if section.name.lower() in SECTIONS:
            continue
        name = section.keys.get("name", section.name)
        inputs = tuple(_before(section, one, ends) for one in sources(section))
        inputs = inputs or ((Source(last),) if last is not None else ())
        if "backbone" in section.keys:
            part = _backbone(section, name, inputs, files)
        elif inside is not None and section.keys["type"].lower() == "input":
            ends[name.lower()] = inside
            continue
        else:
            part = _one(section, name, inputs)
        found += part.layers
        ends[name.lower()] = last = part.end
    return _Part(tuple(found), last or "")


def _before(section: Section, source: Source, ends: Mapping[str, str]) -> Source:
    """Return what a section reads under its full name."""
    end = ends.get(source.layer.lower())
    if end is None:
        raise ModelError(
            f"{section.place}: input_layers names layers that stand before it, but {source.layer!r} does not"
            f"{nearest(source.layer, ends)}"
        )
    return replace(source, layer=end)


def _one(section: Section, name: str, inputs: tuple[Source, ...]) -> _Part:
    """Return the layer of a section, and after it the activation and the flatten that its keys ask for."""
    kind = section.keys["type"].lower()
    trainable = truth(section, "trainable", default=True)
    layers: list[Layer] = []
    if kind != "input" and "input_shape" in section.keys:
        if inputs:
            raise ModelError(f"{section.place}: input_shape is for the first layer, but this one reads another")
        layers.append(Layer(f"{name}/input", Input(shape(section, "input_shape"))))
        inputs = (Source(layers[-1].name),)
    layers.append(Layer(name, OPERATIONS[kind](section), () if kind == "input" else inputs, trainable))
    after: list[Operation] = []
    if kind != "activation" and section.keys.get("activation", "none").lower() != "none":
        after.append(Activation(choice(section, "activation", FUNCTIONS)))
    if truth(section, "flatten", default=False):
        after.append(Flatten())
    for operation in after:
        layers.append(Layer(f"{name}/{type(operation).__name__.lower()}", operation, (Source(layers[-1].name),)))
    return _Part(tuple(layers), layers[-1].name)


def _backbone(section: Section, name: str, inputs: tuple[Source, ...], files: tuple[Path, ...]) -> _Part:
    """Return the layers of another file, their names after the section's, frozen unless trainable = true."""
    path = section.file.parent / section.keys["backbone"]
    if path.suffix != ".ini":
        raise ModelError(f"{section.place}: a backbone is another .ini file, but it is {section.keys['backbone']!r}")
    if path.resolve() in {one.resolve() for one in files}:
        raise ModelError(f"{section.place}: the backbone {path} contains itself")
    if len(inputs) > 1:
        raise ModelError(f"{section.place}: a backbone reads one layer, but {len(inputs)} are named")
    part = _layers(_sections(path), (*files, path), inside=OUTSIDE if inputs else None)
    trains = truth(section, "trainable", default=False)

    def renamed(source: Source) -> Source:
        return inputs[0] if source.layer == OUTSIDE else replace(source, layer=f"{name}/{source.layer}")

    layers = tuple(
        replace(
            layer,
            name=f"{name}/{layer.name}",
            inputs=tuple(renamed(source) for source in layer.inputs),
            trainable=layer.trainable and trains,
        )
        for layer in part.layers
    )
    return _Part(layers, f"{name}/{part.end}")


#: Stands for what a backbone reads, until its layers have their full names; no section can be called so.
OUTSIDE = "]"


def _bias(section: Section) -> bool:
    return not truth(section, "disable_bias", default=False)


def _pooling(section: Section) -> Pooling2d:
    pooling = choice(section, "pooling", POOLINGS)
    if pooling.startswith("global"):
        return Pooling2d(pooling)
    return Pooling2d(pooling, pair(section, "pool_size"), pair(section, "stride", (1, 1)), padding(section))


OPERATIONS: Mapping[str, Callable[[Section], Operation]] = {
    "input": lambda one: Input(shape(one, "input_shape")),
    "fully_connected": lambda one: FullyConnected(positive(one, "unit"), _bias(one)),
    "conv2d": lambda one: Conv2d(
        positive(one, "filters"), pair(one, "kernel_size"), pair(one, "stride", (1, 1)), padding(one), _bias(one)
    ),
    "pooling2d": _pooling,
    "batch_normalization": lambda _: BatchNormalization(),
    "activation": lambda one: Activation(choice(one, "activation", FUNCTIONS)),
    "flatten": lambda _: Flatten(),
    "addition": lambda _: Addition(),
    "concat": lambda one: Concat(int(choice(one, "axis", ("1", "2", "3"), "1"))),
    "multiout": lambda _: MultiOut(1),
    "lstm": lambda one: Lstm(positive(one, "unit"), truth(one, "return_sequences", default=False), _bias(one)),
}
