"""NNTrainer's model files: read, checked, and joined to a network.

The format is NNTrainer's (arXiv 2206.04688, section 4.2; its docs/configuration-ini.md), as far as `keys` lists it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.errors import ModelError, nearest
from tuner.reading import MOST_DEPTH, read_text
from tuner_nntrainer.file.keys import BACKBONE, SECTIONS, check_keys
from tuner_nntrainer.file.operations import OPERATIONS, start
from tuner_nntrainer.file.sections import Section, choice, positive, shape, sources, truth, word
from tuner_nntrainer.network.checks import check_embeddings
from tuner_nntrainer.network.layers import FUNCTIONS, Activation, Flatten, Input, Operation
from tuner_nntrainer.network.network import LOSSES, OPTIMISERS, Layer, LayerInput, Network, network

#: Placeholder for the layer that a backbone reads, until its layers have their full names; no section can have it.
OUTSIDE = "]"


@dataclass(frozen=True, slots=True)
class _Part:
    """Layers of one file or section.

    Attributes:
        layers: Layers in the order of the file.
        end: Name of the layer whose output the next section reads.
    """

    layers: tuple[Layer, ...]
    end: str


def read_ini(path: Path) -> Network:
    """Read a model file.

    Raises:
        ModelError: The file cannot be read or planned; the message has file, line or section, rule and value.
    """
    sections = read_sections(path)
    by_name = {section.name.lower(): section for section in sections}
    model = by_name.get("model", Section("Model", path, {}))
    choice(model, "type", ("neuralnetwork", "regression"), "neuralnetwork")
    own = by_name.get("optimizer")
    optimiser = choice(own, "type", OPTIMISERS, "adam") if own else choice(model, "optimizer", OPTIMISERS, "sgd")
    loss = choice(model, "loss", LOSSES, "mse")
    batch_size = positive(model, "batch_size", 1)
    layers = _layers(sections, (path,)).layers
    try:
        joined = network(layers, loss=loss, optimiser=optimiser, batch_size=batch_size)
        check_embeddings(joined)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    return joined


def read_sections(path: Path) -> list[Section]:
    """Return the sections of a file in their order, with their keys checked."""
    text = read_text(path, ModelError, "give a model file of NNTrainer")
    sections: dict[str, Section] = {}
    keys: dict[str, str] | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.split("[#;]", raw, maxsplit=1)[0].strip()
        place = f"{path}, line {number}"
        if line.startswith("[") and line.endswith("]"):
            name = line[1:-1].strip()
            if not name or name.lower() in sections:
                raise ModelError(f"{place}: every section must have a name of its own, got [{name}]")
            keys = {}
            sections[name.lower()] = Section(name, path, keys)
        elif line:
            key, equals, value = (part.strip() for part in line.partition("="))
            key = key.lower()
            if keys is None or not equals or not key:
                raise ModelError(f"{place}: a line must be [section] or key = value inside a section, got {line!r}")
            if key in keys:
                raise ModelError(f"{place}: {key} is given twice in one section: keep one")
            keys[key] = value.strip("\"'")
    for section in sections.values():
        check_keys(section)
    return list(sections.values())


def _layers(sections: list[Section], files: tuple[Path, ...], *, inside: str | None = None) -> _Part:
    """Return the layers of a file.

    Args:
        sections: Sections of the file.
        files: This file, and those whose backbone it is.
        inside: Name that replaces the input layer of a backbone which follows a layer.
    """
    layers: list[Layer] = []
    ends: dict[str, str] = {}  # last layer of each section, which may have become several
    last = inside
    for section in sections:
        if section.name.lower() in SECTIONS:
            continue
        name = section.keys.get("name", section.name)
        inputs = tuple(_resolved(section, source, ends) for source in sources(section))
        inputs = inputs or ((LayerInput(last),) if last is not None else ())
        if BACKBONE in section.keys:
            part = _backbone(section, name, inputs, files)
        elif inside is not None and section.keys["type"].lower() == "input":
            ends[name.lower()] = inside
            continue
        else:
            part = _section_layers(section, name, inputs)
        layers += part.layers
        ends[name.lower()] = last = part.end
    return _Part(tuple(layers), last or "")


def _resolved(section: Section, source: LayerInput, ends: Mapping[str, str]) -> LayerInput:
    """Return an input under the full name of its layer."""
    end = ends.get(source.layer.lower())
    if end is None:
        raise ModelError(
            f"{section.place}: input_layers must name layers before it, got {source.layer!r}"
            f"{nearest(source.layer, ends)}"
        )
    return replace(source, layer=end)


def _section_layers(section: Section, name: str, inputs: tuple[LayerInput, ...]) -> _Part:
    """Return the layer of a section, and after it the activation and the flatten that its keys ask for."""
    kind = section.keys["type"].lower()
    trainable = truth(section, "trainable", default=True)
    layers: list[Layer] = []
    if kind != "input" and "input_shape" in section.keys:
        if inputs:
            raise ModelError(
                f"{section.place}: input_shape is for the first layer, but this one reads another layer: remove it"
            )
        layers.append(Layer(f"{name}/input", Input(shape(section, "input_shape"))))
        inputs = (LayerInput(layers[-1].name),)
    layers.append(Layer(name, OPERATIONS[kind](section), () if kind == "input" else inputs, trainable, start(section)))
    after: list[Operation] = []
    if kind != "activation" and section.keys.get("activation", "none").lower() != "none":
        after.append(Activation(choice(section, "activation", FUNCTIONS)))
    if truth(section, "flatten", default=False):
        after.append(Flatten())
    for operation in after:
        layers.append(Layer(f"{name}/{type(operation).__name__.lower()}", operation, (LayerInput(layers[-1].name),)))
    return _Part(tuple(layers), layers[-1].name)


def _backbone(section: Section, name: str, inputs: tuple[LayerInput, ...], files: tuple[Path, ...]) -> _Part:
    """Return the layers of another file, prefixed with the section's name, frozen unless trainable = true."""
    path = section.file.parent / section.keys[BACKBONE]
    if path.suffix != ".ini":
        raise ModelError(f"{section.place}: a backbone must be another .ini file, got {section.keys[BACKBONE]!r}")
    if len(inputs) > 1:
        raise ModelError(f"{section.place}: a backbone must read one layer, got {len(inputs)}")
    sections = read_sections(path)
    if path.resolve() in {file.resolve() for file in files}:
        raise ModelError(f"{section.place}: the backbone {path} contains itself")
    if len(files) > MOST_DEPTH:
        raise ModelError(f"{section.place}: backbones may be {MOST_DEPTH} deep: write the layers into one file")
    part = _layers(sections, (*files, path), inside=OUTSIDE if inputs else None)
    trains = truth(section, "trainable", default=False)
    weights = None
    if truth(section, "preload", default=False):
        model = next((other for other in sections if other.name.lower() == "model"), Section("Model", path, {}))
        weights = path.parent / word(model, "save_path", "the file of its weights, which preload = true reads")

    def renamed(source: LayerInput) -> LayerInput:
        return inputs[0] if source.layer == OUTSIDE else replace(source, layer=f"{name}/{source.layer}")

    layers = tuple(
        replace(
            layer,
            name=f"{name}/{layer.name}",
            inputs=tuple(renamed(source) for source in layer.inputs),
            trainable=layer.trainable and trains,
            start=replace(layer.start, file=layer.start.file or weights),
        )
        for layer in part.layers
    )
    return _Part(layers, f"{name}/{part.end}")
