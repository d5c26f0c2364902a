"""A conformance set: written, read, and compared with what this runtime computes.

The folder holds ``conformance.json`` (the batches of 20 training steps, the tolerances, decisions of the gate),
``conformance.safetensors`` (inputs, and results by name), and image files in ``images/``.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from safetensors.numpy import save_file

from tuner.arrays import Array
from tuner.bundle.format import CONFORMANCE, INPUT, Bundle
from tuner.bundle.table import Table
from tuner.bundle.tensors import read_tensors
from tuner.distribution import installed_version
from tuner.errors import BundleError
from tuner.files import private_file, private_folder, write_private
from tuner.ort.parity import TOLERANCE
from tuner.reading import read_bytes
from tuner.untrusted import inside, read_json, reason_of
from tuner_conformance.gate_cases import decided, gate_cases
from tuner_conformance.inputs import made_files, made_samples, made_sound
from tuner_conformance.measure import LOSSES, Inputs, made_features, measured, step_batches

FORMAT = 1
FILE, TENSORS, IMAGES = f"{CONFORMANCE}.json", f"{CONFORMANCE}.safetensors", "images"
_GIVEN, _EXPECTED = "given.", "expected."
#: Largest difference of each result; relative to the expected value where that is above 1.
TOLERANCES = {
    "normalised": 1e-5,
    "logits": TOLERANCE,
    "left_at": 0.0,
    "pieces": 1e-4,
    "probabilities": TOLERANCE,
    "image": 1.0,  # of 255
    "unknown": TOLERANCE,
    "rates": 1e-9,
    "losses": 1e-4,
    "codes": 0.0,
    "replay": 1e-5,
    "solved": TOLERANCE,
    "targets": TOLERANCE,
    "calibrated": 1e-6,
}
_MOST_IMAGE_BYTES = 50_000_000
_BOUND = 1e-6  # of the gate's bounds


@dataclass(frozen=True, slots=True)
class Check:
    """A comparison.

    Attributes:
        name: What was compared.
        difference: Largest difference; of the gate, the number of decisions that differ.
        tolerance: Largest difference that is allowed.
        values: Number of values that were compared.
    """

    name: str
    difference: float
    tolerance: float
    values: int

    @property
    def holds(self) -> bool:
        """Whether the difference is allowed; not a number is not."""
        return self.difference <= self.tolerance


def write_set(bundle: Bundle, folder: Path) -> None:
    """Write the conformance set of a bundle: what this runtime computes of inputs that are made by rule.

    Raises:
        TunerError: The bundle cannot be used, or the folder not be written.
    """
    files = made_files(bundle) if bundle.input.kind == "images" else {}
    sound = made_sound() if INPUT in bundle.info.files else None
    inputs = Inputs(made_samples(bundle), files, step_batches(bundle), made_features(bundle), sound)
    results = measured(bundle, inputs)
    private_folder(folder, BundleError)
    if files:
        private_folder(folder / IMAGES, BundleError)
        for name, image in files.items():
            write_private(folder / IMAGES / name, image)
    given = {"samples": inputs.samples, "features": inputs.features, "content": inputs.content}
    tensors = {_GIVEN + name: value for name, value in given.items() if value is not None}
    results = {name: value for name, value in results.items() if not name.startswith(f"{LOSSES}.")}
    tensors |= {_EXPECTED + name: value for name, value in results.items()}
    with private_file(folder / TENSORS) as part:
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, part)
    content = {
        "format": FORMAT,
        "bundle": bundle.identity,
        "made": {"tuner": installed_version(), "onnxruntime": onnxruntime.__version__},
        "tolerances": TOLERANCES,
        "images": sorted(files),
        "batches": inputs.batches,
        "gate": gate_cases(),
    }
    write_private(folder / FILE, json.dumps(content))


def compared(bundle: Bundle, folder: Path) -> list[Check]:
    """Compare what this runtime computes of a set's inputs with the results in the set.

    Raises:
        TunerError: The set cannot be read, or is another bundle's.
    """
    content = _content(bundle, folder)
    try:
        batches = tuple(Table({"batch": batch}).integers("batch", least=0, most=2**31) for batch in content["batches"])
        images = Table(content).texts("images")
        files = {name: read_bytes(inside(folder / IMAGES, name), _MOST_IMAGE_BYTES) for name in images}
        gate = list(_gate(content["gate"]))
    except OSError as error:
        raise BundleError(f"{folder} cannot be read ({reason_of(error)}): write the set again") from None
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise BundleError(f"{folder / FILE} is damaged ({error!r:.80}): write the set again") from None
    tensors = read_tensors(folder / TENSORS)
    samples = tensors.get(_GIVEN + "samples")
    if samples is None:
        raise BundleError(f"{folder / TENSORS} lacks samples: write the set again")
    expected = {name.removeprefix(_EXPECTED): value for name, value in tensors.items() if name.startswith(_EXPECTED)}
    rows = bundle.info.train.replay_samples if bundle.info.train else 0
    if any(row >= rows for batch in batches for row in batch):
        raise BundleError(f"{folder / FILE} names samples that the bundle does not have: write the set again")
    given = (tensors.get(_GIVEN + name) for name in ("features", "content"))
    results = measured(bundle, Inputs(samples, files, batches, *given))
    expected |= {name: expected[LOSSES] for name in results if name.startswith(f"{LOSSES}.") and LOSSES in expected}
    checks = [_check(name, expected.get(name), value) for name, value in results.items()]
    return [*checks, Check("gate", float(sum(not one for one in gate)), 0.0, len(gate))]


def _content(bundle: Bundle, folder: Path) -> dict[str, Any]:
    try:
        content = read_json(folder / FILE)
    except FileNotFoundError:
        raise BundleError(
            f"{folder} holds no conformance set: where all is right, `tuner bundle conformance BUNDLE` writes one"
        ) from None
    except (OSError, ValueError) as error:
        raise BundleError(f"{folder / FILE} cannot be read ({reason_of(error)}): write the set again") from None
    version = content.get("format") if isinstance(content, dict) else None
    if not isinstance(content, dict) or version != FORMAT:
        raise BundleError(f"{folder} has set format {version!r:.40}, this version reads {FORMAT}: update tuner")
    if content.get("bundle") != bundle.identity:
        raise BundleError(f"{folder} is the set of another bundle, or of another round of it: write the set again")
    return content


def _check(name: str, expected: Array | None, value: Array) -> Check:
    tolerance = TOLERANCES[name.partition(".")[0]]
    if expected is None or expected.shape != value.shape:
        return Check(name, float("nan"), tolerance, 0)
    wide, right = value.astype(np.float64), expected.astype(np.float64)
    differences = np.abs(wide - right) / np.maximum(1.0, np.abs(right) if tolerance < 1 else 1.0)
    return Check(name, float(differences.max(initial=0.0)), tolerance, value.size)


def _gate(cases: list[dict[str, Any]]) -> Iterator[bool]:
    """Yield whether each decision is the expected one."""
    for case in cases:
        verdict, bounds = decided(case), case["bounds"]
        alike = verdict["accepted"] == case["accepted"] and (verdict["bounds"] is None) == (bounds is None)
        yield alike and (bounds is None or bool(np.allclose(verdict["bounds"], bounds, atol=_BOUND, rtol=0)))
