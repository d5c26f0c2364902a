"""Other runtimes than ONNX Runtime's Python package predict from a bundle: how far off, and how fast.

A bundle of digits that trains its tail, and MobileNetV2 for 160 pixels and 200 classes with weights as they are drawn,
whose batch norms know a batch of noise: without, no logit would depend on the input.
OpenVINO and NCNN, in float32, where they are installed; and ONNX Runtime's own format for phones, of which the training
step must give the same loss, too. One thread, one sample; each runtime takes turns with ONNX Runtime on the same file.
The recipes of docs/runtimes.md are run as they are written there.
"""

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.lib.places import FIXTURES, ROOT
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interleave, times_faster
from benchmarks.models.runtime import CLASSES, SIZE, Segment, written
from tuner.arrays import Floats
from tuner.backends.torch.model.vision import torchvision
from tuner.bundle.format import WEIGHTS, Bundle
from tuner.bundle.tensors import read_tensors
from tuner.ort.session import open_session
from tuner.ort.training_step import StepSession
from tuner.runtime.train.files import REPLAY, STEP, replay_of
from tuner.task import normalise
from tuner_conformance.inputs import made_samples

PAGE = ROOT / "docs" / "runtimes.md"
DIGITS = FIXTURES / "digits" / "bundle"
#: Largest difference of logits, as a share of the largest one.
TOLERANCE = 1e-3
NEEDED = {"OpenVINO": ("openvino",), "NCNN": ("ncnn", "pnnx")}
PNNX = "import sys; from pnnx import pnnx; sys.exit(pnnx())"
Predict = Callable[[Floats], Floats]


def mobilenet(folder: Path) -> Path:
    """Write a bundle of MobileNetV2."""
    features = torchvision().models.mobilenet_v2(num_classes=CLASSES).features
    for module in features.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    with torch.inference_mode():
        channels = features.train()(torch.randn(8, 3, SIZE, SIZE)).shape[1]
    whole = Segment(features, channels, last=True).eval()
    return written(folder, [(whole, torch.zeros(2, 3, SIZE, SIZE))])


def onnx(model: Path) -> Predict:
    """Return what predicts with ONNX Runtime: logits [labels] of a normalised sample [1, ...]."""
    session = open_session(model, 1)
    name = session.get_inputs()[0].name
    return lambda sample: np.asarray(session.run(["logits"], {name: sample})[0][0])


def openvino(model: Path, shape: tuple[int, ...]) -> Predict:
    """Return the same of OpenVINO, which reads ONNX files."""
    from openvino import Core  # type: ignore[import-not-found,unused-ignore]  # not of the project

    core = Core()
    network = core.read_model(model)
    network.reshape([1, *shape])
    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    compiled = core.compile_model(network, "CPU", settings)
    logits = compiled.output("logits")
    return lambda sample: np.asarray(compiled(sample)[logits][0])


def ncnn(model: Path, shape: tuple[int, ...], folder: Path, labels: int) -> Predict:
    """Return the same of NCNN, after pnnx has converted the file; its outputs are in the file's order."""
    import ncnn as library  # type: ignore[import-not-found,unused-ignore]  # not of the project

    folder.mkdir(parents=True)
    copy = shutil.copy(model, folder / "model.onnx")
    sizes = f"inputshape=[{','.join(map(str, (1, *shape)))}]f32"
    subprocess.run(
        [sys.executable, "-c", PNNX, str(copy), sizes, "fp16=0"], check=True, capture_output=True, cwd=folder
    )
    net = library.Net()
    net.opt.num_threads = 1
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.load_param(str(folder / "model.ncnn.param"))
    net.load_model(str(folder / "model.ncnn.bin"))

    def predict(sample: Floats) -> Floats:
        run = net.create_extractor()
        run.input("in0", library.Mat(np.ascontiguousarray(sample[0])))
        for name in net.output_names():
            values = np.array(run.extract(name)[1])
            if values.shape == (labels,):
                return values
        raise SystemExit("NCNN: no output has the shape of the logits")

    return predict


