"""Which networks can be brought: for each how it is traced, cut, trained and exported, on inputs of 64 pixels.

Every network is opened with random weights. Two plans train half of its blocks and the last one, for an epoch; the last
is exported, and its logits are compared with PyTorch's. ONNX Runtime trains half of the blocks too. What is measured is
kept in a file: a call that ends early, by ``--time``, is continued by the next.
"""

import json
import os
import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.lib.places import ROOT
from benchmarks.lib.report import benchmark_parser
from tuner.backends.base import Trial
from tuner.backends.extensions import NOTHING_ADDED
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.engines.onnxruntime import OrtSteps
from tuner.backends.torch.model.vision import declare_operators, torchvision
from tuner.backends.torch.session import TorchSession
from tuner.errors import first_line
from tuner.plan.parts import DataPlan, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan
from tuner.store.store import Store
from tuner.task import ArraySamples, Domain, InputSpec, ModelSpec, Task
from tuner.task.info import task_info

SIDE, CLASSES, SAMPLES = 64, 3, 16
MARKERS = ("<!-- begin of the table -->", "<!-- end of the table -->")
PAGE = ROOT / "docs" / "models.md"
_SIZED = {"img_size": SIDE}
TORCHVISION: Mapping[str, Mapping[str, Any]] = {
    "mobilenet_v2": {}, "mobilenet_v3_small": {}, "resnet18": {}, "resnext50_32x4d": {}, "efficientnet_b0": {},
    "shufflenet_v2_x0_5": {}, "squeezenet1_1": {}, "mnasnet0_5": {}, "regnet_y_400mf": {}, "densenet121": {},
    "convnext_tiny": {}, "googlenet": {"init_weights": False}, "swin_t": {}, "vgg11": {},
    "vit_b_16": {"image_size": SIDE},
}  # fmt: skip
TIMM: Mapping[str, Mapping[str, Any]] = {
    "mobilevit_xs": {}, "tf_efficientnet_lite0": {}, "deit_tiny_patch16_224": _SIZED, "efficientformerv2_s0": _SIZED,
    "levit_128s": _SIZED, "mobilenetv4_conv_small": {}, "ghostnet_100": {}, "hardcorenas_a": {}, "lcnet_050": {},
    "mixer_s32_224": _SIZED, "mobileone_s0": {}, "repvgg_a0": {}, "fastvit_t8": {}, "edgenext_xx_small": {},
    "convnextv2_atto": {}, "poolformer_s12": {}, "regnetx_002": {}, "resnet10t": {}, "seresnet18": {} ,
    "swinv2_cr_tiny_224": _SIZED, "tinynet_e": {}, "efficientvit_b0": {}, "vit_tiny_patch16_224": _SIZED,
    "xcit_nano_12_p16_224": {},
}  # fmt: skip
_SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}
_PIXELS = {**_SMALL, "image_size": SIDE, "patch_size": 16}
#: Class of a model and of its configuration, without their common end; the configuration; the shape of a sample.
HUGGING_FACE: Mapping[str, tuple[str, str, Mapping[str, Any], tuple[int, ...]]] = {
    "ViT": ("ForImageClassification", "ViT", _PIXELS, (3, SIDE, SIDE)),
    "DeiT": ("ForImageClassification", "DeiT", _PIXELS, (3, SIDE, SIDE)),
    "Beit": ("ForImageClassification", "Beit", _PIXELS, (3, SIDE, SIDE)),
    "Dinov2": ("ForImageClassification", "Dinov2", _PIXELS, (3, SIDE, SIDE)),
    "ResNet": (
        "ForImageClassification",
        "ResNet",
        {"embedding_size": 16, "hidden_sizes": [16, 32, 64], "depths": [1, 1, 1], "layer_type": "basic"},
        (3, SIDE, SIDE),
    ),
    "ConvNext": (
        "ForImageClassification", "ConvNext", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]},
        (3, SIDE, SIDE),
    ),
    "MobileViT": ("ForImageClassification", "MobileViT", {"image_size": SIDE}, (3, SIDE, SIDE)),
    "Swin": (
        "ForImageClassification",
        "Swin",
        {"image_size": SIDE, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4},
        (3, SIDE, SIDE),
    ),
    "AST": ("ForAudioClassification", "AST", {**_SMALL, "max_length": SIDE, "num_mel_bins": 32}, (SIDE, 32)),
    "Wav2Vec2": (
        "ForSequenceClassification",
        "Wav2Vec2",
        {**_SMALL, "conv_dim": [16] * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2},
        (4000,),
    ),
}  # fmt: skip
#: Networks of torchvision whose ONNX files are brought, with the version of the operators; None is the new exporter's.
ONNX: Mapping[str, tuple[str, int | None]] = {
    "mobilenet_v2": ("mobilenet_v2", None),
    "shufflenet_v2, opset 12": ("shufflenet_v2_x0_5", 12),
    "swin_t, channels last inside": ("swin_t", None),
}
FILES = Path("build/onnx").absolute()
SIGNALS = ("LSTM", "GRU", "transformer")
SIGNAL = (6, 50)