def by_the_page(runtime: str, bundle: Bundle, folder: Path, sample: Floats) -> Floats:
    """Return the logits that the page's code for a runtime gives, in the folder of NCNN's files."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {runtime}\n")[1]
    code = re.split(r"```(?:python)?\n", section.partition("```python\n")[2])[0]
    names: dict[str, Any] = {"sample": sample}
    (folder / "ncnn").mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(folder / "ncnn"):
        exec(code.replace("photos-bundle/model.onnx", str(bundle.models[0])), names)  # noqa: S102 - our own page
    return np.asarray(names["logits"])


def for_phones(bundle: Path, out: Path) -> str:
    """Write a bundle's files in ONNX Runtime's format for phones; return the operators that they need."""
    command = (sys.executable, "-m", "onnxruntime.tools.convert_onnx_models_to_ort", bundle, "--output_dir", out)
    options = ("--optimization_style", "Fixed", "--enable_type_reduction")
    subprocess.run([str(word) for word in (*command, *options)], check=True, capture_output=True)
    return (out / "required_operators_and_types.config").read_text(encoding="utf-8")


def losses(bundle: Bundle, step: Path, steps: int = 20) -> list[float]:
    """Return the losses of training steps on the bundle's replay."""
    replay, train = replay_of(bundle, REPLAY), bundle.info.train
    if train is None:
        raise SystemExit(f"{bundle.folder} does not train")
    session = StepSession(step, read_tensors(bundle.file(WEIGHTS), train.weights), 1)
    rows = np.arange(train.batch_size) % train.replay_samples
    return [float(session.step(replay.read(rows), replay.labels[rows], 1e-3)) for _ in range(steps)]


def runtimes(bundle: Bundle, folder: Path) -> dict[str, Predict]:
    """Return what predicts, by runtime; one that is not installed is left out, and named."""
    model, shape = bundle.models[0], tuple(bundle.input_shape)
    made: Mapping[str, Callable[[], Predict]] = {
        "OpenVINO": partial(openvino, model, shape),
        "NCNN": partial(ncnn, model, shape, folder / "ncnn", len(bundle.labels)),
    }
    there = {name: make() for name, make in made.items() if all(map(find_spec, NEEDED[name]))}
    for name in made.keys() - there.keys():
        print(f"{name} is not installed, and left out: pip install {' '.join(NEEDED[name])}")
    return {
        **there,
        "ONNX Runtime, .ort": onnx(folder / "phones" / model.relative_to(bundle.folder).with_suffix(".ort")),
    }


def measured(name: str, bundle: Bundle, folder: Path, repetitions: int) -> tuple[list[Row], list[Claim]]:
    """Compare every runtime with ONNX Runtime."""
    operators = for_phones(bundle.folder, folder / "phones")
    print(f"{name}: the operators that a build of ONNX Runtime for phones needs\n{operators}")
    samples = normalise(made_samples(bundle), bundle.input)
    ours = onnx(bundle.models[0])
    wanted = np.stack([ours(sample[None]) for sample in samples])
    rows: list[Row] = []
    for runtime, predict in runtimes(bundle, folder).items():
        logits = np.stack([predict(sample[None]) for sample in samples])
        arms: dict[str, Callable[[], Any]] = {
            "ours": partial(ours, samples[:1]),
            "theirs": partial(predict, samples[:1]),
        }
        seconds = interleave(arms, repetitions, warmup=10)
        faster, low, high = times_faster(seconds, "ours", "theirs")
        if runtime in NEEDED and name != "digits":  # the page has the shape of MobileNetV2's input
            logits = np.stack([by_the_page(runtime, bundle, folder, samples[:1]), *logits[1:]])
        rows.append({
            "model": name, "runtime": runtime,
            "logits differ by": f"{np.abs(logits - wanted).max() / np.abs(wanted).max():.1e}",
            "ONNX Runtime ms": 1e3 * median(seconds["ours"]), "its ms": 1e3 * median(seconds["theirs"]),
            "faster": f"{faster:.2f} × ({low:.2f}-{high:.2f})",
        })  # fmt: skip
    claims = [
        Claim(f"{name}: {row['runtime']} gives the same logits", f"{TOLERANCE:g} of the largest",
              str(row["logits differ by"]), float(str(row["logits differ by"])) <= TOLERANCE)
        for row in rows
    ]  # fmt: skip
    if bundle.info.train is not None:
        pairs = np.array(
            [losses(bundle, bundle.file(STEP)), losses(bundle, (folder / "phones" / STEP).with_suffix(".ort"))]
        )
        most = float(np.abs(pairs[0] - pairs[1]).max())
        claims.append(
            Claim(f"{name}: 20 training steps of step.ort have the same losses", "1e-4", f"{most:.1e}", most <= 1e-4)
        )
    return rows, claims


def main() -> None:
    """Measure both bundles."""
    asked = benchmark_parser(__doc__).parse_args()
    rows, claims = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = {"digits": DIGITS, "mobilenet_v2": mobilenet(folder / "made")}
        for model, bundle in made.items():
            found, held = measured(model, Bundle.open(bundle), folder / model, 30 if asked.quick else 200)
            rows += found
            claims += held
    finish("runtimes", rows, claims, asked.json)


if __name__ == "__main__":
    main()