def hugging_face(name: str) -> nn.Module:
    """Build a small Hugging Face model from its configuration."""
    import transformers

    end, config, settings, _ = HUGGING_FACE[name]
    given = getattr(transformers, f"{config}Config")(**settings, num_labels=CLASSES)
    model: nn.Module = getattr(transformers, f"{name}{end}")(given)
    return model


def write_file(path: Path) -> None:
    """Write the ONNX file of one of the networks of `ONNX`, with random weights."""
    name, opset = ONNX[path.stem]
    model = getattr(torchvision().models, name)(num_classes=CLASSES).eval()
    path.parent.mkdir(parents=True, exist_ok=True)
    sample, free = torch.rand(2, 3, SIDE, SIDE), ({0: torch.export.Dim("batch", min=1)},)
    if opset is None:
        torch.onnx.export(model, (sample,), path, dynamo=True, dynamic_shapes=free, verbose=False)
    else:
        torch.onnx.export(model, (sample,), path, dynamo=False, opset_version=opset)


class SignalNetwork(nn.Module):
    """A recurrent network or a transformer over the time of a signal [n, channels, time].

    Args:
        kind: One of `SIGNALS`.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        width = 16
        self.embed = nn.Linear(SIGNAL[0], width)
        layer = nn.TransformerEncoderLayer(width, 2, 32, batch_first=True)
        recurrent = {"LSTM": nn.LSTM, "GRU": nn.GRU}
        self.is_recurrent = kind in recurrent
        self.body = recurrent[kind](width, width, batch_first=True) if self.is_recurrent else layer
        self.head = nn.Linear(width, CLASSES)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """Return logits [n, classes]."""
        value = self.embed(signal.transpose(1, 2))
        value = self.body(value)[0] if self.is_recurrent else self.body(value)
        logits: torch.Tensor = self.head(value.mean(dim=1))
        return logits


def networks() -> dict[str, tuple[ModelSpec, tuple[int, ...]]]:
    """Return every network by name, with the shape of its samples."""
    pixels, here = (3, SIDE, SIDE), "benchmarks.models.__main__"
    spec: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
        f"torchvision {name}": (f"torchvision.models:{name}", {"num_classes": CLASSES, **own}, pixels)
        for name, own in TORCHVISION.items()
    }
    spec |= {f"timm {name}": (f"timm:{name}", {"num_classes": CLASSES, **own}, pixels) for name, own in TIMM.items()}
    spec |= {f"hf {name}": (f"{here}:hugging_face", {"name": name}, row[3]) for name, row in HUGGING_FACE.items()}
    spec |= {f"onnx {name}": (f"onnx:{FILES / name}.onnx", {}, pixels) for name in ONNX}
    spec |= {f"own {kind}": (f"{here}:SignalNetwork", {"kind": kind}, SIGNAL) for kind in SIGNALS}
    return {name: (ModelSpec(text, tuple(sorted(given.items()))), shape) for name, (text, given, shape) in spec.items()}


def measured(spec: ModelSpec, shape: tuple[int, ...], folder: Path) -> dict[str, Any]:
    """Open, train and export one network.

    Args:
        spec: The network.
        shape: Shape of a sample.
        folder: An empty folder.
    """
    noise = np.random.default_rng(0).normal(size=(SAMPLES, *shape)).astype(np.float32)
    samples, rows = ArraySamples(noise, np.arange(SAMPLES) % (CLASSES + 1), InputSpec("arrays")), range(CLASSES + 1)
    labels = tuple(f"class {row}" for row in rows)
    known, domain = tuple(rows[:CLASSES]), Domain(samples, samples)
    task = Task("t", spec, InputSpec("arrays"), "single-label", domain, None, labels, known, tuple(rows))
    row: dict[str, Any] = {}
    started = time.perf_counter()
    try:
        session = TorchBackend().open(task, NOTHING_ADDED)
        info = session.model
        chain = session._opened.model.chain  # type: ignore[attr-defined]  # noqa: SLF001 - the cuts are in no description
        row["seconds"] = time.perf_counter() - started
    except Exception as error:  # noqa: BLE001 - it is the row's result
        return {"error": first_line(error)}
    row |= {"blocks": info.num_blocks, "cuts": len(chain.cuts) if chain else 0, "by": info.traced_by or info.note}
    recipe = RecipePlan(epochs=1, batch_size=8)
    split = info.num_blocks - 1
    plan = TrialPlan(info, task_info(task), DataPlan(), split, recipe=recipe, runtime=RuntimePlan(threads=1))
    deeper = replace(plan, split=info.num_blocks // 2)
    store = Store(folder / "store")
    try:
        for number, one in enumerate((deeper, plan)):
            session.train(Trial(one, number, store, folder / "weights"))
        row["trials"] = 2
        (folder / "bundle").mkdir()
        exported = session.export(plan, folder / "weights", folder / "bundle", trainable=False)
        row["parity"] = exported.checks["largest_logit_difference"]
    except Exception as error:  # noqa: BLE001 - likewise
        row["error"] = first_line(error)
    try:
        trained = TorchSession(task, NOTHING_ADDED, OrtSteps)
        trained.train(Trial(deeper, 0, store, folder / "weights-ort"))
        row["ort"] = "yes"
    except Exception as error:  # noqa: BLE001 - likewise
        row["ort"] = first_line(error)
    return row


def table(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the rows as lines of Markdown, and before them their counts."""
    good = [row for row in rows.values() if "error" not in row]
    counts = (
        f"Of {len(rows)} networks measured so far, {sum(row.get('blocks', 1) > 1 for row in rows.values())} are split, "
        f"{len(good)} are opened, trained twice and exported, and "
        f"{sum(row.get('ort') == 'yes' for row in rows.values())} train half of their blocks on ONNX Runtime. "
        f"Opening takes at most {max((row.get('seconds', 0.0) for row in rows.values()), default=0.0):.0f} s."
    )
    lines = [counts, "", "| network | traced by | blocks | cut points | export differs by | trains on ONNX Runtime |"]
    lines.append("|---|---|---|---|---|---|")
    for name, row in rows.items():
        parity = f"{row['parity']:.0e}" if "parity" in row else row.get("error", "")
        trains = row.get("ort", "").partition(": only")[0].removeprefix("StepError: ")
        values = (name, row.get("by", ""), row.get("blocks", ""), row.get("cuts", ""), parity, trains)
        lines.append("| " + " | ".join(str(value).replace("|", "/") for value in values) + " |")
    return lines


def write_page(rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Put the table in its place in ``docs/models.md``."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKERS[0])
    after = rest.partition(MARKERS[1])[2]
    text = "\n".join((MARKERS[0], *table(rows), MARKERS[1]))
    PAGE.write_text(f"{before}{text}{after}", encoding="utf-8")


def main() -> None:
    """Measure what the file does not have yet, and print the table."""
    parser = benchmark_parser(__doc__, "the first five networks only")
    parser.add_argument("--time", type=float, default=3600.0, help="seconds after which no further network is begun")
    parser.add_argument("--only", default="", help="networks whose names hold this")
    parser.add_argument("--file", type=Path, default=Path("build/models.json"), help="keeps what was measured")
    parser.add_argument("--write", action="store_true", help="writes the table into docs/models.md")
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.simplefilter("ignore")  # of the exporter
    declare_operators()
    wanted = {name: network for name, network in networks().items() if options.only in name}
    wanted = dict(list(wanted.items())[:5]) if options.quick else wanted
    rows = json.loads(options.file.read_text()) if options.file.exists() else {}
    end = time.monotonic() + options.time
    for name, (spec, shape) in wanted.items():
        if name not in rows and time.monotonic() < end:
            if spec.source is not None and spec.is_file:
                write_file(Path(spec.source[1]))
            with tempfile.TemporaryDirectory() as folder:
                rows[name] = measured(spec, shape, Path(folder))
            print(name, rows[name], flush=True)
            options.file.parent.mkdir(parents=True, exist_ok=True)
            options.file.write_text(json.dumps(rows, indent=1))
    rows = {name: rows[name] for name in wanted if name in rows}
    print(*table(rows), sep="\n")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    if options.write:
        write_page(rows)


if __name__ == "__main__":
    main()
